# SPDX-License-Identifier: GPL-2.0-only
"""`bench cost` as text."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry.report.tables import FOLIO, Column, table
from pageferry.results.schema import Result, Row


def _or_dash(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _per_folio(per_1000: int | None) -> str:
    return "-" if per_1000 is None else f"{per_1000 / 1000:.2f}"


def _range(row: Row) -> str:
    low, high = row.cost.instructions_per_folio_min, row.cost.instructions_per_folio_max
    return f"{low or 0:,}..{high or 0:,}"


def _to_stock(row: Row) -> str:
    ratio = row.ratio_to_stock
    return "-" if ratio is None else f"{(ratio - 1) * 100:+.2f}%"


def _besides(row: Row) -> str:
    if row.copy_instructions is None:
        return "-"
    return f"{(row.instructions_per_folio or 0) - row.copy_instructions:,}"


def _split(row: Row) -> str:
    return _or_dash(row.cost.later_instructions_per_folio and row.split_folios)


def _columns(rows: Sequence[Row]) -> list[Column]:
    columns: list[Column] = []
    if any(row.path is not None for row in rows):
        columns.append(("path", lambda row: row.path or "move_pages"))
    columns.append(FOLIO)
    if any(row.pages not in (None, "runs") for row in rows):
        columns.append(("pages", lambda row: row.pages or "-"))
    columns += [
        ("engine", lambda row: row.engine),
        ("instructions", lambda row: f"{row.instructions_per_folio or 0:,}"),
        ("min..max", _range),
        ("to stock", _to_stock),
        ("layouts", lambda row: str(row.layouts)),
    ]
    if any(row.copy_instructions for row in rows):
        columns.append(("besides the copy", _besides))
    if any(row.cost.later_instructions_per_folio is not None for row in rows):
        columns += [
            (
                "later moves",
                lambda row: _or_dash(row.cost.later_instructions_per_folio),
            ),
            ("split", _split),
            (
                "partially mapped",
                lambda row: _or_dash(row.cost.partially_mapped_folios),
            ),
        ]
    if any(row.cost.descriptors_per_1000_folios is not None for row in rows):
        columns += [
            (
                "descriptors",
                lambda row: _per_folio(row.cost.descriptors_per_1000_folios),
            ),
            ("interrupts", lambda row: _per_folio(row.cost.interrupts_per_1000_folios)),
        ]
    return columns


def show(result: Result) -> list[str]:
    """Format a whole result."""
    rows = [row for row in result.rows if row.instructions_per_folio is not None]
    paths = any(row.path is not None for row in rows)
    what = "per migrated folio" if paths else "of one move_pages(2) per folio"
    return [
        f"Instructions {what}, Linux {result.kernel.release}, "
        "one CPU under QEMU icount;\n"
        f"mean over memory layouts, {rows[0].rounds} passes each",
        table(rows, _columns(rows)),
        "every page on its node, every byte verified, the same digits when run again",
    ]
