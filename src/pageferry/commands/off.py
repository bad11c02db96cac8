# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry off`: back to stock Linux."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.commands import ABOUT
from pageferry.commands.engine import show_writes
from pageferry.errors import PageferryError
from pageferry.interleave import lock
from pageferry.sysfs.files import Files
from pageferry.sysfs.offload import Offload

if TYPE_CHECKING:
    from pageferry.cli import Subparsers


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    about = ABOUT["off"]
    parser = sub.add_parser(
        "off",
        help=about,
        description=f"{about}: the CPU copies pages. When this returns, no copy is in "
        "flight. No engine is active after boot.",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the writes, do nothing"
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Deactivate all engines."""
    files = Files(dry_run=args.dry_run)
    # In an emergency, this command waits for no other.
    state = Offload(files).off()
    try:
        with lock.hold_settings(files):
            pass
    except PageferryError as error:
        output.warn(f"an engine may become active again: {error.line()}")
    if args.dry_run:
        show_writes(files, as_json=args.json)
    elif args.json:
        output.answer_json(state.as_json())
    else:
        output.answer("off: the CPU copies pages")
    return 0
