# SPDX-License-Identifier: GPL-2.0-only
"""Steer the rate of promotion by stalls and by ping-pong. No clock, no files.

A page that is promoted and demoted again within a minute is ping-pong: both moves were
wasted. The rate halves when there is too much of it, and otherwise grows again by a
quarter in each step. Demotion keeps its rate, because free memory ends most stalls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PING_PONG_S = 60.0
# The rate halves if more pages come back than this part of those that go up.
MOST_PING_PONG = 0.1
# Fewer pages say nothing about a part of them.
_ENOUGH_PAGES = 10
_LEAST = 1 / 64
_GROWTH = 1.25


@dataclass
class Seen:
    """Moves of sampled pages."""

    promoted: int = 0
    demoted: int = 0
    ping_pong: int = 0

    def add(self, more: Seen) -> None:
        """Add other moves."""
        self.promoted += more.promoted
        self.demoted += more.demoted
        self.ping_pong += more.ping_pong


class PageHistory:
    """The tier of one page, and the time of its last promotion."""

    def __init__(self, tier: int) -> None:
        self.tier = tier
        self.promoted_s: float | None = None

    def look(self, now_s: float, tier: int, seen: Seen) -> None:
        """Note where the page is now."""
        if tier < self.tier:
            seen.promoted += 1
            self.promoted_s = now_s
        elif tier > self.tier:
            seen.demoted += 1
            if self.promoted_s is not None and now_s - self.promoted_s <= PING_PONG_S:
                seen.ping_pong += 1
            self.promoted_s = None
        self.tier = tier


class Steering:
    """The part of the highest rate that is in force for promotion."""

    def __init__(self, most_stall: float) -> None:
        self.most_stall = most_stall
        self.part = 1.0
        self.why = ""
        # Memory that came back was not cold. It has to be idle for this part of
        # cold_after at least, however much memory is missing.
        self.wary = 0.0
        # Since the last cut, for the last minute. Pages that went up before the cut count
        # when they come back: memory that does not fit shows only later.
        self._recent: list[tuple[float, Seen]] = []

    def step(self, now_s: float, seen: Seen, stall: float) -> float:
        """Return the part for the next interval."""
        begin_s = now_s - PING_PONG_S
        self._recent = [pair for pair in self._recent if pair[0] > begin_s]
        self._recent.append((now_s, seen))
        back = self._came_back([each for _, each in self._recent])
        self.wary = min(max(2 * self.wary, 0.25), 1.0) if back else self.wary / _GROWTH
        self.why = self._waited(stall) or back
        if self.why:
            self.part = max(self.part / 2, _LEAST)
            self._recent = []
        else:
            self.part = min(self.part * _GROWTH, 1.0)
        return self.part

    def _waited(self, stall: float) -> str:
        return (
            f"programs waited {stall:.1%} of the time"
            if stall > self.most_stall
            else ""
        )

    def _came_back(self, recent: Sequence[Seen]) -> str:
        total = Seen()
        for each in recent:
            total.add(each)
        if total.promoted < _ENOUGH_PAGES:
            return ""
        if total.ping_pong <= MOST_PING_PONG * total.promoted:
            return ""
        return (
            f"{total.ping_pong} sampled pages came back soon, while "
            f"{total.promoted} went up"
        )
