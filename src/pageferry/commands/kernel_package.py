# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry kernel package`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.errors import usage_error
from pageferry.kernel import distribution, package

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Build Debian packages of a kernel for this kind of machine. The kernel has the
configuration of a distribution, and linux/configs/distribution.config on top. Its
engines are modules, and none is active after boot.

The command says how long a build may take and how much disk it needs, and fails at
once if the disk has less. With --localmodconfig the kernel has only modules that are
loaded now: a third of the time, for this machine alone.
"""
EPILOG = """\
examples:
  pageferry kernel package --dry-run
  pageferry kernel package --localmodconfig
  pageferry kernel package --config-from /boot/config-6.12.117+deb13-amd64
  apt-get install ./linux-image-6.12.*+pageferry_*.deb
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "package",
        help="build Debian packages of a kernel and print their files",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--base", default="6.12", metavar="RELEASE", help="base (default: %(default)s)"
    )
    parser.add_argument(
        "--config-from",
        default=distribution.DEBIAN,
        metavar="WHERE",
        help="a file, `running` (this kernel's) or `debian` (package linux-config-BASE; "
        "default)",
    )
    parser.add_argument(
        "--localmodconfig",
        action="store_true",
        help="leave out modules that are not loaded now",
    )
    parser.add_argument(
        "--debug-symbols",
        action="store_true",
        help="also make the package linux-image-RELEASE-dbg",
    )
    parser.add_argument(
        "--revision",
        type=int,
        default=1,
        metavar="N",
        help="last part of the packages' version; apt upgrades to a higher one "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--source",
        type=Path,
        metavar="PATH",
        help="tarball or tree (default: Debian's, or another that the hooks fit)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="directory for the packages (default: the current one)",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="parallel jobs (default: one per CPU)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print forecast and steps, do nothing"
    )
    parser.add_argument(
        "--json", action="store_true", help="print packages, release, version, ..."
    )
    parser.set_defaults(run=run)


def _make_request(args: argparse.Namespace) -> package.PackageRequest:
    for option, value in (("--jobs", args.jobs), ("--revision", args.revision)):
        if value is not None and value < 1:
            raise usage_error(f"{option} needs a number above 0", str(value))
    return package.PackageRequest(
        base=args.base,
        source=args.source,
        config_from=args.config_from,
        local_modules=args.localmodconfig,
        debug_symbols=args.debug_symbols,
        revision=args.revision,
        target=args.output.expanduser(),
        jobs=args.jobs or len(os.sched_getaffinity(0)),
    )


def run(args: argparse.Namespace) -> int:
    """Build the packages, or print the steps."""
    request = _make_request(args)
    if args.dry_run:
        plan = package.plan_package(request)
        if args.json:
            output.answer_json({"steps": package.describe(plan), **_facts(plan)})
        else:
            output.answer("\n".join(package.describe(plan)))
        return 0
    plan, files = package.build_packages(request)
    if args.json:
        names = [str(file) for file in files]
        output.answer_json({"packages": names, **_facts(plan)})
    else:
        output.answer("\n".join(map(str, files)))
        output.talk(f"to install: apt-get install {files[0]}")
    return 0


def _facts(plan: package.Plan) -> dict[str, object]:
    return {
        "release": plan.release,
        "version": plan.version,
        "base": plan.request.base,
        "config": str(plan.configuration.path),
        "disk_bytes": plan.cost.disk_bytes,
        "cpu_s": plan.cost.cpu_s,
        "log": str(plan.kernel.log),
    }
