# SPDX-License-Identifier: GPL-2.0-only
"""The promises of the balancer on 10,000 random machines and loads: `make loads`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.random_loads import SEEDS, Tally
from pageferry import output


@pytest.mark.loads
def test_ten_thousand_random_loads() -> None:
    tally = Tally()

    # hypothesis tries no seed twice, so it tries all, in an order that it repeats.
    @settings(
        max_examples=SEEDS,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, SEEDS - 1))
    def each(seed: int) -> None:
        tally.add(seed)

    each()
    assert len(tally.gains) == SEEDS
    output.talk(tally.check())
