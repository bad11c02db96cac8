# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's histograms of times, and what can be said from them.

A line is "<lower bound in ns> <count>". Eight buckets make an octave, so a
figure that comes from a bucket is right to an eighth of itself; within a bucket
times are taken to lie evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pageferry.errors import PageferryError

# All shorter times are in the kernel's first bucket.
FIRST_NS = 1024
# This one, the last, has no end.
OPEN_NS = 1 << 30
_SUB_BITS = 3


def bucket_end(lower_ns: int) -> int:
    """Give the first time that is not in the bucket any more."""
    if lower_ns == 0:
        return FIRST_NS
    shift = max(lower_ns.bit_length() - 1 - _SUB_BITS, 0)
    return lower_ns + (1 << shift)


@dataclass(frozen=True)
class Histogram:
    """Times, by buckets: (lower bound, count), in order, none empty."""

    buckets: tuple[tuple[int, int], ...]
    # Nothing was longer: it makes the last bucket exact.
    max_ns: int | None = None

    @property
    def count(self) -> int:
        """Count the times that are in it."""
        return sum(count for _, count in self.buckets)

    def percentile(self, percent: float) -> int | None:
        """Give the time below which so many percent of all times lie."""
        if not 0 <= percent <= 100:
            raise ValueError(f"not a percentage: {percent}")
        rank = self.count * percent / 100
        before = 0
        for lower, count in self.buckets:
            if before + count >= rank:
                end = self._end(lower)
                share = (rank - before) / count
                return round(lower + share * (end - lower))
            before += count
        return None

    @property
    def longest(self) -> int | None:
        """Give the longest time, as well as it is known."""
        return self._end(self.buckets[-1][0]) if self.buckets else None

    def _end(self, lower: int) -> int:
        if lower >= OPEN_NS:
            return max(lower, self.max_ns or 0)
        end = bucket_end(lower)
        if self.max_ns is None or self.max_ns < lower:
            return end
        return min(end, self.max_ns)


def from_pairs(pairs: Sequence[int], max_ns: int | None = None) -> Histogram:
    """Read [lower, count, lower, count, ...], as programs of bench/ write it."""
    if len(pairs) % 2:
        raise PageferryError("a histogram has an odd end", value=str(pairs[-1]))
    return _checked(zip(pairs[::2], pairs[1::2], strict=True), max_ns)


def parse(text: str, max_ns: int | None = None) -> Histogram:
    """Read a file of the kernel."""
    pairs = []
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) != 2 or not all(w.isascii() and w.isdigit() for w in words):
            raise PageferryError("not a line of a histogram", value=line)
        pairs.append((int(words[0]), int(words[1])))
    return _checked(pairs, max_ns)


def _checked(pairs: Iterable[tuple[int, int]], max_ns: int | None) -> Histogram:
    buckets = tuple(pairs)
    bounds = [lower for lower, _ in buckets]
    if bounds != sorted(set(bounds)) or any(count <= 0 for _, count in buckets):
        raise PageferryError("a histogram is out of order", value=str(bounds))
    return Histogram(buckets, max_ns)
