"""Renders tables as aligned text."""

from __future__ import annotations

from collections.abc import Iterator

from fastllmload.report.blocks import Table, cells, numeric_columns


def table_lines(table: Table, indent: str = "") -> Iterator[str]:
    """Title, aligned columns with numbers to the right, notes."""
    if table.title:
        yield f"{indent}{table.title}"
    found = cells(table)
    widths = [max(len(row[k]) for row in found) for k in range(len(table.columns))]
    right = numeric_columns(found[1:], len(widths))
    for row in found:
        aligned = [
            cell.rjust(width) if right[k] else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield (indent + "  ".join(aligned)).rstrip()
    yield from (f"{indent}{note}" for note in table.notes)
