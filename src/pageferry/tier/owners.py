# SPDX-License-Identifier: GPL-2.0-only
"""Memory that its owner keeps on some nodes, by mbind(2), numactl or a cpuset."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pageferry.errors import PageferryError
from pageferry.interleave import placement
from pageferry.interleave.gaps import before_heap
from pageferry.sysfs.files import Files
from pageferry.sysfs.processes import Process
from pageferry.tier import machine
from pageferry.tier.plan import Range
from pageferry.units import format_nodes

# A look takes at most this part of a CPU.
_LOOK_SHARE = 0.01
_LOOK_S = 60.0
# DAMON checks each filter for each region.
_MOST_FILTERS = 32


@dataclass
class Kept:
    """The memory of one process that must stay."""

    # Why all of its memory must stay, if so.
    why: str | None = None
    # Whether the kernel said so; if not, the next look asks again.
    sure: bool = True
    ranges: list[Range] = field(default_factory=list)


class Owners:
    """The memory of some processes that their owners keep where it is."""

    def __init__(self, files: Files, nodes: Sequence[int], *, virtual: bool) -> None:
        self.files = files
        self.nodes = nodes
        self.virtual = virtual
        # Measures the cost of looks; tests replace it.
        self.stopwatch: Callable[[], float] = time.monotonic
        self._known: dict[tuple[int, int], Kept] = {}
        self._gap: list[Range] = []
        self._next_look_s = 0.0

    def look(self, now_s: float, members: Sequence[Process]) -> None:
        """Look at new processes, and rarely at the others, for the cost of a look."""
        due = now_s >= self._next_look_s
        known = self._known
        before = {} if due else {who: k for who, k in known.items() if k.sure}
        begin_s = self.stopwatch()
        # The kernel reuses PIDs, so the start time counts, too.
        alive = [(each.pid, each.start_time) for each in members]
        self._known = {
            who: before[who] if who in before else self._ask(who[0]) for who in alive
        }
        if self.virtual and (due or any(who not in known for who in alive)):
            maps = [self.files.read_or(f"/proc/{pid}/maps", "") for pid, _ in alive]
            gap = before_heap(maps)
            self._gap = [] if gap is None else [(gap.start, gap.end)]
        if due:
            took_s = self.stopwatch() - begin_s
            self._next_look_s = now_s + max(_LOOK_S, took_s / _LOOK_SHARE)

    def divide(self) -> tuple[list[int], list[Range], list[str]]:
        """Return processes that may move, addresses to keep, and why others may not."""
        pids, keep, why = [], set[Range](), []
        for (pid, _), kept in self._known.items():
            if kept.why:
                why.append(kept.why)
            elif len(keep | set(kept.ranges)) > _MOST_FILTERS:
                count = len(kept.ranges)
                why.append(f"process {pid} has bound {count} mappings (mbind)")
            else:
                pids.append(pid)
                keep |= set(kept.ranges)
        return pids, sorted(keep) + self._gap, why

    @property
    def obstacle(self) -> str | None:
        """Return why physical memory, which shows no owner, may not move, if so."""
        for (pid, _), kept in self._known.items():
            if kept.why or kept.ranges:
                return kept.why or f"process {pid} has bound memory (mbind)"
        return None

    def _ask(self, pid: int) -> Kept:
        """Ask the kernel. Memory stays if it does not answer."""
        try:
            return self._read(pid)
        except PageferryError as error:
            return Kept(error.line(), sure=False)

    def _read(self, pid: int) -> Kept:
        why = machine.owner_keeps(self.files, pid, self.nodes)
        if self.virtual and not why:
            why = machine.other_nodes(self.files, pid, self.nodes)
        if why:
            return Kept(why)
        bound = placement.bound(self.files, pid, self.nodes)
        for each in bound:
            if each.stack:
                # Its owner has bound the process. New mappings will be bound, too.
                nodes = format_nodes(each.nodes)
                return Kept(f"process {pid} is bound to node {nodes} (numactl)")
        starts = {each.start for each in bound}
        return Kept(ranges=machine.ranges_from(self.files, pid, starts))
