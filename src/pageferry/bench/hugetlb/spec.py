# SPDX-License-Identifier: GPL-2.0-only
"""`bench hugetlb`: bench move-pages with hugetlb memory."""

from __future__ import annotations

import argparse

from pageferry.bench import options
from pageferry.bench.move_pages.spec import (
    DEFAULT_ENGINES,
    SHARED_OPTIONS,
    Measurement,
    MovePlan,
    make_rows,
    shared,
    show,
)
from pageferry.bench.options import option
from pageferry.bench.spec import Benchmark
from pageferry.units import BASE_BYTES, GIB, MIB

# "off" would differ from stock in the copy alone: batch_ptes is not for hugetlb folios.
ENGINES = (*DEFAULT_ENGINES, "dcbm")
DEFAULT_TOTAL_BYTES = 256 * MIB

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

OPTIONS = (
    option("--sizes", "sizes of huge pages: 2M,1G", "LIST", "2M"),
    option(
        "--engines",
        f"some of {', '.join(ENGINES)}; stock is always measured",
        *("LIST", ",".join(DEFAULT_ENGINES)),
    ),
    option(
        "--total",
        "bytes moved by each call (default: 256M, or one page of the largest size)",
        "SIZE",
    ),
    *SHARED_OPTIONS,
)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse a list of possible hugetlb sizes; the kernel knows which exist."""
    return options.parse_powers(
        *(text, 16 * BASE_BYTES, GIB),
        *("a size of huge pages", "x86 has 2M and 1G: 2M,1G"),
    )


def make_plan(args: argparse.Namespace) -> MovePlan:
    """Check the options before any build or boot."""
    sizes = parse_sizes(args.sizes)
    total = max(DEFAULT_TOTAL_BYTES, *sizes)
    if args.total is not None:
        total = options.parse_total(args.total, max(sizes))
    return MovePlan(
        sizes=sizes,
        engines=options.parse_engines(args.engines, ENGINES),
        total_bytes=total,
        hugetlb=True,
        **shared(args),
    )


SPEC = Benchmark(
    name="hugetlb",
    about="throughput of hugetlb folios, by engine and size",
    description=DESCRIPTION,
    epilog=EPILOG,
    topology_about="virtual machine (default: %(default)s; for 1G: gigantic)",
    options=OPTIONS,
    make_plan=make_plan,
    lines=(Measurement,),
    make_rows=make_rows,
    show=show,
)
