# SPDX-License-Identifier: GPL-2.0-only
"""The designs, their predictions, and the errors of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pageferry.model.constants import LARGE, SMALL, Machine
from pageferry.model.fit import Cell, is_end
from pageferry.model.simulate import Outcome, Plan, simulate
from pageferry.units import MIB

STOCK_CAP_PAGES = 512
WINDOWS = {SMALL: (32, 64, 128, 256, 512, 1024), LARGE: (1, 2, 4, 8, 16, 32)}
DEPTHS = (1, 2, 3, 4)
# Enough windows that filling and draining the pipeline take a small share.
WINDOW_TOTAL = {SMALL: 32 * MIB, LARGE: 512 * MIB}
GOOD_SHARE = 0.95


@dataclass(frozen=True)
class Prediction:
    """The prediction for one design with one setting."""

    design: str
    channels: int
    folio_bytes: int
    window_bytes: int
    depth: int
    bytes_per_s: int
    first_folio_ns: int
    first_ns: int
    mean_ns: int
    p99_ns: int
    last_ns: int
    most_unmapped_bytes: int
    cpu_permille: int

    def as_json(self) -> dict[str, object]:
        """Return the prediction for --json, marked as one."""
        return {
            "prediction": True,
            "design": self.design,
            "channels": self.channels,
            "folio_bytes": self.folio_bytes,
            "window_bytes": self.window_bytes,
            "depth": self.depth,
            "bytes_per_s": self.bytes_per_s,
            "first_folio_ns": self.first_folio_ns,
            "unmapped_ns": {
                "first": self.first_ns,
                "mean": self.mean_ns,
                "p99": self.p99_ns,
                "last": self.last_ns,
            },
            "most_unmapped_bytes": self.most_unmapped_bytes,
            "cpu_permille": self.cpu_permille,
        }


def summarize(design: str, plan: Plan, outcome: Outcome) -> Prediction:
    """Summarize a run; first and last are the shortest and longest unmapped times."""
    times = sorted(ns for reach in outcome.reach for ns in reach.times())
    p99 = times[math.ceil(0.99 * len(times)) - 1]
    return Prediction(
        design=design,
        channels=plan.channels,
        folio_bytes=plan.folio_bytes,
        window_bytes=plan.window_folios * plan.folio_bytes,
        depth=plan.depth,
        bytes_per_s=round(outcome.copied_bytes / outcome.total_ns * 1e9),
        first_folio_ns=round(outcome.first_folio_ns),
        first_ns=round(times[0]),
        mean_ns=round(math.fsum(times) / len(times)),
        p99_ns=round(p99),
        last_ns=round(times[-1]),
        most_unmapped_bytes=outcome.most_unmapped * plan.folio_bytes,
        cpu_permille=round(1000 * outcome.cpu_busy_ns / outcome.total_ns),
    )


def stock(machine: Machine, folio_bytes: int) -> Prediction:
    """Unpatched Linux, in the middle of a long list."""
    folios = STOCK_CAP_PAGES * SMALL // folio_bytes
    plan = Plan(folio_bytes, folios, 0, folios)
    return summarize("stock", plan, simulate(machine, plan))


def posted(
    machine: Machine, folio_bytes: int, channels: int, cap_pages: int
) -> Prediction:
    """The posted design: batches do not overlap, so the model runs one."""
    folios = cap_pages * SMALL // folio_bytes
    plan = Plan(folio_bytes, folios, channels, folios)
    return summarize("posted", plan, simulate(machine, plan))


def windows(
    machine: Machine, folio_bytes: int, channels: int, window_folios: int, depth: int
) -> Prediction:
    """Windows with streaming; a large folio is spread over all channels."""
    folios = WINDOW_TOTAL[folio_bytes] // folio_bytes
    plan = Plan(
        folio_bytes,
        folios,
        channels,
        window_folios,
        depth=depth,
        streaming=True,
        split=folio_bytes > SMALL,
    )
    return summarize("windows", plan, simulate(machine, plan))


@dataclass(frozen=True)
class Point:
    """One published point, and its prediction."""

    cell: Cell
    model: Prediction
    gave_constants: bool

    @property
    def rate_error(self) -> float:
        """Relative error of the throughput."""
        return self.model.bytes_per_s / self.cell.bytes_per_s - 1

    @property
    def first_error(self) -> float:
        """Relative error of the time to the first folio."""
        return self.model.first_folio_ns / self.cell.first_ns - 1

    def as_json(self) -> dict[str, object]:
        """Return both figures for --json; "measured_by" marks the published one."""
        return {
            "channels": self.cell.channels,
            "folio_bytes": self.cell.folio_bytes,
            "batch_cap_pages": self.cell.cap_pages,
            "gave_constants": self.gave_constants,
            "published": {
                "measured_by": "others",
                "bytes_per_s": round(self.cell.bytes_per_s),
                "first_folio_ns": round(self.cell.first_ns),
            },
            "model": self.model.as_json(),
            "rate_error_permille": round(1000 * self.rate_error),
            "first_folio_error_permille": round(1000 * self.first_error),
        }


def check(machine: Machine, cells: Sequence[Cell]) -> list[Point]:
    """Compare with each published point."""
    return [
        Point(
            cell,
            posted(machine, cell.folio_bytes, cell.channels, cell.cap_pages),
            is_end(cell),
        )
        for cell in cells
    ]


def median_error(points: Sequence[Point]) -> tuple[float, float, float]:
    """Median absolute errors: throughput, first folio, and both together."""
    rate = [abs(point.rate_error) for point in points]
    first = [abs(point.first_error) for point in points]
    return median(rate), median(first), median(rate + first)


@dataclass(frozen=True)
class Choice:
    """The window that the model chooses, and the candidates."""

    limit_ns: int
    goal_bytes_per_s: int
    tried: tuple[Prediction, ...]
    chosen: Prediction | None


def choose(machine: Machine, folio_bytes: int, channels: int, cap_pages: int) -> Choice:
    """Choose the window with the shortest p99 among those near the posted best rate.

    All candidates keep the limit: the time that a 2M folio is unmapped on stock
    Linux. If no window reaches the rate, choose the fastest that keeps the limit.
    """
    limit = stock(machine, LARGE).last_ns
    best = posted(machine, folio_bytes, channels, cap_pages).bytes_per_s
    goal = round(GOOD_SHARE * best)
    tried = tuple(
        windows(machine, folio_bytes, channels, folios, depth)
        for folios in WINDOWS[folio_bytes]
        for depth in DEPTHS
    )
    kept = [one for one in tried if one.p99_ns <= limit]
    fast = [one for one in kept if one.bytes_per_s >= goal]
    chosen: Prediction | None
    if fast:
        chosen = min(fast, key=lambda one: (one.p99_ns, -one.bytes_per_s))
    else:
        chosen = max(kept, key=lambda one: one.bytes_per_s, default=None)
    return Choice(limit, goal, tried, chosen)
