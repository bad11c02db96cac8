# SPDX-License-Identifier: GPL-2.0-only
"""Which weights make the most of the nodes' bandwidth. Sums; no clock, no files.

The model: memory that has the share s of its traffic on a node, with b bytes/s
to spare there, gets at most b / s; the node where that is least holds back the
rest. Rates are in bytes/s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pageferry.interleave.weights import Weights

# As many folios make a round at most. More of them would come closer to what
# was asked for, but not by more than a measurement is off.
MAX_TOTAL = 32
# Weights that give so much of the best are as good, if they are simpler.
GOOD_ENOUGH = 0.97


def home_weights(nodes: Sequence[int], home: int) -> Weights:
    """Give the weights with which everything is at home."""
    return Weights(tuple((node, int(node == home)) for node in sorted(nodes)))


def throughput(weights: Weights, available: Mapping[int, float]) -> float:
    """Say what memory with these weights can get, by the node that is slowest."""
    return min(
        max(available.get(node, 0.0), 0.0) / weights.share(node)
        for node in weights.targets
    )


def own_traffic(weights: Weights, use: Mapping[int, float]) -> float:
    """Say how much of the use is that of memory with these weights, at most.

    It has its share on each of its nodes. What is beyond that is of others.
    """
    return min(use.get(node, 0.0) / weights.share(node) for node in weights.targets)


def available(
    weights: Weights, bandwidth: Mapping[int, float], use: Mapping[int, float]
) -> dict[int, float]:
    """Say what each node can give this memory: what others leave."""
    own = own_traffic(weights, use)
    return {
        node: max(whole - (use.get(node, 0.0) - own * weights.share(node)), 0.0)
        for node, whole in bandwidth.items()
    }


def best_weights(can_give: Mapping[int, float]) -> Weights:
    """Choose small weights in proportion to what the nodes can give."""
    whole = sum(can_give.values())
    nodes = sorted(can_give)
    if whole <= 0:
        return home_weights(nodes, nodes[0])
    best = _rounded(can_give, nodes, 1)
    for total in range(1, MAX_TOTAL + 1):
        found = _rounded(can_give, nodes, total)
        if throughput(found, can_give) > throughput(best, can_give):
            best = found
        if throughput(best, can_give) >= GOOD_ENOUGH * whole:
            break
    return best


def _rounded(can_give: Mapping[int, float], nodes: list[int], total: int) -> Weights:
    """Divide a round among the nodes, each folio to where it is worst served."""
    weights = dict.fromkeys(nodes, 0)
    for _ in range(total):
        # The one that would still give most of what it can, with one more.
        node = max(nodes, key=lambda n: (can_give[n] / (weights[n] + 1), -n))
        weights[node] += 1
    return Weights(tuple(weights.items()))


def share_that_moves(before: Weights, after: Weights) -> float:
    """Say how much of memory has another place with other weights."""
    first, second = before.round(), after.round()
    length = len(first) * len(second)
    different = sum(
        first[i % len(first)] != second[i % len(second)] for i in range(length)
    )
    return different / length
