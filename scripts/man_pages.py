# SPDX-License-Identifier: GPL-2.0-only
"""Write the manual pages, made from the parser, into a directory.

pageferry(1) lists the commands, and each command has a page of its own:
    PYTHONPATH=src $(python3 scripts/bootstrap.py python) scripts/man_pages.py DIR
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MANUAL = "Page migration with copy engines"
FILES = """\
.TP
.I /usr/share/pageferry
The changes to Linux, and the programs of the benchmarks.
.TP
.I /etc/default/pageferry
The engine and the settings that pageferry\\-engine.service applies at boot.
.TP
.I /etc/pageferry/balance.toml
The configuration of pageferry\\-balance.service.
.TP
.I ~/.cache/pageferry
Kernel sources and builds.  All of it can be made again.
.TP
.I /usr/share/doc/pageferry/docs
Tutorial, how\\-to pages and reference."""


def commands(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield the parser of each command, with its line in --help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {each.dest: each.help or "" for each in action._choices_actions}
            for name, child in action.choices.items():
                inner = list(commands(child))
                yield from inner or [(child, about[name])]


def overview(
    parser: argparse.ArgumentParser,
    children: list[tuple[argparse.ArgumentParser, str]],
) -> argparse.ArgumentParser:
    """Make a parser for pageferry(1): the commands without their options."""
    top = argparse.ArgumentParser(
        prog=parser.prog,
        usage="pageferry [-h] [--version] COMMAND ...",
        description=parser.description,
        epilog=parser.epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version")
    group = top.add_argument_group("commands")
    for child, about in children:
        name = child.prog.partition(" ")[2]
        group.add_argument(name, metavar=name, help=about)
    return top


def page(parser: argparse.ArgumentParser, about: str, more: dict[str, str]) -> str:
    """Format the page of one parser."""
    from argparse_manpage.manpage import Manpage

    from pageferry import __version__

    made = Manpage(parser)
    # whatis(1) wants one word as the name.
    made.prog = parser.prog.replace(" ", "-")
    made.source = f"pageferry {__version__}"
    made.manual = MANUAL
    made.description = about
    for heading, text in more.items():
        made.add_section(heading, ">", text)
    return _headings(str(made))


def _headings(text: str) -> str:
    """Give the parts of the epilog a section each, and keep the lines of examples."""
    text = text.replace(".SH COMMENTS\n", "\n")
    text = re.sub(r"(?m)^exit codes: ", ".SH EXIT STATUS\n", text)
    # The lines of an example are indented, as the next heading is not.
    example = re.compile(r"(?m)^examples?:\n((?: .*\n|\n(?= ))+)")
    text = example.sub(r".SH EXAMPLES\n.nf\n\1.fi\n", text)
    # An empty line in a page is a paragraph, which a heading begins anyway.
    return re.sub(r"\n\n+", "\n.PP\n", text).replace("\n.PP\n.SH", "\n.SH")


def pages() -> dict[str, str]:
    """Make all pages, by the names of their files."""
    from pageferry.cli import make_parser

    # argparse wraps to the width of the terminal. Use the same width everywhere.
    os.environ["COLUMNS"] = "80"
    parser = make_parser()
    children = list(commands(parser))
    names = [child.prog.replace(" ", "-") for child, _ in children]
    listed = ",\n".join(f".BR {name.replace('-', chr(92) + '-')} (1)" for name in names)
    about = "make Linux move pages between NUMA nodes fast"
    top = page(overview(parser, children), about, {"files": FILES, "see also": listed})
    back = {"see also": ".BR pageferry (1)"}
    made = {"pageferry.1": top}
    for name, (child, line) in zip(names, children, strict=True):
        made[f"{name}.1"] = page(child, line, back)
    return made


def main(arguments: list[str]) -> int:
    """Write all pages."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
