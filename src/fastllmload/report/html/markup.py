"""HTML elements. Text is escaped unless it is Markup, so external text cannot become markup."""

from __future__ import annotations

from html import escape

VOID = frozenset({"meta", "br", "hr"})


class Markup(str):
    """Text that is already markup."""


def element(name: str, /, *children: str | Markup | None, **attributes: str | float | None) -> Markup:
    """`<name attributes>children</name>`; None is left out. In attribute names a trailing underscore is removed,
    the others become dashes.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{safe(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str | Markup | None) -> Markup:
    """*children* as one text; plain text is escaped."""
    return Markup(
        "".join(child if isinstance(child, Markup) else safe(child) for child in children if child is not None)
    )


def safe(text: str) -> str:
    """Escaped, and without characters that control terminals or the direction of text."""
    return escape(printable(text))


def printable(text: str) -> str:
    """*text* with control and direction characters replaced."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def visible(text: object, most: int = 400) -> str:
    """External text as one printable line of at most *most* characters."""
    return shortened(printable(" ".join(str(text).split())), most)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
