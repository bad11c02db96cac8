# SPDX-License-Identifier: GPL-2.0-only
"""Measurements of compaction for tests."""

from __future__ import annotations

from typing import Any

from pageferry.bench.compaction.rows import Compaction

MIB = 1 << 20


def compaction(engine: str, wall_ns: int, **changes: Any) -> Compaction:  # noqa: ANN401
    """Make one measurement of 100 huge pages on an idle CPU."""
    none = ["user_ns", "idle_ns", "steal_ns"]
    none += ["hog_iterations", "alone_iterations", "alone_ns"]
    values: dict[str, Any] = {
        **dict.fromkeys(none, 0),
        "engine": engine,
        "threads": 1,
        "channels": 4 if engine == "dcbm" else 0,
        "busy": False,
        "round": 1,
        "total_bytes": 512 * MIB,
        "asked": 100,
        "allocated": 100,
        "ended": "count",
        "wall_ns": wall_ns,
        "thread_ns": wall_ns,
        "system_ns": wall_ns,
        "pgmigrate_success": 28_000,
        "compact_migrate_scanned": 60_000,
        "verified": True,
    }
    return Compaction(**{**values, **changes})


def busy(engine: str, wall_ns: int, iterations: int, **changes: Any) -> Compaction:  # noqa: ANN401
    """Make one measurement with a hog on the CPU."""
    shared = {"thread_ns": wall_ns // 2, "system_ns": wall_ns // 2}
    hog = {"busy": True, "user_ns": wall_ns // 2, "hog_iterations": iterations}
    # The hog is twice as fast alone as with half of the CPU.
    hog |= {"alone_iterations": 2 * iterations, "alone_ns": wall_ns}
    return compaction(engine, wall_ns, **{**shared, **hog, **changes})
