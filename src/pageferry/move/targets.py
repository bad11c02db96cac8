# SPDX-License-Identifier: GPL-2.0-only
"""The processes to move, and the checks before the first page moves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pageferry.errors import PageferryError, unsupported, usage_error
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.sysfs.pagebits import PAGE
from pageferry.sysfs.processes import Process
from pageferry.units import format_nodes, parse_nodes

_CGROUPS = "/sys/fs/cgroup"
# include/uapi/linux/capability.h
_CAP_SYS_NICE = 23


def choose_nodes(
    files: Files, sources: str, targets: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parse --from and --to; both name nodes of this machine that have memory."""
    nodes = read_nodes(files)
    known = [node.number for node in nodes if node.total_bytes]
    if not known:
        raise unsupported(
            "this machine shows no nodes",
            files.path("/sys/devices/system/node"),
            "the kernel lacks CONFIG_NUMA, or this container has no /sys",
            "run it outside the container",
        )
    empty = {node.number for node in nodes if not node.total_bytes}
    for option, text in (("--from", sources), ("--to", targets)):
        named = set() if _by_exclusion(text) else empty & set(parse_nodes(text))
        if named:
            raise usage_error(
                f"node {format_nodes(named)} has no memory",
                f"{option} {text}",
                f"nodes with memory here: {format_nodes(known)}",
            )
    to = tuple(parse_nodes(targets, known))
    left = tuple(parse_nodes(sources, known))
    if not routes(left, to):
        raise usage_error(
            "these nodes let no memory move",
            f"--from {sources} --to {targets}",
            f"nodes with memory here: {format_nodes(known)}",
        )
    return left, to


