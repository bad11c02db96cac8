# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry status`: the settings and the counters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.commands import ABOUT
from pageferry.sysfs.files import Files
from pageferry.sysfs.histogram import Histogram
from pageferry.sysfs.offload import WHY, Offload
from pageferry.units import format_size

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

# Columns of the table; --json has every counter.
_COLUMNS = ("offered_folios", "engine_folios", "engine_bytes", "cpu_folios")
# The kernel keeps times without an engine, too; they have a table of their own.
_TIMES = ("unmapped_", "waited_")


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    about = ABOUT["status"]
    parser = sub.add_parser("status", help=about, description=about)
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the settings, counters and times."""
    offload = Offload(Files())
    state = offload.read()
    reasons = offload.counters("reasons")
    engines = offload.counters("engines")
    if args.json:
        stats: dict[str, object] = {"reasons": reasons, "engines": engines}
        stats["times"] = {
            name: {kind: _figures(hist) for kind, hist in kinds.items()}
            for name, kinds in offload.unmapped().items()
        }
        output.answer_json({**state.as_json(), "stats": stats})
        return 0
    lines = [
        f"engine    {state.engine} (available: {' '.join(state.available_engines)})",
        *(f"          {one} for {name}" for name, one in state.exceptions().items()),
        f"unmapped  {_limit(state.max_unmapped_us)}",
        "",
        _table("engine", engines),
        "",
        _table("reason", reasons),
        *_times(offload.unmapped(), reasons),
    ]
    output.answer("\n".join(lines))
    return 0


def _table(title: str, counters: dict[str, dict[str, int]]) -> str:
    """Lay out the counters of all reasons or engines that have any."""
    used = {
        name: row
        for name, row in counters.items()
        if any(value for key, value in row.items() if not key.startswith(_TIMES))
    }
    if not used:
        return f"no counts for any {title} yet"
    header = [
        title,
        "offered",
        "by engine",
        "bytes",
        "by CPU",
        "not by the engine, or late",
    ]
    rows = []
    for name, row in used.items():
        why = [
            f"{key.removesuffix('_folios').replace('_', ' ')} {row[key]}"
            for key in WHY
            if row.get(key)
        ]
        shown = [row.get(key, 0) for key in _COLUMNS]
        cells = [str(shown[0]), str(shown[1]), format_size(shown[2]), str(shown[3])]
        rows.append([name, *cells, ", ".join(why)])
    return output.table(header, rows)


def _limit(max_unmapped_us: int) -> str:
    return f"{max_unmapped_us} us at most" if max_unmapped_us else "no limit"


def _figures(hist: Histogram) -> dict[str, int | None]:
    return {
        "count": hist.count,
        "p50_ns": hist.percentile(50),
        "p99_ns": hist.percentile(99),
        "last_ns": hist.longest,
    }


_TITLES = {"unmapped_hist": "unmapped folios", "waited_hist": "threads waiting"}


def _times(
    found: dict[str, dict[str, Histogram]], reasons: dict[str, dict[str, int]]
) -> list[str]:
    """Lay out the unmapped and waiting times of all reasons that have any."""
    rows = []
    for name, kinds in found.items():
        for kind, hist in kinds.items():
            total_ns = reasons[name].get(kind.replace("_hist", "_sum_ns"), 0)
            figures = (total_ns / hist.count, *map(hist.percentile, (50, 99)))
            shown = [f"{ns or 0:,.0f}" for ns in (*figures, hist.longest)]
            rows.append([name, _TITLES[kind], str(hist.count), *shown])
    if not rows:
        return []
    head = ["reason", "ns", "count", "mean", "p50", "p99", "last"]
    return ["", output.table(head, rows)]
