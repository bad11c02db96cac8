# SPDX-License-Identifier: GPL-2.0-only
"""Compute the best weights for given bandwidths. No clock, no files.

The model: a node with b unused bytes/s that holds the share s of the traffic limits
all traffic to b / s. The node with the lowest limit counts. Rates are in bytes/s.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pageferry.interleave.user_space import Quota
from pageferry.interleave.weights import Weights

# The largest sum of weights. Larger sums gain less than the error of a measurement.
MAX_TOTAL = 32
# Simpler weights are preferred if they reach this fraction of the best throughput.
GOOD_ENOUGH = 0.97
# A smaller share of the memory says nothing: its traffic is lost in the noise.
SLIGHT = 0.02


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


def distance(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """Return the fraction of memory that must change its node between two placements.

    Each byte that moves lowers one share and raises another, so it counts half.
    """
    nodes = set(one) | set(other)
    return sum(abs(one.get(n, 0.0) - other.get(n, 0.0)) for n in nodes) / 2


def own_traffic(shares: Mapping[int, float], use: Mapping[int, float]) -> float:
    """Return the largest traffic of memory with these shares p that fits the use u.

    The memory has its share on each of its nodes. Other programs cause the rest.

    If others use o, the result is T + c with c = min(o / p): too much by c. Let a be
    the bandwidth that others leave. The model then sees a + c * p instead of a. With
    shares w it expects E = min((a + c * p) / w), and now c + min(a / p) = c + T. So
    where w > p, E > c + T gives `a / w > T + c * (1 - p / w) > T`. Where w <= p,
    `a / w >= T`.
    Hence a change with an expected gain never loses, however wrong c is.
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
    """Choose small weights in proportion to the available bandwidth.

    The next folio of the round goes to the node with the most bandwidth for each of
    its folios. This is the method of D'Hondt, which divides seats in the same way.
    """
    whole = sum(can_give.values())
    nodes = sorted(can_give)
    if whole <= 0:
        return home_weights(nodes, nodes[0])
    counts = dict.fromkeys(nodes, 0)
    best, best_rate = counts, 0.0
    for total in range(1, MAX_TOTAL + 1):
        node = max(nodes, key=lambda n: can_give[n] / (counts[n] + 1))
        counts[node] += 1
        rate = total * min(can_give[n] / count for n, count in counts.items() if count)
        if rate > best_rate:
            best, best_rate = dict(counts), rate
        if best_rate >= GOOD_ENOUGH * whole:
            break
    return Weights(tuple(best.items()))


@lru_cache(maxsize=4096)
def share_that_moves(before: Weights, after: Weights) -> float:
    """Return the fraction of memory whose place differs between two weights."""
    first, second = before.round(), after.round()
    length = len(first) * len(second)
    different = sum(
        first[i % len(first)] != second[i % len(second)] for i in range(length)
    )
    return different / length


class Budget:
    """The bytes that may move in a period; without a quota, any number."""

    def __init__(self, quota: Quota | None) -> None:
        self.quota = quota
        # Bytes, and the last time at which they may have moved. A service that begins
        # again goes on with it.
        self.spent: list[tuple[float, int]] = []

    def spend(self, now_s: float, size_bytes: int) -> None:
        """Charge bytes that begin to move now."""
        if self.quota is not None:
            self.spent.append((now_s, size_bytes))

    def refund(self, size_bytes: int) -> None:
        """Take back the last charges, for bytes that did not move."""
        while size_bytes > 0 and self.spent:
            now_s, charged = self.spent.pop()
            if charged > size_bytes:
                self.spent.append((now_s, charged - size_bytes))
            size_bytes -= charged

    def still_moving(self, now_s: float, since_s: float) -> None:
        """Charge what was spent since then at this time, because it still moves."""
        at = bisect_left(self.spent, since_s, key=lambda pair: pair[0])
        self.spent[at:] = [(now_s, size) for _, size in self.spent[at:]]

    def covers(self, now_s: float, more_bytes: int) -> bool:
        """Say whether more bytes may move now."""
        if self.quota is None:
            return True
        begin_s = now_s - self.quota.interval_s
        self.spent = [pair for pair in self.spent if pair[0] > begin_s]
        spent = sum(size for _, size in self.spent)
        return spent + more_bytes <= self.quota.size_bytes
