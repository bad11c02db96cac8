# SPDX-License-Identifier: GPL-2.0-only
"""Memory that takes time to move, and a balancer on a simulated machine.

The simulation has no clock and no files. Equal conditions, with their seed, give equal
results.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pageferry.balance import rule
from pageferry.balance.balancer import Balancer, Decision
from pageferry.balance.trace import Moment, at
from pageferry.interleave.weights import Weights


@dataclass(frozen=True)
class Conditions:
    """Properties of the simulated machine."""

    # Rate at which memory moves, and the time before its first byte moves.
    bytes_per_s: float = math.inf
    delay_s: float = 0.0
    # Largest relative error of a figure of use.
    noise: float = 0.0
    # Probability that a start fails, and that a move stops before its end.
    start_fails: float = 0.0
    move_sticks: float = 0.0
    seed: int = 0
    # Fraction of the memory that never moves again, wherever its first move left it.
    pinned: float = 0.0


class MovingMemory:
    """The memory of the balanced processes, part by part.

    A part has the places of the weights that moved it last. A page moves only if the
    new weights give it another place. So of a part, `rule.share_that_moves()` moves.
    """

    def __init__(self, size_bytes: int, weights: Weights, where: Conditions) -> None:
        self.size_bytes = size_bytes
        self.where = where
        self.target = weights
        self.moved_bytes = 0.0
        # Bytes that will have moved at the end of the move, if all of them can.
        self.expected_bytes = 0.0
        self.idle = True
        self._parts: dict[Weights, float] = {weights: 1.0}
        self._due_s = 0.0
        # The rest of each part, which this move does not reach.
        self._stays: dict[Weights, float] = {}

    def start(self, now_s: float, target: Weights, reach: float = 1.0) -> None:
        """Begin a move that ends when it has reached this fraction of its pages."""
        self.target, self._due_s = target, now_s + self.where.delay_s
        self._stays = {
            part: max((1 - reach) * size, min(self.where.pinned, size))
            for part, size in self._parts.items()
        }

    def advance(self, now_s: float, passed_s: float) -> None:
        """Move memory for some time, which ends now."""
        before = self.moved_bytes
        room = self.where.bytes_per_s * min(passed_s, max(now_s - self._due_s, 0.0))
        for weights in [part for part in self._parts if part != self.target]:
            cost = rule.share_that_moves(weights, self.target) * self.size_bytes
            part = max(self._parts[weights] - self._stays.get(weights, 0.0), 0.0)
            part = min(part, room / cost) if cost else part
            self._parts[weights] -= part
            self._parts[self.target] = self._parts.get(self.target, 0.0) + part
            room -= part * cost
            self.moved_bytes += part * cost
            if self._parts[weights] <= 0:
                del self._parts[weights]
        self.idle = self.moved_bytes == before and now_s > self._due_s

    @property
    def shares(self) -> dict[int, float]:
        """Return the share of each node."""
        found: dict[int, float] = {}
        for weights, part in self._parts.items():
            for node, share in weights.shares.items():
                found[node] = found.get(node, 0.0) + part * share
        return {node: share for node, share in found.items() if share > 1e-9}


@dataclass
class Outcome:
    """The results of a simulation."""

    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    # The decisions that started a move, with the bytes moved until then.
    starts: list[tuple[float, Decision, float]] = field(default_factory=list)
    # Those that started a move to other weights.
    changes: list[tuple[float, Decision]] = field(default_factory=list)
    # Mean traffic of the balanced processes, and the same with all memory at home.
    mean_bytes_s: float = 0.0
    home_bytes_s: float = 0.0
    # Their traffic at the end.
    last_bytes_s: float = 0.0
    # Bytes moved until each step.
    moved: list[tuple[float, float]] = field(default_factory=list)

    @property
    def gain(self) -> float:
        """Return the mean gain over doing nothing, 0.33 for 33%."""
        return self.mean_bytes_s / self.home_bytes_s - 1 if self.home_bytes_s else 0.0


def run(
    balancer: Balancer,
    moments: Sequence[Moment],
    memory_bytes: int,
    conditions: Conditions,
    end_s: float,
    interval_s: float = 1.0,
) -> Outcome:
    """Let a balancer decide on a load until `end_s`, on memory that moves."""
    chance = random.Random(conditions.seed)
    memory = MovingMemory(memory_bytes, balancer.weights, conditions)
    home = balancer.weights.shares
    found = Outcome()
    begin_s = moments[0].time_s
    steps = int((end_s - begin_s) / interval_s)
    for number in range(steps):
        now_s = begin_s + number * interval_s
        memory.advance(now_s, interval_s)
        moment = at(moments, now_s)
        shares = memory.shares
        found.last_bytes_s = moment.own(shares, balancer.bandwidth)
        found.mean_bytes_s += found.last_bytes_s / steps
        found.home_bytes_s += moment.own(home, balancer.bandwidth) / steps
        found.moved.append((now_s, memory.moved_bytes))
        use = _noisy(moment.seen(shares, balancer.bandwidth), conditions, chance)
        decision = balancer.step(now_s, use, memory_bytes, shares)
        found.decisions.append((now_s, decision))
        if decision.weights is not None:
            _act(found, balancer, memory, decision, now_s, chance)
        elif memory.idle and not balancer.is_moving:
            # The service reads what has moved.
            balancer.refund(int(memory.expected_bytes - memory.moved_bytes))
            memory.expected_bytes = memory.moved_bytes
    return found


def _act(
    found: Outcome,
    balancer: Balancer,
    memory: MovingMemory,
    decision: Decision,
    now_s: float,
    chance: random.Random,
) -> None:
    """Start the move that a balancer has decided on, if the start succeeds."""
    assert decision.weights is not None
    if chance.random() < memory.where.start_fails:
        balancer.failed(now_s)
        return
    sticks = chance.random() < memory.where.move_sticks
    found.starts.append((now_s, decision, memory.moved_bytes))
    # A second try of the same weights is no change.
    if decision.weights != memory.target:
        found.changes.append((now_s, decision))
    memory.start(now_s, decision.weights, chance.random() if sticks else 1.0)
    memory.expected_bytes = memory.moved_bytes + decision.moves_bytes
    balancer.started(now_s, decision.weights, decision.moves_bytes)


def _noisy(
    use: Mapping[int, float], conditions: Conditions, chance: random.Random
) -> dict[int, float]:
    width = conditions.noise
    return {
        node: rate * (1 + chance.uniform(-width, width)) for node, rate in use.items()
    }
