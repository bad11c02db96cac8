# SPDX-License-Identifier: GPL-2.0-only
"""Medians, spreads and ratios within one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from pageferry.results.schema import RatioSpread, Spread


def spread(values: Sequence[float]) -> Spread:
    """Give median, smallest and largest as whole numbers."""
    return Spread(
        median=round(median(values)), min=round(min(values)), max=round(max(values))
    )


def round_ratios(
    ours: Mapping[int, float], base: Mapping[int, float]
) -> RatioSpread | None:
    """Compare two series round by round; both are keyed by their round.

    Only rounds that both have count. A machine that is slower in one round does
    not change that round's ratio. So the median of the ratios is steadier than
    the ratio of two medians.
    """
    common = sorted(ours.keys() & base.keys())
    if not common:
        return None
    ratios = [ours[number] / base[number] for number in common]
    return RatioSpread(median=median(ratios), min=min(ratios), max=max(ratios))
