# SPDX-License-Identifier: GPL-2.0-only
"""Common code of `pageferry bench demotion` and `pageferry bench promotion`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pageferry import output
from pageferry.bench import move_pages, tiers
from pageferry.bench.run_tiers import Job, dry_run
from pageferry.bench.run_tiers import run as measure
from pageferry.commands.bench_move_pages import add_output_arguments, add_reach, reach
from pageferry.commands.bench_where import add_layouts, choose_topology, layouts_of
from pageferry.commands.kernel_build import add_kernel_arguments, make_request
from pageferry.errors import usage_error
from pageferry.report import tiers as report
from pageferry.results import store
from pageferry.results.schema import Result, as_builtins
from pageferry.units import parse_seconds, whole
from pageferry.vm import topology

TOPOLOGY = "tiered"


def add_arguments(
    parser: argparse.ArgumentParser, *, from_node: str, to_node: str
) -> None:
    """Add the common options, except for those of the output."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vm", action="store_true", help="run in a virtual machine")
    where.add_argument("--live", action="store_true", help="run on this machine")
    parser.add_argument(
        "--topology",
        default=TOPOLOGY,
        metavar="NAME",
        help="virtual machine (default: %(default)s)",
    )
    for option, default, about in (
        ("--sizes", tiers.DEFAULT_SIZES, "folio sizes from 4K to 2M"),
        ("--engines", ",".join(tiers.ENGINES), "stock is always measured"),
        ("--threads", "2", "threads of mtcopy, including the caller"),
        ("--channels", "1", "DMA channels of dcbm"),
        ("--channel-mbps", "0", "MB/s of each simulated channel; 0: the CPU's rate"),
        ("--total", "64M", "bytes in each measurement"),
        ("--rounds", "5", "rounds that count"),
        ("--from-node", from_node, "node that holds the memory"),
        ("--to-node", to_node, "node that the memory moves to"),
    ):
        metavar = "LIST" if option in ("--sizes", "--engines") else "N"
        parser.add_argument(
            option,
            default=default,
            metavar="SIZE" if option == "--total" else metavar,
            help=f"{about} (default: %(default)s)",
        )
    add_reach(parser)
    add_layouts(parser)
    parser.add_argument(
        "--timeout", metavar="TIME", help="end a virtual machine after this time"
    )


def add_rest(parser: argparse.ArgumentParser) -> None:
    """Add the options of the output and the kernel."""
    add_output_arguments(parser)
    add_kernel_arguments(parser.add_argument_group("kernel of the virtual machine"))


def shared(args: argparse.Namespace) -> dict[str, object]:
    """Check the common options."""
    from_node = whole("--from-node", args.from_node, 0, 63)
    to_node = whole("--to-node", args.to_node, 0, 63)
    if from_node == to_node:
        raise usage_error(
            "--from-node and --to-node are the same: nothing would move", args.to_node
        )
    return {
        "sizes": move_pages.parse_sizes(args.sizes),
        "engines": move_pages.parse_engines(args.engines, tiers.ENGINES),
        "threads": whole("--threads", args.threads, 1, move_pages.MAX_THREADS),
        "channels": whole("--channels", args.channels, 1, move_pages.MAX_CHANNELS),
        "channel_mbps": whole("--channel-mbps", args.channel_mbps, 0, 1_000_000),
        "total_bytes": move_pages.parse_total(args.total),
        "rounds": whole("--rounds", args.rounds, 1, 10_000),
        "from_node": from_node,
        "to_node": to_node,
        "max_unmapped_us": reach(args),
    }


def run_plan(
    args: argparse.Namespace, make_plan: Callable[[], tiers.TierPlan], *, posted: bool
) -> int:
    """Measure, print the table, store the result."""
    plan = make_plan()
    # Check all options before anything is printed.
    timeout_s = None if args.timeout is None else parse_seconds(args.timeout)
    machine = topology.load(args.topology)
    if args.arch not in (None, machine.arch):
        raise usage_error(f"topology {args.topology} is {machine.arch}", args.arch)
    if args.published and not posted:
        raise usage_error(
            "there are no published figures for this benchmark", "--published"
        )
    request = make_request(args, machine.architecture)
    job = Job(
        plan=plan,
        topology=choose_topology(args, plan, plan.bench),
        kernel=request,
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
    path = args.output or store.default_path(result.rows[0].bench, created)
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
