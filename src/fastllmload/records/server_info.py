"""server-info.json: what servers said about themselves (`/version`, `/server_info`) before and after a run."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.documents.run_parts.target import ServerPage
from fastllmload.records.integrity import SERVER_INFO

MOST_CHANGES, LONGEST = 20, 80  # changes that are listed; characters of a value
Pages = Mapping[str, Mapping[str, Any]]  # content by URL and page


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The file. *volatile*: keys that change by themselves, by URL."""

    before: dict[str, dict[str, Any]]
    after: dict[str, dict[str, Any]]
    volatile: dict[str, list[str]]

    def steady(self, pages: Pages) -> dict[str, dict[str, Any]]:
        """*pages* without what changes by itself."""
        return {
            url: {page: steady(content, self.volatile.get(url, ())) for page, content in of_url.items()}
            for url, of_url in pages.items()
        }

    def entries(self) -> tuple[ServerPage, ...]:
        """The entries of run.json."""
        after = self.steady(self.after)
        return tuple(
            ServerPage(
                url=url, page=page, digest=digest(content), read_after=page in after.get(url, {}),
                changed=tuple(changes(content, after[url][page])) if page in after.get(url, {}) else (),
            )
            for url, pages in self.steady(self.before).items()
            for page, content in pages.items()
        )  # fmt: skip

    def write(self, folder: Path) -> None:
        (folder / SERVER_INFO).write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))


def read(folder: Path) -> ServerInfo | None:
    """That of the run in *folder*; None without one that can be read."""
    try:
        return msgspec.json.decode((folder / SERVER_INFO).read_bytes(), type=ServerInfo)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def steady(content: Any, volatile: Collection[str]) -> Any:
    if isinstance(content, dict):
        return {name: steady(inner, volatile) for name, inner in content.items() if name not in volatile}
    return [steady(each, volatile) for each in content] if isinstance(content, list) else content


def digest(content: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def changes(before: Any, after: Any) -> list[str]:
    """`path: value -> value` of what differs."""
    old, new = dict(flat(before)), dict(flat(after))
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    shown = [f"{name}: {short(old.get(name))} -> {short(new.get(name))}" for name in names[:MOST_CHANGES]]
    return shown + ([f"and {len(names) - MOST_CHANGES} more"] if len(names) > MOST_CHANGES else [])


def flat(content: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(path, JSON) of every value that is not a table."""
    if isinstance(content, dict):
        for key, inner in content.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, msgspec.json.encode(content).decode()


def short(text: str | None) -> str:
    text = "missing" if text is None else text
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
