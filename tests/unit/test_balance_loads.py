# SPDX-License-Identifier: GPL-2.0-only
"""The promises of the balancer, on random machines and loads.

A failure names its seed; `random_loads.make(SEED).run()` repeats it.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.random_loads import Tally, keep_promises, make


@settings(max_examples=30, deadline=None)
@given(st.integers(0, (1 << 64) - 1))
def test_any_load_causes_one_change_at_most_within_its_budget(seed: int) -> None:
    case = make(seed)
    keep_promises(case, case.run())


def test_forty_loads_gain_in_the_mean() -> None:
    tally = Tally()
    for seed in range(40):
        tally.add(seed)
    assert tally.check().startswith("40 loads: mean gain +2")


def test_a_gain_does_not_hide_a_loss() -> None:
    with pytest.raises(AssertionError):
        Tally({0: 1.0, 1: -0.03, 2: -0.02}).check()


def test_a_seed_repeats_a_case() -> None:
    assert make(7) == make(7) != make(8)
    assert make(64).run().gain == make(64).run().gain
