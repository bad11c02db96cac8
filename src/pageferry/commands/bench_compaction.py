# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry bench compaction`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.bench import compaction, move_pages
from pageferry.bench.run_compaction import Job, dry_run
from pageferry.bench.run_compaction import run as measure
from pageferry.commands.bench_move_pages import add_output_arguments, add_reach, reach
from pageferry.commands.bench_where import add_layouts, choose_topology, layouts_of
from pageferry.commands.kernel_build import add_kernel_arguments, make_request
from pageferry.errors import usage_error
from pageferry.report import compaction as report
from pageferry.results import store
from pageferry.results.schema import Result, as_builtins
from pageferry.units import parse_seconds, whole
from pageferry.vm import topology

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Fragment a NUMA node, then allocate huge pages there with a kernel module on one CPU,
so that Linux compacts. The result is the time, the load of that CPU, and the work of
another program on it. All engines and stock Linux take turns in each round; the first
round does not count. The benchmark verifies every byte of the memory that stayed.

Takes most of the node's free memory meanwhile, and frees it again. Runs on this machine
if it has pageferry's kernel, else in a VM with simulated DMA channels."""

EPILOG = """\
examples:
  pageferry bench compaction --published
  pageferry bench compaction --engines dcbm --states idle --rounds 10 --vm
"""
TOPOLOGY = "two-node"
MAX_COUNT = 1 << 32


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        compaction.BENCH,
        help="time and CPU time for huge pages on a fragmented node",
        usage="pageferry bench compaction [OPTION ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vm", action="store_true", help="run in a virtual machine")
    where.add_argument("--live", action="store_true", help="run on this machine")
    parser.add_argument(
        "--topology",
        default=TOPOLOGY,
        metavar="NAME",
        help="virtual machine (default: %(default)s)",
    )
    for option, default, metavar, about in (
        ("--engines", "stock,off,dcbm", "LIST", "stock is always measured"),
        ("--states", ",".join(compaction.STATES), "LIST", "other load of the CPU"),
        ("--threads", "2", "N", "threads of mtcopy, including the caller"),
        ("--channels", "1", "N", "DMA channels of dcbm"),
        (
            *("--channel-mbps", "0", "N"),
            "MB/s of each simulated channel; 0: the CPU's rate",
        ),
        ("--channel-percent", "0", "N", "or percent of stock's migration rate"),
        ("--total", "auto", "SIZE", "memory to map; auto: half of the free memory"),
        ("--count", "0", "N", "huge pages; 0: one for 8 blocks of 2M"),
        ("--rounds", "5", "N", "rounds that count"),
        ("--node", "0", "N", "node to fragment"),
    ):
        parser.add_argument(
            option,
            default=default,
            metavar=metavar,
            help=f"{about} (default: %(default)s)",
        )
    parser.add_argument(
        "--cpu", metavar="N", help="CPU that allocates (default: the node's first)"
    )
    add_reach(parser)
    add_layouts(parser)
    parser.add_argument(
        "--timeout", metavar="TIME", help="end a virtual machine after this time"
    )
    add_output_arguments(parser)
    add_kernel_arguments(parser.add_argument_group("kernel of the virtual machine"))
    parser.set_defaults(run=run)


def make_plan(args: argparse.Namespace) -> compaction.CompactionPlan:
    """Check the options before anything is built or booted."""
    return compaction.CompactionPlan(
        engines=move_pages.parse_engines(args.engines, compaction.ENGINES),
        states=compaction.parse_states(args.states),
        threads=whole("--threads", args.threads, 1, move_pages.MAX_THREADS),
        channels=whole("--channels", args.channels, 1, move_pages.MAX_CHANNELS),
        channel_mbps=whole("--channel-mbps", args.channel_mbps, 0, 1_000_000),
        total_bytes=compaction.parse_total(args.total),
        count=whole("--count", args.count, 0, MAX_COUNT),
        rounds=whole("--rounds", args.rounds, 1, 10_000),
        node=whole("--node", args.node, 0, 63),
        channel_percent=whole("--channel-percent", args.channel_percent, 0, 100_000),
        max_unmapped_us=reach(args),
        cpu=None if args.cpu is None else whole("--cpu", args.cpu, 0, 1023),
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, store the result."""
    plan = make_plan(args)
    # Check all options before anything is printed.
    timeout_s = None if args.timeout is None else parse_seconds(args.timeout)
    machine = topology.load(args.topology)
    if args.arch not in (None, machine.arch):
        raise usage_error(f"topology {args.topology} is {machine.arch}", args.arch)
    job = Job(
        plan=plan,
        kernel=make_request(args, machine.architecture),
        topology=choose_topology(args, plan, compaction.BENCH),
        command=("pageferry", *args.words),
        with_published=args.published,
        timeout_s=timeout_s,
        layouts=layouts_of(args),
    )
    if args.dry_run:
        steps = dry_run(job)
        if args.json:
            output.answer_json({"steps": steps})
        else:
            output.answer("\n".join(steps))
        return 0
    finish(measure(job), args)
    return 0


def finish(result: Result, args: argparse.Namespace) -> None:
    """Store the result, and print it."""
    created = result.created or store.now()
    path = args.output or store.default_path(compaction.BENCH, created)
    store.save(result, path)
    if args.json:
        output.answer_json(as_builtins(result))
        output.talk(f"result: {path}")
        return
    parts = [report.render(result)]
    if result.published:
        parts.append(report.render_published())
    parts.append(f"result: {path}")
    output.answer("\n\n".join(parts))
