# SPDX-License-Identifier: GPL-2.0-only
"""The files that a check reads. A check that finds no file fails."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pageferry import paths

LINUX = paths.repo_root() / "linux"
TREE = LINUX / "tree"
# kbuild prints such a line for each file that it has sparse look at.
_CHECKED = re.compile(r"^ +CHECK +(?:\.\./)*(\S+)$", re.MULTILINE)


def found(top: Path, *patterns: str) -> list[Path]:
    """List the files that match; a pattern that matches none is an error."""
    files: set[Path] = set()
    for pattern in patterns:
        matches = [path for path in top.glob(pattern) if path.is_file()]
        if not matches:
            raise LookupError(f"no file in {top} matches {pattern}")
        files.update(matches)
    return sorted(files)


def compiled(tree: Path = TREE) -> list[str]:
    """Name the kernel's C files of ours that have an object of their own.

    The files in tests/ do not: the files that they test include them.
    """
    names = [path.relative_to(tree) for path in found(tree, "**/*.c")]
    return [
        name.as_posix()
        for name in names
        if name.parts[0] != "tools" and "tests" not in name.parts
    ]


def outside(names: Iterable[str], directories: Iterable[str]) -> list[str]:
    """Name the files that lie in none of some directories."""
    tops = [PurePosixPath(directory) for directory in directories]
    return [
        name
        for name in names
        if not any(PurePosixPath(name).is_relative_to(top) for top in tops)
    ]


def unchecked(log: str, names: Iterable[str]) -> list[str]:
    """Name the files that sparse did not read, by the log of make."""
    checked = set(_CHECKED.findall(log))
    return [name for name in names if name not in checked]
