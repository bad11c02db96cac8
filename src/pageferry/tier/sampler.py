# SPDX-License-Identifier: GPL-2.0-only
"""Follow a sample of pages by their virtual addresses, which migration keeps.

DAMON's counters have only totals. For physical memory, a page that moved is another
page to them. move_pages(2) tells the node of a page without moving it.
"""

from __future__ import annotations

import random
import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate

from pageferry.errors import PageferryError
from pageferry.interleave.moving import PageMover
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.tier.steer import PageHistory, Seen

PAGES = 2048
# The sample has pages of these many processes, the largest ones.
_PROCESSES = 64
# A missing page is replaced within this many looks.
_REPLACED = PAGES // 8
_AREA = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw", re.MULTILINE)
# A process, by PID and start time.
Who = tuple[int, int]


class Sampler:
    """Pages of some processes, chosen at random among their writable memory."""

    def __init__(
        self, files: Files, mover: PageMover, tier_of: Mapping[int, int], seed: int = 0
    ) -> None:
        self.files = files
        self.mover = mover
        self.tier_of = tier_of
        self._chance = random.Random(seed)
        self._pages: dict[Who, dict[int, PageHistory]] = {}

    @property
    def count(self) -> int:
        """Return the number of pages in the sample."""
        return sum(len(pages) for pages in self._pages.values())

    def look(self, now_s: float, pids: Sequence[int]) -> Seen:
        """Look at all pages again, and replace those that have gone."""
        seen = Seen()
        alive = {who for pid in pids if (who := self._who(pid)) is not None}
        self._pages = {w: pages for w, pages in self._pages.items() if w in alive}
        for who, pages in self._pages.items():
            found = self._tiers(who[0], list(pages))
            self._pages[who] = {a: h for a, h in pages.items() if a in found}
            for address, history in self._pages[who].items():
                history.look(now_s, found[address], seen)
        self._fill(sorted(alive))
        return seen

    def _who(self, pid: int) -> Who | None:
        process = processes.find(self.files, pid)
        return None if process is None or process.ended else (pid, process.start_time)

    def _tiers(self, pid: int, addresses: Sequence[int]) -> dict[int, int]:
        """Return the tier of each page that is there."""
        if not addresses:
            return {}
        try:
            nodes = self.mover.query(pid, addresses)
        except PageferryError:
            # The process has ended meanwhile.
            return {}
        pairs = zip(addresses, nodes, strict=True)
        return {a: self.tier_of[node] for a, node in pairs if node in self.tier_of}

    def _fill(self, alive: Sequence[Who]) -> None:
        missing = min(PAGES - self.count, _REPLACED if self._pages else PAGES)
        if missing <= 0 or not alive:
            return
        sizes = {who: processes.resident_bytes(self.files, [who[0]]) for who in alive}
        chosen = sorted(alive, key=lambda who: -sizes[who])[:_PROCESSES]
        whole = max(sum(sizes[who] for who in chosen), 1)
        for who in chosen:
            pages = self._pages.setdefault(who, {})
            addresses = self._draw(who[0], -(-missing * sizes[who] // whole))
            for address, tier in self._tiers(who[0], addresses).items():
                pages.setdefault(address, PageHistory(tier))

    def _draw(self, pid: int, count: int) -> list[int]:
        """Draw addresses, each page of a mapping with the same probability."""
        text = self.files.read_or(f"/proc/{pid}/maps", "")
        areas = [(int(m[1], 16), int(m[2], 16)) for m in _AREA.finditer(text)]
        ends = list(accumulate((end - start) // PAGE for start, end in areas))
        drawn = set()
        for _ in range(count if ends else 0):
            page = self._chance.randrange(ends[-1])
            start, _end = areas[at := bisect(ends, page)]
            drawn.add(start + (page - (ends[at - 1] if at else 0)) * PAGE)
        return sorted(drawn)
