# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry move`."""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pageferry import output
from pageferry.commands import ABOUT
from pageferry.errors import ExitCode, PageferryError, usage_error
from pageferry.interleave.moving import ExchangeFile, MovePages
from pageferry.interleave.sessions import Store
from pageferry.move import offline, report, targets
from pageferry.move.account import Account, Reason
from pageferry.move.exchange import Exchanger
from pageferry.move.mover import Mover, Request
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.sysfs.processes import Process, parse_pid
from pageferry.units import format_nodes, format_rate, format_size, whole

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Move the memory of a running process to other nodes, and explain each page that
stays. The command works in steps. It shrinks them so that no thread of the
process waits longer than the limit for a page or for mmap_lock. Ctrl-C ends the
command between two steps, and prints the account."""

EPILOG = """\
exit codes: 0 all pages moved that could; 1 pages were pinned, had no room or
otherwise stayed; 130 interrupted

examples:
  pageferry move --pid 4711 --from 0 --to 1 --dry-run
  pageferry move --pid 4711 --from 0 --to 1 --stall-limit 5
  pageferry move --cgroup system.slice/redis.service --from 0 --to 1 --all
  pageferry move --pid 4711 --to 0 --exchange-with 4712
  pageferry move --offline-check 1
"""
_ROUNDS = 8


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "move",
        help=ABOUT["move"],
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--pid", metavar="N", help="the process")
    who.add_argument(
        "--cgroup", metavar="PATH", help="all processes of a cgroup, below it, too"
    )
    who.add_argument(
        "--offline-check",
        metavar="NODE|BLOCK",
        help="name what keeps memory from going offline: 1, or memory42",
    )
    parser.add_argument("--from", dest="sources", metavar="NODES")
    parser.add_argument("--to", dest="targets", metavar="NODES")
    parser.add_argument(
        "--exchange-with",
        metavar="PID",
        help="give each page the place of a page of this process: needs no free"
        " memory, but root and CONFIG_MIGRATE_EXCHANGE",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also pages that other processes map; needs CAP_SYS_NICE",
    )
    parser.add_argument(
        "--range", metavar="A-B", help="only these addresses, as in /proc/PID/maps"
    )
    parser.add_argument(
        "--stall-limit",
        metavar="MS",
        default="20",
        help="longest stall of a thread in milliseconds (default: 20)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="explain the pages, move nothing"
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Move memory, or check a memory block."""
    files = Files()
    if args.offline_check is not None:
        return _check_offline(files, args)
    request = _request(files, args)
    targets.require_own_proc(files)
    if request.shared and not request.dry_run:
        targets.require_all(files)
    found = _processes(files, args)
    cold = None
    if args.exchange_with is not None:
        cold = targets.other(files, found[0], parse_pid(args.exchange_with))
    targets.require_allowed(files, found, request.targets, own=cold is None)
    _warn_of_sessions(files, found if cold is None else [*found, cold])
    with _between_steps() as keep_on:
        account = _move(files, args, request, found, keep_on, cold)
    if args.json:
        output.answer_json(report.document(account, request, found))
    else:
        output.answer(report.text(account, request, found))
    return _verdict(files, account, request)


def _request(files: Files, args: argparse.Namespace) -> Request:
    for option, value in (
        ("--range", args.range),
        ("--exchange-with", args.exchange_with),
    ):
        if value is not None and args.pid is None:
            raise usage_error(f"{option} needs --pid", value)
    if args.exchange_with is not None and args.targets is not None:
        way = targets.choose_exchanged(files, args.sources, args.targets)
    elif args.sources is None or args.targets is None:
        raise usage_error("a move needs --from and --to", None, "pageferry move --help")
    else:
        way = targets.choose_nodes(files, args.sources, args.targets)
    sources, to = way
    request = Request(
        sources=sources,
        targets=to,
        limit_s=whole("--stall-limit", args.stall_limit, 1, 60_000) / 1000,
        shared=args.all,
        dry_run=args.dry_run,
        span=None if args.range is None else targets.parse_span(args.range),
    )
    both = sorted(set(request.routes) & set(request.routes.values()))
    if request.shared and both:
        # The scan meets a shared page at each of its addresses.
        raise usage_error(
            f"--all would move shared pages twice, by node {format_nodes(both)}",
            f"--from {args.sources} --to {args.targets}",
            "move one node after the other, the last one first",
        )
    return request


def _processes(files: Files, args: argparse.Namespace) -> list[Process]:
    if args.cgroup is not None:
        return targets.of_cgroup(files, args.cgroup)
    return [targets.with_memory(files, parse_pid(args.pid))]


def _warn_of_sessions(files: Files, found: Sequence[Process]) -> None:
    """Warn if DAMON or a service keeps the memory of a process in its place."""
    wanted = {process.pid for process in found}
    for session in Store(files).all():
        if not wanted & {session.pid, *session.members}:
            continue
        if not processes.is_alive(files, session.pid, session.start_time):
            continue
        keeper, end = "interleave", f"pageferry interleave stop --pid {session.pid}"
        if session.owner:
            keeper, end = session.owner, f"stop pageferry {session.owner}"
        output.warn(
            f"{keeper} may move the memory of process {session.pid} back; first {end}"
        )


