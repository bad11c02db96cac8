# SPDX-License-Identifier: GPL-2.0-only
"""Say whether memory is still on its way to the places of its weights.

Two constants decide. Memory has arrived after 95% of its way. It has stopped if 60 s
pass in which it made less than 1% of the way.
"""

from __future__ import annotations

from collections.abc import Mapping

from pageferry.balance import rule
from pageferry.interleave.weights import Weights

ARRIVED = 0.95
PATIENCE_S = 60.0
_STEP = 0.01


class Progress:
    """The last move, as the measured shares show it."""

    def __init__(self, weights: Weights) -> None:
        self.target = weights
        self.underway = False
        self.arrived = True
        # Whether a move and its repetition left memory elsewhere: pinned or bound.
        self.stuck = False
        # Fraction of the memory that is still elsewhere.
        self.left = 0.0
        # Pages have the places of one of these weights, unless others placed them.
        self._places = [weights]
        self._placed_by_others = False
        self._stopped = False

    def find(self, now_s: float, shares: Mapping[int, float], *, moving: bool) -> None:
        """Begin with memory at its measured nodes. `moving`: it is on its way."""
        if rule.distance(shares, self.target.shares) <= 1 - ARRIVED:
            return
        self._placed_by_others = True
        if moving:
            self.start(now_s, self.target, shares)
        self.arrived = False

    def start(self, now_s: float, target: Weights, shares: Mapping[int, float]) -> None:
        """Begin a move."""
        self._again = target == self.target and self._stopped
        self.target, self.underway, self.arrived = target, True, False
        self.stuck = self._stopped = False
        if target not in self._places:
            self._places.append(target)
        self.left = self._way = self._least = rule.distance(shares, target.shares)
        self.begin_s = self._since_s = now_s

    def goes_on(self, now_s: float, shares: Mapping[int, float]) -> bool:
        """Look at new shares, and say whether the move goes on."""
        self.left = rule.distance(shares, self.target.shares)
        if self.left <= (1 - ARRIVED) * self._way + 1e-9:
            self.underway, self.arrived = False, True
            self._places, self._placed_by_others = [self.target], False
        elif self.left <= self._least - _STEP * self._way:
            self._least, self._since_s = self.left, now_s
        elif now_s - self._since_s >= PATIENCE_S:
            self.underway, self._stopped = False, True
            self.stuck = self._again and self._since_s == self.begin_s
        return self.underway

    @property
    def rests(self) -> bool:
        """Say whether another try would move nothing."""
        return self.arrived or self.stuck

    def at_most(self, target: Weights, shares: Mapping[int, float]) -> float:
        """Return the fraction of memory that moves to a target, or more than that.

        A move that stopped leaves pages at the places of several weights. Of each
        such part, at most the largest `share_that_moves()` moves. To a single node,
        all memory on other nodes moves.
        """
        if len(target.targets) == 1 and not self.arrived:
            return 1 - min(shares.get(target.targets[0], 0.0), 1.0)
        if self._placed_by_others:
            return 1.0
        return max(rule.share_that_moves(part, target) for part in self._places)
