# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry status`: the settings and what was done."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.sysfs.files import Files
from pageferry.sysfs.offload import OFF, Offload
from pageferry.units import format_size

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

# Columns of the table; --json has every counter.
_COLUMNS = ("offered_folios", "engine_folios", "engine_bytes", "cpu_folios")
_WHY = (
    "not_eligible_folios",
    "declined_folios",
    "too_small_folios",
    "failed_folios",
    "held_folios",
    "retried_folios",
    "mismatched_folios",
)


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    about = "show the active engine, the policy and the counters"
    parser = sub.add_parser("status", help=about, description=about)
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show it."""
    offload = Offload(Files())
    state = offload.read()
    reasons = offload.counters("reasons")
    engines = offload.counters("engines")
    if args.json:
        stats = {"reasons": reasons, "engines": engines}
        output.answer_json({**state.as_json(), "stats": stats})
        return 0
    lines = [
        f"engine    {state.engine} (available: {' '.join(state.available_engines)})",
        f"reasons   {','.join(state.reasons) or OFF}",
        f"min batch {format_size(state.min_batch_bytes)}",
        f"verify    {'on' if state.verify else 'off'}",
        "",
        _table("engine", engines),
        "",
        _table("reason", reasons),
    ]
    output.answer("\n".join(lines))
    return 0


def _table(title: str, counters: dict[str, dict[str, int]]) -> str:
    """Show who did something; rows of zeros say nothing."""
    used = {name: row for name, row in counters.items() if any(row.values())}
    if not used:
        return f"no counts for any {title} yet"
    header = [title, "offered", "by engine", "bytes", "by CPU", "of these, because"]
    rows = []
    for name, row in used.items():
        why = [
            f"{key.removesuffix('_folios').replace('_', ' ')} {row[key]}"
            for key in _WHY
            if row.get(key)
        ]
        shown = [row.get(key, 0) for key in _COLUMNS]
        cells = [str(shown[0]), str(shown[1]), format_size(shown[2]), str(shown[3])]
        rows.append([name, *cells, ", ".join(why)])
    return output.table(header, rows)