@contextlib.contextmanager
def _between_steps() -> Iterator[Callable[[], bool]]:
    """Turn the first signal to stop into an answer; the second one interrupts."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[int, Any] = {n: signal.getsignal(n) for n in signals}
    stopped = False

    def stop(number: int, _frame: types.FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        signal.signal(number, before[number])

    for number in signals:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield lambda: not stopped
    finally:
        for number in signals:
            signal.signal(number, before[number])


class _Progress(output.Progress):
    """Shows the rate of the move beside the share of pages that are done."""

    def __init__(self, total_pages: int) -> None:
        super().__init__("move", max(total_pages, 1))
        self.account: Account | None = None

    def text(self, now: float) -> str:
        """Add the rate."""
        line = super().text(now)
        if self.account is None:
            return line
        moved = self.account.moved_pages * PAGE
        rate = format_rate(moved / max(now - self.start, 1e-9))
        return f"{line}, {format_size(moved)} moved, {rate}"


def _move(
    files: Files,
    args: argparse.Namespace,
    request: Request,
    found: list[Process],
    keep_on: Callable[[], bool],
    cold: Process | None,
) -> Account:
    """Move all processes; those that join a cgroup meanwhile follow."""
    progress = _Progress(targets.resident_pages(files, found))
    calls = MovePages(files, shared=request.shared)
    mover = Mover(files, calls, request, keep_on=keep_on, progress=progress.advance)
    if cold is not None:
        mover = Exchanger(
            files,
            calls,
            request,
            cold,
            None if request.dry_run else ExchangeFile(files),
            keep_on=keep_on,
            progress=progress.advance,
        )
    progress.account = mover.account
    begin = time.monotonic()
    done: set[tuple[int, int]] = set()
    try:
        for _ in range(_ROUNDS):
            new = [p for p in found if (p.pid, p.start_time) not in done]
            for process in new:
                if keep_on():
                    done.add((process.pid, process.start_time))
                    try:
                        mover.run(process)
                    except PageferryError as error:
                        # The others of a cgroup may still move.
                        mover.account.failures.append(error)
            if not new or args.cgroup is None or not keep_on():
                break
            with contextlib.suppress(PageferryError):
                known = {(p.pid, p.start_time) for p in found}
                found += [
                    p
                    for p in targets.of_cgroup(files, args.cgroup)
                    if (p.pid, p.start_time) not in known
                ]
    finally:
        progress.finish()
    mover.account.elapsed_s = time.monotonic() - begin
    mover.account.interrupted = not keep_on()
    return mover.account


def _verdict(files: Files, account: Account, request: Request) -> int:
    """Say on stderr why not all of it moved, and return the exit code."""
    for failure in account.failures:
        output.report_error(failure, as_json=False)
    if account.failures:
        return int(account.failures[0].code)
    if account.interrupted:
        return int(ExitCode.INTERRUPTED)
    ended = account.ended_processes
    if request.dry_run or not (account.kept_pages or ended == account.processes):
        return int(ExitCode.OK)
    error = PageferryError(
        "not all of it moved" if account.kept_pages else "the process ended meanwhile",
        value=format_size(account.kept_pages * PAGE) if account.kept_pages else None,
        hint=_hint(files, account, request),
    )
    output.report_error(error, as_json=False)
    return int(ExitCode.FAILED)


def _hint(files: Files, account: Account, request: Request) -> str | None:
    """Choose the next command, by the reason that it can change."""
    reasons = account.reasons()
    if reasons[Reason.NO_ROOM]:
        return f"numastat -m shows free memory of node {format_nodes(request.targets)}"
    if reasons[Reason.NO_LARGE_ROOM]:
        node = request.targets[0]
        name = files.path(f"/sys/devices/system/node/node{node}/compact")
        return f"echo 1 > {name}, and repeat the command"
    if account.partner is not None and reasons[Reason.PARTNER_BOUND]:
        pid = account.partner.pid
        return f"grep bind /proc/{pid}/numa_maps; cat /proc/{pid}/cpuset"
    if reasons[Reason.BOUND]:
        return "grep bind /proc/PID/numa_maps shows the nodes of its memory"
    if reasons[Reason.NO_PARTNER]:
        return "--exchange-with another process that has memory there"
    return "repeat the command: a pin may end" if account.kept_pages else None


def _check_offline(files: Files, args: argparse.Namespace) -> int:
    for option, value in (
        ("--from", args.sources),
        ("--to", args.targets),
        ("--range", args.range),
        ("--exchange-with", args.exchange_with),
    ):
        if value is not None:
            raise usage_error(f"--offline-check takes no {option}", value)
    names = offline.blocks(files, args.offline_check)
    verdicts: Sequence[offline.Verdict] = offline.check(files, names)
    if args.json:
        output.answer_json(offline.document(verdicts))
    else:
        output.answer(offline.text(verdicts))
    kept = any(verdict.blockers for verdict in verdicts)
    return int(ExitCode.FAILED if kept else ExitCode.OK)
