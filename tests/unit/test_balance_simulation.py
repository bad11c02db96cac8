# SPDX-License-Identifier: GPL-2.0-only
"""The balancer on simulated memory, which takes time to move."""

from __future__ import annotations

import pytest

from pageferry.balance import rule
from pageferry.balance.balancer import Balancer, Settings
from pageferry.balance.simulate import Conditions, MovingMemory, Outcome, run
from pageferry.balance.trace import Moment
from pageferry.interleave.user_space import Quota
from pageferry.interleave.weights import parse_weights
from pageferry.units import GIB

# The published machine, and the load of two copies of its program.
BANDWIDTH = {0: 72e9, 1: 26e9}
MEMORY = 64 * GIB
HOME, THREE_TO_ONE = parse_weights("0=1,1=0"), parse_weights("0=3,1=1")
STEADY = [Moment(0.0, {}, 108e9)]
# packaging/systemd/balance.toml
SHIPPED = Settings(budget=Quota(256 * GIB, 3600.0))


def steady(rate: float, settings: Settings, end_s: float = 1800.0) -> Outcome:
    balancer = Balancer(BANDWIDTH, 0, settings)
    return run(balancer, STEADY, MEMORY, Conditions(rate), end_s)


def test_memory_moves_at_its_rate() -> None:
    memory = MovingMemory(1000, HOME, Conditions(10.0, delay_s=5.0))
    memory.start(0.0, THREE_TO_ONE)
    for at in range(1, 32):
        memory.advance(float(at), 1.0)
        assert memory.moved_bytes == pytest.approx(min(max(at - 5, 0) * 10, 250))
    assert memory.shares == pytest.approx({0: 0.75, 1: 0.25})


def test_a_new_target_takes_over_where_the_last_one_was() -> None:
    memory = MovingMemory(1000, HOME, Conditions(10.0))
    memory.start(0.0, THREE_TO_ONE)
    memory.advance(10.0, 10.0)
    assert memory.shares == pytest.approx({0: 0.9, 1: 0.1})
    memory.start(10.0, HOME)
    memory.advance(20.0, 10.0)
    assert memory.shares == pytest.approx({0: 1.0})
    assert memory.moved_bytes == pytest.approx(200)


def test_a_move_that_sticks_stops_where_it_is_told_to() -> None:
    memory = MovingMemory(1000, HOME, Conditions())
    memory.start(0.0, THREE_TO_ONE, reach=0.4)
    for at in range(1, 9):
        memory.advance(float(at), 1.0)
    assert memory.shares == pytest.approx({0: 0.9, 1: 0.1})


def test_equal_seeds_give_equal_results() -> None:
    def decisions(seed: int) -> list[str]:
        where = Conditions(1e9, 2.0, 0.05, 0.3, 0.3, seed)
        found = run(Balancer(BANDWIDTH, 0), STEADY, MEMORY, where, 60.0)
        return [decision.why for _, decision in found.decisions]

    assert decisions(1) == decisions(1) != decisions(2)


def test_noise_has_no_bias() -> None:
    seen = run(Balancer(BANDWIDTH, 0), STEADY, MEMORY, Conditions(noise=0.04), 20.0)
    assert seen.last_bytes_s == pytest.approx(96e9)
    share = rule.share_that_moves(HOME, THREE_TO_ONE)
    assert seen.moved[-1][1] == pytest.approx(share * MEMORY)


@pytest.mark.parametrize(
    ("rate", "changes", "last"),
    [(0.1e9, 11, 88.0e9), (0.3e9, 13, 41.6e9), (0.5e9, 13, 39.0e9), (2e9, 11, 86.4e9)],
)
def test_the_rule_takes_memory_on_its_way_for_the_load_of_others(
    rate: float, changes: int, last: float
) -> None:
    """A defect: one change would be right, and home alone gives 72 GB/s."""
    found = steady(rate, SHIPPED)
    assert len(found.changes) == changes
    assert found.last_bytes_s == pytest.approx(last, rel=0.01)
