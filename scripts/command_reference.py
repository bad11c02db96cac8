# SPDX-License-Identifier: GPL-2.0-only
"""Print docs/reference/commands.md, made from the parser.

A test compares the page with this output, so the page cannot fall behind:
    PY=$(python3 scripts/bootstrap.py python)
    PYTHONPATH=src $PY scripts/command_reference.py > docs/reference/commands.md
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

HEAD = """\
# Commands

Made from the parser by `scripts/command_reference.py`; a test keeps it current. To
change a text, edit the command in `src/pageferry/commands/`, or the `spec.py` of a
benchmark in `src/pageferry/bench/`.

stdout is the answer, stderr the talk. `--json` prints one document on stdout,
also on failure: `{"error": {...}}`. Sizes take K, M and G as powers of 1024.
Node lists have numactl's format. No command reads stdin.

| exit code | meaning |
| --- | --- |
| 0 | done and verified |
| 1 | ran and failed |
| 2 | usage |
| 3 | this kernel or machine lacks a feature, which the error names |
| 4 | skipped |
| 5 | the build or the virtual machine did not get as far as running |
| 124 | timeout |
| 130 | interrupted |
| any | after `vm run --`, the command's own |
"""


def verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all verbs, in the order of --help."""
    groups = [
        action
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    if not groups:
        yield parser
    for group in groups:
        for child in dict.fromkeys(group.choices.values()):
            yield from verbs(child)


def reference() -> str:
    """Write the whole page."""
    # argparse wraps to the width of the terminal. Use the same width everywhere, and
    # the same defaults.
    os.environ["COLUMNS"] = "80"
    os.environ.pop("PAGEFERRY_BASE", None)
    from pageferry.cli import make_parser

    parts = [HEAD]
    for parser in verbs(make_parser()):
        parts.append(
            f"\n## {parser.prog}\n\n```\n{parser.format_help().strip()}\n```\n"
        )
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(reference())
