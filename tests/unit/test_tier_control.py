# SPDX-License-Identifier: GPL-2.0-only
"""Rates of schemes by what is left to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pageferry.tier import plan
from pageferry.tier.control import (
    CLEAR_LOOKS,
    LOOK_S,
    Control,
    Done,
    Setting,
    next_cold_s,
)
from pageferry.tier.plan import Rates, Watch
from pageferry.units import GIB, MIB

RATES = Rates(GIB, GIB)
TOTAL = {0: 1000 * MIB, 1: 2000 * MIB}
DOWN, UP, CLEAR_DOWN, CLEAR_UP = range(4)
CLEARED = {CLEAR_DOWN: Done(tried=MIB), CLEAR_UP: Done(tried=MIB)}


def watches(*, up: bool = True) -> list[Watch]:
    return [plan.virtual([0, 1], [42], [], 0.1, up=up)]


def look(
    control: Control, free_mib: int, done: dict[int, Done] | None = None, **more: float
) -> Setting:
    """Look once, with 10% of the fast node as headroom."""
    work = {(0, at): each for at, each in (done or {}).items()}
    (found,) = control.look(
        watches(), ({0: free_mib * MIB, 1: 0}, TOTAL), RATES, work, **more
    )
    return found


def begun() -> Control:
    control = Control(30.0)
    control.begin()
    look(control, 200, CLEARED)
    return control


def test_nothing_moves_before_all_marks_are_cleared() -> None:
    control = Control(30.0)
    control.begin()
    for done in (None, {DOWN: Done(tried=MIB)}, {CLEAR_DOWN: Done(tried=MIB)}):
        found = look(control, 60, done)
        assert found.rates == (0, 0) and found.clearing and control.busy
    found = look(control, 60, CLEARED)
    assert min(found.rates) > 0 and not found.clearing
    # The schemes have nothing to do then.
    assert not look(control, 200).clearing and not control.busy


def test_a_watch_without_memory_does_not_hold_others_up() -> None:
    control = Control(30.0)
    control.begin()
    found = [
        look(control, 60, {CLEAR_DOWN: Done(tried=MIB)}) for _ in range(CLEAR_LOOKS)
    ]
    assert [each.clearing for each in found] == [True] * (CLEAR_LOOKS - 1) + [False]
    assert min(found[-1].rates) > 0


def test_no_more_goes_down_than_is_missing() -> None:
    found = look(begun(), 60)
    # 40 MiB are missing, and the next look is in half a second.
    assert found.rates[DOWN] * LOOK_S == pytest.approx(40 * MIB, rel=1e-6)
    # Programs have room for 10 MiB more.
    assert found.rates[UP] == GIB
    assert look(begun(), 40).rates[UP] == 0
    assert look(begun(), 100).rates == (0, GIB)
    # A late look has less for each second.
    late = look(begun(), 60, look_s=1.0)
    assert late.rates[DOWN] == pytest.approx(40 * MIB, rel=1e-6)
    # The rate of the configuration holds.
    control = begun()
    (slow,) = control.look(watches(), ({0: 0}, TOTAL), Rates(100, 7), {})
    assert slow.rates == (7, 0)


def test_memory_in_its_place_raises_the_quota() -> None:
    control = begun()
    first = look(control, 60).rates[DOWN]
    # Half of the quota moved memory.
    half = {DOWN: Done(tried=20 * MIB, moved=10 * MIB)}
    rates = [look(control, 60, half).rates[DOWN] for _ in range(20)]
    assert rates == [pytest.approx(first * 2, rel=1e-3)] * 20
    # None of it does. The quota grows step by step.
    none = {DOWN: Done(tried=20 * MIB)}
    rates = [look(control, 90, none).rates[DOWN] for _ in range(3)]
    assert [rate / rates[0] for rate in rates] == pytest.approx([1, 2, 2], rel=1e-3)
    # All of it does: at once, or too much would move.
    all_of_it = {DOWN: Done(tried=20 * MIB, moved=20 * MIB)}
    assert look(control, 60, all_of_it).rates[DOWN] == first
    # Little work says nothing, and there is a limit.
    assert look(control, 60, {DOWN: Done(tried=4096)}).rates[DOWN] == first
    for _ in range(50):
        last = look(control, 99, {DOWN: Done(tried=20 * MIB)}).rates[DOWN]
    assert last * LOOK_S == pytest.approx(16 * MIB, rel=1e-3)


def test_memory_is_cold_sooner_while_some_is_missing() -> None:
    control = begun()
    seen = [look(control, 60).cold_s for _ in range(3)]
    assert seen == [3.75, 1.0, 1.0]
    assert control.busy
    # With enough free memory, the configured time comes back.
    seen = [look(control, 200).cold_s for _ in range(20)]
    assert seen[0] == 2.0 and seen[-1] == 30.0
    assert not control.busy
    # Memory came back, so it was not cold.
    seen = [look(control, 60, least=0.5).cold_s for _ in range(8)]
    assert seen[-1] == 15.0


@given(
    now_s=st.floats(1.0, 3600.0),
    most_s=st.floats(1.0, 3600.0),
    least=st.floats(0.0, 1.0),
    missing=st.booleans(),
)
def test_the_time_stays_within_its_limits(
    now_s: float, most_s: float, least: float, *, missing: bool
) -> None:
    found = next_cold_s(min(now_s, most_s), most_s, least, missing=missing)
    assert 1.0 <= found <= most_s


def test_a_small_change_is_not_worth_a_commit() -> None:
    now = Setting((1000, 0, 0), 30.0)
    assert not Setting((1240, 0, 0), 30.0).differs(now)
    assert not Setting((810, 0, 0), 30.0).differs(now)
    for other in (
        Setting((1250, 0, 0), 30.0),
        Setting((790, 0, 0), 30.0),
        Setting((1000, 1, 0), 30.0),
        Setting((0, 0, 0), 30.0),
        Setting((1000, 0, 0), 15.0),
        Setting((1000, 0, 0), 30.0, clearing=True),
    ):
        assert other.differs(now)
