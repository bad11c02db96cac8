# SPDX-License-Identifier: GPL-2.0-only
"""The promises of the balancer on 10,000 random machines and loads: `make loads`."""

from __future__ import annotations

from statistics import fmean

import pytest

from helpers.random_loads import LOSS, SEEDS, keep_promises, make
from pageferry import output


@pytest.mark.loads
def test_ten_thousand_random_loads() -> None:
    gains = []
    for seed in range(SEEDS):
        case = make(seed)
        found = case.run()
        keep_promises(case, found)
        gains.append((found.gain, seed))
    worse = sorted(pair for pair in gains if pair[0] < -LOSS)
    output.talk(
        f"mean gain {fmean(gain for gain, _ in gains):+.1%}; lost over 2%: {worse}"
    )
    assert fmean(min(gain, 0.0) for gain, _ in gains) >= -LOSS
    assert len(worse) <= SEEDS / 500
