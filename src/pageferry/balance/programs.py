# SPDX-License-Identifier: GPL-2.0-only
"""Find the processes of a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry.balance.config import Program
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.sysfs.processes import Process, everybody, family


def find(files: Files, program: Program) -> list[Process]:
    """List running processes, oldest first, with descendants if configured."""
    known = [process for process in everybody(files) if not process.ended]
    named = _named(files, program, known)
    found = {process.pid: process for process in named}
    if program.include_children:
        by_pid = {process.pid: process for process in known}
        for process in named:
            found |= {pid: by_pid[pid] for pid in family(process.pid, known)}
    return sorted(found.values(), key=lambda p: (p.start_time, p.pid))


def _named(
    files: Files, program: Program, known: Sequence[Process]
) -> Sequence[Process]:
    if program.pid is not None:
        return [process for process in known if process.pid == program.pid]
    if program.name is not None:
        # The kernel keeps 15 bytes of a name.
        name = program.name[:15]
        return [process for process in known if process.name == name]
    inside = _members(files, program.cgroup or "")
    return [process for process in known if process.pid in inside]


def _members(files: Files, directory: str) -> set[int]:
    """List the processes of a cgroup and of all below it."""
    top = files.path(directory)
    found: set[int] = set()
    for path in [top / "cgroup.procs", *top.rglob("cgroup.procs")]:
        try:
            found |= {int(line) for line in path.read_text().split()}
        except (OSError, ValueError):
            # The cgroup was removed meanwhile, or is threaded.
            continue
    return found


def resident_bytes(files: Files, pids: Sequence[int]) -> int:
    """Add up the memory of processes; shared memory counts for each."""
    total = 0
    for pid in pids:
        fields = files.read_or(f"/proc/{pid}/statm", "").split()
        total += int(fields[1]) * PAGE if len(fields) > 1 else 0
    return total
