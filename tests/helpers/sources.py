# SPDX-License-Identifier: GPL-2.0-only
"""The files that a check reads. A check that finds no file fails."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pageferry import paths
from pageferry.kernel import bases

LINUX = paths.repo_root() / "linux"
TREE = LINUX / "tree"
# kbuild prints this line for each file that sparse checks.
_CHECKED = re.compile(r"^ +CHECK +(?:\.\./)*(\S+)$", re.MULTILINE)


def found(top: Path, *patterns: str) -> list[Path]:
    """List matching files; a pattern without a match is an error."""
    files: set[Path] = set()
    for pattern in patterns:
        matches = [path for path in top.glob(pattern) if path.is_file()]
        if not matches:
            raise LookupError(f"no file in {top} matches {pattern}")
        files.update(matches)
    return sorted(files)


def ours(*patterns: str, base: str = bases.DEFAULT) -> dict[str, Path]:
    """Map the in-tree names of our files for a base to the files."""
    files = {path.relative_to(TREE).as_posix(): path for path in found(TREE, *patterns)}
    only = LINUX / "only" / base
    own = [path for pattern in patterns for path in only.glob(pattern)]
    return files | {path.relative_to(only).as_posix(): path for path in own}


def compiled(names: Iterable[str]) -> list[str]:
    """Select the C files that kbuild compiles to an object of their own.

    Files in tests/ have no object: the files under test include them. The programs
    in tools/ are not part of the kernel.
    """
    return [
        name
        for name in sorted(names)
        if name.endswith(".c")
        and not name.startswith("tools/")
        and "tests" not in PurePosixPath(name).parts
    ]


def outside(names: Iterable[str], directories: Iterable[str]) -> list[str]:
    """List the files that lie in none of these directories."""
    tops = [PurePosixPath(directory) for directory in directories]
    return [
        name
        for name in names
        if not any(PurePosixPath(name).is_relative_to(top) for top in tops)
    ]


def unchecked(log: str, names: Iterable[str]) -> list[str]:
    """List the files that sparse did not read, according to the log of make."""
    checked = set(_CHECKED.findall(log))
    return [name for name in names if name not in checked]
