# SPDX-License-Identifier: GPL-2.0-only
"""The balancer on simulated memory, which takes time to move."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pageferry.balance import rule
from pageferry.balance.balancer import Balancer, Kind, Settings
from pageferry.balance.progress import Progress
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


@pytest.mark.parametrize("budget", [None, SHIPPED.budget])
@pytest.mark.parametrize("rate", [0.1e9, 0.2e9, 0.3e9, 0.5e9, 1e9, 2e9])
def test_a_load_that_stays_makes_one_change(rate: float, budget: Quota | None) -> None:
    """A rule that trusted its weights made 11 to 13 changes, by way of 0:1."""
    found = steady(rate, Settings(budget=budget))
    assert [str(made.weights) for _, made in found.changes] == ["0=3,1=1"]
    assert found.last_bytes_s == pytest.approx(96e9, rel=0.01)
    # The first 16 GiB take up to 172 s.
    assert found.gain > 0.28


@pytest.mark.parametrize("budget_gib", range(16, 257, 16))
def test_the_budget_never_leaves_memory_half_way(budget_gib: int) -> None:
    """A rule that spent the last of its budget away from home ended at 26 GB/s."""
    found = steady(0.3e9, Settings(budget=Quota(budget_gib * GIB, 3600.0)))
    # 16 GiB move out, and as much must be able to come back.
    assert len(found.changes) == (1 if budget_gib >= 32 else 0)
    assert found.last_bytes_s >= 72e9


def test_others_on_the_far_node_send_memory_home_in_one_change() -> None:
    moments = [*STEADY, Moment(600.0, {1: 22e9}, 108e9)]
    found = run(Balancer(BANDWIDTH, 0), moments, MEMORY, Conditions(0.5e9), 1800.0)
    assert [str(made.weights) for _, made in found.changes] == ["0=3,1=1", "0=1,1=0"]
    assert found.last_bytes_s == pytest.approx(72e9)


def test_a_load_that_changes_during_a_move_is_seen_after_it() -> None:
    moments = [*STEADY, Moment(60.0, {}, 40e9)]
    found = run(Balancer(BANDWIDTH, 0), moments, MEMORY, Conditions(0.1e9), 1800.0)
    assert [made.kind for _, made in found.changes] == [Kind.SPREAD, Kind.HOME]
    # No decision before the first 16 GiB have arrived.
    assert found.changes[1][0] > 0.9 * 172


@pytest.mark.parametrize("budget", [None, Quota(64 * GIB, 3600.0)])
def test_pinned_memory_is_called_home_twice_and_then_left(budget: Quota | None) -> None:
    """A fifth of the memory is pinned where the first move has left it."""
    moments = [*STEADY, Moment(600.0, {}, 40e9)]
    balancer = Balancer(BANDWIDTH, 0, Settings(budget=budget))
    where = Conditions(0.5e9, pinned=0.2)
    found = run(balancer, moments, MEMORY, where, 7200.0)
    kinds = [made.kind for _, made, _ in found.starts]
    assert kinds == [Kind.SPREAD, Kind.HOME, Kind.HOME]
    # The second try has moved nothing, and has cost nothing.
    assert found.starts[-1][2] == found.moved[-1][1]
    assert found.decisions[-1][1].kind == Kind.STAY_HOME
    assert balancer.admits(7200.0, 0, 64 * GIB - int(found.moved[-1][1]))


def test_a_start_that_fails_changes_nothing_and_waits_longer_each_time() -> None:
    balancer = Balancer(BANDWIDTH, 0)
    tries = []
    for at in range(600):
        decision = balancer.step(float(at), {0: 72e9, 1: 0.0}, MEMORY, {0: 1.0})
        if decision.weights is not None:
            tries.append(at)
            balancer.failed(float(at))
    assert balancer.is_home and not balancer.is_moving
    waits = [after - before for before, after in pairwise(tries)]
    # Each wait is followed by five seconds of cause.
    assert waits[:6] == [10, 15, 25, 45, 65, 65]


def test_a_rare_look_is_no_move_that_stopped() -> None:
    """A look that takes 2 s leaves 200 s to the next one, by its limit of 1%."""
    balancer = Balancer(BANDWIDTH, 0)
    made = [balancer.step(float(at), {0: 72e9}, MEMORY, HOME.shares) for at in range(6)]
    assert made[-1].weights == THREE_TO_ONE
    balancer.started(5.0, THREE_TO_ONE, made[-1].moves_bytes)
    balancer.step(6.0, {0: 72e9}, MEMORY, HOME.shares)
    for at in range(7, 206):
        # Memory moves, and so does traffic. Only the shares are old.
        use = {0: 72e9, 1: at * 0.08e9}
        made.append(balancer.step(float(at), use, MEMORY, HOME.shares, fresh=False))
    assert {decision.kind for decision in made[6:]} == {Kind.MOVING}
    # Half of the way has passed at the next look.
    half = {0: 0.87, 1: 0.13}
    made.append(balancer.step(206.0, {0: 72e9, 1: 10.8e9}, MEMORY, half))
    assert balancer.is_moving
    assert balancer.step(266.0, {0: 72e9}, MEMORY, half).kind != Kind.MOVING


def test_a_move_that_stops_ends_after_a_minute() -> None:
    progress = Progress(HOME)
    progress.start(0.0, THREE_TO_ONE, HOME.shares)
    assert progress.goes_on(50.0, {0: 0.9, 1: 0.1})
    assert progress.goes_on(109.0, {0: 0.9, 1: 0.1})
    assert not progress.goes_on(110.0, {0: 0.9, 1: 0.1})
    assert not progress.arrived
    # All memory that was away comes home.
    assert progress.at_most(HOME, {0: 0.9, 1: 0.1}) == pytest.approx(0.1)
    assert progress.at_most(parse_weights("0=1,1=1"), {0: 0.9, 1: 0.1}) == 0.5
