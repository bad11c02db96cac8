# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry tier`: hot memory on fast nodes, cold memory on slow ones."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pageferry import output
from pageferry.balance.config import Program
from pageferry.commands import ABOUT
from pageferry.errors import ExitCode, PageferryError, usage_error
from pageferry.interleave import lock
from pageferry.interleave.moving import MovePages
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.processes import parse_pid
from pageferry.tier import config, simulate
from pageferry.tier.config import Config
from pageferry.tier.kdamonds import State, read_state, stop_all
from pageferry.tier.service import Service
from pageferry.units import format_size, parse_seconds

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Keep hot memory on fast nodes and cold memory on slow ones, by DAMON. Cold memory
goes down before the fast tier is full, so that some of it is always free. Hot
memory goes up into this room. The rate falls while programs wait for memory, and
while pages come back soon after they went up. Each change is one line on stderr.
Runs until you stop it."""

EPILOG = """\
examples:
  pageferry tier --config /etc/pageferry/tier.toml
  pageferry tier --name merci --dry-run
  pageferry tier --status
  pageferry tier --replay moving
"""
_REPLAY_S = 1200
# The status measures CPU time for at least this long.
_SAMPLE_S = 1.0


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "tier",
        help=ABOUT["tier"],
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE", help=f"(default: {config.DEFAULT})")
    what = parser.add_argument_group("instead of a configuration file")
    what.add_argument("--pid", action="append", default=[], metavar="N")
    what.add_argument("--name", action="append", default=[], metavar="NAME")
    what.add_argument("--cgroup", action="append", default=[], metavar="DIR")
    what.add_argument("--all", action="store_true", help="the memory of all programs")
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--replay",
        choices=tuple(simulate.LOADS),
        help="print what the rule does to a modelled program",
    )
    other.add_argument("--status", action="store_true", help="show the running service")
    other.add_argument(
        "--stop", action="store_true", help="stop what a killed service has left"
    )
    add("--for", dest="for_time", metavar="TIME", help="end after this time")
    add("--dry-run", action="store_true", help="print the first writes, do nothing")
    add("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve, replay, show or stop."""
    files = Files(dry_run=args.dry_run)
    if args.status:
        return _status(files, as_json=args.json)
    if args.stop:
        return _stop(files, as_json=args.json)
    found = _config(args)
    if args.replay is not None:
        return _replay(args.replay, found, as_json=args.json)
    hint = "systemctl stop pageferry-tier, or end that process"
    with lock.hold(files, "tier", 0.0, hint):
        return _serve(args, found, files)


def _config(args: argparse.Namespace) -> Config:
    named = [
        *[Program(pid=parse_pid(text)) for text in args.pid],
        *[Program(name=name) for name in args.name],
        *[Program(cgroup=path) for path in args.cgroup],
    ]
    if args.all and named:
        raise usage_error("--all has no room for other programs", str(named[0]))
    if args.config is not None:
        found = config.load(args.config)
        found.process = [] if args.all else [*found.process, *named]
        return found
    if named or args.all or args.replay is not None:
        return Config(process=named)
    return config.load(config.DEFAULT)


def _serve(args: argparse.Namespace, found: Config, files: Files) -> int:
    service = Service(found, files, MovePages(files), output.talk)
    if args.dry_run:
        service.step(0.0)
        writes = [{"path": str(p), "value": value} for p, value in files.writes]
        if args.json:
            output.answer_json({"writes": writes})
        else:
            lines = [f"{write['value']} > {write['path']}" for write in writes]
            output.answer("\n".join(lines) or "nothing to do")
        return int(ExitCode.OK)
    for program in found.process:
        output.talk(f"takes care of {program}")
    end_s = None if args.for_time is None else parse_seconds(args.for_time)
    # A signal is the normal end of the service, which has stopped its kdamonds.
    with contextlib.suppress(KeyboardInterrupt):
        service.run(parse_seconds(found.interval), end_s)
    if args.json:
        output.answer_json(_figures(service.kdamonds.state))
    return int(ExitCode.OK)


def _figures(state: State) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(state)
    return document


def _status(files: Files, *, as_json: bool) -> int:
    state = read_state(files)
    alive = state is not None and processes.is_alive(files, state.pid, state.start_time)
    if state is None or not (alive or state.threads):
        raise PageferryError(
            "pageferry tier is not running",
            hint="pageferry tier --name PROGRAM, or pageferry tier --all",
        )
    threads = {f"kdamond {slot}": thread for slot, thread in state.threads.items()}
    service = {"service": state.pid} if alive else {}
    costs = processes.CpuMeter(files, {**threads, **service}).shares(_SAMPLE_S)
    if as_json:
        shares = {name: round(share, 6) for name, share in costs.items()}
        document = {"alive": alive, **_figures(state), "cpu_share": shares}
        output.answer_json(document)
        return int(ExitCode.OK)
    part = state.sampled_ping_pong / max(state.sampled_promotions, 1)
    watching = [f"{name} {share:.2%} of a CPU" for name, share in costs.items()]
    dead = f"process {state.pid} was killed; pageferry tier --stop ends its kdamonds"
    output.answer(
        f"service     {f'process {state.pid}' if alive else dead}\n"
        f"went up     {format_size(state.promoted_bytes)}\n"
        f"went down   {format_size(state.demoted_bytes)}\n"
        f"ping-pong   {part:.1%} of {state.sampled_promotions} promotions of "
        f"{state.sampled_pages} sampled pages\n"
        f"rate up     {state.rate_part:.0%} of the highest\n"
        f"watching    {', '.join(watching) or '-'}"
    )
    return int(ExitCode.OK)


def _stop(files: Files, *, as_json: bool) -> int:
    with lock.hold(files, "tier", 0.0, "end that process, which stops its kdamonds"):
        count = stop_all(files)
    if as_json:
        output.answer_json({"stopped_kdamonds": count})
    else:
        output.answer(f"stopped {count} kdamonds; memory stays where it is")
    return int(ExitCode.OK)


def _replay(name: str, found: Config, *, as_json: bool) -> int:
    load = simulate.LOADS[name]
    cases = {
        "nothing": simulate.Simulation(found, load).run(_REPLAY_S, moves=False),
        "highest rate": simulate.Simulation(found, load).run(_REPLAY_S, steered=False),
        "tier": simulate.Simulation(found, load).run(_REPLAY_S),
    }
    rows = [
        {
            "rule": rule,
            "fast_share": round(done.mean_hits(), 4),
            "settled_s": done.settled_s(),
            "promoted_bytes": done.promoted * simulate.BLOCK_BYTES,
            "demoted_bytes": done.demoted * simulate.BLOCK_BYTES,
            "ping_pong_bytes": done.ping_pong * simulate.BLOCK_BYTES,
        }
        for rule, done in cases.items()
    ]
    if as_json:
        output.answer_json({"load": name, "seconds": _REPLAY_S, "rows": rows})
        return int(ExitCode.OK)
    cells = [
        [
            rule,
            f"{done.mean_hits():.1%}",
            "-" if (settled := done.settled_s()) is None else str(settled),
            *(
                format_size(blocks * simulate.BLOCK_BYTES)
                for blocks in (done.promoted, done.demoted, done.ping_pong)
            ),
        ]
        for rule, done in cases.items()
    ]
    head = ["rule", "fast", "settled s", "up", "down", "ping-pong"]
    output.answer(output.table(head, cells))
    return int(ExitCode.OK)
