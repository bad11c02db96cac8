# SPDX-License-Identifier: GPL-2.0-only
"""The tables of `bench tiers`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pageferry.bench.tiers.rows import kind
from pageferry.report import tables
from pageferry.report.tables import UNKNOWN
from pageferry.results.schema import Result, Row, Spread
from pageferry.units import format_size


def _settled(row: Row) -> str:
    """Write seconds; `>` if a phase did not settle."""
    own, found = row.tiers, row.tiers.settled_ms
    if found is None:
        return UNKNOWN
    text = f"{found.median / 1e3:.1f} ({found.min / 1e3:.1f}..{found.max / 1e3:.1f})"
    return text if own.settled_phases == own.phases else f">{text}"


def _fast(row: Row) -> str:
    found = row.tiers.fast_share
    if found is None:
        return UNKNOWN
    return f"{found.median:.1%} ({found.min:.0%}..{found.max:.0%})"


def _size(found: Spread | None) -> str:
    return UNKNOWN if found is None else format_size(found.median)


def _ping_pong(row: Row) -> str:
    share = row.tiers.ping_pong_share
    return "-" if share is None else f"{share:.0%}"


_COLUMNS: tuple[tables.Column, ...] = (
    ("policy", lambda row: row.engine),
    ("fast", _fast),
    ("settled s", _settled),
    ("moved", lambda row: _size(row.tiers.migrated_bytes)),
    ("up", lambda row: _size(row.tiers.up_bytes)),
    ("down", lambda row: _size(row.tiers.down_bytes)),
    ("ping-pong", _ping_pong),
    ("stall ms", lambda row: tables.median(row.tiers.stall_some_us, 1e3)),
    ("longest ms", lambda row: tables.median(row.tiers.longest_access_ns, 1e6, 1)),
    ("model ns", lambda row: tables.median(row.tiers.model_access_ns)),
)


def name(row: Row) -> str:
    """Name a load with its memory."""
    load, memory, folio_bytes = kind(row)
    return f"{load}, {memory}, {format_size(folio_bytes)}"


def show(result: Result) -> list[str]:
    """Lay out a result: a table for each load, all policies in it."""
    parts = [tables.machine_line(result), *_head(result.rows)]
    for title, rows in groupby(result.rows, key=name):
        parts.append(f"{title}\n{tables.table(list(rows), _COLUMNS)}")
    if any(row.engine == "damo" and row.tiers.goals is False for row in result.rows):
        parts.append("damo ran without goals: this kernel measures none on a node.")
    return parts


def _head(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["No policy could be measured."]
    own = rows[0].tiers
    return [
        f"{format_size(own.hot_bytes or 0)} of {format_size(own.program_bytes or 0)} "
        f"are hot at most; medians of {tables.rounds(rows[0])}, and their range",
        "fast: part of the accesses that the fast tier serves; settled: until 95% or more "
        "stay;\nmodel: mean access of a model with "
        f"{own.model_fast_ns} and {own.model_slow_ns} ns, not a measurement",
    ]
