# SPDX-License-Identifier: GPL-2.0-only
"""Calculations of weights and places, without memory."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave.weights import (
    Weights,
    check_nodes,
    folio_index,
    parse_weights,
)
from pageferry.sysfs.nodes import Node

some_weights = (
    st.dictionaries(st.integers(0, 1023), st.integers(0, 255), min_size=1, max_size=4)
    .filter(lambda found: any(found.values()))
    .map(lambda found: Weights(tuple(sorted(found.items()))))
)


@given(some_weights)
def test_text_and_back(weights: Weights) -> None:
    assert parse_weights(str(weights)) == weights


@given(some_weights, st.integers(0, 1 << 52))
def test_a_round_gives_each_node_its_weight(weights: Weights, first: int) -> None:
    placed = Counter(weights.place(first + i) for i in range(weights.total))
    assert placed == Counter(dict(weights.pairs))
    assert weights.place(first) == weights.round()[first % weights.total]


def test_three_to_one_is_three_and_then_one() -> None:
    weights = parse_weights("0=3,1=1")
    assert [weights.place(i) for i in range(8)] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert weights.share(0) == 0.75
    assert weights.share(7) == 0


def test_from_1_1_to_3_1_a_quarter_moves() -> None:
    before, after = parse_weights("0=1,1=1"), parse_weights("0=3,1=1")
    moved = sum(before.place(i) != after.place(i) for i in range(4000))
    assert moved == 1000


@given(some_weights, st.integers(0, 1 << 40), st.integers(0, 9), st.integers(0, 1000))
def test_a_cut_area_keeps_its_places(
    weights: Weights, offset: int, order: int, cut: int
) -> None:
    """A folio has one place, whichever of its pages is looked at first."""
    head = offset << order
    within = cut % (1 << order)
    assert folio_index(head, order) == folio_index(head + within, order)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not weights"),
        ("3,1", "not weights"),
        ("0=3;1=1", "not weights"),
        ("0=-1,1=1", "not weights"),
        ("0=1.5", "not weights"),
        ("0=0,1=0", "all weights are 0"),
        ("0=1,0=2", "two weights"),
        ("0=256", "weight too large"),
        ("1024=1", "no such node"),
    ],
)
def test_what_is_no_weights(text: str, word: str) -> None:
    with pytest.raises(PageferryError) as caught:
        parse_weights(text)
    assert word in caught.value.what
    assert caught.value.code == ExitCode.USAGE


def test_nodes_must_be_there_and_have_memory() -> None:
    nodes = [Node(0, "0-1", 1 << 30, 1 << 20, None), Node(2, "", 0, 0, None)]
    check_nodes(parse_weights("0=1"), nodes)
    check_nodes(parse_weights("0=1,2=0"), nodes)
    with pytest.raises(PageferryError, match="no such node: 1,3") as caught:
        check_nodes(parse_weights("0=1,1=1,3=0"), nodes)
    assert caught.value.code == ExitCode.USAGE
    with pytest.raises(PageferryError, match="without memory: 2") as caught:
        check_nodes(parse_weights("0=1,2=1"), nodes)
    assert caught.value.code == ExitCode.UNSUPPORTED
