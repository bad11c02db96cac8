# SPDX-License-Identifier: GPL-2.0-only
"""Sources of the bandwidth that is in use on each node."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pageferry.balance import perf, trace
from pageferry.errors import unsupported
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import nodes_of_cpus, read_nodes
from pageferry.units import format_nodes

_RESCTRL = "/sys/fs/resctrl"
_CPUS = "/sys/devices/system/cpu"
Clock = Callable[[], float]


class UseSource(Protocol):
    """A source of the use since its last read."""

    name: str

    def read(self) -> dict[int, float]:
        """Return bytes/s by node."""


class Recorded:
    """A recorded load from its beginning, with the measured placement."""

    name = "recorded"

    def __init__(
        self,
        moments: Sequence[trace.Moment],
        bandwidth: Mapping[int, float],
        shares: Callable[[], Mapping[int, float]],
        clock: Clock = time.monotonic,
    ) -> None:
        self.moments = moments
        self.bandwidth = bandwidth
        self.shares = shares
        self.clock = clock
        self._begin_s = clock()

    def read(self) -> dict[int, float]:
        """Return the use at the current time of the recording."""
        now_s = self.clock() - self._begin_s + self.moments[0].time_s
        moment = trace.at(self.moments, now_s)
        return moment.seen(self.shares(), self.bandwidth)


class Counting:
    """The rate of a byte counter that only grows."""

    def __init__(
        self, name: str, count: Callable[[], dict[int, float]], clock: Clock
    ) -> None:
        self.name = name
        self._count = count
        self._clock = clock
        self._before_s = clock()
        self._before = count()

    def read(self) -> dict[int, float]:
        """Return the mean rate since the last read."""
        now_s, now = self._clock(), self._count()
        passed_s = max(now_s - self._before_s, 1e-6)
        rates = {
            # A counter that wrapped or was reset counts as 0 once.
            node: max(value - self._before.get(node, value), 0.0) / passed_s
            for node, value in now.items()
        }
        self._before_s, self._before = now_s, now
        return rates


class Resctrl:
    """Memory bandwidth monitoring (MBM): local and total bytes by L3 cache.

    MBM does not tell the node of other than local bytes, so there are only two nodes.
    """

    def __init__(self, files: Files, bandwidth: Mapping[int, float]) -> None:
        self.files = files
        self.bandwidth = bandwidth
        self.nodes = _nodes_of_caches(files)
        # The last good value of each file.
        self._values: dict[str, float] = {}

    def count(self) -> dict[int, float]:
        """Add up the local and the remote bytes of all groups."""
        found = dict.fromkeys(self.bandwidth, 0.0)
        for group in self._groups():
            for name in self.files.names(f"{group}/mon_data"):
                match = re.fullmatch(r"mon_L3_(\d+)", name)
                if match is None or int(match[1]) not in self.nodes:
                    continue
                near = self.nodes[int(match[1])]
                top = f"{group}/mon_data/{name}"
                total = self._number(f"{top}/mbm_total_bytes")
                local = min(self._number(f"{top}/mbm_local_bytes"), total)
                found[near] = found.get(near, 0.0) + local
                for node in self.bandwidth:
                    found[node] += total - local if node != near else 0.0
        return found

    def _groups(self) -> list[str]:
        # A control group includes its monitoring groups. The root does not include
        # control groups.
        names = self.files.names(_RESCTRL)
        below = [f"{_RESCTRL}/{n}" for n in names if n not in ("info", "mon_groups")]
        groups = [path for path in below if self.files.exists(f"{path}/mon_data")]
        return [_RESCTRL, *groups]

    def _number(self, name: str) -> float:
        # The file contains "Unavailable" while the CPU has no counter for its group.
        text = self.files.read_or(name, "")
        if text.isdecimal():
            self._values[name] = float(text)
        return self._values.get(name, 0.0)


def resctrl_obstacle(files: Files) -> str | None:
    """Return the reason why MBM cannot be used; None if it can."""
    if not files.exists(_RESCTRL):
        return "no resctrl in this kernel (CONFIG_X86_CPU_RESCTRL), or in this CPU"
    features = files.read_or(f"{_RESCTRL}/info/L3_MON/mon_features", "").split()
    if not files.exists(f"{_RESCTRL}/info"):
        return "not mounted: mount -t resctrl resctrl /sys/fs/resctrl"
    if not {"mbm_total_bytes", "mbm_local_bytes"} <= set(features):
        return "this CPU does not count local and total memory bandwidth"
    if not _nodes_of_caches(files):
        return "the kernel does not number L3 caches"
    nodes = [node.number for node in read_nodes(files) if node.total_bytes]
    if len(nodes) > 2:
        return f"it cannot divide remote bytes among nodes {format_nodes(nodes)}"
    return None


def _nodes_of_caches(files: Files) -> dict[int, int]:
    """Return the node of each L3 cache."""
    found: dict[int, int] = {}
    for cpu, node in sorted(nodes_of_cpus(files).items()):
        text = files.read_or(f"{_CPUS}/cpu{cpu}/cache/index3/id", "")
        if text.isdecimal():
            found.setdefault(int(text), node)
    return found


def find(
    files: Files, wanted: str, bandwidth: Mapping[int, float], clock: Clock
) -> UseSource:
    """Return the first source that this machine has."""
    obstacles = {
        "perf": perf.obstacle(files, bandwidth),
        "resctrl": resctrl_obstacle(files),
    }
    for name in ("perf", "resctrl") if wanted == "auto" else (wanted,):
        if obstacles[name] is None:
            count = (
                perf.Counters(files).count
                if name == "perf"
                else Resctrl(files, bandwidth).count
            )
            return Counting(name, count, clock)
    usable = [name for name, why in obstacles.items() if why is None]
    if usable:
        raise unsupported(
            f"{wanted} does not show the memory bandwidth in use",
            value=f"source = {wanted!r}",
            reason=obstacles[wanted],
            hint=f"source = {usable[0]!r} in the configuration",
        )
    reasons = "; ".join(f"{name}: {why}" for name, why in obstacles.items() if why)
    raise unsupported(
        "no counter shows the memory bandwidth in use",
        reason=reasons,
        hint="pageferry doctor; source = 'recorded' replays a file",
    )
