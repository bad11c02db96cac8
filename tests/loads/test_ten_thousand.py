# SPDX-License-Identifier: GPL-2.0-only
"""The promises of the balancer on 10,000 random machines and loads: `make loads`."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest

from helpers.random_loads import SEEDS, Tally
from pageferry import output


def some(seeds: range) -> dict[int, float]:
    """Run the loads of some seeds, and return their gains."""
    tally = Tally()
    for seed in seeds:
        tally.add(seed)
    return tally.gains


@pytest.mark.loads
def test_ten_thousand_random_loads() -> None:
    tally = Tally()
    parts = [range(first, SEEDS, 100) for first in range(100)]
    with ProcessPoolExecutor() as pool:
        for gains in pool.map(some, parts):
            tally.gains |= gains
    assert len(tally.gains) == SEEDS
    output.talk(tally.check())
