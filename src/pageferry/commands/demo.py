# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry demo`: build, boot and measure with default settings."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.bench import move_pages
from pageferry.commands import bench_move_pages

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Build the kernel with pageferry's changes, boot a machine with two nodes, move
memory from one node to the other with cpu and mtcopy, and print a table.
This machine does not change. The first run builds a kernel, which takes some
minutes."""


def add_parser(sub: Subparsers) -> None:
    """Add the parser; only the output can be chosen."""
    parser = sub.add_parser(
        "demo",
        help="build, boot, move memory with every engine, print one table",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench_move_pages.add_output_arguments(parser)
    parser.set_defaults(
        run=run,
        vm=True,
        live=False,
        topology="two-node",
        sizes=move_pages.DEFAULT_SIZES,
        engines=",".join(move_pages.DEFAULT_ENGINES),
        threads="2",
        channels="1",
        channel_mbps=str(move_pages.DEFAULT_CHANNEL_MBPS),
        total="64M",
        rounds="9",
        from_node="0",
        to_node="1",
        busy="no",
        no_limit=False,
        max_unmapped_us=None,
        timeout=None,
        base="6.12",
        vanilla=False,
        config=[],
        source=None,
        arch=None,
    )


def run(args: argparse.Namespace) -> int:
    """Run the benchmark with its defaults."""
    output.talk(
        "demo: a kernel from the distribution's source, a virtual machine with "
        "two nodes, every copy engine"
    )
    return bench_move_pages.run(args)
