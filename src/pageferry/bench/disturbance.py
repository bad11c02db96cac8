# SPDX-License-Identifier: GPL-2.0-only
"""The share of the host's CPU time that other work used during a measurement.

An emulated machine with two CPUs needs two of the host's. If a build runs at the same
time, two threads of the guest share one CPU, and no figure means much. The result
contains the share of other work, so that a test can skip.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

STAT = Path("/proc/stat")
# Above this share, repeat a run.
TOLERABLE = 0.10


def busy_seconds(text: str) -> float | None:
    """Add up all but the idle time in the first line of /proc/stat."""
    fields = text.partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[1:9])
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def _read() -> float | None:
    try:
        return busy_seconds(STAT.read_text())
    except OSError:
        return None


def _own_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    used = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        used += usage.ru_utime + usage.ru_stime
    return used


class Disturbance:
    """The work of others from its creation on."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._own = _own_seconds()
        self._busy = _read()

    def share(self) -> float | None:
        """Return the share until now, or None where it is unknown."""
        busy, wall = _read(), time.monotonic() - self._start
        if busy is None or self._busy is None or wall <= 0:
            return None
        others = busy - self._busy - (_own_seconds() - self._own)
        share = others / (wall * (os.cpu_count() or 1))
        return round(min(max(share, 0.0), 1.0), 3)
