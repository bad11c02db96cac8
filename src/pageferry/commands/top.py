# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry top`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from pageferry import output
from pageferry.commands import ABOUT
from pageferry.errors import usage_error
from pageferry.sysfs.files import Files
from pageferry.units import parse_seconds
from pageferry.watch import view
from pageferry.watch.follower import wait
from pageferry.watch.interval import Interval, Watcher

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Show what migrates: rates by reason, process, node and cgroup, failures, how long
folios are unmapped, and the work of engines and DMA channels. Any Linux has the
first part, for root. Only pageferry's kernel has the second. The command says
what it cannot see.

On a terminal the view is live, and `q` ends it. Otherwise each interval is a
block of text."""

EPILOG = """\
examples:
  pageferry top
  pageferry top --once --every 10s
  pageferry top --json | jq .reasons
"""
_LEAST_S = 0.1


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "top",
        help=ABOUT["top"],
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--every", metavar="TIME", default="2s", help="interval (default: 2s)")
    add("--once", action="store_true", help="show one interval, and end")
    add("--json", action="store_true", help="print one interval as JSON, and end")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Watch until the user ends it."""
    every_s = parse_seconds(args.every)
    if every_s < _LEAST_S:
        raise usage_error("--every is too short", args.every, "at least 100ms")
    with _watcher(Files()) as watcher:
        if args.once or args.json:
            found = _after(watcher, every_s)
            if args.json:
                output.answer_json(view.document(found))
            else:
                output.answer(view.text(found))
        elif _is_terminal(sys.stdin) and _is_terminal(sys.stdout):
            # Only a live view needs a terminal's library.
            from pageferry.watch.screen import show

            show(watcher, every_s)
        else:
            while True:
                output.answer(view.text(_after(watcher, every_s)) + "\n")
    return 0


def _is_terminal(stream: TextIO | None) -> bool:
    """Say whether a user sits there; a closed stream is None."""
    return stream is not None and stream.isatty()


@contextlib.contextmanager
def _watcher(files: Files) -> Iterator[Watcher]:
    watcher = Watcher(files)
    try:
        yield watcher
    finally:
        watcher.close()


def _after(watcher: Watcher, every_s: float) -> Interval:
    """Wait for the end of an interval, and empty the trace meanwhile."""
    wait(every_s, watcher.collect)
    return watcher.interval()
