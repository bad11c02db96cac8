# SPDX-License-Identifier: GPL-2.0-only
"""The nodes between which memory was promoted and demoted.

Linux counts promotions at the destination and demotions at the source. The other node
follows from the tiers: a promotion comes from a slower tier, and a demotion goes there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pageferry.watch import sources
from pageferry.watch.sources import Counters


@dataclass(frozen=True)
class Pair:
    """Pages that went from one node to another; one side may have several candidates."""

    kind: str
    origins: tuple[int, ...]
    targets: tuple[int, ...]
    pages: int


def found(
    nodes: Mapping[int, Counters], tiers: Mapping[int, int | None]
) -> tuple[Pair, ...]:
    """Find the pairs of an interval; `tiers` has each node that has memory."""
    pairs = []
    for number, counters in sorted(nodes.items()):
        slower = _slower(number, tiers)
        promoted = counters.get(sources.PROMOTED, 0)
        demoted = sources.demoted(counters)
        if promoted:
            pairs.append(Pair("promotion", slower, (number,), promoted))
        if demoted:
            pairs.append(Pair("demotion", (number,), slower, demoted))
    return tuple(pairs)


def _slower(number: int, tiers: Mapping[int, int | None]) -> tuple[int, ...]:
    """List the nodes in slower tiers; a kernel may not show the tiers."""
    others = {node: tier for node, tier in tiers.items() if node != number}
    mine = tiers.get(number)
    # A slower tier has a higher number.
    slower = [n for n, tier in others.items() if tier and mine and tier > mine]
    return tuple(sorted(slower or others))
