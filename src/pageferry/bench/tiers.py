# SPDX-License-Identifier: GPL-2.0-only
"""`bench demotion` and `bench promotion`: the plans, and rows from measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import msgspec

from pageferry.bench.latency_rows import touch_of
from pageferry.bench.lines import Calls, Demotion, Line, Promotion
from pageferry.bench.move_pages import BASE_BYTES, MODULES, PMD_BYTES, limit_words
from pageferry.errors import PageferryError, usage_error
from pageferry.results.schema import Row
from pageferry.results.stats import round_ratios, spread
from pageferry.units import format_size, parse_size

DEMOTION = "demotion"
PROMOTION = "promotion"
ENGINES = ("stock", "off", "cpu", "mtcopy", "dcbm")
DEFAULT_SIZES = "4K,2M"
PARTS = ("calls", "reclaim")
SINGLE = "one page per call"
# In the order of the 2019 comparison.
METHODS = (SINGLE, "512 pages per call", "one huge page per call")

Sample = Calls | Demotion | Promotion


@dataclass(frozen=True)
class TierPlan:
    """What one run measures, whichever way memory goes."""

    bench: Literal["demotion", "promotion"]
    sizes: tuple[int, ...]
    engines: tuple[str, ...]
    threads: int
    channels: int
    channel_mbps: int
    total_bytes: int
    rounds: int
    from_node: int
    to_node: int
    # None: as it is.
    max_unmapped_us: int | None = None
    # Of demotion.
    parts: tuple[str, ...] = PARTS
    pressure: Literal["reclaim", "high", "max"] = "reclaim"
    call_bytes: int = 2 * PMD_BYTES
    # Of promotion.
    touch: Literal["read", "write"] = "write"

    def variants(self) -> list[str]:
        """Name the columns for the program, the baseline always first."""
        names = ["stock"]
        for engine in self.engines:
            if engine == "mtcopy":
                names.append(f"mtcopy:threads={self.threads}")
            elif engine == "dcbm":
                names.append(f"dcbm:channels={self.channels}")
            elif engine != "stock":
                names.append(engine)
        return names

    def modules(self) -> list[str]:
        """List the kernel modules that the engines live in."""
        return [MODULES[name] for name in self.engines if name in MODULES]

    def simulated(self) -> dict[str, str]:
        """List the modules that stand in for hardware, with their parameters."""
        if "dcbm" not in self.engines:
            return {}
        rate = f"bandwidth_mbps={self.channel_mbps}"
        return {"dmasim": f"channels={self.channels} {rate}"}

    def arguments(self) -> list[str]:
        """Give the options of the program, which has the name of the benchmark."""
        words = [
            f"--from={self.from_node}",
            f"--to={self.to_node}",
            "--sizes=" + ",".join(str(size) for size in self.sizes),
            f"--total-bytes={self.total_bytes}",
            f"--rounds={self.rounds}",
            "--variants=" + ",".join(self.variants()),
            *limit_words(self.max_unmapped_us),
        ]
        if self.bench == PROMOTION:
            return [*words, f"--touch={self.touch}"]
        words += ["--parts=" + ",".join(self.parts), f"--pressure={self.pressure}"]
        return [*words, f"--call-bytes={self.call_bytes}"]

    def measurements(self) -> int:
        """Count the lines that the program will print, for the progress bar."""
        kinds = len(self.sizes)
        if self.bench == DEMOTION:
            kinds = kinds if "reclaim" in self.parts else 0
            kinds += len(METHODS) if "calls" in self.parts else 0
        return len(self.variants()) * kinds * (self.rounds + 1)

    def moved_bytes(self) -> int:
        """Add up what all measurements move, for the time that it may take."""
        return self.measurements() * max(self.total_bytes, self.call_bytes)


def parse_parts(text: str) -> tuple[str, ...]:
    """Read which parts of `bench demotion` are wanted."""
    parts = tuple(word.strip() for word in text.split(","))
    for name in parts:
        if name not in PARTS:
            raise usage_error("unknown part", name, "known: " + ", ".join(PARTS))
    if len(set(parts)) != len(parts):
        raise usage_error("a part is listed twice", text)
    return parts


def parse_call_bytes(text: str) -> int:
    """Read how much each length of list moves."""
    size = parse_size(text)
    if not size or size % PMD_BYTES:
        raise usage_error(
            "--call-total is not a multiple of 2M",
            text,
            "a list has 512 pages of 4K, and a huge page 2M",
        )
    return size


def samples_of(lines: Sequence[Line]) -> list[Sample]:
    """Pick out what counts: the warm-up round does not."""
    found = [line for line in lines if isinstance(line, (Calls, Demotion, Promotion))]
    if any(not sample.verified for sample in found):
        raise PageferryError("a measurement was not verified")
    return [sample for sample in found if sample.round > 0]


Key = tuple[str, int, str, int, int]


def _key(sample: Sample) -> Key:
    return (
        sample.method,
        sample.folio_bytes,
        sample.engine,
        sample.threads,
        sample.channels,
    )


def _all_traced(samples: Sequence[Sample]) -> bool:
    """Say whether it is known, of each demotion, until when something moved.

    Reclaim for a limit goes on when nothing is left to demote. In one result all
    times are of the same kind, or their ratios would mean nothing.
    """
    return all(
        sample.moving_ns is not None
        for sample in samples
        if isinstance(sample, Demotion)
    )


def _moving_ns(sample: Sample, *, traced: bool) -> int:
    if traced and isinstance(sample, Demotion) and sample.moving_ns is not None:
        return sample.moving_ns
    return sample.elapsed_ns


def _rates(samples: Sequence[Sample]) -> dict[Key, dict[int, float]]:
    """Sort bytes per second by what was done, and by round."""
    found: dict[Key, dict[int, float]] = {}
    traced = _all_traced(samples)
    for sample in samples:
        moving_ns = _moving_ns(sample, traced=traced)
        if moving_ns <= 0:
            raise PageferryError(
                "the clock stood still during a move",
                value=f"{sample.engine}, {format_size(sample.folio_bytes)}",
            )
        rate = sample.moved_bytes * 1e9 / moving_ns
        found.setdefault(_key(sample), {})[sample.round] = rate
    return found


def _total(values: Sequence[int | None]) -> int | None:
    """Add up what is known; unknown anywhere is unknown altogether."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def make_rows(bench: str, lines: Sequence[Line]) -> list[Row]:
    """Turn measurements into rows."""
    samples = samples_of(lines)
    rates = _rates(samples)
    rows = []
    for key, series in rates.items():
        mine = [sample for sample in samples if _key(sample) == key]
        rows.append(_row(bench, key, mine, rates, series))
    if not _all_traced(samples):
        rows = [msgspec.structs.replace(row, futile_ns=None) for row in rows]
    return sorted(rows, key=_order)


