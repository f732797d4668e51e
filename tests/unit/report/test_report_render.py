"""Every block in every format: text from outside stays text, and nothing of a block is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fastllmload.report.blocks import (
    BELOW,
    Bar,
    Block,
    Callout,
    Card,
    Code,
    Columns,
    Fact,
    Facts,
    Folded,
    Heading,
    Items,
    Paragraph,
    Section,
    Stacked,
    Strong,
    Table,
    Text,
    Tile,
    Tiles,
    Verdict,
    VerdictReason,
    ranked,
)
from fastllmload.report.charts import Chart, Series
from fastllmload.report.html import render as html
from fastllmload.report.render import markdown, text
from fastllmload.report.render.terminal import screen_lines

EVIL = "*a*|b\n<script>alert(1)</script> [z](http://h) \x1b[31m\u202e &amp;"


def blocks(of: str) -> list[Block]:
    """Each kind of block, with *of* in each of its texts."""
    parts: Text = (of, Strong(of), Code(of))
    return [
        Heading(of, 1),
        Heading(of),
        Paragraph(parts),
        Callout(parts),
        Items([parts, of]),
        Fact(of, [of, ""], BELOW),
        Facts([(of, parts)]),
        Table(of, [of, of], [[of, 1.5], [of, None]], [of]),
        Verdict(of, of, [VerdictReason(of, of, of)], "suspect"),
        Folded(of, [Paragraph(of), Table("", [of], [[of]])]),
        Section(of, [Columns([Card(of, [Paragraph(of)]), Tiles([Tile(of, of, of, of)])])]),
        Verdict(of, of, tone="valid", of=of, warnings=[Callout(of)], more=[Items([of])]),
        Table("", [of, of], [[Stacked(of, of, of), Bar(of, -1.0, 1.0, 0.5)]]),
    ]


def as_terminal(found: Sequence[Block]) -> str:
    return "".join(f"{line.text}\n" for line in screen_lines(found, 400))


RENDERERS: dict[str, Callable[[list[Block]], str]] = {
    "text": text.render,
    "terminal": as_terminal,
    "markdown": markdown.render,
    "html": html.render,
}


@pytest.mark.parametrize("format_", RENDERERS)
@pytest.mark.parametrize("place", range(len(blocks(""))))
def test_text_from_outside_stays_text(format_: str, place: int) -> None:
    shown = RENDERERS[format_]([blocks(EVIL)[place]])
    assert "alert(1)" in shown
    assert "\x1b" not in shown and "\u202e" not in shown
    if format_ == "html":
        assert "<script" not in shown and "<a" not in shown and "&amp;amp;" in shown
    if format_ == "markdown":
        outside = "".join(shown.split("`")[::2])  # what is not in a code span
        assert "<script>" not in outside and "[z](" not in outside and "*a*" not in outside.replace("\\*", "")


@pytest.mark.parametrize("format_", RENDERERS)
def test_every_text_of_a_block_is_rendered(format_: str) -> None:
    found: list[Block] = [
        Facts([("label", "value")]),
        Items(["first", "second"]),
        Table("title", ["row", "n"], [["a", 1234.5]], ["the note"]),
        Verdict("suspect", "meaning", [VerdictReason("note", "reason", "remedy")]),
        Folded("summary", [Paragraph("inner")]),
    ]
    shown = RENDERERS[format_](found)
    words = ["label", "value", "first", "second", "title", "1,234", "the note", "suspect", "reason", "inner"]
    left_out = {"terminal": ["title"]}.get(format_, [])
    assert [word for word in words if word not in shown.lower()] == left_out
    assert ("remedy" in shown) is (format_ == "html")


def test_parts_of_a_line_are_left_out_by_rank() -> None:
    assert ranked([(0, "a"), (2, "b"), (1, "c")]) == ["a, b, c", "a, c", "a"]
    fact = Fact("rate", ranked([(0, "x" * 20), (2, "b"), (1, "c")]))
    assert [line.text for width in (80, 34, 31) for line in screen_lines([fact], width)] == [
        f"rate       {'x' * 20}, b, c",
        f"rate       {'x' * 20}, c",
        f"rate       {'x' * 20}",
    ]


def test_texts_are_wrapped_below_their_beginning() -> None:
    pair = Facts([("a", "one two three"), ("longer", "four")])
    assert list(text.lines([pair, Items(["one two three"])], 16)) == [
        "a       one two",
        "        three",
        "longer  four",
        "- one two three",
    ]
    assert list(text.lines([Paragraph("x" * 30)], 16)) == ["x" * 30]


def test_charts_are_only_on_pages() -> None:
    chart = Chart("Rates", [Series("sent", [1.0, 2.0], [1.0, 2.0])])
    shown = {name: render([Section("Over time", [chart])]) for name, render in RENDERERS.items()}
    assert {name for name, text in shown.items() if text.strip()} == {"html"} and "Rates" in shown["html"]
