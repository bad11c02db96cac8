# SPDX-License-Identifier: GPL-2.0-only
"""`bench latency`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pageferry import output
from pageferry.bench import options
from pageferry.bench.job import Job
from pageferry.bench.latency import cases, checks, plans
from pageferry.bench.latency.cases import Case, LatencyPlan
from pageferry.bench.latency.rows import Latency, make_rows
from pageferry.bench.latency.table import show
from pageferry.bench.options import option, parse_list, switch
from pageferry.bench.spec import Benchmark
from pageferry.errors import unsupported, usage_error
from pageferry.results.schema import Check, Row
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.units import GIB, parse_size, whole
from pageferry.vm import topology

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
SWEEPS = (
    *("sizes", "totals", "engines", "channels", "threads", "caps", "windows"),
    *("streaming", "limits_us", "posted", "touch", "slow_after_percent"),
)

OPTIONS = (
    option(
        "--channel-mbps",
        "MB/s of a simulated channel; 0: as a CPU",
        *("N", str(cases.DEFAULT_CHANNEL_MBPS)),
    ),
    option(
        "--touch",
        "a thread touches the memory: none, read, write (none)",
        "MODE",
        choices=("none", "read", "write"),
    ),
    option("--pause-us", "mean pause between two touches", "N", "100"),
    option(
        "--slow-after-percent",
        "then slow the channels down; only later times count",
        "N",
    ),
    option("--slow-factor", "", "N", "10"),
    option("--skip-windows", "windows after that which do not count", "N", "6"),
    option(
        "--check",
        f"fail unless these hold: some of {', '.join(plans.CHECKS)} (default: all)",
        "LIST",
        nargs="?",
        const=",".join(plans.CHECKS),
    ),
    option("--rounds", "", "N", "5"),
    *options.node_options(),
    options.TIMEOUT,
    option("--output", "write the result there", "FILE", type=Path),
    *(options.JSON, options.DRY_RUN),
)
VARIED = (
    option("--sizes", "folio sizes, or all (4K,2M)", "LIST"),
    option("--total", "bytes moved by each call (64M)", "LIST", dest="totals"),
    option("--engines", f"{', '.join(cases.ENGINES)} (stock,mtcopy,dcbm)", "LIST"),
    option("--channels", f"{options.CHANNELS} (16)", "LIST"),
    option("--threads", "threads of mtcopy (2)", "LIST"),
    option("--caps", "max_batch_pages: pages in one window (512)", "LIST"),
    option("--windows", "max_windows: windows that are unmapped at once (1,2)", "LIST"),
    option("--streaming", "true: map a folio when its own copy ends (true)", "LIST"),
    option("--limits-us", "max_unmapped_us; 0: none (default: the kernel's)", "LIST"),
    switch("--posted", "as posted: one window, no streaming, no time limit"),
    option(
        "--published",
        "repeat a published sweep: caps or workload",
        "SWEEP",
        choices=tuple(plans.TABLES),
    ),
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


def _sweep(args: argparse.Namespace, mbps: int) -> tuple[Case, ...]:
    caps = parse_list(args.caps or "512", "a cap", 1, cases.MAX_CAP_PAGES)
    windows = parse_list(
        args.windows or "1,2", "a number of windows", 1, cases.MAX_WINDOWS
    )
    streaming = cases.parse_streaming(args.streaming or "true")
    limits = cases.parse_limits(args.limits_us or "default")
    if args.posted:
        if args.windows or args.streaming or args.limits_us:
            raise usage_error(
                "--posted fixes --windows, --streaming and --limits-us",
                hint="leave them out",
            )
        windows, streaming, limits = (1,), (False,), (0,)
    engines = args.engines or ",".join(cases.DEFAULT_ENGINES)
    return cases.Sweep(
        sizes=options.parse_sizes(args.sizes or "4K,2M"),
        totals=_totals(args.totals or "64M"),
        engines=options.parse_engines(engines, cases.ENGINES),
        channels=options.parse_channels(args.channels or "16"),
        threads=options.parse_threads(args.threads or "2"),
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
    # where.py rejects a node that the machine lacks, or that has no memory.
    found_there = topology.load(args.topology).numbers.get(node)
    return (found_there.memory_bytes if found_there else 0) or GIB


def _fixed(args: argparse.Namespace, mbps: int, node: int) -> tuple[Case, ...]:
    """Return the cases of a published sweep; only --total may accompany it."""
    total = plans.fitting_total(_node_bytes(args, node))
    if args.totals is not None:
        (total, *more) = _totals(args.totals)
        if more:
            raise usage_error("--published takes one --total", args.totals)
        options.parse_total(args.totals)
    if args.published == "workload":
        return plans.published_workload(total)
    return plans.published_caps(total, mbps)


def _check_plan(args: argparse.Namespace) -> plans.CheckPlan | None:
    if args.check is None:
        return None
    return plans.CheckPlan(options.words_of(args.check, plans.CHECKS, "check"))


def make_plan(args: argparse.Namespace) -> LatencyPlan:
    """Check the options before anything is built or booted."""
    check = _check_plan(args)
    given = [name for name in SWEEPS if getattr(args, name) not in (None, False)]
    fixed = "--check" if check else "--published" if args.published else None
    if check and args.published:
        raise usage_error("--check and --published exclude each other", args.check)
    if fixed and [name for name in given if (fixed, name) != ("--published", "totals")]:
        raise usage_error(f"{fixed} says itself what is varied", ", ".join(given))
    mbps = whole("--channel-mbps", args.channel_mbps, 0, options.MAX_MBPS)
    nodes = options.nodes_of(args, 1023)
    if check:
        # The number of cases and their totals do not depend on measured rates.
        wanted = check.cases(plans.ANY_MACHINE)
    elif args.published:
        wanted = _fixed(args, mbps, nodes["to_node"])
    else:
        wanted = _sweep(args, mbps)
    return LatencyPlan(
        cases=cases.check_cases(wanted),
        rounds=whole("--rounds", args.rounds, 1, 10_000),
        **nodes,
        pause_us=whole("--pause-us", args.pause_us, 0, 1_000_000),
        skip_windows=whole("--skip-windows", args.skip_windows, 0, 100_000),
        learns=check is not None,
    )


def settle(plan: LatencyPlan, job: Job) -> LatencyPlan:
    """With --check, learn this machine's rates, and make the plan they lead to.

    The run with the final plan measures all figures that the checks compare.
    """
    check = _check_plan(job.args)
    if check is None:
        return plan
    if not job.simulated:
        raise unsupported(
            "--check needs DMA channels whose rate can be set",
            job.where or "this machine",
            hint="pageferry bench latency --check --vm --topology two-node",
        )

    def measured(wanted: tuple[Case, ...]) -> list[Row]:
        first = replace(plan, cases=wanted, rounds=3)
        return make_rows(first, job.measure(first)[0])

    output.talk("learning the rates of this machine")
    rates = plans.rates_of(check, measured(check.rate_cases()))
    known = plans.calibration_of(rates, measured(check.folio_cases(rates)))
    output.talk(
        f"{check.channels} channels of {rates.large_mbps} MB/s for 2M, "
        f"{rates.overlap_mbps} MB/s for 4K to overlap with bookkeeping, else "
        f"{rates.small_mbps}; one folio takes {known.large_ns / 1e3:.0f} us and "
        f"{known.small_ns / 1e3:.0f} us"
    )
    return replace(plan, cases=check.cases(known))


def _judge(args: argparse.Namespace, rows: Sequence[Row]) -> list[Check] | None:
    return None if args.check is None else checks.judge(rows)


SPEC = Benchmark(
    name="latency",
    about="how long memory is unmapped while it moves",
    description=DESCRIPTION,
    epilog=EPILOG,
    topology_about=None,
    options=OPTIONS,
    apart=VARIED,
    apart_title="combinations (LIST: with commas)",
    make_plan=make_plan,
    lines=(Latency,),
    make_rows=make_rows,
    show=show,
    simulated_apart=True,
    published={name: (table,) for name, table in plans.TABLES.items()},
    settle=settle,
    judge=_judge,
)
