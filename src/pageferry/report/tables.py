# SPDX-License-Identifier: GPL-2.0-only
"""Results as tables."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry import output
from pageferry.bench.move_pages import BASE_BYTES, HUGETLB, LIMIT, moved_pages
from pageferry.results.schema import Result, Row, Spread
from pageferry.units import format_size

EMULATED = (
    "Emulated CPUs: GB/s means little here; ratios within one run, verification\n"
    "and instruction counts do hold."
)


def _gb(spread: Spread | None) -> tuple[str, str]:
    if spread is None:
        return "-", "-"
    low, high = spread.min / 1e9, spread.max / 1e9
    return f"{spread.median / 1e9:.2f}", f"{low:.2f}..{high:.2f}"


def _engine(row: Row) -> str:
    name = "memcpy (limit)" if row.engine == LIMIT else row.engine
    return f"{name}, CPUs busy" if row.busy else name


def _ratio(row: Row) -> str:
    if row.ratio_to_stock is None:
        return "-"
    text = f"{row.ratio_to_stock:.2f}x"
    spread = row.ratio_to_stock_spread
    if row.engine == "stock" or spread is None:
        return text
    return f"{text} ({spread.min:.2f}..{spread.max:.2f})"


def _share(row: Row) -> str:
    return "-" if row.share_of_limit is None else f"{row.share_of_limit * 100:.0f}%"


def _folios_whole(row: Row) -> str:
    """Say whether the large folios were still whole after the move."""
    if row.engine == LIMIT or row.folio_bytes <= BASE_BYTES:
        return "-"
    if row.split_folios is None:
        return "unknown"
    total = row.moved_bytes // row.folio_bytes * row.rounds
    if not row.split_folios:
        return "all whole"
    return f"split: {row.split_folios} of {total}"


def move_pages(rows: Sequence[Row]) -> str:
    """Lay out folio size by engine, and what was verified."""
    # Most results know of no channels.
    with_channels = any(row.channels for row in rows)
    # Those of hugetlb are never split.
    with_folios = any(row.bench != HUGETLB for row in rows)
    header = [
        "folio",
        "engine",
        "threads",
        *(["channels"] if with_channels else []),
        "GB/s",
        "spread",
        "to stock",
        "of limit",
        *(["folios"] if with_folios else []),
    ]
    cells = []
    for row in rows:
        median, low_high = _gb(row.bytes_per_s)
        cells.append(
            [
                format_size(row.folio_bytes),
                _engine(row),
                str(row.threads) if row.threads else "auto",
                *([str(row.channels or "-")] if with_channels else []),
                median,
                low_high,
                _ratio(row),
                _share(row),
                *([_folios_whole(row)] if with_folios else []),
            ]
        )
    return output.table(header, cells)


def verified_line(rows: Sequence[Row]) -> str:
    """Say how much was moved and checked."""
    return (
        f"{moved_pages(rows):,} pages moved, every page on its node, "
        "every byte verified"
    )


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


def rounds(row: Row) -> str:
    """Say how many there were, and in how many boots, where there were several."""
    layouts = f", {row.layouts} memory layouts" if row.layouts else ""
    return f"{row.rounds} rounds{layouts}"


def render_move_pages(result: Result) -> str:
    """Write a whole result of `bench move-pages` or `bench hugetlb`."""
    moves = [row for row in result.rows if row.bytes_per_s is not None]
    first = moves[0]
    settings = result.settings
    what = " of hugetlb" if first.bench == HUGETLB else ""
    parts = [
        machine_line(result),
        f"move_pages(2), {format_size(first.moved_bytes)}{what} per call from node "
        f"{settings.get('from_node')} to node {settings.get('to_node')}, "
        f"median of {rounds(first)}; ratios are medians of each round's ratio",
        "",
        move_pages(moves),
        "",
        verified_line(moves),
    ]
    if result.machine.accel == "tcg":
        parts += ["", EMULATED]
    return "\n".join(parts)


def cost(rows: Sequence[Row]) -> str:
    """Lay out instructions per folio by engine."""
    kinds = any(row.pages not in (None, "runs") for row in rows)
    paths = any(row.path is not None for row in rows)
    header = [*(["path"] if paths else []), "folio", *(["pages"] if kinds else [])]
    header += ["engine", "instructions"]
    header += ["min..max", "to stock", "layouts"]
    header += ["besides the copy"] if any(r.copy_instructions for r in rows) else []
    moved = any(row.later_instructions_per_folio is not None for row in rows)
    header += ["later moves", "split", "partially mapped"] if moved else []
    cells = []
    for row in rows:
        ratio = row.ratio_to_stock
        copy, later = row.copy_instructions, row.later_instructions_per_folio
        cells.append(
            [
                *([row.path or "move_pages"] if paths else []),
                format_size(row.folio_bytes),
                *([row.pages or "-"] if kinds else []),
                row.engine,
                f"{row.instructions_per_folio or 0:,}",
                f"{row.instructions_per_folio_min or 0:,}.."
                f"{row.instructions_per_folio_max or 0:,}",
                "-" if ratio is None else f"{(ratio - 1) * 100:+.2f}%",
                str(row.layouts),
            ]
        )
        if "besides the copy" in header:
            besides = None if copy is None else (row.instructions_per_folio or 0) - copy
            cells[-1].append(_or_dash(besides))
        if moved:
            split = None if later is None else row.split_folios
            cells[-1] += map(_or_dash, (later, split, row.partially_mapped_folios))
    return output.table(header, cells)


def _or_dash(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def render_cost(result: Result) -> str:
    """Write a whole result of `bench cost`."""
    rows = [row for row in result.rows if row.instructions_per_folio is not None]
    passes = rows[0].rounds
    paths = any(row.path is not None for row in rows)
    what = "per migrated folio" if paths else "of one move_pages(2) per folio"
    return "\n".join(
        [
            f"Instructions {what}, Linux "
            f"{result.kernel.release}, one CPU under QEMU icount;",
            f"mean over memory layouts, {passes} passes each",
            "",
            cost(rows),
            "",
            "every page on its node, every byte verified, the same digits when run again",
        ]
    )
