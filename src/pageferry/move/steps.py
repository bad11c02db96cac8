# SPDX-License-Identifier: GPL-2.0-only
"""The size of the next call of move_pages(2).

While a call runs, a thread may wait for a page that the call has unmapped, or for a
lock that the call holds. No wait outlasts the call. The time of a call therefore
bounds each stall, page faults and mmap_lock counted.

A call has a fixed part, in which lru_cache_disable() of Linux waits for all CPUs. The
kernel holds no lock of the process then, so this part stalls nobody, and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

# Fewer would cost too much: each call has its fixed part.
FEWEST_PAGES = 16
# 64 MiB of 4K pages.
MOST_PAGES = 16384
# A call should take this part of the limit, because the next pages may cost more.
AIM = 0.5


@dataclass
class Sizer:
    """Chooses the size of calls for one kind of pages, from the times of past calls.

    The times are those without the fixed part.
    """

    limit_s: float
    pages: int = FEWEST_PAGES

    def learn(self, pages: int, took_s: float) -> None:
        """Shrink after a long call, and grow after a short one."""
        aim_s = self.limit_s * AIM
        fitting = int(pages * aim_s / max(took_s, 1e-9))
        if took_s > aim_s:
            self.pages = max(FEWEST_PAGES, min(self.pages, fitting))
        elif pages * 2 >= self.pages:
            # A call of fewer pages says little.
            grown = min(2 * max(self.pages, pages), fitting, MOST_PAGES)
            self.pages = max(self.pages, grown)
