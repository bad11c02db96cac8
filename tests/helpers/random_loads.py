# SPDX-License-Identifier: GPL-2.0-only
"""Random machines and loads for the balancer; each seed gives the same one again.

A load lasts for 10 to 40 minutes, because no rule can win against loads that change as
soon as memory has moved. Everything else is as bad as a machine may be: memory moves at
0.1 to 2 GB/s, starts fail, moves stop on their way, up to 10% of it is pinned, and others
use each node.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from statistics import fmean

from pageferry.balance.balancer import Balancer, Settings
from pageferry.balance.config import Config
from pageferry.balance.simulate import Conditions, Outcome, run
from pageferry.balance.trace import Moment
from pageferry.interleave.user_space import Quota
from pageferry.units import GIB, parse_seconds

# The thresholds and the interval are those that users have.
SHIPPED = Config(process=[])
INTERVAL_S = parse_seconds(SHIPPED.interval)
# The long run uses all seeds from 0 on.
SEEDS = 10_000
# The loss against doing nothing may be this large in the mean.
LOSS = 0.02


@dataclass(frozen=True)
class Case:
    """A machine, its load, and the settings of the balancer."""

    seed: int
    bandwidth: dict[int, float]
    memory_bytes: int
    moments: list[Moment]
    end_s: float
    conditions: Conditions
    settings: Settings

    def run(self) -> Outcome:
        """Simulate the balancer."""
        balancer = Balancer(self.bandwidth, 0, self.settings)
        return run(
            balancer,
            self.moments,
            self.memory_bytes,
            self.conditions,
            self.end_s,
            interval_s=INTERVAL_S,
        )


def make(seed: int) -> Case:
    """Make the case of a seed."""
    chance = random.Random(seed)
    bandwidth = {0: chance.uniform(30e9, 400e9)}
    for node in range(1, chance.choice((2, 2, 2, 3))):
        bandwidth[node] = bandwidth[0] * chance.uniform(0.1, 1.0)
    moments, now_s = [], 0.0
    for _ in range(chance.randint(1, 4)):
        # Others are often quiet, and seldom use more than a node has left.
        use = {
            node: rate * max(chance.uniform(-0.8, 0.9), 0.0)
            for node, rate in bandwidth.items()
        }
        demand = chance.uniform(0.0, 2.5) * bandwidth[0]
        moments.append(Moment(now_s, use, demand))
        now_s += chance.uniform(600.0, 2400.0)
    memory_bytes = int(chance.uniform(1.0, 64.0) * GIB)
    budget_bytes = int(memory_bytes * chance.uniform(0.2, 4.0))
    budget = Quota(budget_bytes, chance.choice((600.0, 3600.0)))
    pinned = chance.choice((0.0, chance.uniform(0.0, 0.1)))
    return Case(
        seed,
        bandwidth,
        memory_bytes,
        moments,
        now_s,
        Conditions(
            bytes_per_s=10 ** chance.uniform(8.0, 9.3),
            delay_s=chance.uniform(0.0, 20.0),
            noise=chance.choice((0.0, chance.uniform(0.0, 0.04))),
            start_fails=chance.choice((0.0, 0.5)),
            move_sticks=chance.choice((0.0, 0.2)),
            seed=seed,
            pinned=pinned,
        ),
        replace(SHIPPED.settings, budget=chance.choice((None, budget))),
    )


def worst_period(found: Outcome, quota: Quota) -> float:
    """Return the most bytes that moved within one period of the budget."""
    worst, first = 0.0, 0
    for now_s, moved in found.moved:
        while found.moved[first][0] < now_s - quota.interval_s:
            first += 1
        worst = max(worst, moved - found.moved[first][1])
    return worst


def keep_promises(case: Case, found: Outcome) -> None:
    """Check the promises that hold for each load by itself."""
    for number, (now_s, decision) in enumerate(found.changes, 1):
        begun = sum(moment.time_s <= now_s for moment in case.moments)
        assert number <= begun, f"seed {case.seed}: {decision.why}"
    # A start that moves nothing is repeated once.
    for (_, first, before), (_, again, _), (_, third, after) in zip(
        found.starts, found.starts[1:], found.starts[2:], strict=False
    ):
        same = first.weights == again.weights == third.weights
        assert not same or after > before, f"seed {case.seed}"
    quota = case.settings.budget
    if quota is not None:
        moved = worst_period(found, quota)
        assert moved <= quota.size_bytes * 1.0001, f"seed {case.seed}"


@dataclass
class Tally:
    """The gains of many loads, against doing nothing."""

    gains: dict[int, float] = field(default_factory=dict)

    def add(self, seed: int) -> None:
        """Run the case of a seed, and check its promises."""
        case = make(seed)
        found = case.run()
        keep_promises(case, found)
        self.gains[seed] = found.gain

    def check(self) -> str:
        """Check the mean of the loads that lost. Returns all figures in words."""
        mean, lost = fmean(self.gains.values()), self.lost
        # Gains of some loads must not hide the losses of others.
        losses = [gain for gain in self.gains.values() if gain < 0]
        loss = fmean(losses) if losses else 0.0
        assert loss >= -LOSS, sorted(lost)
        assert len(lost) <= max(len(self.gains) / 500, 1), sorted(lost)
        return (
            f"{len(self.gains)} loads: mean gain {mean:+.1%}; {len(losses)} lost, "
            f"{loss:+.2%} in the mean; {len(lost)} lost over 2%: seeds {sorted(lost)}"
        )

    @property
    def lost(self) -> list[int]:
        """List the seeds of loads that lost more than their limit."""
        return [seed for seed, gain in self.gains.items() if gain < -LOSS]
