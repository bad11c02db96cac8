# SPDX-License-Identifier: GPL-2.0-only
"""`bench compaction` as text: the columns of the table that was posted."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry import output
from pageferry.bench.move_pages import BASE_BYTES
from pageferry.report import published
from pageferry.report.tables import EMULATED, machine_line, rounds
from pageferry.results.schema import RatioSpread, Result, Row, Spread

UNKNOWN = "unknown"


def _engine(row: Row) -> str:
    if row.engine == "mtcopy" and row.threads:
        return f"mtcopy, {row.threads} threads"
    if row.channels:
        plural = "s" if row.channels > 1 else ""
        rate = "" if row.channel_mbps is None else f" of {row.channel_mbps} MB/s"
        return f"{row.engine}, {row.channels} channel{plural}{rate}"
    return row.engine


def _ms(spread: Spread | None) -> str:
    return UNKNOWN if spread is None else f"{spread.median / 1e6:,.0f}"


def _number(spread: Spread | None) -> str:
    return UNKNOWN if spread is None else f"{spread.median:,}"


def _copies(row: Row) -> str:
    if row.engine_bytes is None:
        return "-"
    return f"{row.engine_bytes // BASE_BYTES // row.rounds:,}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.1f}"


def _ratio(ratio: RatioSpread | None, *, base: bool) -> str:
    if ratio is None:
        return "-"
    text = f"{ratio.median:.2f}x"
    return text if base else f"{text} ({ratio.min:.2f}..{ratio.max:.2f})"


def table(rows: Sequence[Row]) -> str:
    """Lay out what was posted, for the states of the CPU and the engines."""
    header = ["CPU", "engine", "wall ms", "pages migrated", "copies by engine"]
    header += ["hog iterations", "user %", "sys %", "idle %", "task ms"]
    cells = [
        [
            "busy" if row.busy else "idle",
            _engine(row),
            _ms(row.wall_ns),
            _number(row.migrated_pages),
            _copies(row),
            _number(row.hog_iterations) if row.busy else "-",
            _percent(row.user_share),
            _percent(row.system_share),
            _percent(row.idle_share),
            _ms(row.thread_ns),
        ]
        for row in rows
    ]
    return output.table(header, cells)


def ratios(rows: Sequence[Row]) -> str:
    """Lay out what each engine changes."""
    header = ["CPU", "engine", "wall", "sys share", "task time", "task share"]
    header += ["hog meanwhile", "hog until stock is done"]
    cells = []
    for row in rows:
        base = row.engine == "stock"
        compared = (
            row.wall_ratio_to_stock,
            row.system_share_to_stock,
            row.thread_ratio_to_stock,
            row.thread_share_to_stock,
            row.hog_ratio_to_stock,
            row.hog_until_stock_is_done,
        )
        cells.append(
            [
                "busy" if row.busy else "idle",
                _engine(row),
                *(_ratio(ratio, base=base) for ratio in compared),
            ]
        )
    return output.table(header, cells)


def render(result: Result) -> str:
    """Write a whole result."""
    rows = result.rows
    first = rows[0]
    migrated = sum((row.moved_bytes // BASE_BYTES) * row.rounds for row in rows)
    about = (
        f"{first.asked_pages:,} huge pages allocated by one task on CPU "
        f"{result.settings.get('caller_cpu')} from node "
        f"{result.settings.get('from_node')}, of which every other page is free, "
        f"median of {rounds(first)}"
    )
    parts = [
        machine_line(result),
        f"{about}\n\n{table(rows)}",
        "To stock, medians of each round's ratio; wall and task time for each huge "
        f"page\n\n{ratios(rows)}",
        f"{migrated:,} pages migrated, every byte of what stayed verified",
    ]
    if result.machine.accel == "tcg":
        parts.append(EMULATED)
    return "\n\n".join(parts)


def render_published() -> str:
    """Write what was posted, in the same columns."""
    table_ = published.load("compaction_rfc_v4")
    header = ["CPU", "engine", "wall ms", "pages migrated", "copies by engine"]
    header += ["hog iterations", "user %", "sys %", "idle %"]
    cells = []
    for row in table_.rows:
        busy = row["mode"].startswith("busy")
        cells.append(
            [
                "busy" if busy else "idle",
                "dma" if row["mode"].endswith("dma") else "none",
                *(_grouped(row[key]) for key in ("wall_ms", "pages_migrated")),
                *(_grouped(row[key]) for key in ("dma_copies", "hog_iterations")),
                *(row[key] for key in ("user_pct", "sys_pct", "idle_pct")),
            ]
        )
    head = "Published by others, on their machine; only ratios compare with ours:"
    return f"{head}\n\n{table_.provenance}\n{output.table(header, cells)}"


def _grouped(text: str) -> str:
    return f"{int(text):,}" if text else "-"
