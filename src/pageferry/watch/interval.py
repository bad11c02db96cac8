# SPDX-License-Identifier: GPL-2.0-only
"""The growth of all counters in an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from pageferry.sysfs.files import Files
from pageferry.sysfs.histogram import Histogram
from pageferry.watch import pairs, sources
from pageferry.watch.events import Moves
from pageferry.watch.follower import Follower, empty
from pageferry.watch.pairs import Pair
from pageferry.watch.sources import Counters, Snapshot, grown

Key = TypeVar("Key")
Callers = dict[tuple[int, str, str], Moves]

NO_TRACE = "reasons, processes and failures of each"
NO_OFFLOAD = "engines, unmapped times, waits and DMA channels"
NO_CGROUPS = "cgroups"


@dataclass(frozen=True)
class Interval:
    """The growth between two snapshots."""

    elapsed_ns: int
    moved_pages: int
    failed_pages: int
    reasons: dict[str, Moves]
    # By PID, name and reason.
    processes: Callers
    lost_events: int
    pairs: tuple[Pair, ...]
    cgroups: dict[str, Counters]
    # By reason and by engine, with the names of the kernel's files.
    offered: dict[str, Counters]
    engines: dict[str, Counters]
    times: dict[str, dict[str, Histogram]]
    channels: dict[str, Counters]
    busy_channels: int
    held_folios: int
    engine: str | None
    # Figures that this kernel or this user cannot see, with the reason.
    unseen: tuple[tuple[str, str], ...]


class Watcher:
    """Takes snapshots, and collects the lines of the trace."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._follower = Follower(files)
        # The process of each thread that migrated pages in this interval.
        self._owners: dict[int, tuple[int, str]] = {}
        try:
            # An interval begins with a snapshot, so forget the lines before it.
            empty(self.collect)
            self._follower.take()
            self._before = sources.take(files)
        except BaseException:
            # The caller has nothing to close yet, and the trace would stay on.
            self.close()
            raise

    def close(self) -> None:
        """Stop the trace."""
        self._follower.close()

    def collect(self) -> bool:
        """Read a part of the trace; say whether it had any lines."""
        any_lines = self._follower.collect()
        for pid, name in self._follower.tasks():
            # A thread may end before the interval does, so ask now.
            if pid not in self._owners:
                self._owners[pid] = sources.process_of(self.files, pid, name)
        return any_lines

    def interval(self) -> Interval:
        """Return the time since the last call."""
        empty(self.collect)
        before, after = self._before, sources.take(self.files)
        self._before = after
        totals = self._follower.take()
        vmstat = grown(before.vmstat, after.vmstat)
        success, fail = sources.VMSTAT
        return Interval(
            elapsed_ns=after.at_ns - before.at_ns,
            moved_pages=vmstat.get(success, 0),
            failed_pages=vmstat.get(fail, 0),
            reasons=totals.reasons,
            processes=self._by_process(totals.callers),
            lost_events=totals.lost_events,
            pairs=pairs.found(_each_grown(before.nodes, after.nodes), after.tiers),
            cgroups=_each_grown(before.cgroups, after.cgroups),
            offered=_each_grown(before.reasons, after.reasons),
            engines=_each_grown(before.engines, after.engines),
            times=_times_grown(before, after),
            channels=_each_grown(before.channels, after.channels),
            busy_channels=after.busy_channels,
            held_folios=after.held_folios,
            engine=after.state.engine if after.state is not None else None,
            unseen=self._unseen(after),
        )

    def _by_process(self, callers: Callers) -> Callers:
        """Add up the threads of each process."""
        found: Callers = {}
        for (pid, name, reason), moves in callers.items():
            owner = self._owners.get(pid, (pid, name))
            found.setdefault((*owner, reason), Moves()).merge(moves)
        # Another thread may get this number.
        self._owners = {}
        return found

    def _unseen(self, now: Snapshot) -> tuple[tuple[str, str], ...]:
        why = self._follower.no_trace
        found = [] if why is None else [(NO_TRACE, why)]
        if now.state is None:
            found.append((NO_OFFLOAD, "only pageferry's kernel counts them"))
        if not now.cgroups:
            why = "memory.stat has no counters of migration, or cgroups are version 1"
            found.append((NO_CGROUPS, why))
        return tuple(found)


def _each_grown(
    before: dict[Key, Counters], after: dict[Key, Counters]
) -> dict[Key, Counters]:
    each = {key: grown(before.get(key, {}), now) for key, now in after.items()}
    return {key: counters for key, counters in each.items() if counters}


def _times_grown(before: Snapshot, after: Snapshot) -> dict[str, dict[str, Histogram]]:
    found: dict[str, dict[str, Histogram]] = {}
    for reason, kinds in after.times.items():
        for kind, now in kinds.items():
            old = before.times.get(reason, {}).get(kind)
            times = sources.histogram_grown(old, now)
            if times.count:
                found.setdefault(reason, {})[kind] = times
    return found
