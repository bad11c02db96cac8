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
    control: Control,
    free_mib: int,
    done: dict[int, Done] | None = None,
    slow_mib: int = 1000,
    **more: float,
) -> Setting:
    """Look once, with 10% of the fast node as headroom."""
    work = {(0, at): each for at, each in (done or {}).items()}
    (found,) = control.look(
        watches(), ({0: free_mib * MIB, 1: slow_mib * MIB}, TOTAL), RATES, work, **more
    )
    return found


def begun(*, exchanges: bool = False) -> Control:
    control = Control(30.0, exchanges=exchanges)
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


def test_hot_memory_changes_places_with_cold_if_both_nodes_are_full() -> None:
    assert look(begun(exchanges=True), 40, slow_mib=39).rates == (120 * MIB + 1,) * 2
    # Without exchanges, a promotion finds no room.
    assert look(begun(), 40, slow_mib=39).rates[UP] == 0
    # Cold memory goes down where there is room.
    assert look(begun(exchanges=True), 40, slow_mib=41).rates[UP] == 0


def test_no_more_goes_down_than_is_missing() -> None:
    found = look(begun(), 60)
    # 40 MiB are missing, and the next look is in half a second.
    assert found.rates[DOWN] * LOOK_S == pytest.approx(40 * MIB, rel=1e-6)
    # Programs have room for 10 MiB more.
    assert found.rates[UP] * LOOK_S == pytest.approx(10 * MIB, rel=1e-6)
    assert look(begun(), 40).rates[UP] == 0
    assert look(begun(), 700).rates == (0, GIB)
    # If looks are late, at most four times as much moves.
    late = look(begun(), 60, look_s=2.0)
    assert late.rates == found.rates
    late = look(begun(), 60, look_s=4.0)
    assert late.rates[DOWN] * 4.0 == pytest.approx(4 * 40 * MIB, rel=1e-6)
    # The rate of the configuration holds.
    control = begun()
    (slow,) = control.look(watches(), ({0: 0}, TOTAL), Rates(100, 7), {})
    assert slow.rates == (7, 0)


def test_what_goes_up_makes_room_for_more() -> None:
    went_up = {UP: Done(tried=8 * MIB, moved=8 * MIB)}
    # There are 4 MiB more than the headroom.
    found = look(begun(), 104, went_up)
    assert found.rates[DOWN] * LOOK_S == pytest.approx(4 * MIB, rel=1e-6)
    assert look(begun(), 108, went_up).rates[DOWN] == 0


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
    assert not Setting((1990, 0, 0), 30.0).differs(now)
    assert not Setting((510, 0, 0), 30.0).differs(now)
    for other in (
        Setting((2000, 0, 0), 30.0),
        Setting((490, 0, 0), 30.0),
        Setting((1000, 1, 0), 30.0),
        Setting((0, 0, 0), 30.0),
        Setting((1000, 0, 0), 15.0),
        Setting((1000, 0, 0), 30.0, clearing=True),
    ):
        assert other.differs(now)
