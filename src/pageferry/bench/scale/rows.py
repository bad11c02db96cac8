# SPDX-License-Identifier: GPL-2.0-only
"""`bench scale`: rows from measurements, and the cases that --check rejects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pageferry.bench import options
from pageferry.bench.lines import Line
from pageferry.bench.rows import Key, sort_by, total
from pageferry.errors import PageferryError
from pageferry.results import schema
from pageferry.results.schema import Grown, Row
from pageferry.units import BASE_BYTES, KIB, format_size

PARTS = ("sizes", "movers", "life")
ENGINES = options.ENGINES
# One channel would be in use most of the time where many movers want it.
DMA_CHANNELS = 4

# A page of any list may cost this share more than one of the smallest list.
MOST_GROWTH = 0.05
# The kernel has to leave an engine out where it does not pay. To try it takes 1/64 of the
# time, on all CPUs that its threads use, and to choose takes 50 instructions of 2,920.
ENGINE_SHARE = 1.05
# Fewer measurements of movers say little about some percent.
_ENOUGH_ROUNDS = 3
# Caches of free objects breathe. A leak in each call grows with the rounds.
MOST_GROWN_BYTES = 128 * KIB
MOST_GROWN_OBJECTS = 32
_POOLS = "pools"


class Sizes(Line, tag="sizes", kw_only=True):
    """One list in one call or in many, there and back."""

    engine: str
    moved_bytes: int
    elapsed_ns: int
    engine_bytes: int | None
    size_bytes: int
    # Memory of which the list has each page once or several times.
    region_bytes: int
    # 0: all in one call.
    call_pages: int
    verified: bool


class Movers(Line, tag="movers", kw_only=True):
    """Several movers at once."""

    engine: str
    moved_bytes: int
    elapsed_ns: int
    engine_bytes: int | None
    movers: int
    together: str
    call_pages: int
    # Null: the kernel has no statistics of locks.
    locks: str | None
    verified: bool


class Life(Line, tag="life", kw_only=True):
    """Memory in use, early and late in a long run."""

    engine: str
    moved_bytes: int
    elapsed_ns: int
    engine_bytes: int | None
    rounds: int
    calls: int
    used_bytes: tuple[int, int]
    slab_bytes: tuple[int, int]
    percpu_bytes: tuple[int, int]
    # Null: the kernel does not count them.
    pool_objects: tuple[int, int] | None
    verified: bool


Sample = Sizes | Movers | Life
LINES = (Sizes, Movers, Life)


def samples_of(engine: str, lines: Sequence[Line]) -> list[Sample]:
    """Select the figures of one boot."""
    samples = [line for line in lines if isinstance(line, LINES)]
    if not samples:
        raise PageferryError("a boot measured nothing", value=engine)
    for sample in samples:
        if not sample.verified:
            raise PageferryError("a measurement was not verified", value=engine)
        if sample.elapsed_ns <= 0 or sample.moved_bytes <= 0:
            raise PageferryError("a measurement moved nothing", value=engine)
    return samples


def _kind(sample: Sample) -> Key:
    """Return what sorts rows of the same engine: the part, and its setting."""
    if isinstance(sample, Sizes):
        return 0, bool(sample.call_pages), sample.size_bytes
    if isinstance(sample, Movers):
        return 1, sample.together, sample.movers
    return 2, "", 0


def _per_page(mine: Sequence[Sample]) -> float | None:
    """Return instructions per page; a long life also has pauses."""
    if isinstance(mine[0], Life):
        return None
    return median(s.elapsed_ns * BASE_BYTES / s.moved_bytes for s in mine)


def make_rows(samples: Sequence[Sample]) -> list[Row]:
    """Make one row for each engine, part and setting."""
    grouped = sort_by(samples, lambda s: (_kind(s), ENGINES.index(s.engine)))
    costs = {key: cost for key, mine in grouped.items() if (cost := _per_page(mine))}
    return [_row(key, grouped[key], costs) for key in sorted(grouped)]


def _row(key: Key, mine: Sequence[Sample], costs: Mapping[Key, float]) -> Row:
    first, cost = mine[0], costs.get(key)
    kind, nr = key
    stock = costs.get((kind, ENGINES.index("stock")))
    # The smallest list, or the fewest movers.
    least = min(
        (other for other in costs if (other[0][:2], other[1]) == (kind[:2], nr)),
        default=key,
    )
    own = schema.Scale(
        part=PARTS[kind[0]],
        pages_per_guest_s=None if cost is None else round(1e9 / cost),
        growth=None if cost is None else cost / costs[least],
        **_own(first),
    )
    rounds = first.rounds if isinstance(first, Life) else len(mine)
    return Row(
        bench="scale",
        engine=first.engine,
        channels=DMA_CHANNELS if first.engine == "dcbm" else 0,
        threads=0 if first.engine == "mtcopy" else 1,
        folio_bytes=BASE_BYTES,
        moved_bytes=sum(sample.moved_bytes for sample in mine) // rounds,
        rounds=rounds,
        verified=all(sample.verified for sample in mine),
        engine_bytes=total([sample.engine_bytes for sample in mine]),
        ratio_to_stock=None if cost is None or stock is None else cost / stock,
        instructions_per_folio=None if cost is None else round(cost),
        scale=own,
    )


def _own(first: Sample) -> dict[str, Any]:
    """Return what one part alone says."""
    if isinstance(first, Sizes):
        names: tuple[str, ...] = ("size_bytes", "region_bytes", "call_pages")
    elif isinstance(first, Movers):
        names = ("movers", "together", "call_pages", "locks")
    else:
        grown = ("used_bytes", "slab_bytes", "percpu_bytes", "pool_objects")
        pairs = {name: getattr(first, name) for name in grown}
        return {"calls": first.calls} | {
            name: None if pair is None else Grown(*pair) for name, pair in pairs.items()
        }
    return {name: getattr(first, name) for name in names}


def regressions(rows: Sequence[Row]) -> list[str]:
    """Describe all failures of `--check`."""
    return [*_costs_grow(rows), *_movers_lose(rows), *_memory_grows(rows)]


def _costs_grow(rows: Sequence[Row]) -> list[str]:
    """Find lists of which a page costs more than one of the smallest list."""
    return [
        f"{row.engine}: a page of {format_size(row.scale.size_bytes or 0)} in "
        f"{'many calls' if row.scale.call_pages else 'one call'} costs "
        f"{(row.scale.growth - 1) * 100:.1f}% more than a page of the smallest list, "
        f"{MOST_GROWTH * 100:.0f}% is allowed"
        for row in rows
        if row.scale.part == "sizes"
        and row.engine != "stock"
        and row.scale.growth is not None
        and row.scale.growth > 1 + MOST_GROWTH
    ]


def _movers_lose(rows: Sequence[Row]) -> list[str]:
    """Find movers that are slower than on stock Linux, or than without an engine."""
    found = []
    moving = [row for row in rows if row.scale.part == "movers"]
    off = {
        (row.scale.movers, row.scale.together): row.instructions_per_folio
        for row in moving
        if row.engine == "off"
    }
    for row in moving:
        who = f"{row.engine}: {row.scale.movers} {row.scale.together}"
        if row.ratio_to_stock is not None and row.ratio_to_stock > 1:
            found.append(
                f"{who} take {row.ratio_to_stock:.3f} of the instructions of stock Linux"
            )
        alone = off.get((row.scale.movers, row.scale.together))
        if row.engine in ("stock", "off") or row.rounds < _ENOUGH_ROUNDS:
            continue
        share = (row.instructions_per_folio or 0) / alone if alone else 0.0
        if share > ENGINE_SHARE:
            found.append(
                f"{who} take {share:.3f} of the instructions without an engine, "
                f"{ENGINE_SHARE:.3f} is allowed"
            )
    return found


def _grown(row: Row) -> dict[str, int]:
    own = row.scale
    pairs = {
        "memory in use": own.used_bytes,
        "slab": own.slab_bytes,
        "per-CPU memory": own.percpu_bytes,
        _POOLS: own.pool_objects,
    }
    return {name: one.after - one.before for name, one in pairs.items() if one}


def _amount(name: str, number: int) -> str:
    return f"{number:,} objects" if name == _POOLS else format_size(number)


def _memory_grows(rows: Sequence[Row]) -> list[str]:
    """Find memory that grows more than on stock Linux."""
    lives = [row for row in rows if row.scale.part == "life"]
    stock = next((_grown(row) for row in lives if row.engine == "stock"), {})
    found = []
    for row in lives:
        if row.engine == "stock":
            continue
        for name, more in _grown(row).items():
            beyond = more - max(stock.get(name, 0), 0)
            most = MOST_GROWN_OBJECTS if name == _POOLS else MOST_GROWN_BYTES
            if beyond > most:
                found.append(
                    f"{row.engine}: {name} grew by {_amount(name, beyond)} more than on "
                    f"stock Linux in {row.rounds:,} rounds, {_amount(name, most)} is "
                    "allowed"
                )
    return found
