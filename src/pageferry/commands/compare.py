# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry compare`."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.commands import ABOUT
from pageferry.compare import cgroup, machine, pressure, report, runs, settings
from pageferry.compare.figures import Found
from pageferry.compare.report import QUIET
from pageferry.compare.runs import Job
from pageferry.errors import usage_error
from pageferry.move.targets import require_own_proc
from pageferry.sysfs.files import Files
from pageferry.sysfs.offload import Offload
from pageferry.units import whole

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Run CMD several times while its memory migrates, with each engine in turn, and say
what the program got: its time, its throughput and latencies if it prints them, its
faults and stalls, and what it cost a neighbour. The runs `quiet` have no pressure,
so they show what migration costs. On a stock kernel there is one engine, `stock`."""

EPILOG = """\
pressures: move (to another node and back), demote, promote, both (between tiers),
compaction

known output: redis-benchmark, memtier_benchmark, sysbench, fio, YCSB, and JSON
objects in a line, with keys like rows_per_s, p99_ns and max_ns

examples:
  pageferry compare -- redis-benchmark -q -n 1000000 -t set,get
  pageferry compare --pressure both --engines none,mtcopy -- ./my-service --load
  pageferry compare --match 'rate: ([0-9.]+)' -- ./my-program
  pageferry vm run --topology tiered -- pageferry compare --pressure both -- CMD
"""
_STOCK = "stock"


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "compare",
        help=ABOUT["compare"],
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [options] -- CMD [ARG...]",
    )
    add = parser.add_argument
    add("--pressure", choices=list(pressure.KINDS), default="move")
    add("--engines", metavar="NAMES", help="none,mtcopy (default: all that are there)")
    add("--rounds", metavar="N", default="5", help="runs of each (default: 5)")
    add(
        "--match",
        metavar="REGEX",
        help="its group is a number that CMD prints, of which more is better",
    )
    add("--dry-run", action="store_true", help="list the runs and the settings")
    add("--json", action="store_true")
    parser.set_defaults(run=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Run the program with each engine."""
    files = Files()
    require_own_proc(files)
    rounds = whole("--rounds", args.rounds, 1, 1000)
    engines = _engines(files, args.engines)
    job = Job(
        command=_command(args.command),
        pressure=args.pressure,
        nodes=pressure.require(files, args.pressure),
        pattern=_pattern(args.match),
    )
    if args.dry_run:
        output.answer(_plan(job, engines, rounds))
        return 0
    found = _measure(files, job, engines, rounds)
    known = machine.read(files)
    if args.json:
        output.answer_json(report.document(job, found, known))
    else:
        output.answer(report.text(job, found, known, stock=engines == [_STOCK]))
    return 0


def _command(words: Sequence[str] | None) -> tuple[str, ...]:
    if not words:
        raise usage_error("compare needs a program", None, "pageferry compare -- CMD")
    if shutil.which(words[0]) is None:
        raise usage_error("no such program", words[0])
    return tuple(words)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise usage_error(f"not a regular expression: {error}", text) from error


def _engines(files: Files, text: str | None) -> list[str]:
    offload = Offload(files)
    if text is None and not offload.is_present():
        return [_STOCK]
    known = offload.read().available_engines
    names = list(known) if text is None else text.split(",")
    for name in names:
        if name not in known:
            raise usage_error("no such engine", name, f"some of: {', '.join(known)}")
    return list(dict.fromkeys(names))


def _order(engines: Sequence[str], number: int) -> list[str]:
    """Order the runs of a round; each variant is first in its turn."""
    names = [QUIET, *engines]
    first = number % len(names)
    return [*names[first:], *names[:first]]


def _plan(job: Job, engines: Sequence[str], rounds: int) -> str:
    lines = [f"run once, without counting it: {' '.join(job.command)}"]
    for number in range(rounds):
        lines.append(f"round {number + 1}: {', '.join(_order(engines, number))}")
    values = pressure.KINDS[job.pressure].wanted.items()
    lines += [f"write {value} to {setting}" for setting, value in values]
    if engines != [_STOCK]:
        lines += [
            "set each engine in turn, and the present one at the end",
            "write default to engine_of of all reasons meanwhile",
        ]
    return "\n".join(lines)


def _measure(
    files: Files, job: Job, engines: Sequence[str], rounds: int
) -> report.Runs:
    found: dict[str, list[Found]] = {name: [] for name in (QUIET, *engines)}
    kind = pressure.KINDS[job.pressure]
    switches = engines != [_STOCK]
    progress = output.Progress("compare", rounds * len(found) + 1)
    try:
        group = cgroup.name(files, memory=kind.needs_tiers)
        with settings.kept(files, kind.wanted, group, engines=switches):
            # The first run reads files that later ones find in memory.
            runs.run(files, job, quiet=True)
            progress.advance()
            for number in range(rounds):
                for name in _order(engines, number):
                    if name not in (QUIET, _STOCK):
                        Offload(files).set_engine(name)
                    found[name].append(runs.run(files, job, quiet=name == QUIET))
                    progress.advance()
    finally:
        progress.finish()
    return found
