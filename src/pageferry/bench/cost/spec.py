# SPDX-License-Identifier: GPL-2.0-only
"""`bench cost`."""

from __future__ import annotations

import argparse
import dataclasses
import os

from pageferry.bench import options
from pageferry.bench.cost import boots
from pageferry.bench.cost import rows as cost
from pageferry.bench.cost.table import show
from pageferry.bench.options import option, switch
from pageferry.bench.spec import Benchmark
from pageferry.errors import usage_error
from pageferry.kernel.arch import X86_64, find
from pageferry.kernel.build import BuildRequest
from pageferry.results.schema import Result
from pageferry.units import whole

DESCRIPTION = """\
Count the instructions that move_pages(2) takes for each folio. The clock of the
emulated machine counts instructions, so the same image gives the same digits in
every run. "stock" is the vanilla kernel, "off" is ours without an engine, and
"unbatched" is ours without an engine and with batch_ptes off. The place of data
in memory changes the count a little, so the result is the mean of several
layouts. With "cpu" it includes the instructions of the copy.

For sizes between 4K and 2M the benchmark counts the first move of fresh memory,
and then nine more: stock Linux splits such folios at their second move. --paths
other than move_pages use two memory tiers, and 4K pages, except for hugetlb."""

EPILOG = """\
examples:
  pageferry bench cost
  pageferry bench cost --engines stock,off,cpu --sizes 4K --pages all --check
  pageferry bench cost --engines stock,unbatched,off --paths all --check
  pageferry bench cost --arch arm64 --engines off,cpu,dcbm --check
"""

OPTIONS = (
    option("--layouts", "memory layouts for each engine", "N", "5"),
    option(
        "--engines",
        f"(default: {','.join(cost.default_engines(X86_64))}; "
        "with --arch arm64 also dcbm)",
        "LIST",
    ),
    option("--sizes", "folio sizes, or all", "LIST", "4K,2M"),
    option(
        "--pages",
        f"kinds of 4K pages: {', '.join(cost.PAGES)}, or all; shared: by two "
        "processes (16: by 16), file: clean, of ext4, ksm: merged, inherited: "
        "older than an ended child, mixed: one in 16 inherited, watched: by a "
        "userfaultfd",
        *("LIST", ",".join(cost.DEFAULT_PAGES)),
    ),
    option(
        "--paths",
        f"callers: {', '.join(cost.PATHS)}, or all; cached, tmpfs: unmapped",
        *("LIST", ",".join(cost.DEFAULT_PATHS)),
    ),
    switch(
        "--check",
        "fail if unbatched differs from stock, or off exceeds it, by 0.5%% at "
        "4K, 0.1%% at 2M or 1%% on other paths (7.3: 2%%); if off takes 2%% more "
        "besides the copy than docs/background/measuring.md says, or than stock for "
        "other pages; if an mtcopy that declines all takes 3%% more than "
        "stock; if dcbm takes more than 9.4%% of off at 2M (7.3: 14%%), or 129%% at 4K",
    ),
    option("--jobs", "parallel machines (default: one per CPU)", "N"),
    *options.ENDING,
)


def _parse_words(what: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Parse a list of names, or `all`."""
    return known if text.strip() == "all" else options.words_of(text, known, what)


def parse_paths(text: str) -> tuple[str, ...]:
    """Parse a list of callers, in the order of the table."""
    paths = _parse_words("path", text, cost.PATHS)
    return tuple(path for path in cost.PATHS if path in paths)


def make_job(args: argparse.Namespace, request: BuildRequest) -> boots.Job:
    """Check the options before any build or boot."""
    arch = find(args.arch or X86_64.name)
    engines = cost.default_engines(arch)
    if args.engines is not None:
        engines = options.parse_engines(args.engines, cost.ENGINES)
    compared = "stock" in engines and bool({"off", "unbatched"} & set(engines))
    if args.check and not compared and not {"off", "dcbm"} <= set(engines):
        raise usage_error("--check compares off with stock or dcbm", args.engines)
    paths = parse_paths(args.paths)
    if arch is not X86_64 and paths != cost.DEFAULT_PATHS:
        raise usage_error(
            "only an x86-64 machine has memory tiers", args.paths, "leave out --arch"
        )
    # One machine for each CPU.
    cpus = len(os.sched_getaffinity(0))
    jobs = str(cpus) if args.jobs is None else args.jobs
    return boots.Job(
        engines=engines,
        layouts=whole("--layouts", args.layouts, 1, 100),
        kernel=request,
        vanilla=dataclasses.replace(request, vanilla=True),
        args=args,
        jobs=whole("--jobs", jobs, 1, 256),
        sizes=options.parse_sizes(args.sizes),
        pages=_parse_words("kind of pages", args.pages, cost.known_pages(arch)),
        paths=paths,
    )


def _refused(args: argparse.Namespace, result: Result) -> list[str]:
    if not args.check:
        return []
    arch = find(args.arch or X86_64.name)
    return cost.regressions(result.rows, result.kernel.base, arch)


SPEC = Benchmark(
    name="cost",
    about="instructions per migrated folio, by engine",
    description=DESCRIPTION,
    epilog=EPILOG,
    topology=None,
    all_in_usage=True,
    options=OPTIONS,
    make_job=make_job,
    lines=(cost.Cost,),
    show=show,
    refused=_refused,
    complaint="the kernel exceeds a bound of --check",
)
