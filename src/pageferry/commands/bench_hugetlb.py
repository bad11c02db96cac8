# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry bench hugetlb`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pageferry.bench import move_pages
from pageferry.commands.bench_move_pages import (
    add_output_arguments,
    add_shared_arguments,
    run_plan,
    shared,
)
from pageferry.commands.kernel_build import add_kernel_arguments
from pageferry.errors import usage_error

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

# "off" would equal stock: batch_ptes does not change hugetlb folios.
ENGINES = (*move_pages.DEFAULT_ENGINES, "dcbm")

DESCRIPTION = """\
Move hugetlb memory from one NUMA node to another, as bench move-pages does. Linux
moves these folios one by one; an engine splits each. The benchmark enlarges the
pools of both nodes as needed, and restores them.

Runs on this machine if it has two nodes and pageferry's kernel, else in a VM."""

EPILOG = """\
examples:
  pageferry bench hugetlb
  pageferry bench hugetlb --engines dcbm --channels 1,2,4,8 --max-unmapped-us 0 --vm
  pageferry bench hugetlb --sizes 1G --engines mtcopy --threads 2,4,8 --live
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        move_pages.HUGETLB,
        help="throughput of hugetlb folios, by engine and size",
        usage="pageferry bench hugetlb [OPTION ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vm", action="store_true", help="run in a virtual machine")
    where.add_argument("--live", action="store_true", help="run on this machine")
    parser.add_argument(
        "--topology",
        default="two-node",
        metavar="NAME",
        help="virtual machine (default: %(default)s; for 1G: gigantic)",
    )
    parser.add_argument(
        "--sizes",
        default="2M",
        metavar="LIST",
        help="sizes of huge pages: 2M,1G (default: %(default)s)",
    )
    parser.add_argument(
        "--engines",
        default=",".join(move_pages.DEFAULT_ENGINES),
        metavar="LIST",
        help=f"some of {', '.join(ENGINES)}; stock is always measured "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--total",
        metavar="SIZE",
        help="bytes moved by each call (default: 256M, or one page of the largest size)",
    )
    add_shared_arguments(parser)
    add_output_arguments(parser)
    add_kernel_arguments(parser.add_argument_group("kernel of the virtual machine"))
    parser.set_defaults(run=run)


def make_plan(args: argparse.Namespace) -> move_pages.Plan:
    """Check the options before anything is built or booted."""
    sizes = move_pages.parse_hugetlb_sizes(args.sizes)
    total = max(move_pages.DEFAULT_TOTAL_BYTES, *sizes)
    if args.total is not None:
        total = move_pages.parse_total(args.total, max(sizes))
    return move_pages.Plan(
        sizes=sizes,
        engines=move_pages.parse_engines(args.engines, ENGINES),
        total_bytes=total,
        bench="hugetlb",
        **shared(args),
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, store the result."""
    if args.published:
        raise usage_error(
            "there are no published figures for this benchmark", "--published"
        )
    return run_plan(args, make_plan(args))
