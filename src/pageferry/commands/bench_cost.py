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
from pageferry.commands.bench_move_pages import whole
from pageferry.commands.kernel_build import add_kernel_arguments, make_request
from pageferry.errors import PageferryError, usage_error
from pageferry.kernel.arch import X86_64, find
from pageferry.report import tables
from pageferry.results import store
from pageferry.results.schema import as_builtins

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Count the instructions that move_pages(2) takes per folio, in an emulated
machine whose clock is the count of its instructions: the same image gives the
same digits on every run and on every host. "stock" is the vanilla kernel,
"off" ours with no engine active, and "unbatched" the same with batch_ptes off,
which is all of it turned off. Where things lie in memory matters a little,
so each engine boots with several layouts, and the mean counts. Where "cpu" is
counted, too, the copy is told apart from all else.

Of sizes between 4K and 2M the first move of fresh memory is counted, and then
nine more: stock Linux splits such folios at their second move."""

EPILOG = """\
examples:
  pageferry bench cost
  pageferry bench cost --engines stock,unbatched,off --check
  pageferry bench cost --engines stock,off,cpu --sizes 16K,64K,1M
  pageferry bench cost --engines stock,off,cpu --sizes 4K --pages all --check
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
        help=f"what to count (default: {','.join(cost.default_engines(X86_64))}; "
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
        help=f"what 4K pages are: {', '.join(cost.PAGES)}, or all; shared by two "
        "processes, merged by KSM, from before a child that is gone, or watched by "
        "a userfaultfd (default: %(default)s)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="fail when unbatched is not within 0.5%% of stock at 4K and 0.1%% at "
        "2M, off takes that much more, or besides the copy more than 2,400 for 4K "
        "pages in runs and 3,400 in random order, or 2%% more than stock for "
        "others, mtcopy, which declines all there, takes 3%% more than stock, or "
        "dcbm takes more instructions than off at 4K, or a tenth of them at 2M",
    )
    parser.add_argument(
        "--jobs", metavar="N", help="machines at once (default: one per CPU)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="keep the result there (default: below the XDG state directory)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, do nothing"
    )
    add_kernel_arguments(
        parser.add_argument_group("kernel"), vanilla=False, arch_default="x86_64"
    )
    parser.set_defaults(run=run, vanilla=False)


def parse_pages(text: str) -> tuple[str, ...]:
    """Read a list of what pages are to be."""
    if text.strip() == "all":
        return cost.PAGES
    pages = tuple(word.strip() for word in text.split(","))
    for name in pages:
        if name not in cost.PAGES:
            raise usage_error("no such pages", name, "known: " + ", ".join(cost.PAGES))
    if len(set(pages)) != len(pages):
        raise usage_error("pages are listed twice", text)
    return pages


def make_job(args: argparse.Namespace) -> run_cost.Job:
    """Check the options before anything is built or booted."""
    engines = cost.default_engines(find(args.arch or X86_64.name))
    if args.engines is not None:
        engines = parse_engines(args.engines, cost.ENGINES)
    compared = "stock" in engines and bool({"off", "unbatched"} & set(engines))
    if args.check and not compared and not {"off", "dcbm"} <= set(engines):
        raise usage_error("--check compares off with stock or dcbm", args.engines)
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
    )


def run(args: argparse.Namespace) -> int:
    """Count, print the table, keep the result, and judge it with --check."""
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
            "the kernel costs more than it may",
            value=path,
            reason="; ".join(refused),
        )
    if args.json:
        output.answer_json(as_builtins(result))
    else:
        output.answer(tables.render_cost(result))
    return 0
