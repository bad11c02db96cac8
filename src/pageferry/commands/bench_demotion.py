# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry bench demotion`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pageferry.bench import tiers
from pageferry.commands.bench_tiers import add_arguments, add_rest, run_plan, shared

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Move memory to a slower NUMA node in two ways: with calls of move_pages(2) for one
page, 512 pages or one huge page, and by reclaim from a cgroup, which demotes cold
memory. All engines and stock Linux take turns in each round; the first round does
not count. The benchmark counts the node of every page, and verifies every byte.

Runs on this machine if it has both nodes and pageferry's kernel, else in a
virtual machine."""

EPILOG = """\
examples:
  pageferry bench demotion --published
  pageferry bench demotion --parts reclaim --sizes 2M --engines mtcopy --vm
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        tiers.DEMOTION,
        help="throughput of demotion to a slower node, and stalls",
        usage="pageferry bench demotion [OPTION ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser, from_node="0", to_node="1")
    parser.add_argument(
        "--parts",
        default=",".join(tiers.PARTS),
        metavar="LIST",
        help="parts of the benchmark (default: %(default)s)",
    )
    parser.add_argument(
        "--pressure",
        default="reclaim",
        choices=("reclaim", "high", "max"),
        help="file that starts reclaim: memory.reclaim, memory.high, or memory.max, "
        "which kills a child of the benchmark each time (default: %(default)s)",
    )
    parser.add_argument(
        "--call-total",
        default="4M",
        metavar="SIZE",
        help="bytes moved with each kind of call (default: %(default)s)",
    )
    add_rest(parser)
    parser.set_defaults(run=run)


def make_plan(args: argparse.Namespace) -> tiers.TierPlan:
    """Check the options before anything is built or booted."""
    common: dict[str, Any] = shared(args)
    return tiers.TierPlan(
        bench="demotion",
        parts=tiers.parse_parts(args.parts),
        pressure=args.pressure,
        call_bytes=tiers.parse_call_bytes(args.call_total),
        **common,
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print the tables, store the result."""
    return run_plan(args, lambda: make_plan(args), posted=True)
