# SPDX-License-Identifier: GPL-2.0-only
"""A cgroup for the measured program, if this machine lets us make one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from pageferry.errors import PageferryError
from pageferry.sysfs.files import Files

_TOP = "/sys/fs/cgroup"
_TRIES = 50
_WAIT_S = 0.1


def name() -> str:
    """Name the cgroup for the program."""
    return f"{_TOP}/pageferry-compare-{os.getpid()}"


@contextlib.contextmanager
def made(files: Files) -> Iterator[str | None]:
    """Make a cgroup with the memory controller; None if that is not possible."""
    group = name()
    if not _make(files, group):
        yield None
        return
    try:
        yield group
    finally:
        _remove(files, group)


def _make(files: Files, group: str) -> bool:
    if "memory" not in files.read_or(f"{_TOP}/cgroup.controllers", "").split():
        return False
    try:
        if "memory" not in files.read_or(f"{_TOP}/cgroup.subtree_control", "").split():
            files.write(f"{_TOP}/cgroup.subtree_control", "+memory")
        files.path(group).mkdir(exist_ok=True)
    except (OSError, PageferryError):
        # A container, or a user other than root.
        return False
    return True


def _remove(files: Files, group: str) -> None:
    """Kill what the program left behind; processes take a moment to vanish."""
    with contextlib.suppress(PageferryError):
        files.write(f"{group}/cgroup.kill", "1")
    for _ in range(_TRIES):
        try:
            files.path(group).rmdir()
        except OSError:
            time.sleep(_WAIT_S)
        else:
            return
