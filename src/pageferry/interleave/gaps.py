# SPDX-License-Identifier: GPL-2.0-only
"""Where processes have nothing mapped, and DAMON would look nevertheless.

DAMON leaves out the two widest gaps of an address space. The third lies between a
program and its heap, which begins at random up to 1 GiB behind it; a quota pays for
it as for memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pageferry.units import MIB

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .*?(\[heap\])?$", re.MULTILINE)
# For less it is not worth a filter.
_WORTH_BYTES = 4 * MIB


@dataclass(frozen=True)
class Gap:
    """Addresses, the end not included."""

    start: int
    end: int


def before_heap(maps: Sequence[str]) -> Gap | None:
    """Find what all processes leave free between program and heap.

    Takes the text of each one's /proc/PID/maps. The heap grows away from it, and
    mmap(2) puts nothing there unless it is told to.
    """
    found: Gap | None = None
    areas: list[tuple[int, int]] = []
    for text in maps:
        last = None
        for match in _LINE.finditer(text):
            start, end = int(match[1], 16), int(match[2], 16)
            if match[3] and last is not None:
                gap = Gap(last, start)
                found = gap if found is None else _common(found, gap)
            areas.append((start, end))
            last = end
    if found is None or found.end - found.start < _WORTH_BYTES:
        return None
    free = all(end <= found.start or found.end <= start for start, end in areas)
    return found if free else None


def _common(one: Gap, other: Gap) -> Gap:
    return Gap(max(one.start, other.start), min(one.end, other.end))
