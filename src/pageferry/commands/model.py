# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry model`: predict designs from a machine's constants."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.commands import ABOUT
from pageferry.errors import usage_error
from pageferry.model import fit, report
from pageferry.model.constants import SIZES, load
from pageferry.model.designs import check, choose, posted, stock

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Simulate page migration event by event, from a machine's time for each step. The
constants of the published machine come from the ends of the published sweeps.
The model is compared with all 60 published points. The last part predicts
windows and streaming on that machine; these figures are not measured."""

EPILOG = """\
examples:
  pageferry model
  pageferry model --json
  pageferry model --constants my-machine.json --channels 8
"""
# Each channel gets at least a page of each large folio.
MAX_CHANNELS = 64
CAPS_PAGES = (512, 8192, 262144)


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "model",
        help=ABOUT["model"],
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--constants",
        type=Path,
        metavar="FILE",
        help="constants of another machine, as --json prints them; "
        "leaves out the published points",
    )
    parser.add_argument(
        "--channels",
        default="16",
        metavar="N",
        help="channels in the predictions (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare with the published points, and predict."""
    channels = _channels(args.channels)
    machine = load(args.constants) if args.constants else fit.published_machine()
    points = [] if args.constants else check(machine, fit.cells())
    designs = []
    choices = []
    for size in reversed(SIZES):
        choice = choose(machine, size, channels, fit.LAST_CAP)
        choices.append(choice)
        designs.append(stock(machine, size))
        designs += [posted(machine, size, channels, cap) for cap in CAPS_PAGES]
        if choice.chosen is not None:
            designs.append(choice.chosen)
    if args.json:
        output.answer_json(report.document(machine, points, designs, choices))
    else:
        output.answer(report.render(machine, points, designs, choices))
    return 0


def _channels(text: str) -> int:
    # int() would accept "1_6", and raise ValueError for very long numbers.
    if text not in map(str, range(1, MAX_CHANNELS + 1)):
        raise usage_error(
            "not a number of channels", text, f"write a number from 1 to {MAX_CHANNELS}"
        )
    return int(text)
