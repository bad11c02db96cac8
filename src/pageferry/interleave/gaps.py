# SPDX-License-Identifier: GPL-2.0-only
"""The gap between a program and its heap, which DAMON would charge to a quota.

DAMON leaves out the two widest gaps of an address space. The third widest lies
before the heap, which begins at a random address up to 1 GiB behind the program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pageferry.units import MIB

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .*?(\[heap\])?$", re.MULTILINE)
# A smaller gap is not worth a filter.
_WORTH_BYTES = 4 * MIB


@dataclass(frozen=True)
class Gap:
    """A range of addresses, without its end."""

    start: int
    end: int


def before_heap(maps: Sequence[str]) -> Gap | None:
    """Find the gap between program and heap that all processes have.

    maps: the text of /proc/PID/maps of each process. The heap grows away from the
    gap, and mmap(2) uses the gap only for an address that the program chooses.
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
