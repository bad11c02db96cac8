# SPDX-License-Identifier: GPL-2.0-only
"""The kdamonds and schemes for some tiers. This module reads and writes no files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# The node of each tier, the fastest first.
Tiers = Sequence[int]
# A range of addresses, without its end.
Range = tuple[int, int]
# Promotion stops when this part of the headroom is left. Between both marks, memory
# changes places without an allocation that finds a full node.
PROMOTE_UNTIL = 0.5


@dataclass(frozen=True)
class Goal:
    """The state of a node at which a scheme has nothing left to do."""

    node: int
    # The fraction of its memory that is free at the goal.
    free: float
    # Whether the scheme uses free memory up, or makes it.
    fills: bool

    def left(
        self, free: Mapping[int, int], total: Mapping[int, int], soon: float = 0.0
    ) -> float:
        """Return how many bytes are left to do, if as many bytes as `soon` go up."""
        # A node may go offline between the plan and a look.
        more = free.get(self.node, 0) - self.free * total.get(self.node, 0)
        return max(more if self.fills else soon - more, 0.0)


@dataclass(frozen=True)
class Move:
    """One scheme: hot memory goes up, or cold memory goes down."""

    hot: bool
    target: int
    goal: Goal


@dataclass(frozen=True)
class Rates:
    """Bytes/s in both directions, each for all schemes together."""

    up: int
    down: int

    def of(self, move: Move, watches: Iterable[Watch]) -> int:
        """Return the share of one scheme: each has a quota of its own."""
        same = sum(each.hot == move.hot for watch in watches for each in watch.moves)
        return (self.up if move.hot else self.down) // max(same, 1)


@dataclass(frozen=True)
class Watch:
    """One kdamond: the memory of a node, or that of some processes."""

    moves: tuple[Move, ...]
    # None: processes, by virtual address.
    node: int | None = None
    ranges: tuple[Range, ...] = ()
    pids: tuple[int, ...] = ()
    # Addresses that their owner has bound, and a gap that DAMON would charge as cold.
    keep: tuple[Range, ...] = ()


def physical(
    tiers: Tiers, ranges: Mapping[int, Sequence[Range]], headroom: float, *, up: bool
) -> list[Watch]:
    """Plan a kdamond for each node; `up`: whether DAMON promotes."""
    watches = []
    for at, node in enumerate(tiers):
        moves = []
        if at + 1 < len(tiers):
            moves.append(Move(False, tiers[at + 1], Goal(node, headroom, fills=False)))
        if at and up:
            moves.append(_promotion(tiers[at - 1], headroom))
        if moves and ranges.get(node):
            watches.append(Watch(tuple(moves), node, tuple(ranges[node])))
    return watches


def virtual(
    tiers: Tiers,
    pids: Iterable[int],
    keep: Iterable[Range],
    headroom: float,
    *,
    up: bool,
) -> Watch:
    """Plan the kdamond of some processes. Their memory has two tiers.

    A scheme for virtual addresses does not see on which node memory is. With a third
    tier, the way down to the second one would bring memory of the third up.
    """
    fast, slow = tiers
    moves = [Move(False, slow, Goal(fast, headroom, fills=False))]
    if up:
        moves.append(_promotion(fast, headroom))
    return Watch(tuple(moves), pids=tuple(pids), keep=tuple(keep))


def _promotion(node: int, headroom: float) -> Move:
    return Move(True, node, Goal(node, headroom * PROMOTE_UNTIL, fills=True))


def merge(blocks: Iterable[int], block_bytes: int) -> list[Range]:
    """Turn numbers of memory blocks into ranges of physical addresses."""
    found: list[Range] = []
    for block in sorted(blocks):
        start = block * block_bytes
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], start + block_bytes)
        else:
            found.append((start, start + block_bytes))
    return found
