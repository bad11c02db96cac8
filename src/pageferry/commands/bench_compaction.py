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
Fragment a NUMA node, and have a kernel module allocate huge pages there on one CPU,
for which Linux has to compact: how long that takes, how busy the CPU is with it, and
what a program gets done that shares it. Each copy engine takes turns with stock Linux
in each round, with memory that is fragmented anew; the first round does not count.
Every byte that stayed is verified.

Takes most of what is free on the node meanwhile, and gives it back. Runs on this machine
when it has pageferry's kernel, else in a VM, where DMA channels are simulated."""

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
        help="huge pages out of fragmented memory, and what that costs a CPU",
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
        ("--engines", "stock,off,dcbm", "LIST", "stock always"),
        ("--states", ",".join(compaction.STATES), "LIST", "of that CPU"),
        ("--threads", "2", "N", "threads of mtcopy, the caller included"),
        ("--channels", "1", "N", "DMA channels of dcbm"),
        (
            *("--channel-mbps", "0", "N"),
            "of each simulated channel; 0: as the CPU copies",
        ),
        ("--channel-percent", "0", "N", "or so many of what stock migrates"),
        ("--total", "auto", "SIZE", "mapped; auto: half of what is free"),
        ("--count", "0", "N", "huge pages; 0: 1 for 8 blocks of 2M"),
        ("--rounds", "5", "N", "rounds that count"),
        ("--node", "0", "N", "that is fragmented"),
    ):
        parser.add_argument(
            option,
            default=default,
            metavar=metavar,
            help=f"{about} (default: %(default)s)",
        )
    parser.add_argument(
        "--cpu", metavar="N", help="that allocates (default: the node's first)"
    )
    add_reach(parser)
    add_layouts(parser)
    parser.add_argument(
        "--timeout", metavar="TIME", help="give up a virtual machine after this"
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
    """Measure, print the table, keep the result."""
    plan = make_plan(args)
    # Everything that may be wrong with the options comes before the first word.
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
    """Keep the result and print it."""
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
