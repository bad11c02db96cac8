# SPDX-License-Identifier: GPL-2.0-only
"""Makes the memory of a program migrate, a part each second."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pageferry.errors import PageferryError, unsupported
from pageferry.interleave.moving import MovePages, PageMover
from pageferry.move.mover import Mover, Request
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.memory import BALANCING, DEMOTION
from pageferry.sysfs.nodes import read_nodes

SCANS = "/sys/kernel/debug/sched/numa_balancing"
COMPACT = "/proc/sys/vm/compact_memory"
_EVERY_S = 1.0
_STALL_LIMIT_S = 0.02
# Promotion is measured, not the move before it, so the move may stall the program.
_PROMOTED_STALL_LIMIT_S = 1.0
# The part of the program's memory that is demoted each second.
_DEMOTED_PART = 4
# Turns from one move of everything to the slowest tier to the next.
_PROMOTED_TURNS = 3
_RECLAIM_BYTES = 256 << 20


@dataclass
class Target:
    """The program whose memory migrates."""

    files: Files
    pid: int
    # Its cgroup below /sys/fs/cgroup; None if there is none.
    group: str | None
    nodes: tuple[int, ...]
    mover: PageMover
    turn: int = 0
    stop: threading.Event = field(default_factory=threading.Event)


def _move_all(
    target: Target,
    sources: tuple[int, ...],
    targets: tuple[int, ...],
    limit_s: float = _STALL_LIMIT_S,
) -> None:
    """Move the memory of the program and its children."""
    request = Request(sources, targets, limit_s)
    everybody = processes.everybody(target.files)
    for pid in processes.family(target.pid, everybody):
        found = processes.find(target.files, pid)
        if found is not None and not found.ended and not target.stop.is_set():
            keep_on = lambda: not target.stop.is_set()  # noqa: E731
            # A process may end meanwhile.
            with contextlib.suppress(PageferryError):
                Mover(target.files, target.mover, request, keep_on=keep_on).run(found)


def _move(target: Target) -> None:
    """Move all memory of the program to one node, and back at the next turn."""
    ends = target.nodes[:2] if target.turn % 2 == 0 else target.nodes[1::-1]
    _move_all(target, ends[:1], ends[1:])


def _demote(target: Target) -> None:
    """Demote a part of the program's memory."""
    current = target.files.read_or(f"{target.group}/memory.current", "0")
    left = int(current) // _DEMOTED_PART
    # The kernel does not return before all is demoted, and the end must not wait so long.
    while left > 0 and not target.stop.is_set():
        size = min(left, _RECLAIM_BYTES)
        left -= size
        try:
            target.files.write(f"{target.group}/memory.reclaim", str(size))
        except PageferryError:
            # EAGAIN: less memory than this could be demoted.
            break


def _promote(target: Target) -> None:
    """Move everything to the slowest tier at times; Linux promotes the hot part.

    Reclaim would leave the hot part where it is, and so nothing to promote.
    """
    if target.turn % _PROMOTED_TURNS:
        return
    tiers = {node.number: node.tier or 0 for node in read_nodes(target.files)}
    slowest = max(tiers[node] for node in target.nodes)
    slow = tuple(node for node in target.nodes if tiers[node] == slowest)
    fast = tuple(node for node in target.nodes if node not in slow)
    _move_all(target, fast, slow, _PROMOTED_STALL_LIMIT_S)


def _compact(target: Target) -> None:
    target.files.write(COMPACT, "1")


@dataclass(frozen=True)
class Kind:
    """A kind of pressure: settings of the kernel, and the work of each second."""

    act: Callable[[Target], None]
    settings: dict[str, str] = field(default_factory=dict)
    # Settings that this machine need not have.
    wishes: dict[str, str] = field(default_factory=dict)

    @property
    def needs_tiers(self) -> bool:
        """Say whether memory goes between tiers, by way of a cgroup."""
        return DEMOTION in self.settings

    @property
    def wanted(self) -> dict[str, str]:
        """Return all settings."""
        return {**self.settings, **self.wishes}


# Promotion off, or on by the temperature of memory.
_COLD, _HOT = {BALANCING: "0"}, {BALANCING: "2"}
# By default Linux looks for hot memory so seldom that a short run has no promotion.
_SCANS = {
    f"{SCANS}/scan_delay_ms": "100",
    f"{SCANS}/scan_period_min_ms": "100",
    f"{SCANS}/scan_period_max_ms": "1000",
    f"{SCANS}/scan_size_mb": "1024",
}
KINDS = {
    "move": Kind(_move, _COLD),
    "demote": Kind(_demote, {DEMOTION: "1", **_COLD}),
    "promote": Kind(_promote, {DEMOTION: "1", **_HOT}, _SCANS),
    "both": Kind(_demote, {DEMOTION: "1", **_HOT}, _SCANS),
    "compaction": Kind(_compact, _COLD),
}


def require(files: Files, name: str) -> tuple[int, ...]:
    """Check that this machine can make a kind of pressure; return its nodes."""
    nodes = [node for node in read_nodes(files) if node.total_bytes]
    kind = KINDS[name]
    if len(nodes) < 2 and kind.act is not _compact:
        raise unsupported(
            f"this machine has one node with memory, and --pressure {name} needs two",
            hint="pageferry vm run --topology tiered -- pageferry compare ...",
        )
    if kind.needs_tiers and len({node.tier for node in nodes}) < 2:
        raise unsupported(
            "this machine shows one memory tier, and demotion needs two",
            files.path("/sys/devices/virtual/memory_tiering"),
            hint="--pressure move needs nodes only",
        )
    for setting in kind.settings:
        # A kernel without NUMA balancing promotes nothing, so 0 is no wish.
        if not files.exists(setting) and kind.settings[setting] != "0":
            raise unsupported("this kernel lacks a setting", files.path(setting))
    if not files.exists(COMPACT) and kind.act is _compact:
        raise unsupported("this kernel cannot compact memory", files.path(COMPACT))
    return tuple(node.number for node in nodes)


@contextlib.contextmanager
def running(target: Target, name: str) -> Iterator[None]:
    """Keep up the pressure in a thread until the block ends."""
    failures: list[Exception] = []

    def work() -> None:
        try:
            while not target.stop.wait(_EVERY_S):
                KINDS[name].act(target)
                target.turn += 1
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        target.stop.set()
        thread.join()
    if failures:
        raise failures[0]


def mover(files: Files) -> PageMover:
    """Return the system call that moves pages."""
    return MovePages(files, shared=False)
