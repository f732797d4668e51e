"""Parses a report page: its text, and the numbers of its charts."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

VOID = frozenset({"meta", "br", "hr"})


class Page(HTMLParser):
    """*text*: all visible text by id of the nearest element above that has one; *elements*: (name, attributes) of
    all.
    """

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.unbalanced: list[str] = []
        self._open: list[tuple[str, str]] = []
        self._texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(source)
        self.close()
        self.unbalanced += [name for name, _ in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self._open.append((tag, attributes.get("id", "")))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            self.unbalanced.append(tag)
            return
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._texts.append((tuple(name for entry in self._open for name in entry), data))

    def text(self, id_: str = "") -> str:
        """Of the element *id_* and all below it, of the whole body when empty; without script and style."""
        hidden = {"script", "style", "title"}
        return " ".join(
            " ".join(
                data for above, data in self._texts if not hidden & set(above) and (id_ in above or not id_)
            ).split()
        )

    @property
    def title(self) -> str:
        return "".join(data for above, data in self._texts if "title" in above)

    def ids(self, name: str = "") -> list[str]:
        return [found["id"] for tag, found in self.elements if "id" in found and name in ("", tag)]

    @property
    def numbers(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            "".join(data for above, data in self._texts if "numbers" in above and "script" in above)
        )
        return found

    def column(self, chart: str, series: str, axis: str = "y") -> list[float | None]:
        """The numbers of one series of one chart."""
        found = next(one for one in self.numbers["charts"][chart]["series"] if one["name"] == series)
        column: list[float | None] = self.numbers["columns"][found[axis]]
        return column

    def addresses(self) -> list[str]:
        """Everything that could make a browser fetch."""
        wanted = ("src", "href", "srcset", "data", "action", "poster", "xlink:href")
        found = [value for _, attributes in self.elements for name, value in attributes.items() if name in wanted]
        return [value for value in found if not value.startswith("#")]
