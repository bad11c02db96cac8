# SPDX-License-Identifier: GPL-2.0-only
"""Decide when to change weights. This module uses no clock and no files.

Three settings prevent changes by noise. The thresholds for spreading and for moving
home differ. A cause must last for some time. A change must gain enough, within the
budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pageferry.balance import rule
from pageferry.interleave.user_space import Quota
from pageferry.interleave.weights import Weights
from pageferry.units import format_rate, format_size


@dataclass(frozen=True)
class Settings:
    """Thresholds of the decisions."""

    # Fractions of a node's bandwidth.
    spread_above: float = 0.9
    home_below: float = 0.8
    hold_s: float = 5.0
    min_gain: float = 0.1
    # Bytes that may move in a period; None: no limit.
    budget: Quota | None = None


class Kind(Enum):
    """The kinds of decisions."""

    STAY_HOME = "stay_home"
    STAY_SPREAD = "stay_spread"
    WAIT = "wait"
    NO_GAIN = "no_gain"
    OVER_BUDGET = "over_budget"
    SPREAD = "spread"
    CHANGE = "change"
    HOME = "home"


@dataclass(frozen=True)
class Decision:
    """A decision, with its reason in one line."""

    kind: Kind
    why: str
    # None: the weights do not change.
    weights: Weights | None = None
    moves_bytes: int = 0
    gain: float = 0.0


@dataclass
class Balancer:
    """Decides on the weights of all configured processes together."""

    bandwidth: Mapping[int, float]
    home: int
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        self.weights = rule.home_weights(list(self.bandwidth), self.home)
        # The change that the use asks for, and since when without a break.
        self._wanted: Kind | None = None
        self._since_s = 0.0
        self._seen: list[tuple[float, Mapping[int, float]]] = []
        self._moved: list[tuple[float, int]] = []

    @property
    def is_home(self) -> bool:
        """Say whether all memory belongs on the home node."""
        return self.weights.targets == (self.home,)

    def step(
        self, now_s: float, use: Mapping[int, float], memory_bytes: int
    ) -> Decision:
        """Decide from the use of the nodes in bytes/s."""
        wanted = self._wish(use)
        if wanted is not self._wanted:
            self._wanted, self._since_s, self._seen = wanted, now_s, []
        # Average only over `hold`: older samples of a lasting load add nothing.
        recent = now_s - max(self.settings.hold_s, 0.0)
        self._seen = [pair for pair in self._seen if pair[0] >= recent]
        self._seen.append((now_s, dict(use)))
        if wanted is None:
            return self._stay(use)
        held_s = now_s - self._since_s
        if held_s < self.settings.hold_s:
            text = f"{self._load(use)} for {held_s:.1f} s: waiting whether it stays"
            return Decision(Kind.WAIT, text)
        return self._act(now_s, wanted, memory_bytes)

    def done(self, now_s: float, weights: Weights, moved_bytes: int) -> None:
        """Record new weights, and the bytes that moved for them."""
        self.weights = weights
        self._moved.append((now_s, moved_bytes))
        self._wanted, self._seen = None, []

    def _wish(self, use: Mapping[int, float]) -> Kind | None:
        """Return the change that this sample alone asks for."""
        limits = self.settings
        if not self.is_home:
            own = rule.own_traffic(self.weights.shares, use)
            others = use.get(self.home, 0.0) - own * self.weights.share(self.home)
            at_home = max(others, 0.0) + own
            if at_home <= limits.home_below * self.bandwidth[self.home]:
                return Kind.HOME
        busy = any(
            use.get(node, 0.0) >= limits.spread_above * self.bandwidth[node]
            for node in self.weights.targets
        )
        if not busy:
            return None
        return Kind.SPREAD if self.is_home else Kind.CHANGE

    def _act(self, now_s: float, wanted: Kind, memory_bytes: int) -> Decision:
        use = self._mean()
        load = self._load(use)
        own = rule.own_traffic(self.weights.shares, use)
        if wanted is Kind.HOME:
            target = rule.home_weights(list(self.bandwidth), self.home)
            gain = 0.0
            why = (
                f"{format_rate(own)} fit node {self.home}, which has "
                f"{format_rate(self.bandwidth[self.home])}"
            )
        else:
            can_give = rule.available(self.weights.shares, self.bandwidth, use)
            target = rule.best_weights(can_give)
            before = rule.throughput(self.weights.shares, can_give)
            after = rule.throughput(target.shares, can_give)
            gain = after / before - 1 if before > 0 else 0.0
            if target == self.weights or gain < self.settings.min_gain:
                text = f"{load}: {target} would give {gain:+.0%}, which is too little"
                return Decision(Kind.NO_GAIN, text, gain=gain)
            why = f"{format_rate(after)} instead of {format_rate(before)} ({gain:+.0%})"
        share = rule.share_that_moves(self.weights, target)
        moves = int(share * memory_bytes)
        if not self._affords(now_s, moves):
            text = f"{load}: {target} would move {format_size(moves)}, over the budget"
            return Decision(Kind.OVER_BUDGET, text, moves_bytes=moves, gain=gain)
        text = f"{load}: weights {self.weights} -> {target}, {why}; "
        text += f"moves {share:.0%}, {format_size(moves)}"
        return Decision(wanted, text, target, moves, gain)

    def _stay(self, use: Mapping[int, float]) -> Decision:
        if self.is_home:
            limit = f"below {self.settings.spread_above:.0%}"
            text = f"{self._load(use)}, {limit}: stays on node {self.home}"
            return Decision(Kind.STAY_HOME, text)
        text = f"{self._load(use)}: stays at weights {self.weights}"
        return Decision(Kind.STAY_SPREAD, text)

    def _mean(self) -> dict[int, float]:
        """Average the recent samples that asked for the change."""
        return {
            node: sum(use.get(node, 0.0) for _, use in self._seen) / len(self._seen)
            for node in self.bandwidth
        }

    def _load(self, use: Mapping[int, float]) -> str:
        parts = [
            f"node {node} at {use.get(node, 0.0) / whole:.0%}"
            for node, whole in sorted(self.bandwidth.items())
        ]
        return ", ".join(parts)

    def _affords(self, now_s: float, more_bytes: int) -> bool:
        budget = self.settings.budget
        if budget is None:
            return True
        begin = now_s - budget.interval_s
        self._moved = [pair for pair in self._moved if pair[0] > begin]
        return sum(size for _, size in self._moved) + more_bytes <= budget.size_bytes
