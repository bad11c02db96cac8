# SPDX-License-Identifier: GPL-2.0-only
"""`bench demotion` and `bench promotion` as text."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry import output
from pageferry.bench.tiers import PROMOTION, SINGLE, moved_pages
from pageferry.report import published
from pageferry.report.tables import EMULATED, machine_line, rounds
from pageferry.results.schema import RatioSpread, Result, Row, Spread
from pageferry.units import format_size

UNKNOWN = "unknown"


def _rate(row: Row) -> list[str]:
    spread = row.bytes_per_s
    if spread is None:
        return ["-", "-"]
    low, high = spread.min / 1e6, spread.max / 1e6
    return [f"{spread.median / 1e6:,.1f}", f"{low:,.1f}..{high:,.1f}"]


def _ratio(ratio: RatioSpread | None, *, base: bool) -> str:
    if ratio is None:
        return "-"
    text = f"{ratio.median:.2f}x"
    return text if base else f"{text} ({ratio.min:.2f}..{ratio.max:.2f})"


def _engine(row: Row) -> str:
    if row.engine == "mtcopy" and row.threads:
        return f"mtcopy, {row.threads} threads"
    if row.channels:
        plural = "s" if row.channels > 1 else ""
        return f"{row.engine}, {row.channels} channel{plural}"
    return row.engine


def _us(spread: Spread | None) -> str:
    return UNKNOWN if spread is None else f"{spread.median:,}"


def _futile(spread: Spread | None) -> str:
    return UNKNOWN if spread is None else f"{spread.median / 1e3:,.0f}"


def _offloaded(row: Row) -> str:
    if row.share_offloaded is None:
        return "-"
    return f"{row.share_offloaded * 100:.0f}%"


def _folios(row: Row) -> str:
    return "-" if row.folios_per_batch is None else f"{row.folios_per_batch:.1f}"


def _left(row: Row) -> str:
    return UNKNOWN if row.left_bytes is None else format_size(row.left_bytes)


def calls(rows: Sequence[Row]) -> str:
    """Lay out lengths of lists by engine."""
    header = ["engine", "move_pages(2)", "MB/s", "spread", "to one page", "to stock"]
    cells = [
        [
            _engine(row),
            row.method or "-",
            *_rate(row),
            _ratio(row.ratio_to_single, base=row.method == SINGLE),
            _ratio(row.ratio_to_stock_spread, base=row.engine == "stock"),
        ]
        for row in rows
    ]
    return output.table(header, cells)


def demotion(rows: Sequence[Row]) -> str:
    """Lay out what reclaim did, by folio size and engine."""
    header = ["folio", "engine", "MB/s", "spread", "to stock", "futile us", "stall us"]
    header += ["offloaded", "folios/batch", "left"]
    cells = [
        [
            format_size(row.folio_bytes),
            _engine(row),
            *_rate(row),
            _ratio(row.ratio_to_stock_spread, base=row.engine == "stock"),
            _futile(row.futile_ns),
            _us(row.stall_some_us),
            _offloaded(row),
            _folios(row),
            _left(row),
        ]
        for row in rows
    ]
    return output.table(header, cells)


def promotion(rows: Sequence[Row]) -> str:
    """Lay out what came back, and what the thread lost that needed it."""
    header = ["folio", "engine", "MB/s", "spread", "to stock", "p99 us", "lost ms"]
    header += ["slowest us", "offloaded", "left"]
    cells = []
    for row in rows:
        touch = row.touch
        lost = ["-", "-", "-"]
        if touch is not None:
            lost = [
                f"{touch.p99_ns / 1e3:.1f}",
                f"{touch.lost_ns.median / 1e6:.1f}",
                f"{touch.slowest_ns / 1e3:.0f}",
            ]
        cells.append(
            [
                format_size(row.folio_bytes),
                _engine(row),
                *_rate(row),
                _ratio(row.ratio_to_stock_spread, base=row.engine == "stock"),
                *lost,
                _offloaded(row),
                _left(row),
            ]
        )
    return output.table(header, cells)


def render(result: Result) -> str:
    """Write a whole result."""
    rows = [row for row in result.rows if row.bytes_per_s is not None]
    listed = [row for row in rows if row.folios_per_call is not None]
    moved = [row for row in rows if row.folios_per_call is None]
    parts = [machine_line(result)]
    if listed:
        parts.append(_listed(result, listed))
    if moved:
        parts.append(_moved(result, moved))
    parts.append(
        f"{moved_pages(rows):,} pages moved, the node of every page counted, "
        "every byte verified"
    )
    if result.machine.accel == "tcg":
        parts.append(EMULATED)
    return "\n\n".join(parts)


def _nodes(result: Result) -> str:
    settings = result.settings
    return f"from node {settings.get('from_node')} to node {settings.get('to_node')}"


def _listed(result: Result, rows: Sequence[Row]) -> str:
    first = rows[0]
    about = (
        f"In calls of move_pages(2), {format_size(first.moved_bytes)} "
        f"{_nodes(result)}, median of {rounds(first)}; "
        "ratios are medians of each round's ratio"
    )
    return f"{about}\n\n{calls(rows)}"


def _moved(result: Result, rows: Sequence[Row]) -> str:
    first = rows[0]
    if first.bench == PROMOTION:
        about = (
            f"Promoted by kernel.numa_balancing=2 {_nodes(result)}, "
            f"median of {rounds(first)}, while a thread touches the memory"
        )
        return f"{about}\n\n{promotion(rows)}"
    about = (
        f"Demoted by {first.method} of a cgroup, {format_size(first.moved_bytes)} "
        f"{_nodes(result)}, median of {rounds(first)}"
    )
    text = f"{about}\n\n{demotion(rows)}"
    if any(row.futile_ns is None for row in rows):
        text += (
            "\n\nIt was not traced when the last page had moved: MB/s are of all that "
            "reclaim\ndid, also of what it tried when nothing was left to demote."
        )
    if all(row.stall_some_us is None for row in rows):
        text += "\n\nThis kernel does not count stalls: it lacks CONFIG_PSI."
    return text


def render_published() -> str:
    """Write the 2019 comparison, in GB/s, as it was posted."""
    table = published.load("single_vs_list_2019")
    cells = [
        [row["case"], row["migrate_page_gb_per_s"], row["copy_only_gb_per_s"]]
        for row in table.rows
    ]
    body = output.table(["case", "moved, GB/s", "copy alone, GB/s"], cells)
    head = "Published by others, on their machines; GB/s does not compare with ours:"
    return f"{head}\n\n{table.provenance}\n{body}"
