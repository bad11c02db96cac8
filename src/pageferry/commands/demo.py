# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry demo`: build, boot and measure with default settings."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.bench import options
from pageferry.bench.move_pages.spec import SPEC
from pageferry.commands import ABOUT, bench
from pageferry.commands.kernel_build import add_base

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Build the kernel with pageferry's changes, boot a machine with two nodes, move
memory from one node to the other with cpu and mtcopy, and print a table.
This machine does not change. The first run builds a kernel, which takes some
minutes."""


def add_parser(sub: Subparsers) -> None:
    """Add the parser; only the base and the output can be chosen."""
    parser = sub.add_parser(
        "demo",
        help=ABOUT["demo"],
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_base(parser)
    bench.add_options(parser, (options.PUBLISHED, *options.ENDING))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark with its defaults, or nearly so."""
    output.talk(
        "demo: a kernel from the distribution's source, a virtual machine with "
        "two nodes, every copy engine"
    )
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser, SPEC)
    chosen = parser.parse_args(["--vm", "--total", "64M", "--rounds", "9"])
    return bench.run(SPEC, argparse.Namespace(**{**vars(chosen), **vars(args)}))
