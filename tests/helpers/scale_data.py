# SPDX-License-Identifier: GPL-2.0-only
"""Measurements of growth for tests."""

from __future__ import annotations

from typing import Any

from pageferry.bench.scale.rows import Life, Movers, Sample, Sizes
from pageferry.units import GIB

MIB = 1 << 20


def sizes(engine: str, size: int, per_page: float, **changes: Any) -> Sizes:  # noqa: ANN401
    """Make a measurement of one list that moves there and back."""
    values: dict[str, Any] = {
        "engine": engine,
        "moved_bytes": 2 * size,
        "elapsed_ns": round(2 * size // 4096 * per_page),
        "engine_bytes": None,
        "size_bytes": size,
        "region_bytes": size,
        "call_pages": 0,
        "verified": True,
    }
    return Sizes(**{**values, **changes})


def movers(engine: str, number: int, per_page: float, **changes: Any) -> Movers:  # noqa: ANN401
    """Make a measurement of movers."""
    values: dict[str, Any] = {
        "engine": engine,
        "moved_bytes": 256 * MIB,
        "elapsed_ns": round(65536 * per_page),
        "engine_bytes": None,
        "movers": number,
        "together": "processes",
        "call_pages": 256,
        "locks": None,
        "verified": True,
    }
    return Movers(**{**values, **changes})


def life(engine: str, grown_bytes: int = 0, **changes: Any) -> Life:  # noqa: ANN401
    """Make a long life, in which used memory grows."""
    values: dict[str, Any] = {
        "engine": engine,
        "moved_bytes": 3600 * 5 * MIB,
        "elapsed_ns": 3_600_000_000_000,
        "engine_bytes": None,
        "rounds": 3600,
        "calls": 14400,
        "used_bytes": (300 * MIB, 300 * MIB + grown_bytes),
        "slab_bytes": (20 * MIB, 20 * MIB),
        "percpu_bytes": (MIB, MIB),
        "pool_objects": None,
        "verified": True,
    }
    return Life(**{**values, **changes})


def samples() -> list[Sample]:
    """Make all measurements of three engines, without growth."""
    found: list[Sample] = []
    for engine, cost in (("stock", 6600), ("off", 2900), ("mtcopy", 3900)):
        for size in (64 * MIB, 16 * GIB):
            found.append(sizes(engine, size, cost))
            found.append(sizes(engine, size, cost + 300, call_pages=256))
        for number in (1, 64):
            for together in ("processes", "threads"):
                each = cost if engine == "stock" else 2950
                for more in (10, 0, 500):
                    spent = each + more + number
                    found.append(movers(engine, number, spent, together=together))
        found.append(life(engine, 8192 if engine == "stock" else -4096))
    return found
