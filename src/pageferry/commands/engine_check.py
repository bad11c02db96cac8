# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry engine check`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.dma import control
from pageferry.dma.check import run as check
from pageferry.errors import ExitCode, usage_error
from pageferry.sysfs.files import Files

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Try the DMA engines of this machine before you trust them. The check moves memory
with every folio size, and the kernel compares each copy with its source. It measures
each number of channels, and switches dcbm off while it copies. It holds all free DMA
channels meanwhile. At the end, and at Ctrl-C, every setting is as it was.

"not known" means that Linux has no way to find the answer. The reason stands beside.
"""
EPILOG = """\
examples:
  pageferry engine check dcbm
  pageferry engine check dcbm --disturb
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "check",
        help="try the DMA engines of this machine",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="dcbm")
    parser.add_argument(
        "--disturb",
        action="store_true",
        help="also let transfers time out, and unbind the devices while they copy; a "
        "device that fails this keeps some pages until the next boot",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the steps, do nothing"
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the check, print its report, and fail if the engine did."""
    if args.name != control.NAME:
        raise usage_error("only dcbm uses devices", args.name, "engine check dcbm")
    files = Files()
    if args.dry_run:
        lines = check.describe(files, with_disturb=args.disturb)
        if args.json:
            output.answer_json({"steps": lines})
        else:
            output.answer("\n".join(lines))
        return 0
    report = check.run(files, with_disturb=args.disturb)
    if args.json:
        output.answer_json(report.as_json())
    else:
        output.answer(report.text())
    output.talk(f"next: {report.next_command()}")
    return int(ExitCode.OK if report.ok else ExitCode.FAILED)
