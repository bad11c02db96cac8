# SPDX-License-Identifier: GPL-2.0-only
"""Results as text: the parts and the cells that several benchmarks have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pageferry import output
from pageferry.results.schema import RatioSpread, Result, Row, Spread, Touch
from pageferry.units import BASE_BYTES, format_size

EMULATED = (
    "Emulated CPUs: GB/s means little here; ratios within one run, verification\n"
    "and instruction counts do hold."
)
UNKNOWN = "unknown"

# A header, and what stands below it.
Column = tuple[str, Callable[[Row], str]]


def table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Lay out rows by columns."""
    cells = [[show(row) for _, show in columns] for row in rows]
    return output.table([name for name, _ in columns], cells)


def render(result: Result, parts: Sequence[str]) -> str:
    """Write a whole result."""
    emulated = [EMULATED] if result.machine.accel == "tcg" else []
    return "\n\n".join([*parts, *emulated])


def machine_line(result: Result) -> str:
    """Say which kernel ran on what."""
    machine = result.machine
    where = "this machine"
    if machine.where == "vm":
        where = f"VM {machine.topology or 'unnamed'} ({machine.accel or 'unknown'})"
    return (
        f"Linux {result.kernel.release}, {where}, {machine.cpus} CPUs "
        f"({machine.cpu_model}), nodes {machine.nodes}"
    )


def nodes(result: Result) -> str:
    """Say from where to where memory went."""
    settings = result.settings
    return f"from node {settings.get('from_node')} to node {settings.get('to_node')}"


def rounds(row: Row) -> str:
    """Say how many there were, and in how many boots, where there were several."""
    layouts = f", {row.layouts} memory layouts" if row.layouts else ""
    return f"{row.rounds} rounds{layouts}"


def moved_pages(rows: Sequence[Row]) -> int:
    """Count the pages of 4 KiB that were moved and verified."""
    return sum(
        row.moved_bytes * row.rounds // BASE_BYTES
        for row in rows
        if row.engine != "limit" and row.verified
    )


def verified_line(rows: Sequence[Row]) -> str:
    """Say how much was moved and checked."""
    return (
        f"{moved_pages(rows):,} pages moved, every page on its node, "
        "every byte verified"
    )


def engine(row: Row) -> str:
    """Name an engine, and say how much of it there was."""
    if row.engine == "mtcopy":
        return f"mtcopy, {row.threads or 'auto'} threads"
    if row.channels:
        return f"{row.engine}, {row.channels} channel{'s' if row.channels > 1 else ''}"
    return row.engine


def ratio(found: RatioSpread | None, *, base: bool = False) -> str:
    """Write a ratio with its range, which that of the baseline does not have."""
    if found is None:
        return "-"
    text = f"{found.median:.2f}x"
    return text if base else f"{text} ({found.min:.2f}..{found.max:.2f})"


def median(found: Spread | None, scale: float = 1, digits: int = 0) -> str:
    """Write the median of a figure, in other units."""
    return UNKNOWN if found is None else f"{found.median / scale:,.{digits}f}"


def rate_columns(unit: str, scale: float, digits: int) -> list[Column]:
    """Give the columns of a rate and its range."""

    def middle(row: Row) -> str:
        return (
            "-" if row.bytes_per_s is None else median(row.bytes_per_s, scale, digits)
        )

    def spread(row: Row) -> str:
        found = row.bytes_per_s
        if found is None:
            return "-"
        return f"{found.min / scale:,.{digits}f}..{found.max / scale:,.{digits}f}"

    return [(unit, middle), ("spread", spread)]


def touched(name: str, text: Callable[[Touch], str]) -> Column:
    """Give a column of what a thread noticed that touched the memory."""
    return name, lambda row: "-" if row.touch is None else text(row.touch)


FOLIO: Column = ("folio", lambda row: format_size(row.folio_bytes))
ENGINE: Column = ("engine", engine)
TO_STOCK: Column = (
    "to stock",
    lambda row: ratio(row.ratio_to_stock_spread, base=row.engine == "stock"),
)
