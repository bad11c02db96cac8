# SPDX-License-Identifier: GPL-2.0-only
"""`bench scale`."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from pageferry.bench import options
from pageferry.bench.options import option, switch
from pageferry.bench.scale import rows as scale
from pageferry.bench.scale.boots import QUICK, Job, Work
from pageferry.bench.scale.table import show
from pageferry.bench.spec import Benchmark
from pageferry.errors import unsupported, usage_error
from pageferry.kernel.build import BuildRequest
from pageferry.results.schema import Result
from pageferry.units import PMD_BYTES, TIB, whole
from pageferry.vm import topology

DEFAULT_ENGINES = ("stock", "off", "mtcopy", "dcbm")
MAX_MOVERS = 64
MAX_ROUNDS = 10_000_000

DESCRIPTION = """\
Count the instructions that a 4K page takes in long lists of move_pages(2), in one
call and in calls of 256 pages. Then count with many movers at once, as processes and
as threads of one process. At last, short processes move memory for long, and the
memory in use before and after is compared. The clock of the emulated machine
counts the instructions of all CPUs, waiting included. "stock" is the vanilla
kernel, and "off" is ours without an engine.

A list that exceeds the memory of a node names the same pages again for the way
back. With movers, the kernel leaves an engine out where it does not pay; in the
other parts the engine gets all copies."""

EPILOG = """\
examples:
  pageferry bench scale --quick
  pageferry bench scale --check
  pageferry bench scale --parts movers --movers 1,16 --engines stock,off,mtcopy
  pageferry bench scale --parts life --rounds 86400 --check
  pageferry bench scale --parts movers --engines off --config profile
"""

OPTIONS = (
    option("--topology", "virtual machine with nodes 0 and 1", "NAME", "scale"),
    option("--engines", "", "LIST", ",".join(DEFAULT_ENGINES)),
    option("--parts", "", "LIST", ",".join(scale.PARTS)),
    option("--sizes", "bytes of each list (default: 64M,256M,1G,4G,16G)", "LIST"),
    option("--movers", "movers at once (default: 1,2,4,8,16,32,64)", "LIST"),
    option(
        "--rounds",
        "processes of the long life, a guest second apart (default: 3600)",
        "N",
    ),
    switch("--quick", "short lists, few movers, 200 rounds without much pause"),
    switch(
        "--check",
        "fail if a page of a longer list costs 5%% more than one of the smallest; if "
        "movers take more instructions than on stock; if they take 5%% more with an "
        "engine than without (not with --quick); if memory in use, slab or per-CPU "
        "memory grows by 256K more than on stock, or pools by 32 objects",
    ),
    option("--jobs", "parallel machines (default: as CPUs and memory allow)", "N"),
    *options.ENDING,
)


def _available_bytes() -> int:
    """Return the free memory of the host, about."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return 0


def _work(args: argparse.Namespace) -> Work:
    """Check what to measure."""
    work = QUICK if args.quick else Work()
    named = options.words_of(args.parts, scale.PARTS, "part")
    work = replace(work, parts=tuple(part for part in scale.PARTS if part in named))
    if args.sizes is not None:
        hint = "a power of two from 2M on: 64M,1G"
        sizes = options.parse_powers(args.sizes, PMD_BYTES, TIB, "a size", hint)
        work = replace(work, sizes=tuple(sorted(sizes)))
    if args.movers is not None:
        movers = options.parse_list(args.movers, "a number of movers", 1, MAX_MOVERS)
        work = replace(work, movers=tuple(sorted(movers)))
    if args.rounds is not None:
        rounds = whole("--rounds", args.rounds, 4, MAX_ROUNDS)
        work = replace(work, rounds=rounds)
    return work


def make_job(args: argparse.Namespace, request: BuildRequest) -> Job:
    """Check the options before any build or boot."""
    engines = options.parse_engines(args.engines)
    if args.check and ("stock" not in engines or len(engines) < 2):
        raise usage_error("--check compares stock with others", args.engines)
    work = _work(args)
    machine = topology.load(args.topology)
    if args.arch not in (None, machine.arch):
        raise usage_error(f"topology {args.topology} is {machine.arch}", args.arch)
    if not {0, 1} <= set(machine.with_memory) or machine.numbers[1].hotplug:
        raise unsupported(
            f"topology {args.topology} has no memory on nodes 0 and 1 at boot",
            hint="--topology scale",
        )
    cpus = len(os.sched_getaffinity(0))
    fitting = _available_bytes() // min(work.memory_bytes, machine.memory_bytes)
    jobs = str(max(1, min(cpus, fitting))) if args.jobs is None else args.jobs
    return Job(
        engines=engines,
        work=work,
        topology=args.topology,
        kernel=replace(request, arch=machine.architecture),
        args=args,
        jobs=whole("--jobs", jobs, 1, 256),
    )


def _refused(args: argparse.Namespace, result: Result) -> list[str]:
    return scale.regressions(result.rows) if args.check else []


SPEC = Benchmark(
    name="scale",
    about="growth of cost with sizes, movers and time",
    description=DESCRIPTION,
    epilog=EPILOG,
    topology=None,
    all_in_usage=True,
    options=OPTIONS,
    make_job=make_job,
    lines=scale.LINES,
    show=show,
    refused=_refused,
    complaint="growth exceeds a bound of --check",
)
