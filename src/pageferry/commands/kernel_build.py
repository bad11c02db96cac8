# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry kernel build`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output, paths
from pageferry.errors import usage_error
from pageferry.kernel import arch, bases, config
from pageferry.kernel.build import BuildRequest, build_kernel, describe, plan_build

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

EPILOG = """\
examples:
  pageferry kernel build
  pageferry kernel build --config debug-kasan --config debug-lockdep
  pageferry kernel build --arch arm64
  pageferry kernel build --base 7.3
  pageferry kernel build --vanilla --source ~/linux-6.12.30
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    about = "build a kernel for the virtual machine and print its image"
    parser = sub.add_parser(
        "build",
        help=about,
        description=f"{about}. A second call without changes builds nothing.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_kernel_arguments(parser, arch_default=arch.X86_64.name)
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="parallel jobs (default: one per CPU)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the steps, do nothing"
    )
    parser.add_argument(
        "--json", action="store_true", help="print image, build_dir, release, ..."
    )
    parser.set_defaults(run=run)


def add_base(parser: argparse._ActionsContainer) -> None:
    """Add the option that chooses a base."""
    parser.add_argument(
        "--base",
        default=bases.DEFAULT,
        metavar="RELEASE",
        help="Linux to build, see `kernel bases` (default: %(default)s)",
    )


def add_kernel_arguments(
    parser: argparse._ActionsContainer,
    *,
    vanilla: bool = True,
    arch_default: str = "that of the topology",
) -> None:
    """Add the options that choose a kernel."""
    add_base(parser)
    if vanilla:
        parser.add_argument(
            "--vanilla",
            action="store_true",
            help="build Linux without pageferry's changes",
        )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME",
        help="add linux/configs/NAME.config to vm.config (`list` shows them)",
    )
    parser.add_argument(
        "--arch",
        choices=arch.NAMES,
        help="architecture; fragments in linux/configs/ARCH replace those of the same "
        f"name (default: {arch_default})",
    )
    parser.add_argument(
        "--source",
        type=Path,
        metavar="PATH",
        help="tarball or tree (default: Debian's, or another that the hooks fit)",
    )


def make_request(
    args: argparse.Namespace, machine: arch.Architecture = arch.X86_64
) -> BuildRequest:
    """Turn options into a request; without --arch, for the machine's architecture."""
    jobs = getattr(args, "jobs", None)
    if jobs is not None and jobs < 1:
        raise usage_error("--jobs needs a number above 0", str(jobs))
    return BuildRequest(
        base=bases.read(paths.repo_root() / "linux", args.base).name,
        vanilla=args.vanilla,
        configs=tuple(args.config) or (config.DEFAULT,),
        source=args.source,
        arch=machine if args.arch is None else arch.find(args.arch),
        jobs=jobs or len(os.sched_getaffinity(0)),
    )


def run(args: argparse.Namespace) -> int:
    """Build the kernel, or print the steps."""
    if args.config == ["list"]:
        configs = paths.repo_root() / "linux" / "configs"
        base = bases.read(paths.repo_root() / "linux", args.base).name
        machine = arch.find(args.arch or "x86_64")
        names = config.Fragments(configs, machine, base).available()
        if args.json:
            output.answer_json({"configs": names})
        else:
            output.answer("\n".join(names))
        return 0
    request = make_request(args)
    if args.dry_run:
        steps = describe(plan_build(request))
        if args.json:
            output.answer_json({"steps": steps})
        else:
            output.answer("\n".join(steps))
        return 0
    built = build_kernel(request)
    if args.json:
        output.answer_json(built.as_json())
    else:
        output.answer(str(built.image))
    return 0
