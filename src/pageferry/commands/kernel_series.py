# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry kernel series`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output, paths
from pageferry.commands.kernel_build import add_base
from pageferry.errors import usage_error
from pageferry.kernel.build import BuildRequest
from pageferry.kernel.series import spec
from pageferry.kernel.series.make import SeriesRequest, write_series

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Write a part of pageferry's changes as a series of patches: mails with a cover letter,
for `git am` and `git send-email`. linux/series/NAME.toml describes each series.

The command commits each patch in a scratch repository. It checks each with the base's
own checkpatch.pl --strict, and builds the touched directories after each. Then it
applies the mails to a clean tree, and compares. If a series comes after others, that
tree has their patches, but the mails do not. The author comes from your git
configuration. No mail is signed off: read the patches, test them, and sign them then."""

EPILOG = """\
examples:
  pageferry kernel series list
  pageferry kernel series keep-large-folios-whole --output ~/mails
  pageferry kernel series keep-large-folios-whole --no-build
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "series",
        help="write a part of the changes as patches for a mailing list",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="series (`list` shows them)")
    add_base(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="new or empty directory for the mails (default: ./NAME-RELEASE)",
    )
    parser.add_argument(
        "--source",
        type=Path,
        metavar="PATH",
        help="tarball or tree (default: Debian's, or another that the hooks fit)",
    )
    parser.add_argument(
        "--no-build", action="store_true", help="do not compile after each patch"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="parallel jobs (default: one per CPU)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print output, mails, release, ..."
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write a series, or list all."""
    if args.name == "list":
        _list(as_json=args.json)
        return 0
    if args.jobs is not None and args.jobs < 1:
        raise usage_error("--jobs needs a number above 0", str(args.jobs))
    written = write_series(
        SeriesRequest(
            name=args.name,
            base=args.base,
            output=args.output or Path(f"{args.name}-{args.base}"),
            source=args.source,
            build=not args.no_build,
            jobs=args.jobs or BuildRequest().jobs,
        )
    )
    if args.json:
        output.answer_json(written.as_json())
    else:
        output.answer("\n".join(written.mails))
    return 0


def _list(*, as_json: bool) -> None:
    linux = paths.repo_root() / "linux"
    found = [spec.read(linux, name) for name in spec.names(linux)]
    if as_json:
        document = [
            {
                "series": s.name,
                "title": s.title,
                "bases": list(s.bases),
                "after": list(s.after),
            }
            for s in found
        ]
        output.answer_json({"series": document})
        return
    rows = [
        [
            s.name,
            ", ".join(s.bases),
            str(max(len(s.patches(b)) for b in s.bases)),
            ", ".join(s.after) or "-",
            s.title,
        ]
        for s in found
    ]
    output.answer(output.table(["series", "bases", "patches", "after", "title"], rows))
