# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry balance`: set weights by the use of the nodes' bandwidth."""

from __future__ import annotations

import argparse
import contextlib
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.balance import bandwidth, config, simulate, sources, trace
from pageferry.balance.balancer import Balancer
from pageferry.balance.config import Config, Program
from pageferry.balance.service import Service
from pageferry.commands import ABOUT
from pageferry.errors import ExitCode, unsupported, usage_error
from pageferry.interleave import lock
from pageferry.interleave.control import Control
from pageferry.interleave.moving import MovePages
from pageferry.interleave.user_space import parse_quota
from pageferry.sysfs.files import Files
from pageferry.sysfs.processes import parse_pid
from pageferry.units import format_rate, parse_seconds, parse_size

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Watch how much of each node's bandwidth is in use, and set the weights of the
configured processes. Below a threshold their memory stays local. Above it, the
service spreads the memory in proportion to what each node can still give. When
the load falls, the memory moves home. Each decision is one line on stderr.
Runs until you stop it."""

EPILOG = """\
examples:
  pageferry balance --config /etc/pageferry/balance.toml
  pageferry balance --name merci --dry-run
  pageferry balance --measure
  pageferry balance --replay two-copies --bandwidth 0=72,1=26
"""
_TRACES = ("two-copies", "saturated")


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "balance",
        help=ABOUT["balance"],
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
    add(
        "--bandwidth",
        metavar="LIST",
        help="GB/s by node, 0=72,1=26 (default: configuration, HMAT, measurement)",
    )
    add(
        "--measure",
        action="store_true",
        help="measure and print the bandwidth of each node, for the file, and end",
    )
    add(
        "--replay",
        metavar="FILE",
        help="print the decisions for a recorded load; the tool contains "
        f"{' and '.join(_TRACES)}",
    )
    add(
        "--memory",
        default="64G",
        metavar="SIZE",
        help="memory of the processes in a replay (default: %(default)s)",
    )
    add(
        "--rate",
        metavar="SIZE/TIME",
        help="rate at which memory moves in a replay, 1G/1s (default: at once)",
    )
    add("--for", dest="for_time", metavar="TIME", help="end after this time")
    add("--dry-run", action="store_true", help="decide and explain, move nothing")
    add("--json", action="store_true", help="print all decisions at the end")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, replay or serve."""
    files = Files(dry_run=args.dry_run)
    if args.measure:
        return _measure(files, as_json=args.json)
    found = _config(args)
    if args.bandwidth is not None:
        found.bandwidth = parse_bandwidth(args.bandwidth)
    if args.replay is not None:
        return _replay(args, found)
    return _serve(args, found, files)


def parse_bandwidth(text: str) -> dict[str, float]:
    """Parse 0=72,1=26."""
    found: dict[str, float] = {}
    for part in text.split(","):
        node, _, rate = part.strip().partition("=")
        try:
            value = float(rate)
        except ValueError:
            value = 0.0
        if not (node.isascii() and node.isdecimal()) or not 0 < value < 1e6:
            raise usage_error("not a bandwidth", part, "write NODE=GB/s: 0=72,1=26")
        found[node] = value
    return found


def _config(args: argparse.Namespace) -> Config:
    named = [
        *[Program(pid=parse_pid(text)) for text in args.pid],
        *[Program(name=name) for name in args.name],
        *[Program(cgroup=path) for path in args.cgroup],
    ]
    if args.config is not None:
        found = config.load(args.config)
        found.process += named
        return found
    if named or args.replay is not None:
        return Config(process=named)
    return config.load(config.DEFAULT)


def _measure(files: Files, *, as_json: bool) -> int:
    nodes = bandwidth.nodes_with_memory(files)
    if not nodes:
        raise unsupported("this kernel has no NUMA nodes")
    found = bandwidth.measure(nodes)
    if as_json:
        rows = [{"id": n, "bytes_per_s": int(rate)} for n, rate in found.items()]
        output.answer_json({"nodes": rows})
    else:
        lines = [f"{node} = {rate / 1e9:.2f}" for node, rate in found.items()]
        output.answer("\n".join(["[bandwidth]", *lines]))
    return int(ExitCode.OK)


