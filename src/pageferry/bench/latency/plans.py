# SPDX-License-Identifier: GPL-2.0-only
"""The cases of `bench latency --published` and `--check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pageferry.bench.latency.cases import MAX_CAP_PAGES, STOCK_CAP_PAGES, Case
from pageferry.bench.latency.checks import ALONE, find, too_slow
from pageferry.errors import PageferryError
from pageferry.report import published
from pageferry.results.schema import Row
from pageferry.units import BASE_BYTES, GIB, MIB, PMD_BYTES

CAPS = "first_folio_latency_batch_cap"
WORKLOAD = "first_folio_latency_vanilla"
TABLES = {"caps": CAPS, "workload": WORKLOAD}

CHECKS = ("throughput", "overlap", "toucher", "limit")
CHECK_CHANNELS = 16
# In times of one folio's time. Below one, the kernel has to count the excess.
LIMITS = (2, 5, 10, 50)
TOO_SHORT = 0.5
SLOW = (50, 10)
# A slow folio takes longer than the first two, and at most half of the others. No
# check says how the kernel behaves between them.
SLOWED_LIMITS = (2, 5, 20, 50)
# If the slow engine cannot meet the limit, the CPU copies. With windows as large as
# the limit allows, the CPU would need only a few. These caps make windows smaller.
SLOWED_CAP_PAGES = {BASE_BYTES: 256, PMD_BYTES: 2048}
# If the slow engine can meet the limit, windows are large; the case moves more.
SLOWED_TIMES = 4
# The kernel's MIGRATE_PART_MAX_PAIRS.
BATCH_FOLIOS = 512


def fitting_total(node_bytes: int) -> int:
    """Return the total of the published sweeps: 1 GiB, or less on a small node.

    Both nodes hold it at once for a moment, besides everything else.
    """
    total = GIB
    while total > node_bytes // 8 and total > PMD_BYTES:
        total //= 2
    return total


def folio_bytes_of(row: Mapping[str, str]) -> int:
    """Parse the folio size of a published row."""
    return BASE_BYTES << int(row["folio_order"])


def published_caps(total_bytes: int, mbps: int | None) -> tuple[Case, ...]:
    """Repeat the sweep of batch caps: the posted design, cap by cap.

    A cap above the total equals the total, so the first that takes all is the last.
    """
    cases = [
        Case("stock", threads=1, folio_bytes=size, total_bytes=total_bytes)
        for size in (BASE_BYTES, PMD_BYTES)
    ]
    for row in published.load(CAPS).rows:
        cap = int(row["batch_cap_pages"])
        if cap > max(total_bytes // BASE_BYTES, STOCK_CAP_PAGES):
            continue
        engine = Case(
            "dcbm",
            channels=int(row["channels"]),
            threads=1,
            folio_bytes=folio_bytes_of(row),
            total_bytes=total_bytes,
            mbps=mbps,
        )
        cases.append(engine.posted(cap))
    return tuple(cases)


def published_workload(total_bytes: int) -> tuple[Case, ...]:
    """Repeat the sweep of workload sizes on stock, up to the node's memory."""
    sizes = [
        (folio_bytes_of(row), int(row["workload_folios"]))
        for row in published.load(WORKLOAD).rows
    ]
    return tuple(
        Case("stock", threads=1, folio_bytes=size, total_bytes=size * count)
        for size, count in sizes
        if size * count <= total_bytes
    )


# --- --check ------------------------------------------------------------------


# The limit for the comparison of windows with one batch, in times of one folio's time.
# It is enough for one folio behind the rest of another, but not for two. Unmapped
# times come out shorter, as no window begins too early. A limit that short would
# leave the engine out whenever the host stops a channel for a while.
WINDOW_TIMES = 1.7

# In the check of overlap, copying takes this many times as long as everything else.
# Two CPUs of an emulator may share a core of the host, and slow each other down.
# Copying has to be the bottleneck even then. Taking turns costs half as much again.
COPYING_TIMES = 2


