# SPDX-License-Identifier: GPL-2.0-only
"""Sizes, times and node lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pageferry.errors import ExitCode, PageferryError
from pageferry.output import duration
from pageferry.units import (
    MAX_BYTES,
    MAX_NODES,
    format_nodes,
    format_size,
    parse_nodes,
    parse_seconds,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4k", 4096),
        ("64KiB", 65536),
        ("2M", 2 << 20),
        ("2MB", 2 << 20),
        ("1 GiB", 1 << 30),
        ("1t", 1 << 40),
        (str(MAX_BYTES), MAX_BYTES),
    ],
)
def test_sizes_are_binary(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "k", "-1", "1.5M", "4x", "4iB", "0x10", "1e9", "٤", "4K 4K", str(1 << 63)],
)
def test_what_is_no_size_is_a_usage_error(text: str) -> None:
    with pytest.raises(PageferryError) as caught:
        parse_size(text)
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.value == text


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_written_size_is_not_far_from_the_truth(value: int) -> None:
    number, unit = format_size(value).split()
    scale = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[unit]
    assert float(number) * (1 << scale) == pytest.approx(value, rel=0.01)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5m", 90), ("250ms", 0.25), ("10us", 1e-5)]
)
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "-1", "1 2", "1d", "inf", "nan"])
def test_what_is_no_time_is_a_usage_error(text: str) -> None:
    with pytest.raises(PageferryError) as caught:
        parse_seconds(text)
    assert caught.value.code == ExitCode.USAGE


@given(st.sets(st.integers(min_value=0, max_value=MAX_NODES - 1), min_size=1))
def test_node_lists_survive_a_round_trip(nodes: set[int]) -> None:
    text = format_nodes(nodes)
    assert parse_nodes(text) == sorted(nodes)
    assert parse_nodes(text, range(MAX_NODES)) == sorted(nodes)


@given(
    st.sets(st.integers(min_value=0, max_value=40), min_size=2),
    st.data(),
)
def test_inverting_a_list_leaves_the_other_nodes(
    present: set[int], data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.sampled_from(sorted(present)), min_size=1))
    text = f"!{format_nodes(chosen)}"
    if chosen == present:
        with pytest.raises(PageferryError):
            parse_nodes(text, present)
    else:
        assert set(parse_nodes(text, present)) == present - chosen


@pytest.mark.parametrize(
    "text", ["", ",", "1-", "-1", "3-1", "a", "1,,2", "0x1", "1024", "99999", "!"]
)
def test_bad_node_lists_are_usage_errors(text: str) -> None:
    with pytest.raises(PageferryError) as caught:
        parse_nodes(text, [0, 1, 2, 3])
    assert caught.value.code == ExitCode.USAGE


def test_a_missing_node_is_named_with_those_that_are_there() -> None:
    with pytest.raises(PageferryError) as caught:
        parse_nodes("0,7", [0, 1, 2])
    assert "no such node: 7" in caught.value.line()
    assert caught.value.hint == "nodes here: 0-2"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (185, "3 min 05 s"), (3720, "1 h 02 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
