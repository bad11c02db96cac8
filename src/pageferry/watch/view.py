# SPDX-License-Identifier: GPL-2.0-only
"""An interval as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pageferry import output
from pageferry.sysfs.histogram import Histogram
from pageferry.sysfs.offload import WHY
from pageferry.sysfs.pagebits import PAGE
from pageferry.units import format_rate, format_size
from pageferry.watch import sources
from pageferry.watch.events import Moves
from pageferry.watch.interval import Interval

Key = TypeVar("Key")

# The most processes and cgroups to show; --json has all.
_ROWS = 10
_KINDS = {"unmapped_hist": "folios unmapped", "waited_hist": "threads waiting"}


def document(found: Interval) -> dict[str, object]:
    """Return the document of --json."""
    return {
        "schema": "pageferry/top",
        "interval_ns": found.elapsed_ns,
        "moved_bytes": found.moved_pages * PAGE,
        "failed_pages": found.failed_pages,
        "engine": found.engine,
        "held_folios": found.held_folios,
        "lost_events": found.lost_events,
        "reasons": [
            {"reason": reason, **_moves(moves)}
            for reason, moves in _largest(found.reasons)
        ],
        "processes": [
            {"pid": pid, "name": name, "reason": reason, **_moves(moves)}
            for (pid, name, reason), moves in _largest(found.processes)
        ],
        "engines": [{"engine": k, **v} for k, v in found.engines.items()],
        "offered": [{"reason": k, **v} for k, v in found.offered.items()],
        "pairs": [
            {
                "kind": pair.kind,
                "from": list(pair.origins),
                "to": list(pair.targets),
                "bytes": pair.pages * PAGE,
            }
            for pair in found.pairs
        ],
        "cgroups": [{"cgroup": k, **v} for k, v in found.cgroups.items()],
        "times": [
            {
                "reason": reason,
                "kind": kind.removesuffix("_hist"),
                "count": times.count,
                "p50_ns": times.percentile(50),
                "p99_ns": times.percentile(99),
                "max_ns": times.longest,
            }
            for reason, kinds in found.times.items()
            for kind, times in kinds.items()
        ],
        "channels": [{"channel": k, **v} for k, v in found.channels.items()],
        "busy_channels": found.busy_channels,
        "unseen": [{"what": what, "why": why} for what, why in found.unseen],
    }


def _moves(moves: Moves) -> dict[str, int]:
    return {
        "calls": moves.calls,
        "moved_bytes": moves.moved_pages * PAGE,
        "failed_pages": moves.failed_pages,
    }


def _largest(moves: dict[Key, Moves]) -> list[tuple[Key, Moves]]:
    return sorted(moves.items(), key=lambda item: -item[1].moved_pages)


def text(found: Interval) -> str:
    """Lay out an interval."""
    seconds = found.elapsed_ns / 1e9
    moved = found.moved_pages * PAGE
    head = (
        f"{seconds:.1f} s: {format_size(moved)} migrated, "
        f"{format_rate(moved / seconds)}, {found.failed_pages:,} pages failed"
    )
    if found.engine is not None:
        head += f"; engine {found.engine}, {found.busy_channels} DMA channels busy"
    if found.held_folios:
        head += f"; {found.held_folios} folios held: a device did not stop"
    parts = [
        head,
        _reasons(found, seconds),
        _processes(found, seconds),
        _engines(found, seconds),
        _pairs(found, seconds),
        _cgroups(found, seconds),
        _times(found),
        _channels(found, seconds),
        *(f"not shown: {what}: {why}" for what, why in found.unseen),
    ]
    if found.lost_events:
        parts.append(
            f"at least {found.lost_events:,} events were lost: the figures by reason and "
            "by process are too small"
        )
    return "\n\n".join(part for part in parts if part)


def _rate(pages: int, seconds: float) -> str:
    return format_rate(pages * PAGE / seconds)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    more = len(rows) - _ROWS
    shown = output.table(head, rows[:_ROWS]) if rows else ""
    return f"{shown}\nand {more} more: see --json" if more > 0 else shown


def _reasons(found: Interval, seconds: float) -> str:
    rows = [
        [
            reason,
            format_size(moves.moved_pages * PAGE),
            _rate(moves.moved_pages, seconds),
            str(moves.calls),
            str(moves.failed_pages),
        ]
        for reason, moves in _largest(found.reasons)
    ]
    return _table(["reason", "moved", "rate", "calls", "failed pages"], rows)


def _processes(found: Interval, seconds: float) -> str:
    rows = [
        [
            output.printable(name),
            str(pid),
            reason,
            _rate(moves.moved_pages, seconds),
            str(moves.failed_pages),
        ]
        for (pid, name, reason), moves in _largest(found.processes)
    ]
    return _table(
        ["process that migrates", "pid", "reason", "rate", "failed pages"], rows
    )


def _engines(found: Interval, seconds: float) -> str:
    """Lay out the work of engines by reason, and why the CPU copied the rest."""
    rows = []
    for reason, counters in found.offered.items():
        why = ", ".join(
            f"{name.removesuffix('_folios').replace('_', ' ')} {counters[name]:,}"
            for name in WHY
            if counters.get(name)
        )
        rates = [
            format_rate(counters.get(name, 0) / seconds)
            for name in ("engine_bytes", "cpu_bytes")
        ]
        if any(counters.get(name) for name in ("engine_bytes", "cpu_bytes")) or why:
            rows.append([reason, *rates, why])
    return _table(["reason", "by engine", "by CPU", "folios by CPU, because"], rows)


def _pairs(found: Interval, seconds: float) -> str:
    rows = [
        [
            pair.kind,
            _nodes(pair.origins),
            _nodes(pair.targets),
            _rate(pair.pages, seconds),
        ]
        for pair in sorted(found.pairs, key=lambda pair: -pair.pages)
    ]
    return _table(["direction", "from node", "to node", "rate"], rows)


def _nodes(candidates: Sequence[int]) -> str:
    """Name a node, or the nodes that it may be."""
    return " or ".join(map(str, candidates)) or "unknown"


def _cgroups(found: Interval, seconds: float) -> str:
    def moved(counters: sources.Counters) -> int:
        by_tiers = counters.get(sources.PROMOTED, 0) + sources.demoted(counters)
        return counters.get(sources.MIGRATED_BYTES, by_tiers * PAGE)

    by_size = sorted(found.cgroups.items(), key=lambda item: -moved(item[1]))
    rows = [
        [
            output.printable(name),
            format_rate(moved(counters) / seconds),
            format_rate(counters.get(sources.ENGINE_BYTES, 0) / seconds),
        ]
        for name, counters in by_size
    ]
    return _table(["cgroup of the memory", "rate", "by engine"], rows)


def _times(found: Interval) -> str:
    rows = [
        [
            reason,
            _KINDS[kind],
            str(times.count),
            *(f"{(ns or 0) / 1e3:,.0f}" for ns in _figures(times)),
        ]
        for reason, kinds in found.times.items()
        for kind, times in kinds.items()
    ]
    return _table(["reason", "us", "count", "p50", "p99", "max"], rows)


def _figures(times: Histogram) -> tuple[int | None, ...]:
    return times.percentile(50), times.percentile(99), times.longest


def _channels(found: Interval, seconds: float) -> str:
    rows = [
        [
            name,
            format_rate(counters.get("bytes", 0) / seconds),
            str(counters.get("errors", 0)),
            str(counters.get("timeouts", 0)),
        ]
        for name, counters in sorted(found.channels.items())
    ]
    return _table(["DMA channel", "rate", "errors", "timeouts"], rows)
