# SPDX-License-Identifier: GPL-2.0-only
"""Make the Debian package of the tool, and check it with lintian.

    make_deb.py DIR   put the package into DIR

The build runs in a copy, so that the checkout stays clean. Debian 12 lacks
python3-msgspec, which makes the manual pages: they come from the environment of
`make setup`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Hints are shown, too, and fail nothing.
_LEVELS = ("--display-info", "--fail-on", "error,warning")


def copy_sources(target: Path) -> None:
    """Copy the files that git knows, or all files of an export."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns("dist", "build"))
        return
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run(argv: list[str], cwd: Path) -> bool:
    """Run a program, with its output on stderr: stdout is for the answer."""
    # Debian's tools and Python come before those of the environment.
    environment = {
        **os.environ,
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHON": sys.executable,
        "LC_ALL": "C.UTF-8",
    }
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        argv, cwd=cwd, env=environment, stdout=sys.stderr, check=False
    )
    return done.returncode == 0


def build(target: Path) -> Path | None:
    """Build and check the package; returns its file."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pageferry-deb-") as scratch:
        tree = Path(scratch, "pageferry")
        copy_sources(tree)
        if not run(["dpkg-buildpackage", "-b", "-us", "-uc", "-d"], tree):
            return None
        (changes,) = Path(scratch).glob("*.changes")
        if not run(["lintian", "--allow-root", *_LEVELS, str(changes)], tree):
            return None
        (package,) = Path(scratch).glob("pageferry_*.deb")
        return Path(shutil.copy2(package, target))


def main(arguments: list[str]) -> int:
    """Make the package, and print its path."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    package = build(Path(arguments[0]).resolve())
    if package is None:
        print("pageferry: the package was not made, see above", file=sys.stderr)
        return 1
    print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
