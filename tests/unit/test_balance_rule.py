# SPDX-License-Identifier: GPL-2.0-only
"""The calculations and decisions of the balancer, without a machine."""

from __future__ import annotations

import random
from importlib import resources
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pageferry.balance import rule, trace
from pageferry.balance.balancer import Balancer, Decision, Kind, Settings
from pageferry.errors import PageferryError
from pageferry.interleave.user_space import Quota
from pageferry.interleave.weights import parse_weights
from pageferry.report import published
from pageferry.units import GIB

# Rates of the published machine.
BANDWIDTH = {0: 72e9, 1: 26e9}
MEMORY = 64 * GIB
rates = st.floats(1e9, 1e12)
machines = st.lists(rates, min_size=2, max_size=4).map(lambda r: dict(enumerate(r)))


def bundled(name: str) -> list[trace.Moment]:
    path = resources.files("pageferry.balance") / "traces" / name
    return trace.parse(path.read_text(encoding="utf-8"), name)


def changes(made: list[tuple[float, Decision]]) -> list[tuple[float, Kind, str]]:
    return [(at, d.kind, str(d.weights)) for at, d in made if d.weights is not None]


def test_the_published_machine_gets_3_to_1() -> None:
    assert str(rule.best_weights(BANDWIDTH)) == "0=3,1=1"


def test_the_published_speedup_is_predicted_within_5_percent() -> None:
    rows = published.load("damon_interleave_2025").rows
    times = {int(row["repeat"]): float(row["total_ms"]) for row in rows}
    # Round 0 warms up, and the weights change during round 8.
    before = median(times[i] for i in range(1, 8))
    after = median(times[i] for i in range(9, 17))
    made = trace.replay(Balancer(BANDWIDTH, 0), bundled("saturated.csv"), MEMORY, 1.0)
    assert changes(made) == [(5.0, Kind.SPREAD, "0=3,1=1")]
    gain = next(d.gain for _, d in made if d.weights is not None)
    assert before / (1 + gain) == pytest.approx(after, rel=0.05)


def test_two_copies_spread_and_come_home() -> None:
    made = trace.replay(Balancer(BANDWIDTH, 0), bundled("two-copies.csv"), MEMORY, 1.0)
    assert changes(made) == [
        (65.0, Kind.SPREAD, "0=3,1=1"),
        (305.0, Kind.HOME, "0=1,1=0"),
    ]
    assert made[-1][1].kind is Kind.STAY_HOME


def test_a_decision_is_one_line_that_says_why() -> None:
    made = trace.replay(Balancer(BANDWIDTH, 0), bundled("two-copies.csv"), MEMORY, 1.0)
    why = [d.why for _, d in made if d.weights is not None]
    assert why == [
        "node 0 at 100%, node 1 at 0%: weights 0=1,1=0 -> 0=3,1=1, 96.00 GB/s instead"
        " of 72.00 GB/s (+33%); moves 25%, 16 GiB",
        "node 0 at 56%, node 1 at 52%: weights 0=3,1=1 -> 0=1,1=0, 54.00 GB/s fit"
        " node 0, which has 72.00 GB/s; moves 25%, 16 GiB",
    ]
    assert all("\n" not in decision.why for _, decision in made)


@given(machines)
def test_weights_come_close_to_what_nodes_can_give(machine: dict[int, float]) -> None:
    weights = rule.best_weights(machine)
    assert 1 <= weights.total <= rule.MAX_TOTAL
    found = rule.throughput(weights.shares, machine)
    assert found <= sum(machine.values()) * 1.000001
    # Never worse than the best node alone.
    assert found >= max(machine.values()) * 0.999999
    if len(machine) == 2 and min(machine.values()) > max(machine.values()) / 8:
        assert found >= 0.9 * sum(machine.values())


@given(machines, st.floats(0.01, 3.0), st.floats(0.01, 0.99))
def test_a_steady_load_changes_weights_once_at_most(
    machine: dict[int, float], load: float, others: float
) -> None:
    moments = [trace.Moment(0.0, {1: others * machine[1]}, load * machine[0])]
    made = trace.replay(Balancer(machine, 0), moments, MEMORY, 0.5)
    assert len(changes(made)) <= 1


