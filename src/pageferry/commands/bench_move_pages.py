# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry bench move-pages`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pageferry import output
from pageferry.bench import move_pages
from pageferry.bench.run_move_pages import Job, dry_run
from pageferry.bench.run_move_pages import run as measure
from pageferry.commands.bench_where import add_layouts, choose_topology, layouts_of
from pageferry.commands.kernel_build import add_kernel_arguments, make_request
from pageferry.errors import usage_error
from pageferry.report import published, tables
from pageferry.results import store
from pageferry.results.schema import Result, as_builtins
from pageferry.units import parse_seconds, whole
from pageferry.vm import topology

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Move memory from one NUMA node to another with move_pages(2), with each copy
engine in turn, and compare with stock Linux and with plain memcpy. All of them
take turns in each round; the first round does not count. The benchmark verifies
the node of every page, and every byte.

Runs on this machine if it has two nodes and pageferry's kernel, else in a
virtual machine."""

EPILOG = """\
examples:
  pageferry bench move-pages
  pageferry bench move-pages --engines mtcopy,dcbm --channels 1,2,4,8,16 --vm
  pageferry bench move-pages --sizes all --engines mtcopy --threads 2,4,8 --live
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "move-pages",
        help="throughput of move_pages(2), by engine and folio size",
        usage="pageferry bench move-pages [OPTION ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vm", action="store_true", help="run in a virtual machine")
    where.add_argument("--live", action="store_true", help="run on this machine")
    parser.add_argument(
        "--topology",
        default="two-node",
        metavar="NAME",
        help="virtual machine (default: %(default)s)",
    )
    add_plan_arguments(parser)
    add_output_arguments(parser)
    kernel = parser.add_argument_group("kernel of the virtual machine")
    add_kernel_arguments(kernel)
    parser.set_defaults(run=run)


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the plan."""
    parser.add_argument(
        "--sizes",
        default=move_pages.DEFAULT_SIZES,
        metavar="LIST",
        help="folio sizes from 4K to 2M, or all (default: %(default)s)",
    )
    parser.add_argument(
        "--engines",
        default=",".join(move_pages.DEFAULT_ENGINES),
        metavar="LIST",
        help=f"some of {', '.join(move_pages.ENGINES)}; stock is always measured; off "
        "is no engine, but batch_ptes (default: %(default)s)",
    )
    parser.add_argument(
        "--total",
        default="256M",
        metavar="SIZE",
        help="bytes moved by each call (default: %(default)s)",
    )
    add_shared_arguments(parser)


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `bench move-pages` and `bench hugetlb` share."""
    parser.add_argument(
        "--threads",
        default="2",
        metavar="LIST",
        help="threads of mtcopy, including the caller (default: %(default)s)",
    )
    parser.add_argument(
        "--channels",
        default="1",
        metavar="LIST",
        help="DMA channels of dcbm (default: %(default)s)",
    )
    parser.add_argument(
        "--channel-mbps",
        default=str(move_pages.DEFAULT_CHANNEL_MBPS),
        metavar="N",
        help="MB/s of each simulated DMA channel; "
        "0: the rate of the CPU (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        default="5",
        metavar="N",
        help="rounds that count (default: %(default)s)",
    )
    parser.add_argument(
        "--from-node", default="0", metavar="NODE", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--to-node", default="1", metavar="NODE", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--busy",
        nargs="?",
        const="both",
        default="no",
        choices=("both", "only"),
        help="measure also, or only, with other work on every CPU",
    )
    add_reach(parser)
    parser.add_argument(
        "--no-limit", action="store_true", help="leave out the plain memcpy"
    )
    add_layouts(parser)
    parser.add_argument(
        "--timeout", metavar="TIME", help="end a virtual machine after this time"
    )


def add_reach(parser: argparse.ArgumentParser) -> None:
    """Add the option for the time limit."""
    parser.add_argument(
        "--max-unmapped-us",
        metavar="N",
        help="limit of a folio's unmapped time; 0: none (default: the kernel's)",
    )


def reach(args: argparse.Namespace) -> int | None:
    """Parse --max-unmapped-us; None leaves the kernel's setting."""
    if args.max_unmapped_us is None:
        return None
    return whole("--max-unmapped-us", args.max_unmapped_us, 0, 2**32 - 1)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the result."""
    parser.add_argument(
        "--published",
        action="store_true",
        help="also print published figures of other projects",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write the result there (default: below the XDG state directory)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the steps, do nothing"
    )


def make_plan(args: argparse.Namespace) -> move_pages.Plan:
    """Check the options before anything is built or booted."""
    return move_pages.Plan(
        sizes=move_pages.parse_sizes(args.sizes),
        engines=move_pages.parse_engines(args.engines),
        total_bytes=move_pages.parse_total(args.total),
        **shared(args),
    )


def shared(args: argparse.Namespace) -> dict[str, Any]:
    """Check the options that `bench move-pages` and `bench hugetlb` share."""
    from_node = whole("--from-node", args.from_node, 0, 1023)
    to_node = whole("--to-node", args.to_node, 0, 1023)
    if from_node == to_node:
        raise usage_error(
            "--from-node and --to-node are the same: nothing would move",
            args.to_node,
        )
    return {
        "threads": move_pages.parse_threads(args.threads),
        "channels": move_pages.parse_channels(args.channels),
        "channel_mbps": whole("--channel-mbps", args.channel_mbps, 0, 1_000_000),
        "rounds": whole("--rounds", args.rounds, 1, 10_000),
        "busy": args.busy,
        "from_node": from_node,
        "to_node": to_node,
        "with_limit": not args.no_limit,
        "max_unmapped_us": reach(args),
    }


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, store the result."""
    return run_plan(args, make_plan(args))


def run_plan(args: argparse.Namespace, plan: move_pages.Plan) -> int:
    """Carry out a plan, or print its steps."""
    # Check all options before anything is printed.
    timeout_s = None if args.timeout is None else parse_seconds(args.timeout)
    machine = topology.load(args.topology)
    if args.arch not in (None, machine.arch):
        raise usage_error(f"topology {args.topology} is {machine.arch}", args.arch)
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
    parts = [tables.render_move_pages(result)]
    if result.published:
        parts.append(published.render_move_pages(published.move_pages_tables()))
    parts.append(f"result: {path}")
    output.answer("\n\n".join(parts))
