# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry fault-campaign`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.bench import campaign, run_campaign
from pageferry.commands import ABOUT
from pageferry.commands.kernel_build import add_kernel_arguments, make_request
from pageferry.errors import ExitCode, PageferryError, from_os_error
from pageferry.units import parse_seconds, whole

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Move folios of several sizes with dcbm on simulated DMA channels, while other
tasks write to the memory. The channels have each fault of dmasim in turn, and
then all mixed. Runs in a virtual machine with the debug kernel (KASAN, lockdep,
DMA_API_DEBUG). Fails if a byte is wrong, if a page or mapping leaks without
need, if a call exceeds dcbm's timeouts, or if the kernel logs a message that the
campaign does not announce."""

EPILOG = """\
examples:
  pageferry fault-campaign
  pageferry fault-campaign --folios 20000 --faults stall,late,mixed --seed 7
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "fault-campaign",
        help=ABOUT["fault-campaign"],
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--folios",
        default="200000",
        metavar="N",
        help="total number of folios (default: %(default)s)",
    )
    add(
        "--faults",
        default="all",
        metavar="LIST",
        help=f"of {', '.join(campaign.FAULTS)}, or all (default: %(default)s)",
    )
    add(
        "--seed",
        default="1",
        metavar="N",
        help="seed of the random choices (default: %(default)s)",
    )
    add(
        "--timeout-ms",
        default="200",
        metavar="N",
        help="timeout of dcbm (default: %(default)s)",
    )
    add("--timeout", metavar="TIME", help="end a virtual machine after this time")
    add("--output", type=Path, metavar="FILE", help="write the result there")
    add("--json", action="store_true", help="print the result as JSON")
    add("--dry-run", action="store_true", help="print the steps, do nothing")
    add_kernel_arguments(parser.add_argument_group("kernel"), vanilla=False)
    parser.set_defaults(run=run, vanilla=False)


def make_job(args: argparse.Namespace) -> run_campaign.Job:
    """Check the options before anything is built or booted."""
    args.config = args.config or list(run_campaign.CONFIGS)
    return run_campaign.Job(
        folios=whole("--folios", args.folios, 1, 10**9),
        faults=campaign.parse_faults(args.faults),
        seed=whole("--seed", args.seed, 0, 2**63 - 1),
        timeout_ms=whole("--timeout-ms", args.timeout_ms, 10, 60_000),
        kernel=make_request(args),
        limit_s=None if args.timeout is None else parse_seconds(args.timeout),
    )


def run(args: argparse.Namespace) -> int:
    """Run the campaign, print the table or the document, and check it."""
    job = make_job(args)
    if args.dry_run:
        steps = run_campaign.dry_run(job)
        if args.json:
            output.answer_json({"steps": steps})
        else:
            output.answer("\n".join(steps))
        return 0
    report = run_campaign.run(job)
    problems = report.problems()
    document: dict[str, object] = {
        "ok": not problems,
        "problems": problems,
        "base": job.kernel.base,
        "folios": report.folios,
        "seed": job.seed,
        "timeout_ms": job.timeout_ms,
        "phases": report.phases,
        "leaks": report.leaks,
    }
    if args.json:
        output.answer_json(document)
    else:
        output.answer(output.table(*campaign.table(report.phases)))
    if args.output is not None:
        _save(args.output, document)
    if problems and args.json:
        # stdout already has its one document, so the problems go to stderr.
        for problem in problems:
            output.talk(f"pageferry: {problem}")
        return int(ExitCode.FAILED)
    if problems:
        raise PageferryError("the campaign found problems", detail="\n".join(problems))
    return 0


def _save(path: Path, document: dict[str, object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n")
    except OSError as error:
        raise from_os_error(
            error, "cannot write the result", ExitCode.FAILED
        ) from error
