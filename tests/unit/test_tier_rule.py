# SPDX-License-Identifier: GPL-2.0-only
"""Tiers without a machine: configuration, plan, steering, and the model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pageferry.errors import PageferryError
from pageferry.tier import config, plan, simulate
from pageferry.tier.config import Config
from pageferry.tier.plan import Goal
from pageferry.tier.simulate import BLOCK_BYTES, LOADS, Outcome, Simulation
from pageferry.tier.steer import PING_PONG_S, PageHistory, Seen, Steering
from pageferry.units import GIB

RANGES = {0: [(0, 4 * GIB)], 1: [(4 * GIB, 8 * GIB)], 2: [(8 * GIB, 9 * GIB)]}
SHIPPED = Path(__file__).resolve().parents[2] / "packaging/systemd/tier.toml"
SLOWLY = Config(rate="512M/1s")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tiers = [[0]]", "two lists"),
        ("headroom = 0.00001", "headroom is a fraction"),
        ("tiers = [[0], []]", "each with one node"),
        ("tiers = [[0, 2], [1]]", "each with one node"),
        ("tiers = [[1], [1]]", "belongs to one tier"),
        ("headroom = 5", "fraction of a tier"),
        ("stall = 0", "fraction of time"),
        ('rate = "0/1s"', "quota is too small"),
        ('interval = "10ms"', "shorter than 1s"),
        ("[[process]]", "one of pid, name and cgroup"),
        ("speed = 1", "unknown field"),
    ],
)
def test_a_wrong_configuration_is_named(text: str, problem: str) -> None:
    with pytest.raises(PageferryError, match="makes no sense") as caught:
        config.parse(text, "tier.toml")
    assert problem in str(caught.value)


def test_the_shipped_configuration_shows_the_defaults() -> None:
    lines = SHIPPED.read_text().splitlines()
    active = [re.sub(r"^#(?=\S+ = )", "", line) for line in lines]
    found = config.parse("\n".join(active), SHIPPED)
    assert str(found.process[0]) == "name merci"
    defaults = config.Config(process=found.process, tiers=found.tiers)
    assert found == defaults and config.load(SHIPPED).process == found.process


def test_blocks_of_memory_become_ranges() -> None:
    assert plan.merge([8, 1, 0, 2], 128) == [(0, 384), (1024, 1152)]


def test_each_node_has_a_kdamond_with_the_ways_to_its_neighbours() -> None:
    watches = plan.physical([0, 1, 2], RANGES, 0.1, up=True)
    ways = [[(move.hot, move.target) for move in watch.moves] for watch in watches]
    assert [watch.node for watch in watches] == [0, 1, 2]
    assert ways == [
        [(False, 1)],
        [(False, 2), (True, 0)],
        [(True, 1)],
    ]
    # Memory of a node that the kernel does not show cannot be watched.
    assert plan.physical([0, 1], {}, 0.1, up=True) == []


def test_numa_balancing_promotes_alone() -> None:
    watches = plan.physical([0, 1], RANGES, 0.1, up=False)
    assert [watch.node for watch in watches] == [0]
    watch = plan.virtual([0, 1], [42], [], 0.1, up=False)
    assert [move.hot for move in watch.moves] == [False]


def test_the_goals_overlap_so_that_memory_can_change_places() -> None:
    down, up = plan.virtual([0, 1], [42], [], 0.1, up=True).moves
    total = {0: 1000, 1: 1000}
    # With 7% free, memory goes down and up. With 11%, only up. With 4%, only down.
    for free, left in ((70, (30, 20)), (110, (0, 60)), (40, (60, 0))):
        now = tuple(round(move.goal.left({0: free}, total)) for move in (down, up))
        assert now == left
    # A node that has gone has nothing to do.
    assert Goal(2, 0.1, fills=False).left({0: 0, 1: 200}, total) == 0


def test_ping_pong_is_a_page_that_comes_back_within_a_minute() -> None:
    seen, page = Seen(), PageHistory(1)
    for now_s, tier in ((0.0, 1), (5.0, 0), (5.0 + PING_PONG_S, 1)):
        page.look(now_s, tier, seen)
    assert seen == Seen(promoted=1, demoted=1, ping_pong=1)
    seen, page = Seen(), PageHistory(1)
    for now_s, tier in ((5.0, 0), (5.1 + PING_PONG_S, 1), (70.0, 2)):
        page.look(now_s, tier, seen)
    assert seen == Seen(promoted=1, demoted=2, ping_pong=0)


def test_the_rate_halves_by_ping_pong_and_grows_again() -> None:
    steering = Steering(0.01)
    assert steering.step(0.0, Seen(promoted=100, ping_pong=10), 0.0) == 1.0
    assert steering.step(5.0, Seen(promoted=0, ping_pong=1), 0.0) == 0.5
    assert steering.why == "11 sampled pages came back soon, while 100 went up"
    # Events before the cut do not cut again.
    assert steering.step(10.0, Seen(), 0.0) == 0.625
    # Few pages say nothing.
    assert steering.step(15.0, Seen(promoted=9, ping_pong=9), 0.0) == 0.78125
    assert steering.step(200.0, Seen(), 0.0) == pytest.approx(0.9765625)
    assert steering.step(205.0, Seen(), 0.0) == 1.0


def test_memory_that_comes_back_was_not_cold() -> None:
    steering = Steering(0.01)
    steering.step(0.0, Seen(promoted=100), 0.5)
    # Waits say nothing about it.
    assert steering.part == 0.5 and steering.wary == 0.0
    found = []
    for at in range(1, 5):
        steering.step(at * 5.0, Seen(promoted=100, ping_pong=50), 0.0)
        found.append(steering.wary)
    assert found == [0.25, 0.5, 1.0, 1.0]
    steering.step(100.0, Seen(), 0.0)
    assert steering.wary == 0.8


def test_the_rate_halves_while_programs_wait() -> None:
    steering = Steering(0.01)
    assert steering.step(0.0, Seen(), 0.011) == 0.5
    for at in range(20):
        steering.step(float(at), Seen(), 0.5)
    # It never stops, so the service sees when it is better.
    assert steering.part == 1 / 64
    assert "waited 50.0%" in steering.why


def simulate_for(name: str, end_s: int = 700, **how: bool) -> Outcome:
    return Simulation(SLOWLY, LOADS[name]).run(end_s, **how)


def test_hot_memory_comes_up_and_headroom_stays() -> None:
    found = simulate_for("static", 200)
    assert simulate_for("static", 200, moves=False).mean_hits() == 0.0
    assert found.settled_s() == 25
    # 200 blocks are hot, and 5% of 400 stay free. No other block moves.
    assert (found.promoted, found.demoted, found.ping_pong) == (200, 220, 0)
    assert min(found.free[30:]) >= 0.05


def test_hot_sets_that_move_or_grow_are_followed() -> None:
    for name, least in (("moving", 0.93), ("growing", 0.98)):
        found = simulate_for(name)
        assert found.mean_hits() > least and found.ping_pong == 0
        # Cold memory goes down before the fast tier is full.
        assert min(found.free[60:]) >= 0.02


def test_a_program_that_does_not_fit_is_left_alone_more_and_more() -> None:
    free, steered = simulate_for("thrash", steered=False), simulate_for("thrash")
    assert free.ping_pong > 0.9 * free.promoted
    assert steered.promoted < free.promoted / 2 and steered.part < 1
    assert steered.mean_hits() > free.mean_hits()


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(sorted(LOADS)),
    st.integers(16, 4096),
    st.floats(0.02, 0.3),
    st.integers(100, 900),
)
def test_no_rate_is_exceeded_and_no_node_overfilled(
    name: str, mib_s: int, headroom: float, fast_blocks: int
) -> None:
    case = Config(rate=f"{mib_s}M/1s", headroom=headroom)
    found = Simulation(case, LOADS[name], fast_blocks).run(120)
    most = max(case.limit.bytes_per_s / BLOCK_BYTES, 1.0)
    assert max(found.moved) <= most
    assert sum(found.moved) <= 120 * case.limit.bytes_per_s / BLOCK_BYTES + 1
    # Promotion leaves half of the headroom, up to one block.
    limit = headroom * plan.PROMOTE_UNTIL - 1 / fast_blocks - 1e-4
    filled = next((at for at, free in enumerate(found.free) if free >= limit), 120)
    assert min([1.0, *found.free[filled:]]) >= limit
    assert found.promoted <= found.demoted + fast_blocks


def test_equal_cases_give_equal_results() -> None:
    assert simulate_for("moving", 100) == simulate_for("moving", 100)
    assert set(simulate.LOADS) == {"static", "moving", "growing", "thrash"}
