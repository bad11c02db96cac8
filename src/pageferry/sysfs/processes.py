# SPDX-License-Identifier: GPL-2.0-only
"""Processes as /proc shows them, and their descendants."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pageferry.errors import ExitCode, PageferryError, usage_error
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.units import parse_nodes

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


def parse_pid(text: str) -> int:
    """Parse the number of a process."""
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= 1 << 22:
        raise usage_error("not the number of a process", text)
    return int(text)


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


def cpu_seconds(files: Files, pid: int) -> float | None:
    """Return the CPU time of a process or a kernel thread.

    /proc/PID/schedstat counts ns. A kernel without CONFIG_SCHED_INFO has only the
    clock ticks of /proc/PID/stat: fields 14 and 15, see proc(5).
    """
    exact = files.read_or(f"/proc/{pid}/schedstat", "").split()
    if exact and exact[0] != "0":
        return int(exact[0]) / 1e9
    text = files.read_or(f"/proc/{pid}/stat", "").rpartition(")")[2].split()
    if len(text) < 20:
        return None
    return (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """Measures which part of a CPU some processes use, from now on."""

    def __init__(self, files: Files, pids: Mapping[str, int | None]) -> None:
        self.files = files
        self._pids = {name: pid for name, pid in pids.items() if pid}
        self._begin_s = time.monotonic()
        self._before = self._read()

    def _read(self) -> dict[str, float]:
        found = {n: cpu_seconds(self.files, pid) for n, pid in self._pids.items()}
        return {name: spent for name, spent in found.items() if spent is not None}

    def shares(self, least_s: float) -> dict[str, float]:
        """Return the share of each process since the begin, after this time or more."""
        if not self._before:
            return {}
        time.sleep(max(self._begin_s + least_s - time.monotonic(), 0.0))
        passed_s = time.monotonic() - self._begin_s
        now = self._read()
        return {
            name: (now[name] - before) / passed_s
            for name, before in self._before.items()
            if name in now
        }


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


def members(top: Path) -> list[int]:
    """List the processes of a cgroup and of those below it.

    The kernel shows 0 for a process in another PID namespace.
    """
    found: list[int] = []
    for directory, _, names in os.walk(top):
        if "cgroup.procs" not in names:
            continue
        # The cgroup may be gone, or have threads of a process that another one lists.
        with contextlib.suppress(OSError):
            text = (Path(directory) / "cgroup.procs").read_text()
            found += map(int, text.split())
    return list(dict.fromkeys(found))


def resident_bytes(files: Files, pids: Iterable[int]) -> int:
    """Add up the memory of processes; shared memory counts for each.

    Pages of hugetlb do not count.
    """
    total = 0
    for pid in pids:
        fields = files.read_or(f"/proc/{pid}/statm", "").split()
        total += int(fields[1]) * PAGE if len(fields) > 1 else 0
    return total


def allowed_nodes(files: Files, pid: int | str) -> set[int] | None:
    """Return the nodes of the process's cpuset; None if the kernel has no cpusets."""
    text = files.read_if_there(f"/proc/{pid}/status")
    match = re.search(r"^Mems_allowed_list:\s*([\d,-]+)$", text, re.MULTILINE)
    return set(parse_nodes(match[1])) if match else None


def ended(pid: int, detail: str) -> PageferryError:
    """Make the error for a process that ended during an operation on it."""
    return PageferryError(
        ENDED,
        value=str(pid),
        reason=detail,
        code=ExitCode.FAILED,
    )
