# SPDX-License-Identifier: GPL-2.0-only
"""The model: its conserved sums, its fit, and its error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pageferry import cli
from pageferry.model import designs, fit
from pageferry.model.constants import LARGE, SMALL, Machine
from pageferry.model.simulate import Plan, simulate

MACHINE = fit.published_machine()

machines = st.builds(
    Machine,
    unmap_ps=st.integers(0, 10**7),
    describe_ps=st.integers(0, 10**7),
    move_4k_ps=st.integers(1, 10**7),
    move_2m_ps=st.integers(1, 10**7),
    setup_ps=st.integers(0, 10**8),
    finish_ps=st.integers(0, 10**8),
    copy_4k_ps=st.integers(1, 10**7),
    copy_2m_ps=st.integers(1, 10**9),
    descriptor_ps=st.integers(0, 10**7),
    channel_bytes_per_s=st.integers(10**8, 10**11),
    channels_per_controller=st.integers(1, 4),
    controller_bytes_per_s=st.integers(10**8, 10**11),
    memory_bytes_per_s=st.integers(10**8, 10**11),
)
plans = st.builds(
    Plan,
    folio_bytes=st.sampled_from([SMALL, LARGE]),
    folios=st.integers(1, 60),
    channels=st.integers(0, 17),
    window_folios=st.integers(1, 70),
    depth=st.integers(1, 4),
    streaming=st.booleans(),
    split=st.just(False),
)
split_plans = plans.map(lambda plan: replace(plan, streaming=True, split=True))


@settings(deadline=None, max_examples=60)
@given(machines, plans | split_plans)
def test_conservation(machine: Machine, plan: Plan) -> None:
    outcome = simulate(machine, plan)
    total = plan.folios * plan.folio_bytes
    assert outcome.copied_bytes == total
    assert outcome.moved_folios == plan.folios
    assert sum(reach.folios for reach in outcome.reach) == plan.folios
    assert outcome.cpu_busy_ns <= outcome.total_ns * (1 + 1e-9)
    assert outcome.most_unmapped <= plan.window_folios * plan.depth
    if plan.channels:
        limit = min(
            plan.channels * machine.channel_bytes_per_s,
            -(-plan.channels // machine.channels_per_controller)
            * machine.controller_bytes_per_s,
            machine.memory_bytes_per_s,
        )
        assert total / outcome.total_ns * 1e9 <= limit * (1 + 1e-6)
    seen = designs.summarize("any", plan, outcome)
    assert seen.first_ns > 0 or machine.move_4k_ps < 1000
    assert seen.first_ns <= seen.mean_ns <= seen.last_ns
    assert seen.first_ns <= seen.p99_ns <= seen.last_ns <= outcome.total_ns + 1


@settings(deadline=None, max_examples=40)
@given(machines, st.integers(0, 3), st.sampled_from([SMALL, LARGE]))
def test_more_channels_are_never_slower(
    machine: Machine, doublings: int, size: int
) -> None:
    # Equal shares: a single channel with a larger share may well be slower.
    plan = Plan(size, 32, 1 << doublings, 16)
    more = replace(plan, channels=plan.channels * 2)
    slow, fast = simulate(machine, plan), simulate(machine, more)
    assert fast.total_ns <= slow.total_ns * (1 + 1e-6)


def test_all_published_points() -> None:
    points = designs.check(MACHINE, fit.cells())
    assert len(points) == 60
    unseen = [point for point in points if not point.gave_constants]
    assert len(unseen) == 54
    for some in (points, unseen):
        assert max(designs.median_error(some)) <= 0.05
    errors = [abs(e) for p in points for e in (p.rate_error, p.first_error)]
    assert max(errors) < 0.20


def test_only_the_ends_give_constants() -> None:
    cells, stock = fit.cells(), fit.stock_cells()
    changed = [
        cell if fit.is_end(cell) else replace(cell, bytes_per_s=1.0, first_ns=1.0)
        for cell in cells
    ]
    stock_changed = [
        cell if fit.is_end(cell) else replace(cell, bytes_per_s=1.0, first_ns=1.0)
        for cell in stock
    ]
    assert changed != cells
    assert stock_changed != stock
    assert fit.fit(changed, stock_changed) == MACHINE
    # A cell between the first and the last cap is never an end.
    caps = {cell.cap_pages for cell in cells if fit.is_end(cell)}
    assert caps == {fit.FIRST_CAP, fit.LAST_CAP}


@pytest.mark.parametrize("end", [cell for cell in fit.cells() if fit.is_end(cell)])
def test_each_end_gives_something(end: fit.Cell) -> None:
    other = replace(end, first_ns=end.first_ns * 1.001)
    cells = [other if cell == end else cell for cell in fit.cells()]
    assert fit.fit(cells, fit.stock_cells()) != MACHINE


def test_the_tables_count_in_gib() -> None:
    # Only the CPU works after the first folio, so this time is equal for all engines.
    last = [
        cell
        for cell in fit.cells()
        if cell.folio_bytes == LARGE and cell.cap_pages == fit.LAST_CAP
    ]
    rest = [cell.batch_ns - cell.first_ns for cell in last]
    assert max(rest) / min(rest) < 1.15
    wrong = [cell.batch_ns * 2**30 / 1e9 - cell.first_ns for cell in last]
    assert max(wrong) / min(wrong) > 2.5


def test_windows_hide_the_bookkeeping() -> None:
    best = designs.posted(MACHINE, LARGE, 16, fit.LAST_CAP)
    choice = designs.choose(MACHINE, LARGE, 16, fit.LAST_CAP)
    chosen = choice.chosen
    assert chosen is not None
    assert chosen.bytes_per_s >= 0.95 * best.bytes_per_s
    assert chosen.p99_ns <= choice.limit_ns
    assert chosen.bytes_per_s <= MACHINE.memory_bytes_per_s
    assert all(one.as_json()["prediction"] is True for one in choice.tried)


def test_nothing_keeps_a_limit_of_nothing() -> None:
    slow = replace(MACHINE, copy_2m_ps=1, unmap_ps=0, move_2m_ps=1)
    assert designs.choose(slow, LARGE, 1, fit.LAST_CAP).chosen is None


def test_constants_go_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"constants": MACHINE.as_json()}))
    assert cli.main(["model", "--json", "--constants", str(path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["constants"] == MACHINE.as_json()
    assert "check" not in document
    assert all(one["prediction"] for one in document["predictions"])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"unmap_ps": 1}', json.dumps({"constants": {"a": 1}})]
)
def test_bad_constants(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "machine.json"
    path.write_text(text)
    assert cli.main(["model", "--json", "--constants", str(path)]) == 2
    assert "error" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, 1 << 63])
def test_bad_values(value: object, tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    document: dict[str, object] = {}
    document.update(MACHINE.as_json())
    document["memory_bytes_per_s"] = value
    path.write_text(json.dumps(document))
    assert cli.main(["model", "--constants", str(path)]) == 2


@pytest.mark.parametrize("text", ["0", "-1", "x", "65", "", "²", "1_6", "9" * 5000])
def test_bad_channels(text: str) -> None:
    assert cli.main(["model", f"--channels={text}"]) == 2
