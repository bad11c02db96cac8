# SPDX-License-Identifier: GPL-2.0-only
"""Find the processes of a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry.balance.config import Program
from pageferry.sysfs.files import Files
from pageferry.sysfs.processes import Process, everybody, family, members


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
    inside = set(members(files.path(program.cgroup or "")))
    return [process for process in known if process.pid in inside]