@settings(max_examples=40)
@given(
    st.lists(st.floats(0.05, 3.0), min_size=1, max_size=5),
    st.integers(0, 1 << 32),
    st.floats(0.0, 0.04),
)
def test_noise_is_not_chased(loads: list[float], seed: int, width: float) -> None:
    """Each new load causes one change, however noisy the figures are."""
    balancer, noise = Balancer(BANDWIDTH, 0), random.Random(seed)
    made = []
    for number in range(60 * len(loads)):
        moment = trace.Moment(0.0, {}, loads[number // 60] * BANDWIDTH[0])
        seen = {
            node: rate * (1 + noise.uniform(-width, width))
            for node, rate in moment.seen(balancer.weights.shares, BANDWIDTH).items()
        }
        decision = balancer.step(float(number), seen, MEMORY)
        if decision.weights is not None:
            made.append(decision.kind)
            balancer.started(float(number), decision.weights, 0)
    assert len(made) <= len(loads)


def test_what_others_use_is_theirs() -> None:
    shares = parse_weights("0=3,1=1").shares
    use = {0: 60e9, 1: 25e9}
    # 60 is three quarters of 80, so 20 of node 1 are ours and 5 are not.
    assert rule.own_traffic(shares, use) == 80e9
    assert rule.available(shares, BANDWIDTH, use) == {0: 72e9, 1: 21e9}


def test_a_node_that_others_keep_busy_gets_less() -> None:
    moments = [trace.Moment(0.0, {1: 20e9}, 200e9)]
    made = trace.replay(
        Balancer(BANDWIDTH, 0, Settings(min_gain=0.05)), moments, MEMORY, 1.0
    )
    assert [weights for _, _, weights in changes(made)] == ["0=12,1=1"]


def test_little_gain_is_not_worth_it() -> None:
    moments = [trace.Moment(0.0, {1: 20e9}, 200e9)]
    made = trace.replay(Balancer(BANDWIDTH, 0), moments, MEMORY, 1.0)
    assert changes(made) == []
    assert made[-1][1].kind is Kind.NO_GAIN
    assert "too little" in made[-1][1].why


def test_the_budget_holds() -> None:
    def kinds(budget_gib: int) -> list[Kind]:
        limits = Settings(budget=Quota(budget_gib * GIB, 3600.0))
        balancer = Balancer(BANDWIDTH, 0, limits)
        made = trace.replay(balancer, bundled("two-copies.csv"), MEMORY, 1.0)
        assert made[-1][1].kind is Kind.STAY_HOME
        return [kind for _, kind, _ in changes(made)]

    # 16 GiB move out only if 16 more can come back.
    assert kinds(20) == kinds(31) == []
    assert kinds(32) == [Kind.SPREAD, Kind.HOME]


def test_a_budget_is_new_after_its_period() -> None:
    budget = rule.Budget(Quota(20 * GIB, 3600.0))
    budget.spend(0.0, 16 * GIB)
    budget.still_moving(100.0, since_s=0.0)
    assert budget.covers(200.0, 4 * GIB) and not budget.covers(200.0, 5 * GIB)
    # The bytes count until an hour after the last of them.
    assert not budget.covers(3650.0, 5 * GIB)
    assert budget.covers(3701.0, 20 * GIB)


def test_a_peak_is_waited_out() -> None:
    balancer = Balancer(BANDWIDTH, 0)
    kinds = []
    for at in range(60):
        use = {0: 72e9 if at % 5 else 10e9, 1: 0.0}
        kinds.append(balancer.step(float(at), use, MEMORY).kind)
    assert set(kinds) == {Kind.STAY_HOME, Kind.WAIT}


def test_from_1_1_to_3_1_a_quarter_moves() -> None:
    before, after = parse_weights("0=1,1=1"), parse_weights("0=3,1=1")
    assert rule.share_that_moves(before, after) == 0.25
    assert rule.share_that_moves(before, before) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "time_s,demand\n",
        "time_s,demand\n1,2\n0,3\n",
        "time_s,demand\n0,-1\n",
        "time_s,wish\n0,1\n",
        "demand\n1\n",
        "time_s,demand\n0,many\n",
        "time_s,node0,node1\n0,1\n",
    ],
)
def test_damaged_records_are_named(text: str) -> None:
    with pytest.raises(PageferryError, match="recorded load is damaged"):
        trace.parse(text, "file.csv")


def test_all_that_moves_is_charged_until_it_has_moved() -> None:
    """A new process joins a move of half an hour, and is charged on its own."""
    budget = rule.Budget(Quota(20 * GIB, 3600.0))
    budget.spend(0.0, 4 * GIB)
    budget.spend(1000.0, 16 * GIB)
    budget.spend(1500.0, GIB)
    budget.still_moving(2800.0, since_s=1000.0)
    assert budget.spent == [(0.0, 4 * GIB), (2800.0, 16 * GIB), (2800.0, GIB)]
    assert not budget.covers(6300.0, 4 * GIB)
    budget.refund(3 * GIB)
    assert budget.spent == [(2800.0, 14 * GIB)]
    assert budget.covers(6300.0, 6 * GIB)
