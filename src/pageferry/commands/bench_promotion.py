# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry bench promotion`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pageferry.bench import tiers
from pageferry.commands.bench_tiers import add_arguments, add_rest, run_plan, shared

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Touch memory of a slow NUMA node from a CPU of a fast one, until Linux has promoted
it (kernel.numa_balancing=2). The result is the rate of promotion, and the time that
the thread loses. All engines take turns in each round; the first round does not
count. The benchmark counts the node of every page, and verifies every byte.

Runs on this machine if it has both nodes and pageferry's kernel, else in a
virtual machine."""

EPILOG = """\
examples:
  pageferry bench promotion
  pageferry bench promotion --sizes 2M --engines mtcopy --touch read --vm
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        tiers.PROMOTION,
        help="throughput of promotion from a slower node, and a program's loss",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser, from_node="1", to_node="0")
    parser.add_argument(
        "--touch",
        default="write",
        choices=("read", "write"),
        help="kind of access by the thread (default: %(default)s)",
    )
    add_rest(parser)
    parser.set_defaults(run=run)


def make_plan(args: argparse.Namespace) -> tiers.TierPlan:
    """Check the options before anything is built or booted."""
    common: dict[str, Any] = shared(args)
    return tiers.TierPlan(bench="promotion", touch=args.touch, **common)


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, store the result."""
    return run_plan(args, lambda: make_plan(args), posted=False)