@dataclass(frozen=True)
class Rates:
    """MB/s of each channel."""

    # At this rate copying is the bottleneck at 2M.
    large_mbps: int
    # At this rate copying takes as long as everything else at 4K.
    balanced_mbps: int

    @property
    def small_mbps(self) -> int:
        """Return the rate for 4K where channels slow down, which must be possible."""
        return max(self.balanced_mbps, SLOW[1])

    @property
    def overlap_mbps(self) -> int:
        """Return the rate for 4K at which copying is just the bottleneck."""
        return max(round(self.balanced_mbps / COPYING_TIMES), 1)


@dataclass(frozen=True)
class Calibration:
    """Times of this machine, for the second run."""

    rates: Rates
    # The time of one folio with these rates, alone in its batch.
    large_ns: int
    small_ns: int

    def folio_ns(self, folio_bytes: int) -> int:
        """Return the time of one folio."""
        return self.large_ns if folio_bytes == PMD_BYTES else self.small_ns

    def mbps(self, folio_bytes: int) -> int:
        """Return the rate of each channel for this size."""
        large = folio_bytes == PMD_BYTES
        return self.rates.large_mbps if large else self.rates.small_mbps


# For a dry run: the number of cases and their totals do not depend on rates.
ANY_MACHINE = Calibration(Rates(64, 25), 2_000_000, 250_000)


