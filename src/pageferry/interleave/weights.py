# SPDX-License-Identifier: GPL-2.0-only
"""Weights, and the place of a folio by weight: the kernel's formula.

This module reads and writes no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pageferry.errors import unsupported, usage_error
from pageferry.sysfs.nodes import Node
from pageferry.units import MAX_NODES, format_nodes

# The limit of weighted interleave (mempolicy).
MAX_WEIGHT = 255
_PAIR = re.compile(r"(\d{1,4})=(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class Weights:
    """The weight of each node, in order of the nodes."""

    pairs: tuple[tuple[int, int], ...]

    @cached_property
    def total(self) -> int:
        """Return the sum: the number of folios in a round."""
        return sum(weight for _, weight in self.pairs)

    @property
    def nodes(self) -> tuple[int, ...]:
        """List all nodes, also those with weight 0."""
        return tuple(node for node, _ in self.pairs)

    @cached_property
    def targets(self) -> tuple[int, ...]:
        """List the nodes with a weight above 0."""
        return tuple(node for node, weight in self.pairs if weight)

    def round(self) -> tuple[int, ...]:
        """Return the nodes of folios 0, 1, 2, ... of one round."""
        return tuple(node for node, weight in self.pairs for _ in range(weight))

    def place(self, index: int) -> int:
        """Return the node of the folio with this index."""
        rest = index % self.total
        for node, weight in self.pairs:
            if rest < weight:
                return node
            rest -= weight
        raise AssertionError("weights add up to their sum")

    def share(self, node: int) -> float:
        """Return the wanted share of a node."""
        return dict(self.pairs).get(node, 0) / self.total

    @cached_property
    def shares(self) -> Mapping[int, float]:
        """Return the wanted share of each node with a weight above 0."""
        return {node: weight / self.total for node, weight in self.pairs if weight}

    def __str__(self) -> str:
        return ",".join(f"{node}={weight}" for node, weight in self.pairs)


def folio_index(page_offset: int, order: int) -> int:
    """Return the index of a folio, from the offset of its first page.

    The offset includes vm_pgoff, so that an area that is cut in two keeps its
    indexes.
    """
    return page_offset >> order


def parse_weights(text: str) -> Weights:
    """Parse 0=3,1=1."""
    found: dict[int, int] = {}
    for part in text.split(","):
        match = _PAIR.fullmatch(part.strip())
        if match is None:
            raise usage_error("not weights", text, "write NODE=WEIGHT,...: 0=3,1=1")
        node, weight = int(match[1]), int(match[2])
        if node >= MAX_NODES:
            raise usage_error("no such node", match[1])
        if weight > MAX_WEIGHT:
            raise usage_error(
                "weight too large", part.strip(), f"a weight is 0 to {MAX_WEIGHT}"
            )
        if node in found:
            raise usage_error(f"node {node} has two weights", text)
        found[node] = weight
    return make_weights(found.items(), text)


def make_weights(pairs: Iterable[tuple[int, int]], text: str | None = None) -> Weights:
    """Sort weights by node; at least one must be above 0."""
    weights = Weights(tuple(sorted(pairs)))
    if not weights.total:
        raise usage_error(
            "all weights are 0", text, "give at least one node a weight: 0=1,1=1"
        )
    return weights


def check_nodes(weights: Weights, nodes: Sequence[Node]) -> None:
    """Reject nodes that do not exist or have no memory."""
    here = {node.number: node for node in nodes}
    absent = sorted(set(weights.nodes) - set(here))
    if absent:
        raise usage_error(
            f"no such node: {format_nodes(absent)}",
            str(weights),
            f"nodes here: {format_nodes(here) or 'none, this kernel has no NUMA'}",
        )
    empty = [node for node in weights.targets if not here[node].total_bytes]
    if empty:
        with_memory = [n.number for n in nodes if n.total_bytes]
        raise unsupported(
            "node without memory",
            format_nodes(empty),
            hint=f"nodes with memory: {format_nodes(with_memory)}",
        )
