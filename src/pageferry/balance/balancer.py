# SPDX-License-Identifier: GPL-2.0-only
"""Decide when to change weights. This module uses no clock and no files.

Placement is measured, not assumed: a decision waits until memory has arrived, or has
stopped moving. After that, the balancer remembers the load. It changes weights again
only for a new load, or to bring memory home.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pageferry.backoff import Backoff
from pageferry.balance import rule
from pageferry.balance.progress import Progress
from pageferry.interleave.user_space import Quota
from pageferry.interleave.weights import Weights
from pageferry.units import format_rate, format_size

# A load is new if the use of a node differs by this fraction of its bandwidth.
NEW_LOAD = 0.1


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
    MOVING = "moving"
    WAIT = "wait"
    RETRY = "retry"
    SAME_LOAD = "same_load"
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
        self._home_weights = rule.home_weights(list(self.bandwidth), self.home)
        self.budget = rule.Budget(self.settings.budget)
        self._seen: list[tuple[float, Mapping[int, float]]] = []
        self.reset(self._home_weights)

    def reset(self, weights: Weights, *, moving: bool = False) -> None:
        """Begin with an unknown load. `moving`: memory is on its way to the weights.

        The first measured shares tell whether it has their places.
        """
        self.weights, self._moving, self._found = weights, moving, False
        self.shares: Mapping[int, float] = weights.shares
        self._move = Progress(weights)
        self._tries = Backoff(max(self.settings.hold_s, 1.0))
        # The use that was measured after the last change.
        self._known: dict[int, float] | None = None
        self._settled_s: float | None = None
        # Whether the load changed during the move.
        self._changed = False
        self._wait_anew(None, 0.0)

    @property
    def is_home(self) -> bool:
        """Say whether all memory belongs on the home node."""
        return self.weights.targets == (self.home,)

    @property
    def _rests_at_home(self) -> bool:
        """Say whether all memory that can move is at home."""
        return self.is_home and self._move.rests

    @property
    def is_moving(self) -> bool:
        """Say whether the last decision is still being carried out."""
        return self._move.underway

    def step(
        self,
        now_s: float,
        use: Mapping[int, float],
        memory_bytes: int,
        shares: Mapping[int, float] | None = None,
        *,
        fresh: bool = True,
    ) -> Decision:
        """Decide from the use of the nodes in bytes/s.

        shares: the measured share of each node; None if memory moves at once.
        fresh: whether they were measured now. Older ones do not show that a move stopped.
        """
        before, self.shares = self.shares, shares or self.weights.shares
        if not self._found:
            self._found = True
            self._move.find(now_s, self.shares, moving=self._moving)
            if self._move.underway and self.budget.spent:
                # The service that began this move has paid for it.
                self._move.begin_s = self.budget.spent[-1][0]
        if self._move.underway:
            self.budget.still_moving(now_s, self._move.begin_s)
            if fresh:
                self._notice_change(use, before)
            if not fresh or self._move.goes_on(now_s, self.shares):
                left = format_size(int(self._move.left * memory_bytes))
                text = f"{left} are still on their way to weights {self.weights}"
                return Decision(Kind.MOVING, text)
            self._settled_s = None if self._changed else now_s
            self._wait_anew(None, now_s)
        wait_s = self._tries.again_s - now_s
        if wait_s > 0:
            text = f"the last start failed: trying again in {wait_s:.0f} s"
            return Decision(Kind.RETRY, text)
        wanted = self._wish(use)
        if wanted is not self._wanted or (wanted is not Kind.HOME and self._jumps(use)):
            self._wait_anew(wanted, now_s)
        # Average only over `hold`: older samples of a lasting load add nothing.
        recent = now_s - max(self.settings.hold_s, 0.0)
        self._seen = [pair for pair in self._seen if pair[0] >= recent]
        self._seen.append((now_s, dict(use)))
        self._remember(now_s)
        if wanted is None:
            return self._stay(use)
        held_s = now_s - self._since_s
        if held_s < self.settings.hold_s:
            text = f"{self._load(use)} for {held_s:.1f} s: waiting whether it stays"
            return Decision(Kind.WAIT, text)
        return self._act(now_s, wanted, memory_bytes)

    def started(self, now_s: float, weights: Weights, moves_bytes: int) -> None:
        """Record that memory began to move to the places of new weights."""
        self._move.start(now_s, weights, self.shares)
        self.weights = weights
        self.budget.spend(now_s, moves_bytes)
        self._tries.succeed()
        self._known, self._settled_s, self._changed = None, None, False
        self._wait_anew(None, now_s)

    def failed(self, now_s: float) -> None:
        """Record that nothing began to move. The next try waits twice as long."""
        self._tries.fail(now_s)
        self._wait_anew(None, now_s)

    def admits(self, now_s: float, memory_bytes: int, moves_bytes: int) -> bool:
        """Say whether new memory may move: the budget covers it, and all on its way back.

        memory_bytes: all memory, with the new one.
        """
        back = (1 - self.weights.share(self.home)) * memory_bytes
        return self.budget.covers(now_s, moves_bytes + int(back))

    def spent(self, now_s: float, moved_bytes: int) -> None:
        """Charge bytes to the budget that moved without a decision."""
        self.budget.spend(now_s, moved_bytes)

    def refund(self, charged_bytes: int) -> None:
        """Take back the last charges, for bytes that did not move."""
        self.budget.refund(charged_bytes)

    def _wait_anew(self, wanted: Kind | None, now_s: float) -> None:
        # The change that the use asks for, and since when without a break.
        self._wanted, self._since_s = wanted, now_s
        self._seen = []

    def _jumps(self, use: Mapping[int, float]) -> bool:
        """Say whether a sample belongs to another load than the ones before."""
        return bool(self._seen) and self._differ(use, self._mean())

    def _notice_change(
        self, use: Mapping[int, float], before: Mapping[int, float]
    ) -> None:
        """Notice a new load during a move: a jump that the move cannot explain.

        Let each share change by a factor of at most r. The throughput is min(a / p),
        so it changes by at most r. Traffic on a node changes by at most r * r.
        """
        nodes = set(before) | set(self.shares)
        pairs = [(before.get(n, 0.0), self.shares.get(n, 0.0)) for n in nodes]
        if self._seen and all(min(pair) > 0 for pair in pairs):
            last = self._seen[-1][1]
            factor = max(max(pair) / min(pair) for pair in pairs) ** 2
            self._changed |= any(
                abs(use.get(node, 0.0) - last.get(node, 0.0))
                >= NEW_LOAD * whole + (factor - 1) * last.get(node, 0.0)
                for node, whole in self.bandwidth.items()
            )
        self._seen = [(0.0, dict(use))]

    def _differ(self, one: Mapping[int, float], other: Mapping[int, float]) -> bool:
        return any(
            abs(one.get(node, 0.0) - other[node]) >= NEW_LOAD * whole
            for node, whole in self.bandwidth.items()
        )

    def _remember(self, now_s: float) -> None:
        """Keep the first mean use after a change: it belongs to a known load."""
        if self._settled_s is None or now_s - self._settled_s < self.settings.hold_s:
            return
        self._known, self._settled_s = self._mean(), None

    @property
    def _placed(self) -> Mapping[int, float]:
        """Return the shares that are large enough to judge traffic by them."""
        return {
            node: share
            for node, share in self.shares.items()
            if share >= rule.SLIGHT and node in self.bandwidth
        } or self.weights.shares

    def _wish(self, use: Mapping[int, float]) -> Kind | None:
        """Return the change that this sample alone asks for."""
        placed = self._placed
        if any(self._is_busy(node, use) for node in placed):
            return Kind.SPREAD if self.is_home else Kind.CHANGE
        # No node limits the processes, so their traffic at home would be the same.
        own = rule.own_traffic(placed, use)
        at_home = use.get(self.home, 0.0) + own * (1 - placed.get(self.home, 0.0))
        fits = at_home <= self.settings.home_below * self.bandwidth[self.home]
        return Kind.HOME if fits and not self._rests_at_home else None

    def _act(self, now_s: float, wanted: Kind, memory_bytes: int) -> Decision:
        use, placed = self._mean(), self._placed
        load = self._load(use)
        can_give = rule.available(placed, self.bandwidth, use)
        if self._known and not (
            self._differ(use, self._known) or self._home_is_better(can_give)
        ):
            if self.is_home and not self._rests_at_home:
                before, at_home = rule.throughput(placed, can_give), can_give[self.home]
                return self._go_home(now_s, memory_bytes, before, at_home, load)
            text = f"{load}: weights {self.weights} were chosen for this load"
            return Decision(Kind.SAME_LOAD, text)
        if wanted is Kind.HOME:
            own = rule.own_traffic(placed, use)
            text = (
                f"{format_rate(own)} fit node {self.home}, which has "
                f"{format_rate(self.bandwidth[self.home])}"
            )
            return self._move_to(
                now_s, self._home_weights, wanted, memory_bytes, 0.0, load, text
            )
        before = rule.throughput(placed, can_give)
        enough = 1 + self.settings.min_gain
        at_home = can_give[self.home]
        target = rule.best_weights(can_give)
        after = rule.throughput(target.shares, can_give)
        if not self._rests_at_home and (
            after < at_home * enough or not self._is_busy(self.home, use)
        ):
            # Others limit a node away from home, and hide how much. Home is safe.
            if before < at_home * enough:
                return self._go_home(now_s, memory_bytes, before, at_home, load)
            target, after = self.weights, before
        gain = after / before - 1 if before > 0 else 0.0
        if gain < self.settings.min_gain or (
            target == self.weights and self._move.rests
        ):
            text = f"{load}: {target} would give {gain:+.0%}, which is too little"
            return Decision(Kind.NO_GAIN, text, gain=gain)
        text = f"{format_rate(after)} instead of {format_rate(before)} ({gain:+.0%})"
        made = self._move_to(now_s, target, wanted, memory_bytes, gain, load, text)
        if (
            made.weights is None
            and before < at_home * enough
            and not self._rests_at_home
        ):
            # The budget has room for this, because each move away reserves it.
            return self._go_home(now_s, memory_bytes, before, at_home, load)
        return made

    def _go_home(
        self, now_s: float, memory_bytes: int, before: float, after: float, load: str
    ) -> Decision:
        gain = after / before - 1 if before > 0 else 0.0
        text = f"{format_rate(after)} instead of {format_rate(before)} ({gain:+.0%})"
        return self._move_to(
            now_s, self._home_weights, Kind.HOME, memory_bytes, gain, load, text
        )

    def _is_busy(self, node: int, use: Mapping[int, float]) -> bool:
        limit = self.settings.spread_above * self.bandwidth[node]
        return use.get(node, 0.0) >= limit

    def _home_is_better(self, can_give: Mapping[int, float]) -> bool:
        """Say so only if measured figures may be wrong by as much as a new load."""
        hopes = {n: rate + NEW_LOAD * self.bandwidth[n] for n, rate in can_give.items()}
        here = rule.throughput(self._placed, hopes)
        return can_give[self.home] > here * (1 + self.settings.min_gain)

    def _move_to(
        self,
        now_s: float,
        target: Weights,
        wanted: Kind,
        memory_bytes: int,
        gain: float,
        load: str,
        why: str,
    ) -> Decision:
        """Decide on new weights, if the budget covers them and the way back."""
        share = self._move.at_most(target, self.shares)
        away = 0.0
        if target != self._home_weights:
            away = 1 - min(target.share(self.home), self.shares.get(self.home, 0.0))
        moves = int(share * memory_bytes)
        if not self.budget.covers(now_s, moves + int(away * memory_bytes)):
            back = ", and as much back" if away else ""
            text = f"{load}: {target} would move {format_size(moves)}{back}, over the budget"
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
