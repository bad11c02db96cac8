# SPDX-License-Identifier: GPL-2.0-only
"""Results of `bench latency` as tables, with published figures beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pageferry.bench.latency.rows import KNEE_SHARE
from pageferry.report import tables
from pageferry.results.schema import Check, Result, Row
from pageferry.units import BASE_BYTES, format_size


def _us(value_ns: float | None) -> str:
    if value_ns is None:
        return "-"
    return f"{value_ns / 1e3:.0f}" if value_ns >= 10_000 else f"{value_ns / 1e3:.1f}"


def _limit(row: Row) -> str:
    if row.latency.max_unmapped_us is None:
        return "-"
    return str(row.latency.max_unmapped_us) if row.latency.max_unmapped_us else "none"


def _windows(row: Row) -> str:
    if row.latency.max_windows is None:
        return "-"
    return (
        f"{row.latency.max_windows}"
        if row.latency.streaming
        else f"{row.latency.max_windows}, whole"
    )


def _unmapped(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        if row.unmapped_ns is None:
            return "-"
        return _us(getattr(row.unmapped_ns, name))

    return show


def _note(row: Row) -> str:
    notes = ["<- knee"] if row.latency.knee else []
    if row.latency.slowed is not None:
        notes.append(
            f"slowed down {row.latency.slowed.factor} x; times from "
            f"{row.latency.slowed.skipped_windows} windows later on"
        )
    if row.latency.over_limit_folios:
        notes.append(f"{row.latency.over_limit_folios} folios over the limit by plan")
    if row.folio_bytes > BASE_BYTES and row.split_folios:
        notes.append(f"{row.split_folios} folios split")
    return ", ".join(notes)


def _columns(rows: Sequence[Row]) -> list[tables.Column]:
    columns: list[tables.Column] = [tables.FOLIO]
    if len({row.moved_bytes for row in rows}) > 1:
        columns.append(("moved", lambda row: format_size(row.moved_bytes)))
    columns.append(tables.ENGINE)
    if any(row.latency.batch_cap_pages is not None for row in rows):
        columns += [
            ("cap", lambda row: str(row.latency.batch_cap_pages or "-")),
            ("windows", _windows),
            ("limit", _limit),
        ]
    columns += tables.rate_columns("GB/s", 1e9, 3)
    if any(row.unmapped_ns is not None for row in rows):
        columns += [
            (name, _unmapped(name)) for name in ("first", "mean", "p99", "last")
        ]
    if any(row.touch is not None for row in rows):
        columns += [
            tables.touched("touches", lambda touch: str(touch.touches.median)),
            tables.touched("slowest", lambda touch: _us(touch.slowest_ns)),
            tables.touched("lost", lambda touch: _us(touch.lost_ns.median)),
            tables.touched("waited", lambda touch: str(touch.slept)),
        ]
    return columns


def table(rows: Sequence[Row], theirs: Sequence[Mapping[str, Any]] = ()) -> str:
    """Show throughput and unmapped time side by side."""
    columns = _columns(rows)
    if theirs:
        beside = {_published_key(row): row for row in theirs}

        def their(key: str, row: Row) -> str:
            found = beside.get(_own_key(row, by_cap="batch_cap_pages" in theirs[0]))
            return "-" if found is None else str(found[key])

        columns += [
            ("theirs: GB/s", lambda row: their("gb_per_s", row)),
            ("theirs: first", lambda row: their("first_folio_us", row)),
        ]
    if any(map(_note, rows)):
        columns.append(("", _note))
    return tables.table(rows, columns)


def _published_key(row: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return folio size, channels, and the cap or the number of folios."""
    size = BASE_BYTES << int(row["folio_order"])
    if "batch_cap_pages" in row:
        return size, int(row["channels"]), int(row["batch_cap_pages"])
    return size, 0, int(row["workload_folios"])


def _own_key(row: Row, *, by_cap: bool) -> tuple[int, int, int]:
    if by_cap:
        return row.folio_bytes, row.channels, row.latency.batch_cap_pages or 0
    return row.folio_bytes, 0, row.moved_bytes // row.folio_bytes


def checks(found: Sequence[Check]) -> str:
    """Format the judgement, with one line and its reasons for each check."""
    lines = []
    for check in found:
        word = "ok    " if check.ok else "NOT OK"
        lines.append(
            f"{word} {check.name}: {check.measured:.2f}, wanted {check.wanted}"
        )
        lines.append(f"       {check.detail}")
    return "\n".join(lines)


def _explained(rows: Sequence[Row]) -> list[str]:
    lines = [
        "Times in us. first: from the first unmapping of a call to its first folio",
        "back; mean, p99, last: of the unmapped times of folios, medians of",
        'rounds. windows "whole": folios go back when all of their window is copied.',
    ]
    if any(row.latency.knee for row in rows):
        lines.append(f"knee: the smallest cap with {KNEE_SHARE:.0%} of the best rate.")
    if any(row.touch is not None for row in rows):
        lines.append(
            "lost: time beyond an undisturbed touch, in touches slower than all "
            "undisturbed"
        )
        lines.append(
            "ones; waited: the part in touches that slept; both in all rounds."
        )
    return lines


def show(result: Result) -> list[str]:
    """Format a whole result."""
    first, theirs = result.rows[0], result.published or []
    alike = len({row.moved_bytes for row in result.rows}) == 1
    moved = f", {format_size(first.moved_bytes)} per call" if alike else ""
    parts = [
        f"{tables.machine_line(result)}\nmove_pages(2) {tables.nodes(result)}{moved}, "
        f"median of {first.rounds} rounds"
    ]
    if theirs:
        where = theirs[0]["provenance"]
        parts.append(f"theirs: published by others, on their machine: {where}")
    parts.append(table(result.rows, theirs[0]["rows"] if theirs else ()))
    parts.append("\n".join(_explained(result.rows)))
    if result.checks is not None:
        parts.append(checks(result.checks))
    return [*parts, tables.verified_line(result.rows)]
