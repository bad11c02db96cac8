# SPDX-License-Identifier: GPL-2.0-only
"""Histograms of the kernel, and values computed from them."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pageferry.errors import PageferryError
from pageferry.sysfs.histogram import (
    FIRST_NS,
    OPEN_NS,
    Histogram,
    bucket_end,
    from_pairs,
    parse,
)

# The same buckets as in mm/migrate_offload/hist.c.
BOUNDS = [0]
BOUNDS += [(8 + sub) << octave for octave in range(7, 27) for sub in range(8)]
BOUNDS.append(OPEN_NS)


def of(times: list[int]) -> Histogram:
    """Count times in the kernel's buckets."""
    counts: dict[int, int] = {}
    for ns in times:
        lower = BOUNDS[bisect_right(BOUNDS, ns) - 1]
        counts[lower] = counts.get(lower, 0) + 1
    return Histogram(tuple(sorted(counts.items())), max(times, default=None))


def test_buckets_follow_each_other() -> None:
    assert BOUNDS[1] == FIRST_NS
    assert sorted(set(BOUNDS)) == BOUNDS
    assert [bucket_end(lower) for lower in BOUNDS[:-1]] == BOUNDS[1:]


def test_lines_are_read() -> None:
    hist = parse("0 3\n1024 5\n1152 2\n")
    assert hist.buckets == ((0, 3), (1024, 5), (1152, 2))
    assert hist.count == 10
    assert parse("") == Histogram(())
    assert from_pairs([0, 3, 1024, 5, 1152, 2]) == hist


@pytest.mark.parametrize(
    "text",
    [
        "1024",
        "1024 5 6",
        "-1 5",
        "1_0 5",
        "x 5",
        "1024 5\n0 1",
        "0 1\n0 1",
        "0 0",
        "\n",
    ],
)
def test_what_is_no_histogram_is_refused(text: str) -> None:
    with pytest.raises(PageferryError):
        parse(text)


def test_an_odd_number_of_numbers_is_refused() -> None:
    with pytest.raises(PageferryError):
        from_pairs([1, 2, 3])


def test_times_lie_evenly_in_a_bucket() -> None:
    hist = parse("1024 100\n")
    assert hist.percentile(0) == 1024
    assert hist.percentile(50) == 1024 + 64
    assert hist.percentile(100) == 1152
    assert hist.longest == 1152
    two = parse("1024 50\n2048 50\n")
    assert two.percentile(50) == 1152
    assert two.percentile(75) == 2048 + 128


def test_the_longest_time_ends_the_last_bucket() -> None:
    assert parse("1024 10\n", max_ns=1030).longest == 1030
    # The maximum is since boot, so an earlier time may have been longer.
    assert parse("1024 10\n", max_ns=99999).longest == 1152
    assert parse(f"{OPEN_NS} 1\n", max_ns=5 * OPEN_NS).longest == 5 * OPEN_NS


def test_nothing_has_no_percentile() -> None:
    assert Histogram(()).percentile(50) is None
    assert Histogram(()).longest is None
    with pytest.raises(ValueError, match="percentage"):
        Histogram(()).percentile(101)


times = st.lists(st.integers(0, 1 << 33), min_size=1, max_size=200)


@given(times, st.floats(0, 100))
def test_a_percentile_is_right_to_its_bucket(found: list[int], percent: float) -> None:
    hist = of(found)
    value = hist.percentile(percent)
    assert value is not None
    longest = hist.longest
    assert longest == max(found)
    # In the bucket of the exact value, or at the edge of the next.
    ordered = sorted(found)
    rank = len(ordered) * percent / 100
    low = ordered[max(int(rank) - 1, 0)]
    high = ordered[min(int(rank), len(ordered) - 1)]
    first = BOUNDS[bisect_right(BOUNDS, low) - 1]
    last = BOUNDS[bisect_right(BOUNDS, high) - 1]
    end = max(last, longest) if last >= OPEN_NS else bucket_end(last)
    assert first <= value <= end


@given(times)
def test_percentiles_rise(found: list[int]) -> None:
    hist = of(found)
    values = [hist.percentile(percent) or 0 for percent in range(101)]
    assert values == sorted(values)
    assert values[100] == hist.longest
