# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry bench cost`."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.bench import cost, run_cost
from pageferry.bench.move_pages import parse_engines, parse_sizes
from pageferry.commands.kernel_build import add_kernel_arguments, make_request
from pageferry.errors import PageferryError, usage_error
from pageferry.kernel.arch import X86_64, find
from pageferry.report import tables
from pageferry.results import store
from pageferry.results.schema import as_builtins
from pageferry.units import whole

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Count the instructions that move_pages(2) takes for each folio. The clock of the
emulated machine counts instructions, so the same image gives the same digits on
every run and host. "stock" is the vanilla kernel, "off" is ours without an
engine, and "unbatched" is ours without an engine and with batch_ptes off. The
place of data in memory changes the count a little, so the result is the mean of
several layouts. With "cpu" it includes the instructions of the copy.

For sizes between 4K and 2M the benchmark counts the first move of fresh memory,
and then nine more: stock Linux splits such folios at their second move. --paths
other than move_pages use two memory tiers, and 4K pages, except for hugetlb."""

EPILOG = """\
examples:
  pageferry bench cost
  pageferry bench cost --engines stock,off,cpu --sizes 16K,64K,1M
  pageferry bench cost --engines stock,off,cpu --sizes 4K --pages all --check
  pageferry bench cost --engines stock,unbatched,off --paths all --check
  pageferry bench cost --arch arm64 --engines off,cpu,dcbm --check
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "cost",
        help="instructions per migrated folio, by engine",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--layouts",
        default="5",
        metavar="N",
        help="memory layouts for each engine (default: %(default)s)",
    )
    parser.add_argument(
        "--engines",
        metavar="LIST",
        help=f"(default: {','.join(cost.default_engines(X86_64))}; "
        "with --arch arm64 also dcbm)",
    )
    parser.add_argument(
        "--sizes",
        default="4K,2M",
        metavar="LIST",
        help="folio sizes, or all (default: %(default)s)",
    )
    parser.add_argument(
        "--pages",
        default=",".join(cost.DEFAULT_PAGES),
        metavar="LIST",
        help=f"kinds of 4K pages: {', '.join(cost.PAGES)}, or all; shared is by two "
        "processes, ksm is merged, inherited is older than a child that has ended, "
        "watched is by a userfaultfd (default: %(default)s)",
    )
    parser.add_argument(
        "--paths",
        default=",".join(cost.DEFAULT_PATHS),
        metavar="LIST",
        help=f"callers: {', '.join(cost.PATHS)}, or all (default: %(default)s)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="fail if unbatched differs from stock, or off exceeds it, by 0.5%% at "
        "4K, 0.1%% at 2M or 1%% on other paths; if off takes besides the copy 2,400 "
        "for 4K pages in runs, 3,400 in random order, or 2%% more than stock for "
        "other pages; if an mtcopy that declines everything takes 3%% more than "
        "stock; if dcbm takes more than off at 4K, or a tenth of off at 2M",
    )
    parser.add_argument(
        "--jobs", metavar="N", help="parallel machines (default: one per CPU)"
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
    add_kernel_arguments(
        parser.add_argument_group("kernel"), vanilla=False, arch_default="x86_64"
    )
    parser.set_defaults(run=run, vanilla=False)


def _parse_words(what: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Parse a list of names, or `all`."""
    if text.strip() == "all":
        return known
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in known:
            raise usage_error(f"no such {what}", word, "known: " + ", ".join(known))
    if len(set(words)) != len(words):
        raise usage_error(f"{what} are listed twice", text)
    return words


def parse_pages(text: str) -> tuple[str, ...]:
    """Parse a list of kinds of pages."""
    return _parse_words("pages", text, cost.PAGES)


def parse_paths(text: str) -> tuple[str, ...]:
    """Parse a list of callers, in the order of the table."""
    paths = _parse_words("paths", text, cost.PATHS)
    return tuple(path for path in cost.PATHS if path in paths)


def make_job(args: argparse.Namespace) -> run_cost.Job:
    """Check the options before anything is built or booted."""
    engines = cost.default_engines(find(args.arch or X86_64.name))
    if args.engines is not None:
        engines = parse_engines(args.engines, cost.ENGINES)
    compared = "stock" in engines and bool({"off", "unbatched"} & set(engines))
    if args.check and not compared and not {"off", "dcbm"} <= set(engines):
        raise usage_error("--check compares off with stock or dcbm", args.engines)
    paths = parse_paths(args.paths)
    if args.arch not in (None, X86_64.name) and paths != cost.DEFAULT_PATHS:
        raise usage_error(
            "only an x86-64 machine has memory tiers", args.paths, "leave out --arch"
        )
    jobs = run_cost.default_jobs() if args.jobs is None else args.jobs
    request = make_request(argparse.Namespace(**{**vars(args), "jobs": None}))
    return run_cost.Job(
        engines=engines,
        layouts=whole("--layouts", args.layouts, 1, 100),
        kernel=request,
        vanilla=dataclasses.replace(request, vanilla=True),
        command=("pageferry", *args.words),
        jobs=whole("--jobs", str(jobs), 1, 256),
        sizes=parse_sizes(args.sizes),
        pages=parse_pages(args.pages),
        paths=paths,
    )


def run(args: argparse.Namespace) -> int:
    """Count, print the table, store the result, and check it with --check."""
    job = make_job(args)
    if args.dry_run:
        steps = run_cost.dry_run(job)
        if args.json:
            output.answer_json({"steps": steps})
        else:
            output.answer("\n".join(steps))
        return 0
    result = run_cost.run(job)
    created = result.created or store.now()
    path = store.save(result, args.output or store.default_path("cost", created))
    refused = cost.regressions(result.rows) if args.check else []
    output.talk(f"result: {path}")
    if refused:
        output.talk(tables.render_cost(result))
        raise PageferryError(
            "the kernel exceeds a bound of --check",
            value=path,
            reason="; ".join(refused),
        )
    if args.json:
        output.answer_json(as_builtins(result))
    else:
        output.answer(tables.render_cost(result))
    return 0
