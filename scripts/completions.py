# SPDX-License-Identifier: GPL-2.0-only
"""Write the completions for bash, zsh and fish into a directory.

Each shell asks the tool, which answers with argcomplete:
    PYTHONPATH=src $(python3 scripts/bootstrap.py python) scripts/completions.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

from argcomplete.shell_integration import shellcode

# The names under which each shell finds a completion by itself.
FILES = {"bash": "pageferry", "zsh": "_pageferry", "fish": "pageferry.fish"}


def main(arguments: list[str]) -> int:
    """Write all files."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for shell, name in FILES.items():
        code = shellcode(["pageferry"], shell=shell)
        (directory / name).write_text(code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
