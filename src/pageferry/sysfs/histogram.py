# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's histograms of times, and percentiles from them.

A line is "<lower bound in ns> <count>". An octave has eight buckets, so a percentile
is exact to an eighth. Within a bucket the code interpolates linearly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pageferry.errors import PageferryError

# The kernel's first bucket contains all shorter times.
FIRST_NS = 1024
# The last bucket begins here and has no end.
OPEN_NS = 1 << 30
_SUB_BITS = 3


def bucket_end(lower_ns: int) -> int:
    """Return the end of a bucket, which is the first time behind it."""
    if lower_ns == 0:
        return FIRST_NS
    shift = max(lower_ns.bit_length() - 1 - _SUB_BITS, 0)
    return lower_ns + (1 << shift)


@dataclass(frozen=True)
class Histogram:
    """Times in buckets: (lower bound, count), in order, without empty ones."""

    buckets: tuple[tuple[int, int], ...]
    # The longest time, which limits the last bucket.
    max_ns: int | None = None

    @property
    def count(self) -> int:
        """Count the times in the histogram."""
        return sum(count for _, count in self.buckets)

    def percentile(self, percent: float) -> int | None:
        """Return a percentile; None for an empty histogram."""
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
        """Return the longest time, or an upper bound of it."""
        return self._end(self.buckets[-1][0]) if self.buckets else None

    def _end(self, lower: int) -> int:
        if lower >= OPEN_NS:
            return max(lower, self.max_ns or 0)
        end = bucket_end(lower)
        if self.max_ns is None or self.max_ns < lower:
            return end
        return min(end, self.max_ns)


def from_pairs(pairs: Sequence[int], max_ns: int | None = None) -> Histogram:
    """Read [lower, count, lower, count, ...], the format of programs in bench/."""
    if len(pairs) % 2:
        raise PageferryError("a histogram has an odd end", value=str(pairs[-1]))
    return _checked(zip(pairs[::2], pairs[1::2], strict=True), max_ns)


def parse(text: str, max_ns: int | None = None) -> Histogram:
    """Parse a histogram file of the kernel."""
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
