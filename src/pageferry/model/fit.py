# SPDX-License-Identifier: GPL-2.0-only
"""The constants of the published machine, from the ends of the published sweeps.

Each constant is solved for in one cell; no value is fitted to the points between the
ends. SOURCES lists the cells, and docs/background/model.md explains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pageferry.errors import PageferryError
from pageferry.model.constants import LARGE, SMALL, Machine
from pageferry.report import published
from pageferry.units import GIB

CAPS = "first_folio_latency_batch_cap"
STOCK = "first_folio_latency_vanilla"
TOTAL_BYTES = GIB
# A GB of these tables is 2^30 bytes. Only then is the CPU time after the first folio
# the same with 1, 4 and 16 channels (2M, cap 262144).
TABLE_GB = GIB
FIRST_CAP = 512
LAST_CAP = TOTAL_BYTES // SMALL
PER_CONTROLLER = 2

SOURCES = {
    "finish_ps": "1 channel, 2M, cap 512: all of it less the first folio",
    "move_2m_ps": "16 channels, 2M, cap 262144: all of it less the first folio",
    "move_4k_ps": "16 channels, 4K, cap 262144: all of it less the first folio",
    "setup_ps": "1 channel, 2M: first folio at cap 512, less a folio's share at 262144",
    "descriptor_ps": "1 channel, cap 262144: first folio at 4K, less the bytes' time",
    "channel_bytes_per_s": "1 channel, cap 262144: first folio at 2M",
    "channels_per_controller": "assumed; move_pages_rfc_v5 at 2M has 1.14 and 2.14 "
    "times one channel's rate with 2 and 4",
    "controller_bytes_per_s": "4 channels, 2M, cap 262144: first folio",
    "memory_bytes_per_s": "16 channels, 2M, cap 262144: first folio",
    "unmap_ps": "unpatched, 262144 folios of 4K: first folio; the same at 2M",
    "describe_ps": "16 channels, 4K, cap 262144: first folio, less unmap and copy",
    "copy_4k_ps": "unpatched, 262144 folios of 4K: throughput",
    "copy_2m_ps": "unpatched, 512 folios of 2M: throughput",
}


@dataclass(frozen=True)
class Cell:
    """One published point."""

    channels: int
    folio_bytes: int
    cap_pages: int
    bytes_per_s: float
    first_ns: float

    @property
    def batch_folios(self) -> int:
        """Number of folios in a batch."""
        return self.cap_pages * SMALL // self.folio_bytes

    @property
    def batch_ns(self) -> float:
        """Total time of a batch."""
        return self.batch_folios * self.folio_bytes / self.bytes_per_s * 1e9


Rows = Sequence[Mapping[str, str]]


def cells(rows: Rows | None = None) -> list[Cell]:
    """Read the sweep over the cap."""
    return [
        Cell(
            int(row["channels"]),
            SMALL << int(row["folio_order"]),
            int(row["batch_cap_pages"]),
            float(row["gb_per_s"]) * TABLE_GB,
            float(row["first_folio_us"]) * 1e3,
        )
        for row in (published.load(CAPS).rows if rows is None else rows)
    ]


def stock_cells(rows: Rows | None = None) -> list[Cell]:
    """Read the sweep of the unpatched kernel; its cap is 512 pages."""
    found = []
    for row in published.load(STOCK).rows if rows is None else rows:
        size = SMALL << int(row["folio_order"])
        pages = int(row["workload_folios"]) * size // SMALL
        rate = float(row["gb_per_s"]) * TABLE_GB
        first = float(row["first_folio_us"]) * 1e3
        found.append(Cell(0, size, pages, rate, first))
    return found


# The cells that give constants: channels, folio size, cap or total.
ENDS = frozenset(
    {
        (1, LARGE, FIRST_CAP),
        (1, LARGE, LAST_CAP),
        (4, LARGE, LAST_CAP),
        (16, LARGE, LAST_CAP),
        (1, SMALL, LAST_CAP),
        (16, SMALL, LAST_CAP),
        (0, SMALL, LAST_CAP),
        (0, LARGE, LAST_CAP),
    }
)


def is_end(cell: Cell) -> bool:
    """Say whether this cell gives a constant."""
    return (cell.channels, cell.folio_bytes, cell.cap_pages) in ENDS


def _per_folio(cell: Cell, setup_ns: float, move_ns: float) -> float:
    """Time to unmap, describe and copy one folio."""
    return (cell.first_ns - setup_ns - move_ns) / cell.batch_folios


def _move(cell: Cell, finish_ns: float) -> float:
    """Time after the first folio, for each of the other folios."""
    return (cell.batch_ns - cell.first_ns - finish_ns) / (cell.batch_folios - 1)


def fit(caps: Sequence[Cell], stock: Sequence[Cell]) -> Machine:
    """Solve for the constants, one after the other."""
    found = {
        (cell.channels, cell.folio_bytes, cell.cap_pages): cell
        for cell in [*caps, *stock]
        if is_end(cell)
    }
    if set(found) != ENDS:
        raise PageferryError("a published table lacks an end of its sweep")
    one, one_last = found[1, LARGE, FIRST_CAP], found[1, LARGE, LAST_CAP]
    all_last = found[16, LARGE, LAST_CAP]
    small_one, small_all = found[1, SMALL, LAST_CAP], found[16, SMALL, LAST_CAP]

    finish = one.batch_ns - one.first_ns
    move_2m = _move(all_last, finish)
    move_4k = _move(small_all, finish)
    per_2m = (one_last.first_ns - one.first_ns) / (one_last.batch_folios - 1)
    setup = one.first_ns - per_2m - move_2m

    # The CPU time before the copy and the copy time add up. With 16 channels, the
    # channels or memory bound the copy of a 4K folio.
    per_4k = _per_folio(small_one, setup, move_4k)
    per_4k_all = _per_folio(small_all, setup, move_4k)
    per_2m_all = _per_folio(all_last, setup, move_2m)
    before = per_4k_all
    for _ in range(100):
        memory = LARGE / (per_2m_all - before)
        before = per_4k_all - max((per_4k - before) / 16, SMALL / memory)
    channel = (LARGE - SMALL) / (per_2m - per_4k)
    descriptor = per_4k - before - SMALL / channel
    controllers = 4 // PER_CONTROLLER
    per_2m_four = _per_folio(found[4, LARGE, LAST_CAP], setup, move_2m)
    controller = LARGE / (per_2m_four - before) / controllers

    stock_4k, stock_2m = found[0, SMALL, LAST_CAP], found[0, LARGE, LAST_CAP]
    # first is 512 unmaps, a copy and a move; each is an unmap, a copy and a move.
    each = stock_4k.batch_ns / stock_4k.batch_folios - finish / FIRST_CAP
    unmap = (stock_4k.first_ns - each) / (FIRST_CAP - 1)
    stock_folio = stock_2m.batch_ns / stock_2m.batch_folios
    return Machine(
        unmap_ps=_ps(unmap),
        describe_ps=_ps(before - unmap),
        move_4k_ps=_ps(move_4k),
        move_2m_ps=_ps(move_2m),
        setup_ps=_ps(setup),
        finish_ps=_ps(finish),
        copy_4k_ps=_ps(each - unmap - move_4k),
        copy_2m_ps=_ps(stock_folio - unmap - move_2m - finish),
        descriptor_ps=_ps(descriptor),
        channel_bytes_per_s=round(channel * 1e9),
        channels_per_controller=PER_CONTROLLER,
        controller_bytes_per_s=round(controller * 1e9),
        memory_bytes_per_s=round(memory * 1e9),
    )


def _ps(ns: float) -> int:
    if ns < 0:
        raise PageferryError("the published ends contradict each other")
    return round(ns * 1000)


def published_machine() -> Machine:
    """Fit the machine of the published tables."""
    return fit(cells(), stock_cells())
