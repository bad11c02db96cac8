# SPDX-License-Identifier: GPL-2.0-only
"""A model of two tiers, of DAMON, and of a program with a known hot set.

The simulation has no clock and no files. Equal cases give equal results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pageferry.tier import plan
from pageferry.tier.config import Config
from pageferry.tier.control import next_cold_s
from pageferry.tier.steer import PING_PONG_S, PageHistory, Seen, Steering
from pageferry.units import MIB, parse_seconds

BLOCK_BYTES = 64 * MIB
FAST, SLOW = 0, 1
# One of this many blocks is in the sample.
_SAMPLE = 4
# The blocks that a program uses in a second.
Load = Callable[[int], range]
_BLOCKS = 1000


def static(_: int) -> range:
    """Use the same blocks all the time; they begin on the slow tier."""
    return range(700, 900)


def moving(now_s: int) -> range:
    """Use other blocks after each five minutes."""
    start = 700 - 200 * (now_s // 300 % 4)
    return range(start, start + 200)


def growing(now_s: int) -> range:
    """Use one more block each three seconds."""
    return range(700, min(750 + now_s // 3, 1000))


def thrash(now_s: int) -> range:
    """Use 100 blocks for ten seconds, and others after that: a cycle of 70 s.

    The blocks of a cycle do not fit the fast tier, and each is cold before its turn.
    """
    start = 300 + 100 * (now_s // 10 % 7)
    return range(start, start + 100)


LOADS: Mapping[str, Load] = {
    "static": static,
    "moving": moving,
    "growing": growing,
    "thrash": thrash,
}


@dataclass
class Outcome:
    """The results of a simulation."""

    # For each second: the part of the accesses that the fast tier serves.
    hits: list[float] = field(default_factory=list)
    # For each second: the moved blocks of the busier direction.
    moved: list[int] = field(default_factory=list)
    promoted: int = 0
    demoted: int = 0
    ping_pong: int = 0
    # The fraction of the fast tier that was free, for each second.
    free: list[float] = field(default_factory=list)
    part: float = 1.0

    def mean_hits(self, begin_s: int = 0) -> float:
        """Return the mean part of accesses that the fast tier serves."""
        part = self.hits[begin_s:]
        return sum(part) / len(part)

    def settled_s(self, wanted: float = 0.95) -> int | None:
        """Return the first second from which on the fast tier serves this part."""
        below = [at for at, hit in enumerate(self.hits) if hit < wanted]
        first = below[-1] + 1 if below else 0
        return first if first < len(self.hits) else None


class Simulation:
    """Memory of 1000 blocks; the first ones fill the fast tier."""

    def __init__(self, config: Config, load: Load, fast_blocks: int = 400) -> None:
        self.load = load
        self.config = config
        self.fast_blocks = fast_blocks
        self.tier = [FAST if at < fast_blocks else SLOW for at in range(_BLOCKS)]
        self.used_s = [-math.inf] * _BLOCKS
        self.hot_since_s: dict[int, int] = {}
        self.promoted_s: dict[int, int] = {}
        self.steering = Steering(config.stall)
        self.sample = {
            at: PageHistory(self.tier[at]) for at in range(0, _BLOCKS, _SAMPLE)
        }
        watch = plan.virtual([FAST, SLOW], [1], [], config.headroom, up=True)
        self.down, self.up = (move.goal for move in watch.moves)
        self.most_s = self.cold_s = parse_seconds(config.cold_after)
        # Blocks that may move; a rate of less than one adds up.
        self.room = {FAST: 0.0, SLOW: 0.0}
        self.found = Outcome()

    def run(self, end_s: int, *, steered: bool = True, moves: bool = True) -> Outcome:
        """Simulate some seconds."""
        interval_s = round(parse_seconds(self.config.interval))
        for now_s in range(end_s):
            self._use(now_s)
            before = self.found.promoted, self.found.demoted
            if moves:
                self._add_room()
                self._demote(now_s)
                self._promote(now_s)
            steps = self.found.promoted - before[0], self.found.demoted - before[1]
            self.found.moved.append(max(steps))
            self.found.free.append(self._free / self.fast_blocks)
            if steered and now_s % interval_s == 0:
                self._steer(now_s)
        self.found.part = self.steering.part
        return self.found

    @property
    def _free(self) -> int:
        return self.fast_blocks - self.tier.count(FAST)

    def _reached(self, goal: plan.Goal) -> bool:
        return not goal.left({FAST: self._free}, {FAST: self.fast_blocks})

    def _use(self, now_s: int) -> None:
        hot = self.load(now_s)
        self.hot_since_s = {at: self.hot_since_s.get(at, now_s) for at in hot}
        for at in hot:
            self.used_s[at] = now_s
        served = sum(self.tier[at] == FAST for at in hot)
        self.found.hits.append(served / len(hot))

    def _add_room(self) -> None:
        most = self.config.limit.bytes_per_s / BLOCK_BYTES
        for tier, rate in ((FAST, most * self.steering.part), (SLOW, most)):
            # A quota does not save up for later.
            self.room[tier] = min(self.room[tier] + rate, max(rate, 1.0))

    def _demote(self, now_s: int) -> None:
        missing = not self._reached(self.down)
        least = self.steering.wary
        self.cold_s = next_cold_s(self.cold_s, self.most_s, least, missing=missing)
        cold = [at for at in range(_BLOCKS) if self.tier[at] == FAST]
        cold = [at for at in cold if now_s - self.used_s[at] >= self.cold_s]
        # The memory that was idle for longest goes first.
        for at in sorted(cold, key=lambda at: self.used_s[at]):
            if self.room[SLOW] < 1 or self._reached(self.down):
                return
            self.room[SLOW] -= 1
            self.tier[at] = SLOW
            self.found.demoted += 1
            since_s = now_s - self.promoted_s.get(at, -1000)
            self.found.ping_pong += since_s <= PING_PONG_S

    def _promote(self, now_s: int) -> None:
        for at, since_s in self.hot_since_s.items():
            if self.room[FAST] < 1 or not self._free or self._reached(self.up):
                return
            # DAMON sees an age of one second at the earliest.
            if self.tier[at] == SLOW and now_s > since_s:
                self.room[FAST] -= 1
                self.tier[at] = FAST
                self.promoted_s[at] = now_s
                self.found.promoted += 1

    def _steer(self, now_s: int) -> None:
        seen = Seen()
        for at, history in self.sample.items():
            history.look(float(now_s), self.tier[at], seen)
        self.steering.step(float(now_s), seen, 0.0)
