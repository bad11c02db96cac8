# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry bench`: every benchmark, from its options to its result."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.bench import spec
from pageferry.bench.job import Job
from pageferry.bench.options import Option
from pageferry.bench.spec import Benchmark, Runs
from pageferry.bench.where import choose_nodes, choose_topology, layouts_of
from pageferry.commands.kernel_build import add_kernel_arguments, make_request
from pageferry.errors import PageferryError, usage_error
from pageferry.kernel.build import BuildRequest
from pageferry.report.tables import render
from pageferry.results import store
from pageferry.results.schema import Result, as_builtins, encode
from pageferry.units import parse_seconds
from pageferry.vm import topology

if TYPE_CHECKING:
    from pageferry.cli import Subparsers


def add_parser(sub: Subparsers) -> None:
    """Add the parsers of all benchmarks."""
    for name in spec.NAMES:
        bench = spec.load(name)
        parser = sub.add_parser(
            bench.name,
            help=bench.about,
            usage=None
            if bench.all_in_usage
            else f"pageferry bench {bench.name} [OPTION ...]",
            description=bench.description,
            epilog=bench.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_arguments(parser, bench)
        parser.set_defaults(run=partial(run, bench))


def add_options(
    parser: argparse._ActionsContainer, options: tuple[Option, ...]
) -> None:
    """Add a table of options."""
    for name, how in options:
        parser.add_argument(name, **how)


def add_arguments(parser: argparse.ArgumentParser, bench: Benchmark) -> None:
    """Add all options of a benchmark."""
    if bench.native:
        add_options(parser, bench.options)
        parser.set_defaults(published=False)
        return
    if bench.topology is None:
        add_options(parser, bench.options)
        kernel = parser.add_argument_group("kernel")
        add_kernel_arguments(kernel, vanilla=False, arch_default="x86_64")
        parser.set_defaults(vanilla=False)
        return
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vm", action="store_true", help="run in a virtual machine")
    where.add_argument("--live", action="store_true", help="run on this machine")
    parser.add_argument(
        "--topology",
        default=bench.topology,
        metavar="NAME",
        help=bench.topology_about,
    )
    add_options(parser, bench.options)
    if bench.apart:
        add_options(parser.add_argument_group(bench.apart_title), bench.apart)
    add_kernel_arguments(parser.add_argument_group("kernel of the virtual machine"))


def make_job(bench: Benchmark, args: argparse.Namespace) -> Runs:
    """Check the options before anything is built or booted."""
    if bench.native:
        assert bench.make_plan is not None
        return Job(bench, bench.make_plan(args), args, None, BuildRequest())
    # With --jobs a benchmark counts machines, not compiler processes.
    of_kernel = argparse.Namespace(**{**vars(args), "jobs": None})
    if bench.make_job is not None:
        return bench.make_job(args, make_request(of_kernel))
    assert bench.make_plan is not None
    choose_nodes(args, bench.default_nodes)
    plan = bench.make_plan(args)
    # Check all options before anything is printed.
    timeout_s = None if args.timeout is None else parse_seconds(args.timeout)
    machine = topology.load(args.topology)
    if args.arch not in (None, machine.arch):
        raise usage_error(f"topology {args.topology} is {machine.arch}", args.arch)
    if args.published and args.published not in bench.published:
        raise usage_error(
            "there are no published figures for this benchmark", "--published"
        )
    kernel = make_request(of_kernel, machine.architecture)
    layouts = layouts_of(args)
    where = choose_topology(args, plan, bench.name)
    job = Job(bench, plan, args, where, kernel, timeout_s, layouts)
    return job if job.simulated else replace(job, plan=plan.on_real_channels())


def run(bench: Benchmark, args: argparse.Namespace) -> int:
    """Carry out a benchmark, or print its steps."""
    job = make_job(bench, args)
    if not args.dry_run:
        finish(bench, args, job.run())
        return 0
    steps = job.dry_run()
    if args.json:
        output.answer_json({"steps": steps})
    else:
        output.answer("\n".join(steps))
    return 0


def finish(bench: Benchmark, args: argparse.Namespace, result: Result) -> None:
    """Store the result and print it; a check that does not hold is a failure."""
    created = result.created or store.now()
    text = render(result, bench.show(result))
    try:
        path = store.save(
            result, args.output or store.default_path(bench.name, created)
        )
    except PageferryError:
        # A run may have taken hours.
        output.talk(encode(result) if args.json else text)
        raise
    refused = bench.refused(args, result)
    if refused:
        output.talk(text)
        raise PageferryError(bench.complaint, value=path, reason="; ".join(refused))
    if args.json:
        output.answer_json(as_builtins(result))
        output.talk(f"result: {path}")
        return
    parts = [text]
    if result.published and bench.show_published is not None:
        parts.append(bench.show_published())
    output.answer("\n\n".join([*parts, f"result: {path}"]))
