# SPDX-License-Identifier: GPL-2.0-only
"""Results of `bench latency` as tables, with published figures beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pageferry import output
from pageferry.bench.latency_rows import KNEE_SHARE, moved_pages
from pageferry.bench.move_pages import BASE_BYTES
from pageferry.report.tables import EMULATED, machine_line
from pageferry.results.schema import Check, Result, Row
from pageferry.units import format_size

Column = tuple[str, Callable[[Row], str]]


def _us(value_ns: float | None) -> str:
    if value_ns is None:
        return "-"
    return f"{value_ns / 1e3:.0f}" if value_ns >= 10_000 else f"{value_ns / 1e3:.1f}"


def _engine(row: Row) -> str:
    if row.engine == "dcbm":
        return f"dcbm, {row.channels} {'channels' if row.channels > 1 else 'channel'}"
    if row.engine == "mtcopy":
        return f"mtcopy, {row.threads or 'auto'} threads"
    return row.engine


def _limit(row: Row) -> str:
    if row.max_unmapped_us is None:
        return "-"
    return str(row.max_unmapped_us) if row.max_unmapped_us else "none"


def _windows(row: Row) -> str:
    if row.max_windows is None:
        return "-"
    return f"{row.max_windows}" if row.streaming else f"{row.max_windows}, whole"


def _rate(row: Row) -> str:
    return "-" if row.bytes_per_s is None else f"{row.bytes_per_s.median / 1e9:.3f}"


def _range(row: Row) -> str:
    if row.bytes_per_s is None:
        return "-"
    return f"{row.bytes_per_s.min / 1e9:.3f}..{row.bytes_per_s.max / 1e9:.3f}"


def _unmapped(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        if row.unmapped_ns is None:
            return "-"
        return _us(getattr(row.unmapped_ns, name))

    return show


def _note(row: Row) -> str:
    notes = ["<- knee"] if row.knee else []
    if row.slowed is not None:
        notes.append(
            f"slowed down {row.slowed.factor} x; times from "
            f"{row.slowed.skipped_windows} windows later on"
        )
    if row.over_limit_folios:
        notes.append(f"{row.over_limit_folios} folios over the limit by plan")
    if row.folio_bytes > BASE_BYTES and row.split_folios:
        notes.append(f"{row.split_folios} folios split")
    return ", ".join(notes)


def _columns(rows: Sequence[Row]) -> list[Column]:
    columns: list[Column] = [("folio", lambda row: format_size(row.folio_bytes))]
    if len({row.moved_bytes for row in rows}) > 1:
        columns.append(("moved", lambda row: format_size(row.moved_bytes)))
    columns.append(("engine", _engine))
    if any(row.batch_cap_pages is not None for row in rows):
        columns += [
            ("cap", lambda row: str(row.batch_cap_pages or "-")),
            ("windows", _windows),
            ("limit", _limit),
        ]
    columns += [("GB/s", _rate), ("spread", _range)]
    if any(row.unmapped_ns is not None for row in rows):
        columns += [
            (name, _unmapped(name)) for name in ("first", "mean", "p99", "last")
        ]
    if any(row.touch is not None for row in rows):
        columns += [
            ("touches", lambda r: str(r.touch.touches.median) if r.touch else "-"),
            ("slowest", lambda r: _us(r.touch.slowest_ns) if r.touch else "-"),
            ("lost", lambda r: _us(r.touch.lost_ns.median) if r.touch else "-"),
            ("waited", lambda r: str(r.touch.slept) if r.touch else "-"),
        ]
    return columns


def table(rows: Sequence[Row], theirs: Sequence[Mapping[str, Any]] = ()) -> str:
    """Lay out throughput beside the time out of reach."""
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
    columns.append(("", _note))
    header = [name for name, _ in columns]
    cells = [[show(row) for _, show in columns] for row in rows]
    if not any(line[-1] for line in cells):
        header, cells = header[:-1], [line[:-1] for line in cells]
    return output.table(header, cells)


def _published_key(row: Mapping[str, Any]) -> tuple[int, int, int]:
    """Give folio size, channels, and the cap or the number of folios."""
    size = BASE_BYTES << int(row["folio_order"])
    if "batch_cap_pages" in row:
        return size, int(row["channels"]), int(row["batch_cap_pages"])
    return size, 0, int(row["workload_folios"])


def _own_key(row: Row, *, by_cap: bool) -> tuple[int, int, int]:
    if by_cap:
        return row.folio_bytes, row.channels, row.batch_cap_pages or 0
    return row.folio_bytes, 0, row.moved_bytes // row.folio_bytes


def checks(found: Sequence[Check]) -> str:
    """Write what was judged, one line and its reasons each."""
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
        "back; mean, p99, last: of the times that folios were out of reach, medians of",
        'rounds. windows "whole": folios go back when all of their window is copied.',
    ]
    if any(row.knee for row in rows):
        lines.append(f"knee: the smallest cap with {KNEE_SHARE:.0%} of the best rate.")
    if any(row.touch is not None for row in rows):
        lines.append(
            "lost: beyond a touch when nothing moves, in touches slower than "
            "any then; waited: of"
        )
        lines.append("these, those that slept, in all rounds.")
    return lines


def render(result: Result) -> str:
    """Write a whole result."""
    first = result.rows[0]
    parts = [
        machine_line(result),
        f"move_pages(2) from node {result.settings.get('from_node')} to node "
        f"{result.settings.get('to_node')}, {format_size(first.moved_bytes)} per call, "
        f"median of {first.rounds} rounds"
        if len({row.moved_bytes for row in result.rows}) == 1
        else f"move_pages(2) from node {result.settings.get('from_node')} to node "
        f"{result.settings.get('to_node')}, median of {first.rounds} rounds",
        "",
    ]
    theirs = result.published or []
    if theirs:
        parts += [
            f"theirs: published by others, on their machine: {theirs[0]['provenance']}",
            "",
        ]
    parts.append(table(result.rows, theirs[0]["rows"] if theirs else ()))
    parts += ["", *_explained(result.rows)]
    if result.checks is not None:
        parts += ["", checks(result.checks)]
    parts += [
        "",
        f"{moved_pages(result.rows):,} pages moved, every page on its node, "
        "every byte verified",
    ]
    if result.machine.accel == "tcg":
        parts += ["", EMULATED]
    return "\n".join(parts)
