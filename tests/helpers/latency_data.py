# SPDX-License-Identifier: GPL-2.0-only
"""Measurements and rows that the tests of `bench latency` share."""

from __future__ import annotations

from typing import Any

import msgspec

from pageferry.bench.latency.cases import Case
from pageferry.bench.latency.rows import Latency
from pageferry.results.schema import Latency as LatencyPart
from pageferry.results.schema import Row, Slowed, Spread, Touch, Unmapped

MIB = 1 << 20


def measured(
    case: Case,
    index: int,
    number: int,
    elapsed_ns: int,
    **changes: Any,  # noqa: ANN401
) -> Latency:
    """Make one measurement, as the program prints it for this case."""
    folios = case.total_bytes // case.folio_bytes
    line = Latency(
        case=index,
        engine=case.engine,
        threads=case.threads,
        channels=case.channels,
        folio_bytes=case.folio_bytes,
        moved_bytes=case.total_bytes,
        round=number,
        elapsed_ns=elapsed_ns,
        split_folios=0,
        first_ns=1500,
        batches=folios,
        over_limit_folios=0,
        unmapped_folios=folios,
        unmapped_sum_ns=1100 * folios,
        unmapped_max_ns=2000,
        unmapped_hist=[1024, folios],
        waited_threads=0,
        waited_sum_ns=0,
        waited_max_ns=0,
        waited_hist=[],
        verified=True,
    )
    known: dict[str, Any] = {}
    if case.engine != "stock":
        known |= {"batch_cap_pages": case.cap_pages, "max_windows": case.max_windows}
        known |= {"streaming": case.streaming, "default_limit": case.limit_us is None}
        known |= {"max_unmapped_us": 900 if case.limit_us is None else case.limit_us}
        known |= {"channel_mbps": case.mbps, "engine_bytes": case.total_bytes}
    if case.touch != "none":
        known |= {"touch": case.touch, "touches": 1000, "touch_quiet_ns": 300}
        known |= {"touch_threshold_ns": 20000, "touch_slow": 3, "touch_slept": 2}
        known |= {"touch_slowest_ns": 900_000, "touch_lost_ns": 1_200_000}
        known |= {"touch_slept_ns": 1_100_000, "touch_hist": [288, 997, 851968, 3]}
    if case.slow is not None:
        known |= {"slow_seen": True, "slow_skipped_windows": 5}
    return msgspec.structs.replace(line, **{**known, **changes})


def row(role: str, bytes_per_s: int, **changes: Any) -> Row:  # noqa: ANN401
    """Make a row for a check."""
    base = Row(
        bench="latency",
        engine="dcbm",
        channels=16,
        threads=1,
        folio_bytes=2 * MIB,
        moved_bytes=256 * MIB,
        rounds=5,
        verified=True,
        bytes_per_s=Spread(median=bytes_per_s, min=bytes_per_s, max=bytes_per_s),
    )
    own = {k: v for k, v in changes.items() if k in LatencyPart.__struct_fields__}
    rest = {key: value for key, value in changes.items() if key not in own}
    part = LatencyPart(role=role, **own)
    return msgspec.structs.replace(base, latency=part, **rest)


def unmapped(mean: int, p99: int) -> Unmapped:
    """Return unmapped times with the two given values."""
    return Unmapped(first=mean, mean=mean, p50=mean, p99=p99, last=p99)


def touch(lost_ns: int) -> Touch:
    """Return a toucher that lost this time in all rounds."""
    return Touch(
        mode="write",
        touches=Spread(median=1000, min=1000, max=1000),
        quiet_ns=300,
        threshold_ns=20000,
        p99_ns=400,
        slowest_ns=lost_ns,
        slow=3,
        slept=2,
        lost_ns=Spread(median=lost_ns // 5, min=0, max=lost_ns),
        lost_ns_all=lost_ns,
        slept_ns_all=lost_ns,
    )


SLOWED = Slowed(after_percent=50, factor=10, skipped_windows=6)
