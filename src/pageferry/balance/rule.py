# SPDX-License-Identifier: GPL-2.0-only
"""Compute the best weights for given bandwidths. No clock, no files.

The model: a node with b unused bytes/s that holds the share s of the traffic limits
all traffic to b / s. The node with the lowest limit counts. Rates are in bytes/s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from pageferry.interleave.weights import Weights

# The largest sum of weights. Larger sums gain less than the error of a measurement.
MAX_TOTAL = 32
# Simpler weights are preferred if they reach this fraction of the best throughput.
GOOD_ENOUGH = 0.97


def home_weights(nodes: Sequence[int], home: int) -> Weights:
    """Return the weights that put all memory on the home node."""
    return Weights(tuple((node, int(node == home)) for node in sorted(nodes)))


def throughput(shares: Mapping[int, float], available: Mapping[int, float]) -> float:
    """Return the throughput that the limiting node allows with these shares.

    Traffic T puts T * s on a node with the share s, so T <= b / s for each node.
    """
    return min(
        max(available.get(node, 0.0), 0.0) / share
        for node, share in shares.items()
        if share
    )


def own_traffic(shares: Mapping[int, float], use: Mapping[int, float]) -> float:
    """Return the largest traffic of memory with these shares that fits the use.

    The memory has its share on each of its nodes. Other programs cause the rest.
    """
    return throughput(shares, use)


def available(
    shares: Mapping[int, float],
    bandwidth: Mapping[int, float],
    use: Mapping[int, float],
) -> dict[int, float]:
    """Return the bandwidth of each node that other programs leave."""
    own = own_traffic(shares, use)
    return {
        node: max(whole - (use.get(node, 0.0) - own * shares.get(node, 0.0)), 0.0)
        for node, whole in bandwidth.items()
    }


def best_weights(can_give: Mapping[int, float]) -> Weights:
    """Choose small weights in proportion to the available bandwidth."""
    whole = sum(can_give.values())
    nodes = sorted(can_give)
    if whole <= 0:
        return home_weights(nodes, nodes[0])
    best = _rounded(can_give, nodes, 1)
    for total in range(1, MAX_TOTAL + 1):
        found = _rounded(can_give, nodes, total)
        if throughput(found.shares, can_give) > throughput(best.shares, can_give):
            best = found
        if throughput(best.shares, can_give) >= GOOD_ENOUGH * whole:
            break
    return best


def _rounded(can_give: Mapping[int, float], nodes: list[int], total: int) -> Weights:
    """Divide a round among the nodes, folio by folio."""
    weights = dict.fromkeys(nodes, 0)
    for _ in range(total):
        # The node with the most bandwidth for each of its folios, with one more.
        node = max(nodes, key=lambda n: (can_give[n] / (weights[n] + 1), -n))
        weights[node] += 1
    return Weights(tuple(weights.items()))


@lru_cache(maxsize=4096)
def share_that_moves(before: Weights, after: Weights) -> float:
    """Return the fraction of memory whose place differs between two weights."""
    first, second = before.round(), after.round()
    length = len(first) * len(second)
    different = sum(
        first[i % len(first)] != second[i % len(second)] for i in range(length)
    )
    return different / length
