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
_LIMITS = ("memory.max", "memory.high", "cpu.max", "cpuset.cpus", "cpuset.mems")


def name(files: Files, *, memory: bool) -> str:
    """Name the cgroup for the program.

    It is below the cgroup of this command, whose limits then hold for the program, too.
    A cgroup with processes gives no controllers to those below it. If the memory
    controller is needed, the new cgroup is beside that of this command.
    """
    parent = own = _own(files)
    if memory and own != _TOP:
        parent = own.rpartition("/")[0]
    return f"{parent}/pageferry-compare-{os.getpid()}"


def _own(files: Files) -> str:
    """Return the cgroup of this command."""
    for line in files.read_or("/proc/self/cgroup", "").splitlines():
        if line.startswith("0::/"):
            return f"{_TOP}{line[3:]}".rstrip("/")
    return _TOP


@contextlib.contextmanager
def made(files: Files, *, memory: bool) -> Iterator[str | None]:
    """Make a cgroup, with the memory controller if needed; None if that fails."""
    if memory:
        _require_no_limits(files)
    group = name(files, memory=memory)
    if not _make(files, group, memory=memory):
        yield None
        return
    try:
        yield group
    finally:
        _remove(files, group)


def _require_no_limits(files: Files) -> None:
    """Refuse to take the program out of a cgroup that has limits."""
    own = _own(files)
    for limit in _LIMITS if own != _TOP else ():
        value = files.read_or(f"{own}/{limit}", "").strip()
        if value and value.split()[0] != "max":
            raise PageferryError(
                "the program would run without a limit of this cgroup",
                value=files.path(f"{own}/{limit}"),
                reason=f"it has {value}, and demotion needs a cgroup beside this one",
                hint="run it outside of that cgroup, or with --pressure move",
            )


def _make(files: Files, group: str, *, memory: bool) -> bool:
    parent = group.rpartition("/")[0]
    # Hierarchies of version 1 have no such file.
    controllers = files.read_or(f"{parent}/cgroup.controllers", "-").split()
    if controllers == ["-"] or (memory and "memory" not in controllers):
        return False
    try:
        given = files.read_or(f"{parent}/cgroup.subtree_control", "").split()
        if memory and "memory" not in given:
            files.write(f"{parent}/cgroup.subtree_control", "+memory")
        files.path(group).mkdir(exist_ok=True)
        if memory and files.exists(f"{group}/memory.swap.max"):
            # Else memory.reclaim would swap out what it cannot demote.
            files.write(f"{group}/memory.swap.max", "0")
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
