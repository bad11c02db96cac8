# SPDX-License-Identifier: GPL-2.0-only
"""`bench compaction` as text: the columns of the posted table."""

from __future__ import annotations

from pageferry import output
from pageferry.report import published, tables
from pageferry.results.schema import Result, Row
from pageferry.units import BASE_BYTES


def _engine(row: Row) -> str:
    rate = "" if row.channel_mbps is None else f" of {row.channel_mbps} MB/s"
    return tables.engine(row) + rate


def _copies(row: Row) -> str:
    if row.engine_bytes is None:
        return "-"
    return f"{row.engine_bytes // BASE_BYTES // row.rounds:,}"


def _percent(share: float | None) -> str:
    return tables.UNKNOWN if share is None else f"{share * 100:.1f}"


def _compared(name: str, key: str) -> tables.Column:
    return name, lambda row: tables.ratio(
        getattr(row.compaction, key), base=row.engine == "stock"
    )


# The posted columns, for the states of the CPU and the engines.
STATE: tuple[tables.Column, ...] = (
    ("CPU", lambda row: "busy" if row.busy else "idle"),
    ("engine", _engine),
)
COLUMNS: tuple[tables.Column, ...] = (
    *STATE,
    ("wall ms", lambda row: tables.median(row.compaction.wall_ns, 1e6)),
    ("pages migrated", lambda row: tables.median(row.compaction.migrated_pages)),
    ("copies by engine", _copies),
    (
        "hog iterations",
        lambda row: tables.median(row.compaction.hog_iterations) if row.busy else "-",
    ),
    ("user %", lambda row: _percent(row.compaction.user_share)),
    ("sys %", lambda row: _percent(row.compaction.system_share)),
    ("idle %", lambda row: _percent(row.compaction.idle_share)),
    ("task ms", lambda row: tables.median(row.compaction.thread_ns, 1e6)),
)
# The changes by each engine.
RATIOS: tuple[tables.Column, ...] = (
    *STATE,
    _compared("wall", "wall_ratio_to_stock"),
    _compared("sys share", "system_share_to_stock"),
    _compared("task time", "thread_ratio_to_stock"),
    _compared("task share", "thread_share_to_stock"),
    _compared("hog meanwhile", "hog_ratio_to_stock"),
    _compared("hog until stock is done", "hog_until_stock_is_done"),
)


def show(result: Result) -> list[str]:
    """Format a whole result."""
    rows, settings = result.rows, result.settings
    return [
        tables.machine_line(result),
        f"{rows[0].compaction.asked_pages:,} huge pages allocated by one task on CPU "
        f"{settings.get('caller_cpu')} from node {settings.get('from_node')}, of which "
        f"every other page is free, median of {tables.rounds(rows[0])}",
        tables.table(rows, COLUMNS),
        "To stock, medians of each round's ratio; wall and task time for each huge page",
        tables.table(rows, RATIOS),
        f"{tables.moved_pages(rows):,} pages migrated, every byte of what stayed verified",
    ]


def show_published() -> str:
    """Format the posted figures in the same columns."""
    found = published.load("compaction_rfc_v4")
    header = ["CPU", "engine", "wall ms", "pages migrated", "copies by engine"]
    header += ["hog iterations", "user %", "sys %", "idle %"]
    cells = []
    for row in found.rows:
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
    return f"{head}\n\n{found.provenance}\n{output.table(header, cells)}"


def _grouped(text: str) -> str:
    return f"{int(text):,}" if text else "-"
