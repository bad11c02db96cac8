# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry interleave start`, `set`, `status` and `stop`."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.errors import ExitCode, PageferryError, usage_error
from pageferry.interleave import report
from pageferry.interleave.control import KERNEL, USER, Control, Request
from pageferry.interleave.moving import MovePages
from pageferry.interleave.user_space import Report, parse_quota
from pageferry.interleave.weights import parse_weights
from pageferry.sysfs.files import Files
from pageferry.sysfs.processes import parse_pid
from pageferry.units import parse_seconds

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Spread the memory of a running process over NUMA nodes by weight: 0=3,1=1 puts
three folios on node 0 for each one on node 1. The place of a folio follows from
its offset in its mapping, as for weighted interleave, so a second pass moves
nothing. Huge pages move whole.

If the kernel can do it, DAMON moves the memory. It runs until you stop it, and
handles new memory, too. Otherwise this command moves the memory with
move_pages(2), once, or repeatedly with --every."""

EPILOG = """\
examples:
  pageferry interleave start --pid 4711 --weights 0=3,1=1
  pageferry interleave start --pid 4711 --weights 0=3,1=1 --hot --quota 200M/1s
  pageferry interleave start --pid 4711 --weights 0=1,1=1 --include-children --dry-run
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parsers of all verbs."""
    start = sub.add_parser(
        "start",
        help="spread the memory of a process over nodes by weight",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_target(start)
    which = start.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="all of its memory (default)")
    which.add_argument(
        "--hot", action="store_true", help="memory that DAMON saw the process use"
    )
    start.add_argument(
        "--include-children", action="store_true", help="also all descendants"
    )
    start.add_argument(
        "--by",
        choices=(KERNEL, USER),
        help="mover of the pages (default: the kernel's DAMON if it can)",
    )
    start.add_argument(
        "--every",
        metavar="TIME",
        help="in user space: keep running, and make a pass after each TIME",
    )
    start.add_argument(
        "--takeover",
        action="store_true",
        help="replace a configuration of DAMON that is not running",
    )
    start.set_defaults(run=run_start)
    change = sub.add_parser("set", help="change the weights of a process")
    _add_target(change)
    change.set_defaults(run=run_set)
    status = sub.add_parser(
        "status", help="show the wanted and the actual share of each node"
    )
    status.add_argument("--pid", metavar="N", help="(default: all sessions)")
    status.add_argument("--json", action="store_true")
    status.set_defaults(run=run_status)
    stop = sub.add_parser("stop", help="stop moving; memory stays where it is")
    stop.add_argument("--pid", required=True, metavar="N")
    stop.add_argument(
        "--home", metavar="NODE", help="first move all memory to this node"
    )
    stop.add_argument(
        "--dry-run", action="store_true", help="print the writes, do nothing"
    )
    stop.add_argument("--json", action="store_true")
    stop.set_defaults(run=run_stop)


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pid", required=True, metavar="N")
    parser.add_argument(
        "--weights", required=True, metavar="LIST", help="NODE=WEIGHT,...: 0=3,1=1"
    )
    parser.add_argument(
        "--quota",
        metavar="SIZE/TIME",
        help="move at most SIZE in TIME: 100M/1s",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the plan and all sysfs writes, do nothing",
    )
    parser.add_argument("--json", action="store_true")


def run_start(args: argparse.Namespace) -> int:
    """Start."""
    request = Request(
        pid=parse_pid(args.pid),
        weights=parse_weights(args.weights),
        hot=args.hot,
        quota=None if args.quota is None else parse_quota(args.quota),
        include_children=args.include_children,
        by=args.by,
        takeover=args.takeover,
    )
    every_s = None if args.every is None else parse_seconds(args.every)
    if every_s is not None and every_s < 0.1:
        raise usage_error("--every needs 100ms or more", args.every)
    files = Files(dry_run=args.dry_run)
    control = Control(files, MovePages(files))
    stay = every_s is not None
    outcome = control.start(request, keep_on=stay)
    if args.dry_run:
        _show_plan(report.plan(outcome, files), as_json=args.json)
        return int(ExitCode.OK)
    if files.read_or("/proc/sys/kernel/numa_balancing", "0") not in ("", "0"):
        output.warn("NUMA balancing is on, and may move pages back")
    if outcome.session.by == USER:
        why = outcome.why_user
        reason = "" if why is None else f": DAMON of this kernel cannot: {why}"
        output.talk(f"moved from user space by move_pages(2){reason}")
    _show_outcome(args, report.outcome(outcome), report.outcome_text(outcome))
    if stay and outcome.session.by == USER:
        output.talk(f"looking again every {args.every}; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            control.keep_on(request.pid, every_s or 0.0, _say_pass)
        return int(ExitCode.OK)
    output.talk(f"to end it: pageferry interleave stop --pid {request.pid}")
    return _verdict(outcome.report)


def run_set(args: argparse.Namespace) -> int:
    """Change the weights."""
    pid, weights = parse_pid(args.pid), parse_weights(args.weights)
    quota = None if args.quota is None else parse_quota(args.quota)
    files = Files(dry_run=args.dry_run)
    outcome = Control(files, MovePages(files)).set(pid, weights, quota)
    if args.dry_run:
        _show_plan(report.plan(outcome, files), as_json=args.json)
        return int(ExitCode.OK)
    _show_outcome(args, report.outcome(outcome), report.outcome_text(outcome))
    return _verdict(outcome.report)


def run_status(args: argparse.Namespace) -> int:
    """Print the shares of each node."""
    files = Files()
    control = Control(files, MovePages(files))
    if args.pid is not None:
        status = control.status(parse_pid(args.pid))
        if args.json:
            output.answer_json(report.status(status))
        else:
            output.answer(report.status_text(status))
        return int(ExitCode.OK)
    known = [session.pid for session in control.store.all()]
    found = [control.status(pid) for pid in known if control.store.find(pid)]
    if args.json:
        output.answer_json({"sessions": [report.status(status) for status in found]})
    elif not found:
        output.answer("nothing was started")
    else:
        output.answer("\n\n".join(report.status_text(status) for status in found))
    return int(ExitCode.OK)


def run_stop(args: argparse.Namespace) -> int:
    """Stop, after moving memory to the --home node if there is one."""
    pid = parse_pid(args.pid)
    files = Files(dry_run=args.dry_run)
    control = Control(files, MovePages(files))
    home = None if args.home is None else parse_weights(f"{args.home}=1")
    session, moved = control.stop(pid, home)
    if args.dry_run:
        _show_plan({"writes": report.writes(files)}, as_json=args.json)
        return int(ExitCode.OK)
    where = "its memory stays where it is"
    if home is not None:
        where = f"its memory is on node {home.nodes[0]}"
    document: dict[str, object] = {
        "pid": pid,
        "by": session.by,
        "moved_home_pages": moved.moved_pages,
    }
    _show_outcome(args, document, f"{session.pid} ({session.name}): stopped; {where}")
    return _verdict(moved)


def _say_pass(done: Report) -> None:
    if done.moved_pages or done.no_room:
        output.talk(report.pass_text(done))


def _show_plan(document: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        output.answer_json(document)
    else:
        output.answer(report.plan_text(document))


def _show_outcome(
    args: argparse.Namespace, document: dict[str, object], text: str
) -> None:
    if args.json:
        output.answer_json(document)
    else:
        output.answer(text)


def _verdict(done: Report | None) -> int:
    """Report pages for which the nodes had no room, and return the exit code."""
    if done is None or not done.no_room:
        return int(ExitCode.OK)
    error = PageferryError(
        "not all of it fits",
        value=report.no_room_text(done),
        reason="the nodes are full",
        hint="numastat -m shows free memory; free some, and repeat the command",
    )
    output.report_error(error, as_json=False)
    return int(ExitCode.FAILED)
