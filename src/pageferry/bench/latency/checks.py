# SPDX-License-Identifier: GPL-2.0-only
"""`bench latency --check`: targets, judged by the rows of one run."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry.errors import PageferryError
from pageferry.results.schema import Check, Row, Unmapped
from pageferry.units import BASE_BYTES, PMD_BYTES, format_rate, format_size

# The least rate, as a share of the rate with the largest cap.
THROUGHPUT_SHARE = 0.95
# The least share of bytes that the engine copies.
ENGINE_SHARE = 0.9
# The longest unmapped time, in times of one batch of the posted design.
UNMAPPED_TIMES = 1.5
# The longest run, in times of copying or bookkeeping: the larger of the two.
OVERLAP_TIMES = 1.15
# The longest unmapped time, in times of the limit.
LIMIT_TIMES = 1.3
# Folios one by one: the best that any limit can reach.
ALONE = "limit/alone"


def judge(rows: Sequence[Row]) -> list[Check]:
    """Make each check that has rows."""
    roles = {
        row.latency.role.partition("/")[0]
        for row in rows
        if row.latency.role is not None
    }
    made = {
        "throughput": throughput,
        "overlap": overlap,
        "toucher": toucher,
        "limit": limit,
    }
    return [
        check for name, make in made.items() if name in roles for check in make(rows)
    ]


def find(rows: Sequence[Row], role: str, folio_bytes: int | None = None) -> Row:
    """Find the row of a measurement."""
    for row in rows:
        if row.latency.role == role and folio_bytes in (None, row.folio_bytes):
            return row
    raise PageferryError("a measurement is missing", value=role)


def _rate(row: Row) -> int:
    if row.bytes_per_s is None:
        raise PageferryError("a row has no rate", value=row.latency.role)
    return row.bytes_per_s.median


def _unmapped(row: Row) -> Unmapped:
    if row.unmapped_ns is None:
        raise PageferryError("a row has no unmapped times", value=row.latency.role)
    return row.unmapped_ns


def _seconds(row: Row) -> float:
    return row.moved_bytes / _rate(row)


def throughput(rows: Sequence[Row]) -> list[Check]:
    """At 2M: the rate of the largest cap, with the delays of one batch."""
    largest = find(rows, "throughput/largest-cap")
    batch = find(rows, "throughput/one-batch")
    role = "throughput/windows"
    ours = find(rows, role)
    share = _rate(ours) / _rate(largest)
    rate = Check(
        name=f"{role}: rate",
        ok=share >= THROUGHPUT_SHARE,
        measured=share,
        wanted=f">= {THROUGHPUT_SHARE} of the largest cap's",
        detail=f"{format_rate(_rate(ours))}, largest cap "
        f"{format_rate(_rate(largest))}, one batch {format_rate(_rate(batch))}",
    )
    found = [rate, _by_engine(ours, role)]
    for name in ("mean", "p99"):
        one: int = getattr(_unmapped(batch), name)
        mine: int = getattr(_unmapped(ours), name)
        most: int = getattr(_unmapped(largest), name)
        found.append(
            Check(
                name=f"{role}: {name} unmapped time",
                ok=mine <= UNMAPPED_TIMES * one,
                measured=mine / one,
                wanted=f"<= {UNMAPPED_TIMES} x that of one batch",
                detail=f"{_us(mine)}, one batch {_us(one)}, largest cap {_us(most)}",
            )
        )
    return found


def _by_engine(row: Row, role: str) -> Check:
    """Check that the engine copied, and not the CPU."""
    share = (row.engine_bytes or 0) / (row.moved_bytes * row.rounds)
    return Check(
        name=f"{role}: copied by the engine",
        ok=share >= ENGINE_SHARE,
        measured=share,
        wanted=f">= {ENGINE_SHARE} of the bytes",
        detail="what the engine is too slow for is the CPU's",
    )


def overlap(rows: Sequence[Row]) -> list[Check]:
    """At 4K: copying and bookkeeping at the same time."""
    ours = find(rows, "overlap/windows")
    posted = find(rows, "overlap/posted")
    books = find(rows, "overlap/bookkeeping")
    large = find(rows, "overlap/copying")
    ideal_s = 0.0
    if ours.channel_mbps:
        ideal_s = ours.moved_bytes / (ours.channels * ours.channel_mbps * 1e6)
    # The measured rate with 2M folios includes the costs of the channels; the
    # configured rate does not. The smaller time is the stricter one.
    measured_s = _seconds(large) * ours.moved_bytes / large.moved_bytes
    copying_s = min(ideal_s, measured_s) if ideal_s else measured_s
    books_s = _seconds(books)
    times = _seconds(ours) / max(copying_s, books_s)
    return [
        Check(
            name="overlap: 4K in windows",
            ok=times <= OVERLAP_TIMES,
            measured=times,
            wanted=f"<= {OVERLAP_TIMES} x the larger of copying and bookkeeping",
            detail=f"{_ms(_seconds(ours))}; copying {_ms(copying_s)} (by the "
            f"channels' rate {_ms(ideal_s)}, with 2M folios {_ms(measured_s)}), "
            f"bookkeeping {_ms(books_s)}, sum {_ms(copying_s + books_s)}; "
            f"posted design {_ms(_seconds(posted))}",
        )
    ]


def toucher(rows: Sequence[Row]) -> list[Check]:
    """A program that touches the memory loses no more time than on stock."""
    found = []
    sizes = {r.folio_bytes for r in rows if r.latency.role == "toucher/windows"}
    for size in sorted(sizes):
        stock = find(rows, "toucher/stock", size)
        ours = find(rows, "toucher/windows", size)
        posted = find(rows, "toucher/posted", size)
        if stock.touch is None or ours.touch is None or posted.touch is None:
            raise PageferryError("no thread touched memory", value=ours.latency.role)
        if stock.moved_bytes * stock.rounds != ours.moved_bytes * ours.rounds:
            raise PageferryError(
                "not the same total was moved", value=ours.latency.role
            )
        # Combine all rounds, as each has few touches that wait.
        mine, base = ours.touch.lost_ns_all, stock.touch.lost_ns_all
        found.append(
            Check(
                name=f"toucher: {format_size(size)}",
                ok=mine <= base,
                measured=mine / base if base else float(mine),
                wanted="<= 1 x the time lost on stock",
                detail=f"lost {_us(mine)} in {ours.touch.slow} touches "
                f"({ours.touch.slept} waited), slowest {_us(ours.touch.slowest_ns)}; "
                f"stock {_us(base)} in {stock.touch.slow} ({stock.touch.slept}), "
                f"slowest {_us(stock.touch.slowest_ns)}; posted design "
                f"{_us(posted.touch.lost_ns_all)} in {posted.touch.slow} "
                f"({posted.touch.slept})",
            )
        )
    return found


def too_slow(times: float, factor: int) -> bool:
    """Return whether one slowed folio takes longer than the limit."""
    return times / factor < 1


def limit(rows: Sequence[Row]) -> list[Check]:
    """max_unmapped_us holds, or the kernel counts that it cannot."""
    found = []
    for size in (BASE_BYTES, PMD_BYTES):
        mine = [
            row
            for row in rows
            if row.folio_bytes == size and (row.latency.role or "").startswith("limit/")
        ]
        # In the same run, and with the same measure.
        alone = _unmapped(find(rows, ALONE, size)).p99 if mine else 0
        found += [_limit(row, alone) for row in mine if row.latency.role != ALONE]
    return found


def _limit(row: Row, alone_ns: int) -> Check:
    _, times, *slowed = (row.latency.role or "").split("/")
    limit_ns = (row.latency.max_unmapped_us or 0) * 1000
    if not limit_ns:
        raise PageferryError("a row has no limit in time", value=row.latency.role)
    p99 = _unmapped(row).p99
    over = row.latency.over_limit_folios or 0
    factor = row.latency.slowed.factor if row.latency.slowed is not None else 1
    # A host that stops the machine now and then delays single folios.
    hopeless = alone_ns > LIMIT_TIMES * limit_ns
    may_say_so = too_slow(float(times), factor) or hopeless
    holds = p99 <= LIMIT_TIMES * limit_ns
    wanted = f"<= {LIMIT_TIMES} x the limit"
    if may_say_so:
        wanted += ", or counted as over it"
    detail = f"p99 {_us(p99)}, mean {_us(_unmapped(row).mean)}, limit {_us(limit_ns)}"
    detail += f" ({times} x one folio), {format_rate(_rate(row))}"
    if hopeless:
        detail += f"; without any limit, folios one by one have p99 {_us(alone_ns)}"
    if over:
        detail += f", {over} folios over the limit by plan"
    if slowed and row.latency.slowed is not None:
        detail += f"; slowed down {row.latency.slowed.factor} x in mid-run, "
        detail += f"{row.latency.slowed.skipped_windows} windows later"
    name = f"limit: {format_size(row.folio_bytes)}, {times} x one folio"
    return Check(
        name=f"{name}, slowed down" if slowed else name,
        ok=holds or (may_say_so and over > 0),
        measured=p99 / limit_ns,
        wanted=wanted,
        detail=detail,
    )


def _us(ns: float) -> str:
    return f"{ns / 1e3:,.0f} us"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"
