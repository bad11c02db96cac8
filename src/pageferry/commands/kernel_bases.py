# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry kernel bases`: compare the bases."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from pageferry import output, paths
from pageferry.kernel import bases, hooks

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
List the releases of Linux that --base takes, and the features of each: those
that a hook adds, and those that the release has by itself."""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "bases",
        help="list the releases of Linux to build, and the features of each",
        description=DESCRIPTION,
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read the tables and the hooks of all bases, and print them."""
    linux = paths.repo_root() / "linux"
    known = [bases.read(linux, name) for name in bases.names(linux)]
    of_base = [hooks.subjects(linux / "hooks" / base.name) for base in known]
    if args.json:
        documents = [
            {**asdict(base), "default": base.name == bases.DEFAULT, "hooks": subjects}
            for base, subjects in zip(known, of_base, strict=True)
        ]
        output.answer_json({"bases": documents})
    else:
        output.answer("\n\n".join(_pages(known, of_base)))
    return 0


def _pages(known: Sequence[bases.Base], of_base: Sequence[dict[str, str]]) -> list[str]:
    heads = [
        [
            base.name,
            f"{base.oldest} or later",
            base.known(),
            f"{base.package} ({', '.join(base.suites) or 'no suite'})",
        ]
        for base in known
    ]
    features: dict[str, str] = {}
    for subjects in of_base:
        features = subjects | features
    rows = [
        [
            name[:4],
            *(
                "hook" if name in subjects else "itself" if name in base.has else "-"
                for base, subjects in zip(known, of_base, strict=True)
            ),
            features[name],
        ]
        for name in sorted(features)
    ]
    names = [base.name for base in known]
    parts = [
        output.table(["base", "releases", "known to work", "Debian's package"], heads),
        output.table(["hook", *names, "feature"], rows),
    ]
    for base in known:
        if base.has:
            own = "\n".join(f"  {n[:4]}  {why}" for n, why in sorted(base.has.items()))
            parts.append(f"Linux {base.name} by itself:\n{own}")
    return parts
