# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry bench latency`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.bench import latency, latency_plans, move_pages, run_latency
from pageferry.commands.bench_where import choose_topology
from pageferry.commands.kernel_build import add_kernel_arguments, make_request
from pageferry.errors import PageferryError, usage_error
from pageferry.report import latency as report
from pageferry.results import store
from pageferry.results.schema import Result, as_builtins
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.units import GIB, parse_seconds, parse_size, whole
from pageferry.vm import topology

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Move memory from one NUMA node to another with move_pages(2), and measure how long
folios are unmapped: throughput beside first, mean, p99 and last unmapped time,
for every combination of the lists. All combinations take turns in each round; the
first round does not count. The benchmark verifies every page and byte.

Runs on this machine if it has two nodes and pageferry's kernel, else in a
virtual machine with simulated DMA channels."""

EPILOG = """\
examples:
  pageferry bench latency --engines stock,dcbm --windows 1,2,4
  pageferry bench latency --published caps --vm
  pageferry bench latency --check toucher --vm
"""
_SWEEPS = (
    *("sizes", "totals", "engines", "channels", "threads", "caps", "windows"),
    *("streaming", "limits_us", "posted", "touch", "slow_after_percent"),
)


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "latency",
        help="how long memory is unmapped while it moves",
        usage="pageferry bench latency [OPTION ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vm", action="store_true", help="run in a virtual machine")
    where.add_argument("--live", action="store_true", help="run on this machine")
    parser.add_argument("--topology", default="two-node", metavar="NAME")
    _add_sweep(parser.add_argument_group("combinations (LIST: with commas)"))
    _add_run(parser)
    kernel = parser.add_argument_group("kernel of the virtual machine")
    add_kernel_arguments(kernel)
    parser.set_defaults(run=run)


def _add_sweep(group: argparse._ArgumentGroup) -> None:
    lists = [
        ("--sizes", "folio sizes, or all (4K,2M)"),
        ("--total", "bytes moved by each call (64M)"),
        ("--engines", f"{', '.join(latency.ENGINES)} (stock,mtcopy,dcbm)"),
        ("--channels", "DMA channels of dcbm (16)"),
        ("--threads", "threads of mtcopy (2)"),
        ("--caps", "max_batch_pages: pages in one window (512)"),
        ("--windows", "max_windows: windows that are unmapped at once (1,2)"),
        ("--streaming", "true: map a folio when its own copy ends (true)"),
        ("--limits-us", "max_unmapped_us; 0: none (default)"),
    ]
    for option, about in lists:
        dest = {"--total": "totals"}.get(option, option[2:].replace("-", "_"))
        group.add_argument(option, dest=dest, metavar="LIST", help=about)
    group.add_argument(
        "--posted",
        action="store_true",
        default=None,
        help="as posted: one window, no streaming, no time limit",
    )
    group.add_argument(
        "--published",
        choices=tuple(latency_plans.TABLES),
        metavar="SWEEP",
        help="repeat a published sweep: caps or workload",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--channel-mbps",
        default=str(latency.DEFAULT_CHANNEL_MBPS),
        metavar="N",
        help="MB/s of a simulated channel; 0: as a CPU (64)",
    )
    parser.add_argument(
        "--touch",
        choices=("none", "read", "write"),
        metavar="MODE",
        help="a thread touches the memory: none, read, write (none)",
    )
    parser.add_argument(
        "--pause-us",
        default="100",
        metavar="N",
        help="mean pause between two touches (default: %(default)s)",
    )
    parser.add_argument(
        "--slow-after-percent",
        metavar="N",
        help="then slow the channels down; only later times count",
    )
    parser.add_argument(
        "--slow-factor", default="10", metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--skip-windows",
        default="6",
        metavar="N",
        help="windows after that which do not count (default: %(default)s)",
    )
    parser.add_argument(
        "--check",
        nargs="?",
        const=",".join(latency_plans.CHECKS),
        metavar="LIST",
        help="fail unless these hold: some of "
        f"{', '.join(latency_plans.CHECKS)} (default: all)",
    )
    parser.add_argument("--rounds", default="5", metavar="N", help="(default: 5)")
    parser.add_argument("--from-node", default="0", metavar="NODE")
    parser.add_argument("--to-node", default="1", metavar="NODE")
    parser.add_argument(
        "--timeout", metavar="TIME", help="end a virtual machine after this time"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the result there"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the steps, do nothing"
    )


def _totals(text: str) -> tuple[int, ...]:
    return tuple(parse_size(word) for word in text.split(","))


def _slow(args: argparse.Namespace, mbps: int) -> tuple[int, int] | None:
    if args.slow_after_percent is None:
        return None
    percent = whole("--slow-after-percent", args.slow_after_percent, 1, 99)
    factor = whole("--slow-factor", args.slow_factor, 2, 1000)
    if mbps < factor:
        raise usage_error(
            "--slow-after-percent needs channels with a rate to slow down from",
            f"--channel-mbps {mbps} --slow-factor {factor}",
        )
    return percent, factor


def _sweep(args: argparse.Namespace, mbps: int) -> tuple[latency.Case, ...]:
    caps = latency.parse_list(args.caps or "512", "a cap", 1, latency.MAX_CAP_PAGES)
    windows = latency.parse_list(
        args.windows or "1,2", "a number of windows", 1, latency.MAX_WINDOWS
    )
    streaming = latency.parse_streaming(args.streaming or "true")
    limits = latency.parse_limits(args.limits_us or "default")
    if args.posted:
        if args.windows or args.streaming or args.limits_us:
            raise usage_error(
                "--posted fixes --windows, --streaming and --limits-us",
                hint="leave them out",
            )
        windows, streaming, limits = (1,), (False,), (0,)
    engines = args.engines or ",".join(latency.DEFAULT_ENGINES)
    return latency.Sweep(
        sizes=move_pages.parse_sizes(args.sizes or "4K,2M"),
        totals=_totals(args.totals or "64M"),
        engines=move_pages.parse_engines(engines, latency.ENGINES),
        channels=move_pages.parse_channels(args.channels or "16"),
        threads=move_pages.parse_threads(args.threads or "2"),
        mbps=mbps,
        caps=caps,
        windows=windows,
        streaming=streaming,
        limits_us=limits,
        touch=args.touch or "none",
        slow=_slow(args, mbps),
    ).cases()


def _node_bytes(args: argparse.Namespace, node: int) -> int:
    """Return the memory of a node, on the machine of the run."""
    if args.live:
        found = [n for n in read_nodes(Files()) if n.number == node]
        return found[0].total_bytes if found else GIB
    machine = topology.load(args.topology)
    return parse_size(machine.node[min(node, len(machine.node) - 1)].memory)


def _fixed(args: argparse.Namespace, mbps: int, node: int) -> tuple[latency.Case, ...]:
    """Return the cases of a published sweep; only --total may accompany it."""
    total = latency_plans.fitting_total(_node_bytes(args, node))
    if args.totals is not None:
        (total, *more) = _totals(args.totals)
        if more:
            raise usage_error("--published takes one --total", args.totals)
        move_pages.parse_total(args.totals)
    if args.published == "workload":
        return latency_plans.published_workload(total)
    return latency_plans.published_caps(total, mbps)


def _check_plan(args: argparse.Namespace) -> latency_plans.CheckPlan | None:
    if args.check is None:
        return None
    names = tuple(word.strip() for word in args.check.split(","))
    for name in names:
        if name not in latency_plans.CHECKS:
            raise usage_error(
                "unknown check", name, f"of {', '.join(latency_plans.CHECKS)}"
            )
    if len(set(names)) != len(names):
        raise usage_error("a check is listed twice", args.check)
    return latency_plans.CheckPlan(names=names)


def make_plan(
    args: argparse.Namespace, check: latency_plans.CheckPlan | None
) -> latency.Plan:
    """Check the options before anything is built or booted."""
    given = [name for name in _SWEEPS if getattr(args, name) is not None]
    fixed = "--check" if check else "--published" if args.published else None
    if check and args.published:
        raise usage_error("--check and --published exclude each other", args.check)
    if fixed and [name for name in given if (fixed, name) != ("--published", "totals")]:
        raise usage_error(f"{fixed} says itself what is varied", ", ".join(given))
    mbps = whole("--channel-mbps", args.channel_mbps, 0, 1_000_000)
    from_node = whole("--from-node", args.from_node, 0, 1023)
    to_node = whole("--to-node", args.to_node, 0, 1023)
    if from_node == to_node:
        raise usage_error(
            "--from-node and --to-node are the same: nothing would move", args.to_node
        )
    if check:
        # The number of cases and their totals do not depend on measured rates.
        cases = check.cases(latency_plans.ANY_MACHINE)
    elif args.published:
        cases = _fixed(args, mbps, to_node)
    else:
        cases = _sweep(args, mbps)
    return latency.Plan(
        cases=latency.check_cases(cases),
        rounds=whole("--rounds", args.rounds, 1, 10_000),
        from_node=from_node,
        to_node=to_node,
        pause_us=whole("--pause-us", args.pause_us, 0, 1_000_000),
        skip_windows=whole("--skip-windows", args.skip_windows, 0, 100_000),
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, store the result, and check it with --check."""
    machine = topology.load(args.topology)
    check = _check_plan(args)
    plan = make_plan(args, check)
    timeout_s = None if args.timeout is None else parse_seconds(args.timeout)
    if args.arch not in (None, machine.arch):
        raise usage_error(f"topology {args.topology} is {machine.arch}", args.arch)
    request = make_request(args, machine.architecture)
    job = run_latency.Job(
        plan=plan,
        topology=choose_topology(args, plan, "latency"),
        kernel=request,
        command=("pageferry", *args.words),
        published=args.published,
        check=check,
        timeout_s=timeout_s,
    )
    if args.dry_run:
        steps = run_latency.dry_run(job)
        if args.json:
            output.answer_json({"steps": steps})
        else:
            output.answer("\n".join(steps))
        return 0
    finish(run_latency.run(job), args)
    return 0


def finish(result: Result, args: argparse.Namespace) -> None:
    """Store the result and print it; a check that does not hold is a failure."""
    created = result.created or store.now()
    path = store.save(result, args.output or store.default_path("latency", created))
    refused = [check for check in result.checks or [] if not check.ok]
    if refused:
        output.talk(report.render(result))
        raise PageferryError(
            "a check does not hold",
            value=path,
            reason="; ".join(
                f"{one.name}: {one.measured:.2f}, wanted {one.wanted}"
                for one in refused
            ),
        )
    if args.json:
        output.answer_json(as_builtins(result))
        output.talk(f"result: {path}")
        return
    output.answer(f"{report.render(result)}\n\nresult: {path}")