def _replay(args: argparse.Namespace, found: Config) -> int:
    moments = _moments(args.replay)
    if not found.bandwidth:
        raise usage_error(
            "a replay needs the bandwidths of its machine",
            args.replay,
            "--bandwidth 0=72,1=26",
        )
    rates = {int(node): rate * 1e9 for node, rate in found.bandwidth.items()}
    home = min(rates) if found.home is None else found.home
    if home not in rates:
        raise usage_error("home has no bandwidth", str(home))
    balancer = Balancer(rates, home, found.settings)
    memory_bytes, interval_s = parse_size(args.memory), parse_seconds(found.interval)
    if args.rate is None:
        made = trace.replay(balancer, moments, memory_bytes, interval_s)
    else:
        rate = parse_quota(args.rate).bytes_per_s
        # The last load lasts until all memory could have moved twice.
        extra_s = 2 * memory_bytes / rate + 3 * found.settings.hold_s
        end_s = moments[-1].time_s + extra_s
        where = simulate.Conditions(rate)
        done = simulate.run(balancer, moments, memory_bytes, where, end_s, interval_s)
        made = done.decisions
        output.talk(
            f"mean {format_rate(done.mean_bytes_s)}; "
            f"{format_rate(done.home_bytes_s)} with all memory on node {home}"
        )
    told = [(at, d) for at, d in made if d.weights is not None]
    if args.json:
        rows = [
            {
                "time_s": at,
                "kind": decision.kind.value,
                "weights": str(decision.weights),
                "gain": round(decision.gain, 6),
                "moves_bytes": decision.moves_bytes,
                "why": decision.why,
            }
            for at, decision in told
        ]
        output.answer_json({"steps": len(made), "decisions": rows})
    else:
        lines = [f"{at:8.1f} s  {decision.why}" for at, decision in told]
        at, last = made[-1]
        output.answer("\n".join([*lines, f"{at:8.1f} s  {last.why}"]))
    return int(ExitCode.OK)


def _moments(name: str) -> list[trace.Moment]:
    if name in _TRACES:
        path = resources.files("pageferry.balance") / "traces" / f"{name}.csv"
        return trace.parse(path.read_text(encoding="utf-8"), name)
    return trace.load(Path(name))


def _serve(args: argparse.Namespace, found: Config, files: Files) -> int:
    nodes = bandwidth.nodes_with_memory(files)
    if len(nodes) < 2:
        raise unsupported(
            "there is nothing to balance",
            reason="this machine has one node with memory",
            hint="pageferry balance --replay two-copies --bandwidth 0=72,1=26",
        )
    rates, origin = bandwidth.find(files, found.bandwidth)
    absent = sorted(set(rates) - set(nodes))
    if absent:
        raise usage_error(f"no such node: {absent[0]}", "[bandwidth]")
    home = bandwidth.first_with_cpus(files) if found.home is None else found.home
    if home not in rates:
        raise usage_error("home is not a node with memory and a bandwidth", str(home))
    balancer = Balancer(rates, home, found.settings)
    source: sources.UseSource
    if found.record is not None:
        moments = trace.load(Path(found.record))
        source = sources.Recorded(moments, rates, lambda: balancer.shares)
    else:
        source = sources.find(files, found.source, rates, time.monotonic)
    hint = "systemctl stop pageferry-balance, or end that process"
    with lock.hold(files, "balance", 0.0, hint):
        return _run(args, found, files, balancer, source, origin)


def _run(
    args: argparse.Namespace,
    found: Config,
    files: Files,
    balancer: Balancer,
    source: sources.UseSource,
    origin: str,
) -> int:
    """Run the service until a signal, or for the time of --for."""
    end_s = None if args.for_time is None else parse_seconds(args.for_time)
    rates = balancer.bandwidth
    control = Control(files, MovePages(files))
    service = Service(
        found, files, control, source, balancer, say=output.talk, dry_run=args.dry_run
    )
    known = ", ".join(f"node {n} {format_rate(r)}" for n, r in sorted(rates.items()))
    output.talk(f"bandwidth by {origin}: {known}; use by {source.name}")
    for program in found.process:
        output.talk(f"takes care of {program}")
    # A signal is the normal end of the service, which has stopped its sessions.
    with contextlib.suppress(KeyboardInterrupt):
        service.run(parse_seconds(found.interval), end_s)
    if args.json:
        output.answer_json({"decisions": service.decisions})
    return int(ExitCode.OK)
