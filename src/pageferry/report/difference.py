# SPDX-License-Identifier: GPL-2.0-only
"""Two results side by side: which differences exceed their spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pageferry.results.schema import Result, Row, Spread
from pageferry.units import MIB, format_size


@dataclass(frozen=True)
class Figure:
    """A figure of rows: its name, its unit, and a number that divides it."""

    name: str
    unit: str
    scale: float
    read: Callable[[Row], Spread | None]
    more_is_better: bool


def single(value: int | None) -> Spread | None:
    return None if value is None else Spread(median=value, min=value, max=value)


def _instructions(row: Row) -> Spread | None:
    """Layouts of memory change the count, so the range is that of layouts."""
    middle = row.instructions_per_folio
    if middle is None:
        return None
    least = row.cost.instructions_per_folio_min
    most = row.cost.instructions_per_folio_max
    return Spread(
        median=middle,
        min=middle if least is None else least,
        max=middle if most is None else most,
    )


def _unmapped(row: Row) -> Spread | None:
    """Rounds have a range, where the benchmark keeps it."""
    if row.unmapped_ns is None:
        return None
    found = single(row.unmapped_ns.p99)
    least, most = row.latency.unmapped_ns_min, row.latency.unmapped_ns_max
    if found is None or least is None or most is None:
        return found
    return Spread(median=found.median, min=least.p99, max=most.p99)


FIGURES = (
    Figure("throughput", "GB/s", 1e9, lambda row: row.bytes_per_s, True),
    Figure("unmapped time, p99", "us", 1e3, _unmapped, False),
    Figure("instructions for each folio", "", 1, _instructions, False),
    Figure("time to settle", "s", 1e3, lambda row: row.tiers.settled_ms, False),
    Figure("migrated", "MiB", MIB, lambda row: row.tiers.migrated_bytes, False),
)


def _many(number: int, of: str, none: str = "") -> str:
    return f"{number} {of}{'s' if number > 1 else ''}" if number else none


def settings(row: Row) -> dict[str, str]:
    """Return all that sets a row apart from others of its result, as text."""
    own, scale = row.latency, row.scale
    size = None if scale.size_bytes is None else format_size(scale.size_bytes)
    calls = f"calls of {scale.call_pages} pages" if scale.call_pages else "one call"
    method = row.demotion.method or row.promotion.method or row.compaction.method
    name = "plain memcpy" if row.engine == "limit" else row.engine
    threads = row.engine in ("limit", "mtcopy") or row.copy.memory is not None
    return {
        "folio": format_size(row.folio_bytes),
        "engine": name,
        "threads": _many(row.threads, "thread", "auto threads") if threads else "",
        "channels": _many(row.channels, "channel"),
        "pages": row.pages or "",
        "path": row.path or "",
        "method": method or "",
        "load": row.tiers.load or "",
        "memory": row.copy.memory or row.tiers.memory or "",
        "size": size or "",
        "calls": calls if size else "",
        "movers": _many(scale.movers or 0, "mover"),
        "together": scale.together or "",
        "part": "life" if scale.part == "life" else "",
        "busy": "CPUs busy" if row.busy else "",
        "cap": "" if own.batch_cap_pages is None else f"cap {own.batch_cap_pages}",
        "windows": _many(own.max_windows or 0, "window"),
        "streaming": "streaming" if own.streaming else "",
        "limit": f"limit {own.max_unmapped_us} us" if own.max_unmapped_us else "",
        "role": f"{own.role}" if own.role else "",
        "touch": f"touched: {row.touch.mode}" if row.touch else "",
        "mbps": f"channels of {row.channel_mbps} MB/s" if row.channel_mbps else "",
        "slowed": "slowed" if own.slowed else "",
    }


def label(row: Row, *without: str) -> str:
    """Name a row by its settings, except those that the reader sees elsewhere."""
    parts = settings(row).items()
    return ", ".join(text for name, text in parts if text and name not in without)


class Range(Protocol):
    """A figure that was measured several times."""

    @property
    def median(self) -> float:
        """The middle one."""

    @property
    def min(self) -> float:
        """The least."""

    @property
    def max(self) -> float:
        """The greatest."""


def judge(before: Range, after: Range, *, more_is_better: bool) -> str:
    """Say whether `after` is better, or that the difference may be chance."""
    if before == after:
        return "equal"
    if after.min <= before.max and before.min <= after.max:
        return "noise: the ranges overlap"
    more = after.median > before.median
    return "better" if more == more_is_better else "worse"


@dataclass(frozen=True)
class Difference:
    """A figure of the same row in two results."""

    row: str
    figure: Figure
    before: Spread
    after: Spread

    @property
    def change(self) -> float | None:
        """Return the change of the median, 0.1 for a tenth more."""
        if not self.before.median:
            return None
        return self.after.median / self.before.median - 1

    @property
    def verdict(self) -> str:
        """Say which result is better, or that the difference may be chance."""
        better = self.figure.more_is_better
        return judge(self.before, self.after, more_is_better=better)


@dataclass
class Comparison:
    """All differences, and the rows that only one of the results has."""

    found: list[Difference] = field(default_factory=list)
    only_before: list[str] = field(default_factory=list)
    only_after: list[str] = field(default_factory=list)


def _by_name(result: Result) -> dict[tuple[str, str, int], Row]:
    """Name rows by their labels; equal labels count from 0."""
    seen: Counter[tuple[str, str]] = Counter()
    found = {}
    for row in result.rows:
        name = (row.bench, label(row))
        found[*name, seen[name]] = row
        seen[name] += 1
    return found


def compare(before: Result, after: Result) -> Comparison:
    """Compare all figures of rows that both results have."""
    old, new = _by_name(before), _by_name(after)
    made = Comparison(
        only_before=[label(row) for name, row in old.items() if name not in new],
        only_after=[label(row) for name, row in new.items() if name not in old],
    )
    for name, row in new.items():
        other = old.get(name)
        if other is None:
            continue
        for figure in FIGURES:
            first, second = figure.read(other), figure.read(row)
            if first is not None and second is not None:
                made.found.append(Difference(label(row), figure, first, second))
    return made
