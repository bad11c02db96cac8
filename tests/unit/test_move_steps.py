# SPDX-License-Identifier: GPL-2.0-only
"""The sizes of steps follow the times of past ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pageferry.move.steps import FEWEST_PAGES, MOST_PAGES, Sizer

LIMIT_S = 0.02


def run(sizer: Sizer, cost_s: float, fixed_s: float = 0.0, calls: int = 60) -> float:
    """Make calls of a given cost for each page; returns the time of the longest."""
    longest_s = 0.0
    for _ in range(calls):
        took_s = fixed_s + sizer.pages * cost_s
        longest_s = max(longest_s, took_s)
        sizer.learn(sizer.pages, took_s)
    return longest_s


@given(
    cost_s=st.floats(1e-7, LIMIT_S / FEWEST_PAGES / 2),
    fixed_s=st.floats(0, LIMIT_S / 4),
)
def test_no_step_exceeds_the_limit_while_the_cost_stays(
    cost_s: float, fixed_s: float
) -> None:
    assert run(Sizer(LIMIT_S), cost_s, fixed_s) <= LIMIT_S


@given(cost_s=st.floats(2e-6, LIMIT_S / FEWEST_PAGES / 4))
def test_steps_grow_to_a_large_part_of_the_limit(cost_s: float) -> None:
    sizer = Sizer(LIMIT_S)
    run(sizer, cost_s)
    took_s = sizer.pages * cost_s
    assert took_s >= LIMIT_S / 4 or sizer.pages == MOST_PAGES


@given(before_s=st.floats(1e-6, 1e-5), factor=st.floats(2, 1000))
def test_one_long_step_suffices_to_shrink(before_s: float, factor: float) -> None:
    sizer = Sizer(LIMIT_S)
    run(sizer, before_s)
    cost_s = before_s * factor
    sizer.learn(sizer.pages, sizer.pages * cost_s)
    assert sizer.pages * cost_s <= LIMIT_S or sizer.pages == FEWEST_PAGES


@given(
    calls=st.lists(st.tuples(st.integers(1, 1 << 18), st.floats(0, 1000)), max_size=100)
)
def test_sizes_stay_within_bounds(calls: list[tuple[int, float]]) -> None:
    sizer = Sizer(LIMIT_S)
    for pages, took_s in calls:
        before = sizer.pages
        sizer.learn(pages, took_s)
        assert FEWEST_PAGES <= sizer.pages <= MOST_PAGES
        assert sizer.pages <= max(before, 2 * max(before, pages))


def test_a_short_call_of_few_pages_says_little() -> None:
    sizer = Sizer(LIMIT_S, pages=4096)
    # The fixed part of a call took nearly all of this time.
    sizer.learn(1, LIMIT_S / 4)
    assert sizer.pages == 4096


def test_a_huge_page_that_takes_long_does_not_stop_the_move() -> None:
    sizer = Sizer(LIMIT_S)
    sizer.learn(1 << 18, 30.0)
    assert sizer.pages == FEWEST_PAGES