def _row(
    bench: str,
    key: Key,
    mine: Sequence[Sample],
    rates: dict[Key, dict[int, float]],
    series: dict[int, float],
) -> Row:
    method, size, engine, threads, channels = key
    ratio = round_ratios(series, rates.get((method, size, "stock", 1, 0), {}))
    single = rates.get((SINGLE, BASE_BYTES, engine, threads, channels), {})
    calls = [sample for sample in mine if isinstance(sample, Calls)]
    kernel = [s for s in mine if isinstance(s, (Demotion, Promotion))]
    demoted = [sample for sample in mine if isinstance(sample, Demotion)]
    promoted = [sample for sample in mine if isinstance(sample, Promotion)]
    some = [s.stall_some_us for s in demoted if s.stall_some_us is not None]
    full = [s.stall_full_us for s in demoted if s.stall_full_us is not None]
    futile = [s.elapsed_ns - s.moving_ns for s in demoted if s.moving_ns is not None]
    engine_bytes = (
        None if _no_engine(engine) else _total([s.engine_bytes for s in mine])
    )
    return Row(
        bench=bench,
        engine=engine,
        channels=channels,
        threads=threads,
        folio_bytes=size,
        moved_bytes=round(fmean(sample.moved_bytes for sample in mine)),
        rounds=len(series),
        verified=True,
        method=method,
        folios_per_call=calls[0].folios_per_call if calls else None,
        ratio_to_single=round_ratios(series, single) if calls else None,
        split_folios=_total([s.split_folios for s in kernel]),
        left_bytes=_total([s.left_bytes for s in kernel]),
        engine_bytes=engine_bytes,
        cpu_bytes=None if _no_engine(engine) else _total([s.cpu_bytes for s in kernel]),
        share_offloaded=_share(engine_bytes, kernel),
        folios_per_batch=_per_batch(kernel),
        futile_ns=spread(futile) if futile else None,
        stall_some_us=spread(some) if some else None,
        stall_full_us=spread(full) if full else None,
        pgdemote_kswapd=_total([s.pgdemote_kswapd for s in demoted]),
        pgdemote_direct=_total([s.pgdemote_direct for s in demoted]),
        pgdemote_khugepaged=_total([s.pgdemote_khugepaged for s in demoted]),
        pgpromote_success=_total([s.pgpromote_success for s in promoted]),
        bytes_per_s=spread(list(series.values())),
        ratio_to_stock=None if ratio is None else ratio.median,
        ratio_to_stock_spread=ratio,
        touch=touch_of(promoted),
        first_promotion_ns=spread([s.waited_ns for s in promoted])
        if promoted
        else None,
    )


def _no_engine(engine: str) -> bool:
    return engine in ("stock", "off")


def _share(
    engine_bytes: int | None, kernel: Sequence[Demotion | Promotion]
) -> float | None:
    """Give the engine's share of what the core had copied for this reason."""
    cpu_bytes = _total([sample.cpu_bytes for sample in kernel])
    if engine_bytes is None or cpu_bytes is None:
        return None
    copied = engine_bytes + cpu_bytes
    # What never got as far as being offered was moved by the CPU, too.
    copied = max(copied, sum(_arrived(sample) for sample in kernel))
    return engine_bytes / copied if copied else None


def _arrived(sample: Demotion | Promotion) -> int:
    """Count what was moved in the end: some comes back after the clock stopped."""
    return sample.fast_bytes if isinstance(sample, Promotion) else sample.moved_bytes


def _per_batch(kernel: Sequence[Demotion | Promotion]) -> float | None:
    """Divide all folios by batches, also those that the engine left to the CPU."""
    copied = _total([sample.engine_bytes for sample in kernel])
    left = _total([sample.cpu_bytes for sample in kernel])
    batches = _total([sample.batches for sample in kernel])
    if copied is None or left is None or not batches or not copied + left:
        return None
    return (copied + left) / kernel[0].folio_bytes / batches


def _order(row: Row) -> tuple[int, int, int, int, int]:
    """Lengths of lists first, then by size, and the baseline first."""
    rank = ENGINES.index(row.engine) if row.engine in ENGINES else len(ENGINES)
    if row.method in METHODS:
        return (0, rank, METHODS.index(row.method), row.threads, row.channels)
    return (1, row.folio_bytes, rank, row.threads, row.channels)


def moved_pages(rows: Sequence[Row]) -> int:
    """Count the pages of 4 KiB that were moved and verified."""
    return sum(row.moved_bytes * row.rounds // BASE_BYTES for row in rows)