@dataclass(frozen=True)
class CheckPlan:
    """The amount of memory of the checks, and the selected checks."""

    names: tuple[str, ...] = CHECKS
    large_bytes: int = 128 * MIB
    small_bytes: int = 16 * MIB
    # So many windows that the first, which overlaps no other, is a small part.
    overlap_bytes: int = 64 * MIB
    channels: int = CHECK_CHANNELS

    def engine(self, folio_bytes: int, mbps: int | None) -> Case:
        """Return the engine with its default limits."""
        total = self.large_bytes if folio_bytes == PMD_BYTES else self.small_bytes
        return Case(
            "dcbm",
            channels=self.channels,
            threads=1,
            folio_bytes=folio_bytes,
            total_bytes=total,
            mbps=mbps,
        )

    def rate_cases(self) -> tuple[Case, ...]:
        """First measure the speed of stock at 2M, and of bookkeeping at 4K."""
        return (
            Case(
                "stock",
                threads=1,
                total_bytes=self.large_bytes // 2,
                role="calibrate/stock",
            ),
            replace(
                self.engine(BASE_BYTES, 0),
                limit_us=0,
                role="calibrate/bookkeeping",
            ),
        )

    def folio_cases(self, rates: Rates) -> tuple[Case, ...]:
        """Then measure the time of one folio in a batch of its own."""
        large = self.engine(PMD_BYTES, rates.large_mbps).posted(STOCK_CAP_PAGES)
        small = self.engine(BASE_BYTES, rates.small_mbps).posted(1)
        # A few folios suffice.
        some = min(self.small_bytes, 1024 * BASE_BYTES)
        return (
            replace(large, total_bytes=self.large_bytes // 4, role="calibrate/one-2M"),
            replace(small, total_bytes=some, role="calibrate/one-4K"),
        )

    def cases(self, known: Calibration) -> tuple[Case, ...]:
        """List the cases to compare."""
        made = {
            "throughput": self._throughput,
            "overlap": self._overlap,
            "toucher": self._toucher,
            "limit": self._limit,
        }
        return tuple(case for name in self.names for case in made[name](known))

    def _throughput(self, known: Calibration) -> list[Case]:
        engine = self.engine(PMD_BYTES, known.rates.large_mbps)
        # These channels are slower than the CPU, whose time is the default limit.
        limit_us = round(WINDOW_TIMES * known.large_ns / 1000)
        return [
            _as(engine.posted(MAX_CAP_PAGES), "throughput/largest-cap"),
            _as(engine.posted(STOCK_CAP_PAGES), "throughput/one-batch"),
            _as(replace(engine, limit_us=limit_us), "throughput/windows"),
        ]

    def _overlap(self, known: Calibration) -> list[Case]:
        mbps = known.rates.overlap_mbps
        engine, large = (
            replace(self.engine(size, mbps), total_bytes=self.overlap_bytes, limit_us=0)
            for size in (BASE_BYTES, PMD_BYTES)
        )
        return [
            _as(engine, "overlap/windows"),
            _as(engine.posted(STOCK_CAP_PAGES), "overlap/posted"),
            _as(replace(engine, mbps=0), "overlap/bookkeeping"),
            _as(large, "overlap/copying"),
        ]

    def _toucher(self, known: Calibration) -> list[Case]:
        found = []
        # At 2M the channels are as fast as possible: on stock, too, a folio is
        # unmapped while it is copied. The CPU copies a share.
        for size, mbps in ((BASE_BYTES, known.rates.small_mbps), (PMD_BYTES, 0)):
            engine = replace(self.engine(size, mbps), touch="write", share=True)
            stock = replace(engine, engine="stock", channels=0, mbps=None)
            found += [
                _as(stock, "toucher/stock"),
                _as(engine, "toucher/windows"),
                _as(engine.posted(8192), "toucher/posted"),
            ]
        return found

    def _limit(self, known: Calibration) -> list[Case]:
        found = []
        for size in (BASE_BYTES, PMD_BYTES):
            engine = self.engine(size, known.mbps(size))
            # No other limit may apply.
            engine = replace(engine, cap_pages=MAX_CAP_PAGES)
            one_ns = known.folio_ns(size)
            alone = engine.posted(size // BASE_BYTES)
            found.append(_as(alone, ALONE))
            for times in sorted({TOO_SHORT, *LIMITS, *SLOWED_LIMITS}):
                limit_us = max(1, round(times * one_ns / 1000))
                limited = replace(engine, limit_us=limit_us)
                if times == TOO_SHORT or times in LIMITS:
                    found.append(_as(limited, f"limit/{times:g}"))
                if times in SLOWED_LIMITS:
                    found.append(_slowed(limited, times))
        return found


def _slowed(limited: Case, times: float) -> Case:
    """Slow the channels of a case in the middle of the move."""
    case = replace(limited, slow=SLOW, role=f"limit/{times:g}/slowed")
    if too_slow(times, SLOW[1]):
        return replace(case, cap_pages=SLOWED_CAP_PAGES[case.folio_bytes])
    # Windows that do not count are counted in batches of the engine, each with at
    # most BATCH_FOLIOS folios.
    cap_pages = BATCH_FOLIOS * case.folio_bytes // BASE_BYTES
    return replace(
        case, cap_pages=cap_pages, total_bytes=SLOWED_TIMES * case.total_bytes
    )


def _as(case: Case, role: str) -> Case:
    return replace(case, role=role)


def rates_of(plan: CheckPlan, rows: Sequence[Row]) -> Rates:
    """Choose the rates of the channels for 2M and for 4K."""
    stock = find(rows, "calibrate/stock").bytes_per_s
    books = find(rows, "calibrate/bookkeeping").bytes_per_s
    assert stock is not None
    assert books is not None
    # All channels together copy an eighth of what a CPU copies, as a CPU simulates
    # them. For 4K they copy as much as the CPU can unmap and move.
    large = round(stock.median / 8 / plan.channels / 1e6)
    balanced = round(books.median / plan.channels / 1e6)
    return Rates(max(large, SLOW[1]), max(balanced, 1))


def calibration_of(rates: Rates, rows: Sequence[Row]) -> Calibration:
    """Return the time of one folio of each size."""
    found = []
    for role in ("calibrate/one-2M", "calibrate/one-4K"):
        unmapped = find(rows, role).unmapped_ns
        if unmapped is None:
            raise PageferryError(
                "this kernel does not say how long folios are unmapped",
                value="/sys/kernel/mm/migrate_offload/stats/reasons/*/unmapped_hist",
                hint="pageferry kernel build makes one that does",
            )
        found.append(unmapped.mean)
    return Calibration(rates, found[0], found[1])
