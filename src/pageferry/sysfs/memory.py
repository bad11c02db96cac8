# SPDX-License-Identifier: GPL-2.0-only
"""Settings and counters of Linux's memory management that several commands need."""

from __future__ import annotations

import re

from pageferry.sysfs.files import Files

BALANCING = "/proc/sys/kernel/numa_balancing"
EXCHANGE = "/sys/kernel/debug/migrate_exchange"
DEMOTION = "/sys/kernel/mm/numa/demotion_enabled"
# Pressure stall information (PSI) of the machine; a cgroup has its own file.
PRESSURE = "/proc/pressure/memory"
_SOME = re.compile(r"^some .*total=(\d+)", re.MULTILINE)


def demotes(files: Files) -> bool:
    """Say whether reclaim demotes cold memory."""
    return files.read_or(DEMOTION, "false") in ("true", "1")


def stalled_us(files: Files, name: str = PRESSURE) -> int:
    """Return the time in which any task waited for memory; 0 without PSI."""
    match = _SOME.search(files.read_or(name, ""))
    return int(match[1]) if match else 0
