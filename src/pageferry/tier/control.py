# SPDX-License-Identifier: GPL-2.0-only
"""Set the rate of each scheme by what is left to do. No clock, no files.

DAMON has goals for this, too. It then begins with a quota of one byte, which grows by
the missing part of the goal. Near the goal that part is small, so the quota takes minutes
to grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pageferry.tier.plan import Rates, Watch

# Between two looks while memory moves, and otherwise.
LOOK_S = 0.5
IDLE_LOOK_S = 1.0
# Marks are cleared for so many looks at most: a watch without memory never ends.
CLEAR_LOOKS = 20
# Memory that is idle for a shorter time is never cold.
SOONEST_COLD_S = 1.0
_GROWTH = 2
# A node with a smaller part of its memory free is full.
_FULL = 0.02
# On a busy machine looks come late, but so do DAMON's turns. To divide by the whole delay
# would count it twice. After one late look, at most this many times too much has moved.
_MOST_EXCESS = 4


@dataclass(frozen=True)
class Done:
    """The work of a scheme since the last look, in bytes."""

    tried: int = 0
    moved: int = 0


@dataclass(frozen=True)
class Setting:
    """The task of a kdamond until the next look."""

    # Bytes/s of each move.
    rates: tuple[int, ...]
    # Memory that is idle for so long is cold.
    cold_s: float
    # Whether another scheme for each move clears marks of accesses.
    clearing: bool = False

    def differs(self, other: Setting) -> bool:
        """Say whether a change is worth a commit, after which DAMON skips a turn.

        The last bytes are few, so a rate that is a little too high does no harm.
        """
        pairs = zip(self.rates, other.rates, strict=True)
        same = (self.cold_s, self.clearing) == (other.cold_s, other.clearing)
        return not same or any(
            not (mine == its or its / 2 < mine < 2 * its) for mine, its in pairs
        )


def next_cold_s(now_s: float, most_s: float, least: float, *, missing: bool) -> float:
    """Return after which time memory is cold: less while a node lacks free memory.

    Falls step by step, so that the memory that was idle for longest goes first. Few steps
    do, as DAMON skips a turn after each.

    least: the part of the configured time that stays, because memory came back.
    """
    if not missing:
        return min(now_s * _GROWTH, most_s)
    return max(now_s / 8, SOONEST_COLD_S, min(least, 1.0) * most_s)


def _is_full(node: int, free: Mapping[int, int], total: Mapping[int, int]) -> bool:
    return free.get(node, 0) < _FULL * total.get(node, 0)


class Control:
    """The settings of all kdamonds, from one look to the next."""

    def __init__(self, cold_after_s: float, *, exchanges: bool = False) -> None:
        """exchanges: whether hot and cold memory change places if both nodes are full."""
        self._most_s = cold_after_s
        self.exchanges = exchanges
        self.cold_s = cold_after_s
        # Whether memory moves, or may have to.
        self.busy = False
        self._looks_to_clear = 0

    def begin(self) -> None:
        """Begin with new kdamonds.

        Pages have marks of accesses of long ago, and a filter would take them for accessed.
        So nothing moves before all marks are cleared.
        """
        self.cold_s = self._most_s
        self._looks_to_clear = CLEAR_LOOKS

    def look(
        self,
        watches: Sequence[Watch],
        node: tuple[Mapping[int, int], Mapping[int, int]],
        rates: Rates,
        done: Mapping[tuple[int, int], Done],
        *,
        look_s: float = LOOK_S,
        least: float = 0.0,
    ) -> list[Setting]:
        """Return the settings until the next look, in `look_s`.

        node: the free bytes and all bytes of each node.
        done: by the numbers of watch and scheme.
        """
        # As much will go up until the next look as went up since the last one.
        soon = {
            move.target: done.get((number, at), Done()).moved
            for number, watch in enumerate(watches)
            for at, move in enumerate(watch.moves)
            if move.hot
        }
        left = [
            [move.goal.left(*node, soon.get(move.goal.node, 0)) for move in watch.moves]
            for watch in watches
        ]
        missing = any(
            bytes_ > 0
            for watch, each in zip(watches, left, strict=True)
            for move, bytes_ in zip(watch.moves, each, strict=True)
            if not move.hot
        )
        self.cold_s = next_cold_s(self.cold_s, self._most_s, least, missing=missing)
        # Without a limit, each of these schemes does all of its work in one turn.
        clears = [
            (number, at)
            for number, watch in enumerate(watches)
            for at in range(len(watch.moves), 2 * len(watch.moves))
        ]
        self._looks_to_clear = max(self._looks_to_clear - 1, 0)
        if done and all(done.get(key, Done()).tried for key in clears):
            self._looks_to_clear = 0
        moved = any(each.moved for each in done.values())
        self.busy = missing or moved or bool(self._looks_to_clear)
        stuck = {
            move.goal.node: bytes_
            for watch, each in zip(watches, left, strict=True)
            for move, bytes_ in zip(watch.moves, each, strict=True)
            if not move.hot and bytes_ > 0 and _is_full(move.target, *node)
        }
        horizon_s = max(LOOK_S, look_s / _MOST_EXCESS)
        return [
            self._set(watch, each, stuck, watches, rates, horizon_s)
            for watch, each in zip(watches, left, strict=True)
        ]

    def _set(
        self,
        watch: Watch,
        left: Sequence[float],
        stuck: Mapping[int, float],
        watches: Sequence[Watch],
        rates: Rates,
        horizon_s: float,
    ) -> Setting:
        """stuck: the bytes that should leave a node, and find no room."""
        if self._looks_to_clear:
            return Setting((0,) * len(watch.moves), self.cold_s, clearing=True)
        found = []
        for move, bytes_ in zip(watch.moves, left, strict=True):
            if self.exchanges and move.hot and bytes_ <= 0:
                # The kernel knows as much cold memory to exchange. Hot memory beyond that
                # would take the last free pages.
                bytes_ = stuck.get(move.target, 0.0)
            rate = min(rates.of(move, watches), int(bytes_ / horizon_s) + 1)
            found.append(rate if bytes_ > 0 else 0)
        return Setting(tuple(found), self.cold_s)
