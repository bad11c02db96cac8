# SPDX-License-Identifier: GPL-2.0-only
"""Measurements of demotion, promotion and policies for tests."""

from __future__ import annotations

from typing import Any

from pageferry.bench.demotion.spec import Calls, Demotion
from pageferry.bench.promotion.spec import Promotion
from pageferry.bench.tiers.rows import Used

MIB = 1 << 20


def call(engine: str, method: str, elapsed_ns: int, **changes: Any) -> Calls:  # noqa: ANN401
    """Make one measurement of 4 MiB moved by calls."""
    values: dict[str, Any] = {
        "engine": engine,
        "threads": 2 if engine == "mtcopy" else 1,
        "method": method,
        "folio_bytes": 2 * MIB if "huge" in method else 4096,
        "folios_per_call": 512 if "512" in method else 1,
        "round": 1,
        "moved_bytes": 4 * MIB,
        "elapsed_ns": elapsed_ns,
        "verified": True,
    }
    return Calls(**{**values, **changes})


def demotion(engine: str, elapsed_ns: int, **changes: Any) -> Demotion:  # noqa: ANN401
    """Make one measurement of a demotion of 64 MiB."""
    values: dict[str, Any] = {
        "engine": engine,
        "threads": 2 if engine == "mtcopy" else 1,
        "method": "memory.reclaim",
        "folio_bytes": 2 * MIB,
        "round": 1,
        "moved_bytes": 64 * MIB,
        "left_bytes": 0,
        "complete": True,
        "elapsed_ns": elapsed_ns,
        "moving_ns": elapsed_ns,
        "pgdemote_kswapd": 0,
        "pgdemote_direct": 64 * MIB // 4096,
        "pgdemote_khugepaged": 0,
        "verified": True,
    }
    return Demotion(**{**values, **changes})


def promotion(engine: str, elapsed_ns: int, **changes: Any) -> Promotion:  # noqa: ANN401
    """Make one measurement of a promotion of 64 MiB."""
    values: dict[str, Any] = {
        "engine": engine,
        "threads": 2 if engine == "mtcopy" else 1,
        "method": "numa_balancing",
        "folio_bytes": 2 * MIB,
        "round": 1,
        "moved_bytes": 60 * MIB,
        "fast_bytes": 62 * MIB,
        "left_bytes": 2 * MIB,
        "pgpromote_success": 60 * MIB // 4096,
        "waited_ns": 1_000_000_000,
        "elapsed_ns": elapsed_ns,
        "touch": "write",
        "touches": 1000,
        "touch_quiet_ns": 500,
        "touch_threshold_ns": 20_000,
        "touch_slow": 30,
        "touch_slept": 0,
        "touch_slowest_ns": 3_000_000,
        "touch_lost_ns": 50_000_000,
        "touch_slept_ns": 0,
        "touch_hist": [480, 970, 2_097_152, 30],
        "verified": True,
    }
    return Promotion(**{**values, **changes})


# A look each second.
SECONDS = 8


def used(engine: str, permille: list[int], **changes: Any) -> Used:  # noqa: ANN401
    """Make one measurement of a policy, with a share for each second."""
    values: dict[str, Any] = {
        "engine": engine,
        "threads": 1,
        "round": 1,
        "verified": True,
        "load": "static",
        "memory": "anon",
        "folio_bytes": 4096,
        "moved_bytes": 256 * MIB,
        "elapsed_ns": SECONDS * 10**9,
        "hot_bytes": 128 * MIB,
        "program_bytes": 1024 * MIB,
        "accesses": 1_000_000,
        "longest_access_ns": 3_000_000,
        "stall_some_us": 2000,
        "phases_ms": [0],
        "at_ms": [1000 * (n + 1) for n in range(len(permille))],
        "fast_permille": permille,
        "followed_pages": 2048,
        "up_pages": 256,
        "down_pages": 200,
        "ping_pong_pages": 64,
        "pgmigrate_success": 256 * MIB // 4096,
        "pgpromote_success": 100,
        "pgdemote_kswapd": 10,
        "pgdemote_direct": 20,
        "pgdemote_khugepaged": 0,
    }
    return Used(**{**values, **changes})
