# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry report`."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.bench import spec
from pageferry.commands import ABOUT
from pageferry.errors import ExitCode, from_os_error, usage_error
from pageferry.report import page, published, verdict
from pageferry.report.difference import compare
from pageferry.report.page import Shown
from pageferry.report.tables import render
from pageferry.results import schema

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Print one or several results of `bench` as one HTML page: the verdict, charts, the
machine, warnings and the data. The page refers to no other file, needs no script,
and can be printed. --compare says which differences exceed their spread."""

EPILOG = """\
examples:
  pageferry report result.json > report.html
  pageferry report --compare before.json after.json > difference.html
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "report",
        help=ABOUT["report"],
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", metavar="RESULT", nargs="*", type=Path)
    parser.add_argument(
        "--compare", metavar=("A", "B"), nargs=2, type=Path, help="compare two results"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the page."""
    if bool(args.results) == (args.compare is not None):
        raise usage_error(
            "a report needs results, or --compare with two", None, "pageferry report -h"
        )
    if sys.stdout.isatty():
        words = " ".join(str(path) for path in args.results or args.compare)
        option = "--compare " if args.compare else ""
        raise usage_error(
            "the report is an HTML page, and stdout is a terminal",
            hint=f"pageferry report {option}{words} > report.html",
        )
    if args.compare is not None:
        before, after = map(read, args.compare)
        output.answer(page.render([], (before, after)).rstrip("\n"))
        output.talk(page.summary(compare(before.result, after.result).found))
        return 0
    shown = [read(path) for path in args.results]
    output.answer(page.render(shown).rstrip("\n"))
    for one in shown:
        output.talk(f"{one.name}: {verdict.sentence(one.result)}")
    return 0


def read(path: Path) -> Shown:
    """Read a result, with its tables and those of others; both may be unknown here."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise from_os_error(error, "cannot read a result", ExitCode.USAGE) from error
    result = schema.decode(data, path)
    bench = result.rows[0].bench.replace("-", "_") if result.rows else ""
    if not bench.isidentifier() or find_spec(f"pageferry.bench.{bench}") is None:
        text = "This version of pageferry has no tables for this benchmark."
        return Shown(path.name, result, text)
    known = spec.load(bench)
    tables = result.published or [
        published.load(name).as_json() for name in known.published.get(True, ())
    ]
    return Shown(path.name, result, render(result, known.show(result)), tables)
