# SPDX-License-Identifier: GPL-2.0-only
"""`bench scale` as text."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry.report import tables
from pageferry.report.tables import Column, table
from pageferry.results.schema import Result, Row
from pageferry.units import format_size


def _what(row: Row) -> str:
    own = row.scale
    if own.size_bytes is not None:
        calls = f"calls of {own.call_pages} pages" if own.call_pages else "one call"
        return f"{format_size(own.size_bytes)}, {calls}"
    if own.movers is not None:
        one = {"processes": "process", "threads": "thread"}
        together = own.together or "movers"
        return f"{own.movers} {one.get(together) if own.movers == 1 else together}"
    return f"{row.rounds:,} rounds"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{(ratio - 1) * 100:+.1f}%"


def _growth(row: Row) -> str:
    used = row.scale.used_bytes
    if used is None:
        return _percent(row.scale.growth)
    more = used.after - used.before
    return f"{'-' if more < 0 else '+'}{format_size(abs(more))}"


COLUMNS: tuple[Column, ...] = (
    ("part", lambda row: row.scale.part or "-"),
    ("of", _what),
    ("engine", lambda row: row.engine),
    ("instructions", lambda row: _number(row.instructions_per_folio)),
    ("to stock", lambda row: _percent(row.ratio_to_stock)),
    ("growth", _growth),
    ("pages/guest s", lambda row: _number(row.scale.pages_per_guest_s)),
)
LOCKS: Column = ("waits for locks", lambda row: row.scale.locks or "-")


def _columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    locks = any(row.scale.locks is not None for row in rows)
    return (*COLUMNS, LOCKS) if locks else COLUMNS


def show(result: Result) -> list[str]:
    """Format a whole result."""
    return [
        f"Instructions of all CPUs for each 4K page, Linux {result.kernel.release}, "
        f"{result.machine.cpus} CPUs under QEMU icount;\n"
        "growth: to the smallest list, to the fewest movers, and of memory in use",
        table(result.rows, _columns(result.rows)),
        tables.verified_line(result.rows),
    ]
