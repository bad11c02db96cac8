# SPDX-License-Identifier: GPL-2.0-only
"""Processes as /proc shows them, and their descendants."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from pageferry.errors import ExitCode, PageferryError, usage_error
from pageferry.sysfs.files import Files

# include/linux/sched.h of Linux; proc(5) calls the field flags.
_PF_KTHREAD = 0x00200000
ENDED = "the process ended meanwhile"


@dataclass(frozen=True)
class Process:
    """A process. The kernel may reuse its PID, so start_time identifies it, too."""

    pid: int
    parent: int
    name: str
    state: str
    start_time: int
    # A kernel thread never has memory; a process without memory is exiting.
    kernel_thread: bool = False

    @property
    def ended(self) -> bool:
        """Say whether the process is a zombie or dead."""
        return self.state in ("Z", "X")


def find(files: Files, pid: int) -> Process | None:
    """Read one process; None if it does not exist."""
    try:
        # The name may contain any bytes, so it may not be UTF-8.
        text = files.path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    except OSError:
        return None
    before, _, after = text.rpartition(")")
    fields = after.split()
    if len(fields) < 20:
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        name=before.partition("(")[2],
        state=fields[0],
        start_time=int(fields[19]),
        kernel_thread=bool(int(fields[6]) & _PF_KTHREAD),
    )


def require(files: Files, pid: int) -> Process:
    """Read one process, or raise an error if it does not run."""
    process = find(files, pid)
    if process is None or process.ended:
        what = "no such process" if process is None else "this process has ended"
        raise usage_error(what, str(pid), "pgrep -l NAME shows numbers")
    return process


def is_alive(files: Files, pid: int, start_time: int) -> bool:
    """Say whether the process with this PID and start time still runs."""
    process = find(files, pid)
    return (
        process is not None and not process.ended and process.start_time == start_time
    )


def cpu_share(files: Files, pid: int) -> float | None:
    """Return the mean part of a CPU that a process or a kernel thread has used.

    proc(5): fields 14, 15 and 22 of stat count clock ticks; field 22 is the start,
    counted from boot.
    """
    text = files.read_or(f"/proc/{pid}/stat", "").rpartition(")")[2].split()
    uptime = files.read_or("/proc/uptime", "").split()
    if len(text) < 20 or not uptime:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    passed_s = float(uptime[0]) - int(text[19]) / ticks
    return (int(text[11]) + int(text[12])) / ticks / max(passed_s, 1.0)


def everybody(files: Files) -> list[Process]:
    """List all processes."""
    numbers = [int(name) for name in files.names("/proc") if name.isdecimal()]
    found = (find(files, pid) for pid in sorted(numbers))
    return [process for process in found if process is not None]


def family(pid: int, processes: Iterable[Process]) -> list[int]:
    """List a process and its descendants, parents before their children."""
    children: dict[int, list[int]] = {}
    for process in processes:
        if not process.ended:
            children.setdefault(process.parent, []).append(process.pid)
    found = [pid]
    for member in found:
        found += [child for child in children.get(member, []) if child not in found]
    return found


def ended(pid: int, detail: str) -> PageferryError:
    """Make the error for a process that ended during an operation on it."""
    return PageferryError(
        ENDED,
        value=str(pid),
        reason=detail,
        code=ExitCode.FAILED,
    )
