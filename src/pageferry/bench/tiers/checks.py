# SPDX-License-Identifier: GPL-2.0-only
"""`bench tiers --check`: our policy beside the best of the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pageferry.bench.tiers.policies import OURS
from pageferry.bench.tiers.table import name
from pageferry.results.schema import Check, Row
from pageferry.units import BASE_BYTES, format_size

# The least time of the best other policy, in times of ours.
TIMES_FASTER = 2.0
# The most bytes that ours moves, in times of those of the best other policy.
MOST_MOVED = 0.5


def judge(rows: Sequence[Row]) -> list[Check]:
    """Compare each load. Without our policy or another one, nothing is shown."""
    checks: list[Check] = []
    for title, group in groupby(rows, key=name):
        by_policy = {row.engine: row for row in group}
        ours = by_policy.pop(OURS, None)
        by_policy.pop("nothing", None)
        if ours is None or not by_policy:
            checks.append(_missing(title, ours))
            continue
        best = min(by_policy.values(), key=_rank)
        checks += [_time(title, ours, best), _moved(title, ours, best)]
    return checks or [_missing("all loads", None)]


def _missing(title: str, ours: Row | None) -> Check:
    return Check(
        name=f"{title}: policies",
        ok=False,
        measured=0.0,
        wanted=f"{OURS} and another policy",
        detail=f"{OURS} did not run" if ours is None else "no other policy ran",
    )


def _rank(row: Row) -> tuple[int, float]:
    """Order policies; of those that do not settle, more fast accesses are better."""
    assert row.tiers.fast_share is not None
    return _settled_ms(row), -row.tiers.fast_share.median


def _settled_ms(row: Row) -> int:
    assert row.tiers.settled_ms is not None
    return row.tiers.settled_ms.median


def _moved_bytes(row: Row) -> int:
    assert row.tiers.migrated_bytes is not None
    return row.tiers.migrated_bytes.median


def _time(title: str, ours: Row, best: Row) -> Check:
    mine, other = _settled_ms(ours), _settled_ms(best)
    settles = ours.tiers.settled_phases == ours.tiers.phases
    ratio = other / max(mine, 1)
    detail = (
        f"{OURS} settles in {mine / 1e3:.1f} s, {best.engine} in {other / 1e3:.1f} s"
    )
    if not settles:
        detail += f"; {OURS} does not settle in each phase"
    return Check(
        name=f"{title}: time to settle",
        ok=settles and ratio >= TIMES_FASTER,
        measured=round(ratio, 3),
        wanted=f"at least {TIMES_FASTER:g} times as fast as {best.engine}",
        detail=detail,
    )


def _moved(title: str, ours: Row, best: Row) -> Check:
    mine, other = _moved_bytes(ours), _moved_bytes(best)
    ratio = mine / max(other, BASE_BYTES)
    return Check(
        name=f"{title}: moved bytes",
        ok=ratio <= MOST_MOVED,
        measured=round(ratio, 3),
        wanted=f"at most {MOST_MOVED:g} times those of {best.engine}",
        detail=f"{OURS} moves {format_size(mine)}, {best.engine} {format_size(other)}",
    )
