# SPDX-License-Identifier: GPL-2.0-only
"""The steps that only copy: every size, the rates, and dcbm switched off meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from pageferry.bench import options
from pageferry.dma import control
from pageferry.dma.check.bench import Copied
from pageferry.dma.check.report import UNKNOWN, Finding
from pageferry.dma.check.state import CPU_SHARE, Check, grown
from pageferry.errors import ExitCode, PageferryError
from pageferry.units import format_rate, format_size

SIZES = options.parse_sizes("all")
ROUNDS = 5
# A figure that reaches this share of the best one is as good.
_GOOD = 0.95
# dcbm copies no more than this with one descriptor.
_MAX_PIECE = 512 << 10
_SWITCHES = 5
_BUSY_S = 10.0


def counts(most: int) -> list[int]:
    """Return the numbers of channels to try: powers of two, and all."""
    return sorted({1 << shift for shift in range(most.bit_length())} | {most})


def measurements(channels: int) -> int:
    """Count the lines of all steps, for the progress bar."""
    copies = len({1, channels}) * len(SIZES) * 2
    rates = (1 + len(counts(channels))) * (ROUNDS + 1)
    return copies + rates + (len(SIZES) + 1) * (ROUNDS + 1)


def copies(check: Check) -> Finding:
    """Copy with every folio size, on one channel and on all of them."""
    question = "every byte right"
    numbers = sorted({1, check.count})
    argv = check.bench.argv(
        [f"dcbm:channels={number}" for number in numbers], SIZES, 1, verify=True
    )
    before = check.engine()
    try:
        lines = check.bench.run(argv)
    except PageferryError as error:
        if error.code != ExitCode.FAILED:
            raise
        return Finding(question, "no", error.line(), failed=True)
    after = check.engine()
    check.sizes = tuple(sorted({line.folio_bytes for line in lines}))
    copied, wrong, failed = (
        grown(before, after, name)
        for name in ("engine_folios", "mismatched_folios", "failed_folios")
    )
    if wrong:
        detail = f"the driver reported success for {wrong} folios that differ"
        return Finding(question, "no", detail, failed=True)
    if failed or not copied:
        detail = f"dcbm copied {copied} folios; {failed} failed"
        return Finding(question, "no", detail, failed=True)
    sizes = f"{format_size(check.sizes[0])} to {format_size(check.sizes[-1])}"
    detail = (
        f"{copied} folios of {sizes}, on {' and '.join(map(str, numbers))} channels; "
        "transfers begin and end at pages"
    )
    return Finding(question, "yes", detail)


def _median(lines: Sequence[Copied]) -> float:
    """Return the median rate; the first round does not count."""
    return statistics.median(line.rate for line in lines if line.round)


def rates(check: Check) -> list[Finding]:
    """Find the best number of channels, and compare with the CPU."""
    report = check.report
    numbers = counts(check.count)
    with check.undo() as undo:
        # The CPU's share of the copies would hide the channels.
        undo.set(CPU_SHARE, "N")
        variants = ["cpu", *(f"dcbm:channels={number}" for number in numbers)]
        lines = check.bench.run(check.bench.argv(variants, check.largest, ROUNDS))
        report.cpu_rate = _median([x for x in lines if x.engine == "cpu"])
        report.rates = {
            n: _median([x for x in lines if x.engine == "dcbm" and x.channels == n])
            for n in numbers
        }
        _together(check)
    best = max(report.rates.values())
    good = [n for n, rate in report.rates.items() if rate >= _GOOD * best]
    report.best_channels = good[0]
    size = format_size(check.sizes[-1])
    detail = f"{format_rate(report.rates[good[0]])} with folios of {size}"
    faster = best > report.cpu_rate
    found = f"{format_rate(best)}, the CPU {format_rate(report.cpu_rate)}"
    if not faster:
        found += ": the kernel leaves such lists to the CPU by itself"
    return [
        Finding("best number of channels", str(good[0]), detail),
        Finding("faster than one CPU", "yes" if faster else "no", found),
    ]


def _together(check: Check) -> None:
    """Measure the share of each channel while all of them copy."""
    before = check.channels("bytes")
    argv = check.bench.argv([f"dcbm:channels={check.count}"], check.largest, ROUNDS)
    lines = check.bench.run(argv)
    elapsed_ns = max(sum(line.elapsed_ns for line in lines), 1)
    after = check.channels("bytes")
    check.report.together = {
        name: grown(before, after, name) * 1e9 / elapsed_ns for name in after
    }


def pieces(check: Check) -> Finding:
    """Find the shortest transfer that is as good as longer ones."""
    question = "best piece"
    with check.undo() as undo:
        undo.set(CPU_SHARE, "N")
        argv = check.bench.argv(["dcbm:channels=1"], check.sizes, ROUNDS)
        lines = [line for line in check.bench.run(argv) if line.round]
    found: dict[int, list[float]] = {}
    for line in lines:
        if line.engine_rate is not None:
            found.setdefault(line.folio_bytes, []).append(line.engine_rate)
    if not found:
        return Finding(question, UNKNOWN, "the kernel has no counter of the time")
    medians = {size: statistics.median(values) for size, values in found.items()}
    check.report.pieces = dict(sorted(medians.items()))
    best = max(medians.values())
    size = min(size for size, rate in medians.items() if rate >= _GOOD * best)
    if size > _MAX_PIECE:
        detail = (
            f"the rate still grows with folios of {format_size(size)}, and the kernel "
            f"shows no piece; dcbm makes none above {format_size(_MAX_PIECE)}"
        )
        return Finding(question, UNKNOWN, detail)
    check.report.best_piece_bytes = size
    detail = f"a longer transfer is at most {100 / _GOOD - 100:.0f}% faster"
    return Finding(question, format_size(size), detail)


def switched_off(check: Check) -> Finding:
    """Switch dcbm off while it copies, and on again."""
    question = "off while busy"
    longest_s = 0.0
    done = 0
    try:
        with check.bench.mover(check.largest) as mover:
            for _ in range(_SWITCHES):
                if not mover.until(check.is_busy, _BUSY_S):
                    break
                start = time.monotonic()
                check.files.write(control.OFFLOADING, "0")
                longest_s = max(longest_s, time.monotonic() - start)
                check.files.write(control.OFFLOADING, "1")
                done += 1
            mover.move_on()
    except PageferryError as error:
        return Finding(question, "no", error.line(), failed=True)
    if not done:
        detail = f"no channel was seen copying in {_BUSY_S:.0f} s"
        return Finding(question, UNKNOWN, detail)
    detail = f"{done} times, each took {longest_s * 1000:.0f} ms at most"
    return Finding(question, "yes", detail)
