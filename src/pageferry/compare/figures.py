# SPDX-License-Identifier: GPL-2.0-only
"""Figures that programs print: throughput and latencies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pageferry.errors import PageferryError

_NUMBER = r"([\d.]+)"
_PERCENTILES = ("50", "95", "99", "99.9")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6}
# fio chooses the unit for each run.
_MICROSECONDS = {"nsec": 1e-3, "usec": 1.0, "msec": 1e3}


@dataclass(frozen=True)
class Figure:
    """A kind of figure; its name and unit tell it from others."""

    name: str
    unit: str
    more_is_better: bool = True

    @property
    def title(self) -> str:
        """Return the name with the unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name


Found = dict[Figure, float]


def _latency(name: str, unit: str) -> Figure:
    return Figure(name, unit, more_is_better=False)


def find(text: str, pattern: re.Pattern[str] | None) -> Found:
    """Find the figures in the output of a program.

    With a pattern, its last match counts. Otherwise the first format that fits does.
    """
    # A program may overwrite its line of progress.
    lines = re.split(r"[\r\n]+", text)
    if pattern is not None:
        return _matched(text, pattern)
    for parse in (_redis, _redis_csv, _memtier, _sysbench, _fio, _ycsb, _json):
        found = dict(parse(lines))
        if found:
            return found
    return {}


def _matched(text: str, pattern: re.Pattern[str]) -> Found:
    matches = pattern.findall(text)
    try:
        last = matches[-1]
        number = float(last if isinstance(last, str) else last[0])
    except (IndexError, ValueError) as error:
        raise PageferryError(
            "the output of the program has no number that --match finds",
            value=pattern.pattern,
            hint="put a group around the number: 'rate: ([0-9.]+)'",
        ) from error
    return {Figure("match", ""): number}


def _redis(lines: Sequence[str]) -> Iterator[tuple[Figure, float]]:
    """Parse redis-benchmark: its report, and -q."""
    test, columns, heads = "", [], False
    for line in lines:
        if match := re.match(r"====== (.+?) ======", line):
            test = match[1]
        elif match := re.match(rf"(.+): {_NUMBER} requests per second, p50=", line):
            yield Figure(match[1], "requests/s"), float(match[2])
            yield (
                _latency(f"{match[1]} p50", "ms"),
                float(line.partition("p50=")[2].split()[0]),
            )
        elif match := re.search(rf"throughput summary: {_NUMBER} requests", line):
            yield Figure(test, "requests/s"), float(match[1])
        elif "latency summary (msec)" in line:
            heads = True
        elif heads:
            columns, heads = line.split(), False
        elif columns:
            for name, value in zip(columns, line.split(), strict=False):
                yield _latency(f"{test} {name}", "ms"), float(value)
            columns = []


def _redis_csv(lines: Sequence[str]) -> Iterator[tuple[Figure, float]]:
    """Parse redis-benchmark --csv."""
    for line in lines:
        match = re.match(rf'"([^"]+)","{_NUMBER}"((?:,"[\d.]+")*)$', line)
        if match is None:
            continue
        yield Figure(match[1], "requests/s"), float(match[2])
        names = ("avg", "min", "p50", "p95", "p99", "max")
        values = re.findall(_NUMBER, match[3])
        for name, value in zip(names, values, strict=False):
            yield _latency(f"{match[1]} {name}", "ms"), float(value)


def _memtier(lines: Sequence[str]) -> Iterator[tuple[Figure, float]]:
    """Parse the totals of memtier_benchmark."""
    columns: list[str] = []
    for line in lines:
        cells = re.split(r"\s{2,}", line.strip())
        if cells[0] == "Type":
            columns = cells
        elif cells[0] == "Totals":
            for name, value in zip(columns[1:], cells[1:], strict=False):
                if not re.fullmatch(_NUMBER, value):
                    continue
                if name == "Ops/sec":
                    yield Figure("operations", "1/s"), float(value)
                elif name.endswith("Latency"):
                    yield _latency(name.removesuffix(" Latency"), "ms"), float(value)


def _sysbench(lines: Sequence[str]) -> Iterator[tuple[Figure, float]]:
    rates = (
        ("transactions", "1/s", rf"\s*transactions:.*\({_NUMBER} per sec"),
        ("events", "1/s", rf"\s*events per second:\s*{_NUMBER}"),
        ("transferred", "MiB/s", rf".* MiB transferred \({_NUMBER} MiB/sec\)"),
    )
    for line in lines:
        for name, unit, pattern in rates:
            if match := re.match(pattern, line):
                yield Figure(name, unit), float(match[1])
        if match := re.match(rf"\s*(\d+)th percentile:\s*{_NUMBER}", line):
            yield _latency(f"p{match[1]}", "ms"), float(match[2])


def _fio(lines: Sequence[str]) -> Iterator[tuple[Figure, float]]:
    """Parse fio's report; each direction has a rate and percentiles."""
    way, scale = "", 0.0
    for line in lines:
        if match := re.match(rf"\s*(\w+)\s*: IOPS={_NUMBER}([kM]?),", line):
            way = match[1]
            yield Figure(f"{way} IOPS", "1/s"), float(match[2]) * _SCALE[match[3]]
        elif match := re.match(r"\s*clat percentiles \((\w+)\):", line):
            scale = _MICROSECONDS.get(match[1], 0.0)
        elif scale and "th=[" in line:
            for rank, value in re.findall(rf"{_NUMBER}th=\[\s*(\d+)\]", line):
                name = f"{float(rank):g}"
                if name in _PERCENTILES:
                    yield _latency(f"{way} p{name}", "us"), float(value) * scale


def _ycsb(lines: Sequence[str]) -> Iterator[tuple[Figure, float]]:
    for line in lines:
        match = re.match(rf"\[([\w-]+)\], (\w+)\(([\w/]+)\), {_NUMBER}$", line)
        if match is None:
            continue
        what, name, unit, value = match[1], match[2], match[3], float(match[4])
        if name == "Throughput":
            yield Figure("throughput", unit), value
        elif rank := re.match(r"(\d+)thPercentileLatency", name):
            yield _latency(f"{what} p{rank[1]}", unit), value
        elif name == "AverageLatency":
            yield _latency(f"{what} avg", unit), value


def _json(lines: Sequence[str]) -> Iterator[tuple[Figure, float]]:
    """Parse objects with keys like rows_per_s, p99_ns and max_ns."""
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue
        for key, value in said.items() if isinstance(said, dict) else ():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if key.endswith("_per_s"):
                yield Figure(key.removesuffix("_per_s"), "1/s"), float(value)
            elif re.fullmatch(r"(p[\d.]+|max)_ns", key):
                yield _latency(key.removesuffix("_ns"), "us"), value / 1e3
