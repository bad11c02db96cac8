# SPDX-License-Identifier: GPL-2.0-only
"""A result in one sentence, and reasons to doubt it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pageferry.bench.disturbance import TOLERABLE
from pageferry.report.difference import label
from pageferry.report.tables import ratio
from pageferry.results.schema import RatioSpread, Result, Row
from pageferry.vm import accel

_FEW_ROUNDS = 5
# These count instructions, which need no rounds, and fewer are better.
_COUNTED = ("cost", "scale")


def sentence(result: Result) -> str:
    """Say what the result shows."""
    if result.checks:
        failed = [check.name for check in result.checks if not check.ok]
        if failed:
            return f"{len(failed)} of {len(result.checks)} checks do not hold: " + (
                ", ".join(failed)
            )
        count = len(result.checks)
        return "The check holds." if count == 1 else f"All {count} checks hold."
    if result.rows and all(row.tiers.settled_ms for row in result.rows):
        return _of_policies(result.rows)
    rows = [row for row in result.rows if row.engine not in ("stock", "limit")]
    compared = [row for row in rows if row.ratio_to_stock is not None]
    if not compared:
        return "The result compares nothing with stock Linux."
    if all(row.bench in _COUNTED for row in compared):
        most = max(compared, key=lambda row: row.ratio_to_stock or 0.0)
        return (
            f"The most instructions take {most.ratio_to_stock:.3f} times those of "
            f"stock Linux: {label(most)}."
        )
    # A row that is faster in each round says more than a higher median.
    sure = [
        row
        for row in compared
        if row.ratio_to_stock_spread is None or row.ratio_to_stock_spread.min > 1
    ]
    best = max(sure or compared, key=lambda row: row.ratio_to_stock or 0.0)
    return _of_best(best, best.ratio_to_stock_spread)


def _of_policies(rows: Sequence[Row]) -> str:
    """Count the loads for which each policy of `bench tiers` settles first."""
    loads: dict[str, list[Row]] = {}
    for row in rows:
        loads.setdefault(label(row, "engine"), []).append(row)
    first = Counter(map(_first, loads.values()))
    won = ", ".join(f"{name} for {count}" for name, count in first.most_common())
    return f"Of {len(loads)} loads, hot memory is on the fast tier first with: {won}."


def _first(rows: Sequence[Row]) -> str:
    whole = [row for row in rows if row.tiers.settled_phases == row.tiers.phases]
    return min(whole, key=_settled_ms).engine if whole else "none"


def _settled_ms(row: Row) -> int:
    found = row.tiers.settled_ms
    assert found is not None
    return found.median


def _of_best(best: Row, found: RatioSpread | None) -> str:
    if found is None:
        text = f"{best.ratio_to_stock:.2f}x"
        return f"The best throughput is {text} of stock Linux: {label(best)}."
    if found.max <= 1:
        return f"Nothing is faster than stock Linux; nearest: {label(best)}, {ratio(found)}."
    if found.min <= 1:
        return (
            f"No difference from stock Linux exceeds its spread; largest: "
            f"{label(best)}, {ratio(found)}."
        )
    return f"The best throughput is {ratio(found)} of stock Linux: {label(best)}."


def warnings(result: Result) -> list[str]:
    """List reasons to doubt the figures."""
    found: list[str] = []
    machine = result.machine
    if machine.accel in (accel.TCG, accel.TCG_ONE_THREAD):
        found.append(
            "CPUs were emulated. Rates mean little; ratios within this result, "
            "verification and instruction counts hold."
        )
    load = machine.host_other_load
    if load is not None and load > TOLERABLE:
        found.append(f"Other work took {load * 100:.0f}% of the host's CPU time.")
    if not all(row.verified for row in result.rows if row.engine != "limit"):
        found.append("Not every row was verified.")
    few = min((row.rounds for row in result.rows), default=_FEW_ROUNDS)
    counted = all(row.bench in _COUNTED for row in result.rows)
    if few < _FEW_ROUNDS and not counted:
        found.append(f"The spread says little: fewest rounds of a row: {few}.")
    return found