def choose_exchanged(
    files: Files, sources: str | None, targets: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parse the nodes of an exchange; --from may be missing, and excludes those of --to."""
    left, to = choose_nodes(files, sources or "all", targets)
    outside = tuple(node for node in left if node not in to)
    if not outside:
        raise usage_error("an exchange needs nodes outside of --to", f"--to {targets}")
    return outside, to


def other(files: Files, hot: Process, pid: int) -> Process:
    """Find the process to exchange with; two threads of one process are the same."""
    cold = with_memory(files, pid)
    groups = []
    for process in (hot, cold):
        status = files.read_or(f"/proc/{process.pid}/status", "")
        match = re.search(r"^Tgid:\s*(\d+)$", status, re.MULTILINE)
        groups.append(int(match[1]) if match else process.pid)
    if groups[0] == groups[1]:
        raise usage_error(
            "an exchange needs two processes", f"--exchange-with {pid}", "pgrep -l NAME"
        )
    return cold


def _by_exclusion(text: str) -> bool:
    """Say whether a list of nodes names no node to use: all, !1."""
    return text.strip() == "all" or text.strip().startswith("!")


def routes(sources: Sequence[int], targets: Sequence[int]) -> dict[int, int]:
    """Map each node whose memory moves to its destination, as migrate_pages(2) does.

    Node number i of --from goes to number i of --to. If the lists differ in length,
    memory on a node of both lists stays: do_migrate_pages() in mm/mempolicy.c.
    """
    found: dict[int, int] = {}
    for at, node in enumerate(sources):
        target = targets[at % len(targets)]
        stays = len(sources) != len(targets) and node in targets
        if node != target and not stays:
            found[node] = target
    return found


def parse_span(text: str) -> tuple[int, int]:
    """Parse --range: two hexadecimal addresses, as in /proc/PID/maps."""
    match = re.fullmatch(
        r"(?:0x)?([0-9a-f]{1,16})-(?:0x)?([0-9a-f]{1,16})", text, re.I | re.ASCII
    )
    low, high = (int(match[1], 16), int(match[2], 16)) if match else (0, 0)
    if match is None or low >= high:
        raise usage_error(
            "not a range of addresses",
            text,
            "write START-END as in /proc/PID/maps: 7f0000000000-7f0000200000",
        )
    return low // PAGE * PAGE, -(-high // PAGE) * PAGE


def with_memory(files: Files, pid: int) -> Process:
    """Find the process, or a thread of it that runs if its first thread has ended."""
    process = processes.find(files, pid)
    if process is not None and process.ended:
        for name in files.names(f"/proc/{pid}/task"):
            thread = processes.find(files, int(name)) if name.isdecimal() else None
            if thread is not None and not thread.ended:
                return thread
    process = processes.require(files, pid)
    if process.kernel_thread:
        raise usage_error(
            "this process has no memory of its own", str(pid), "a kernel thread"
        )
    return process


def of_cgroup(files: Files, name: str) -> list[Process]:
    """List the processes of a cgroup and of the cgroups below it."""
    at = _directory(files, name)
    numbers = processes.members(at)
    found = [processes.find(files, pid) for pid in numbers if pid]
    alive = [p for p in found if p is not None and not p.ended and not p.kernel_thread]
    if not alive and 0 in numbers:
        raise usage_error(
            "the processes of this cgroup are in another PID namespace",
            str(at),
            "run it outside the container",
        )
    if not alive:
        raise usage_error("no process is in this cgroup", str(at), f"ls {at}")
    return alive


def _directory(files: Files, name: str) -> Path:
    """Find the directory of a cgroup.

    /proc/PID/cgroup has paths from the root of a hierarchy. With version 1 each
    controller has a hierarchy of its own, in a directory below.
    """
    base = files.path(_CGROUPS)
    if name.startswith(f"{_CGROUPS}/"):
        tried = [files.path(name)]
    else:
        path = name.strip("/")
        tried = [base / path, *(base / top / path for top in files.names(_CGROUPS))]
    for at in tried:
        if (at / "cgroup.procs").is_file():
            return at
    hint = f"find {base} -name cgroup.procs | head"
    raise usage_error("no such cgroup", str(tried[0]), hint)


def require_own_proc(files: Files) -> None:
    """Refuse a /proc of another PID namespace: its numbers name other processes."""
    try:
        me = str(files.path("/proc/self").readlink())
    except OSError:
        return
    if me != str(os.getpid()):
        raise PageferryError(
            "this /proc belongs to another PID namespace",
            value=files.path("/proc"),
            reason=f"it shows this command as {me}, and not as {os.getpid()}",
            hint="nsenter -t PID -p -m runs it in the namespace of a process",
        )


def require_all(files: Files) -> None:
    """Refuse --all without CAP_SYS_NICE before anything moves."""
    status = files.read_or("/proc/self/status", "")
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    if match is not None and not int(match[1], 16) >> _CAP_SYS_NICE & 1:
        raise PageferryError(
            "may not move pages that several processes share",
            value="--all",
            reason="this command lacks CAP_SYS_NICE",
            hint="run it as root, or leave out --all",
        )


def require_allowed(
    files: Files, found: Iterable[Process], targets: Sequence[int], *, own: bool = True
) -> None:
    """Refuse a destination that a cpuset excludes.

    do_pages_move() refuses a node that the process may not use. The new pages come
    from an allocation of this command, so its own cpuset counts, too. An exchange
    allocates nothing.
    """
    names = [str(process.pid) for process in found]
    for name in ["self", *names] if own else names:
        allowed = processes.allowed_nodes(files, name)
        if allowed is None:
            continue
        refused = sorted(set(targets) - allowed)
        if refused:
            who = "this command" if name == "self" else f"process {name}"
            raise PageferryError(
                "a cpuset does not allow this destination",
                value=f"node {format_nodes(refused)}",
                reason=f"{who} may use only the nodes {format_nodes(allowed)}",
                hint=f"cat /proc/{name}/cpuset names the cgroup with cpuset.mems",
            )


def resident_pages(files: Files, found: Iterable[Process]) -> int:
    """Estimate the pages that a scan will find present."""
    total = 0
    for process in found:
        total += processes.resident_bytes(files, [process.pid]) // PAGE
        status = files.read_or(f"/proc/{process.pid}/status", "")
        match = re.search(r"^HugetlbPages:\s*(\d+) kB", status, re.MULTILINE)
        if match is not None:
            total += int(match[1]) * 1024 // PAGE
    return total
