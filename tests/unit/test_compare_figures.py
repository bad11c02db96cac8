# SPDX-License-Identifier: GPL-2.0-only
"""The output of known programs."""

from __future__ import annotations

import re

import pytest

from pageferry.compare import figures
from pageferry.errors import PageferryError

REDIS = """\
====== SET ======
  100000 requests completed in 1.23 seconds
  50 parallel clients

Summary:
  throughput summary: 81300.81 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        0.321     0.104     0.303     0.479     0.655     1.703
====== GET ======
  throughput summary: 84033.61 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        0.311     0.096     0.295     0.447     0.607     1.199
"""
REDIS_QUIET = (
    "SET: rps=79000.0 (overall: 80100.0) avg_msec=0.3\r"
    "SET: 81300.81 requests per second, p50=0.303 msec                   \n"
)
REDIS_CSV = (
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",'
    '"p95_latency_ms","p99_latency_ms","max_latency_ms"\n'
    '"SET","81300.81","0.321","0.104","0.303","0.479","0.655","1.703"\n'
)
MEMTIER = """\
ALL STATS
====================================================================================
Type         Ops/sec     Hits/sec   Misses/sec    Avg. Latency     p50 Latency     p99 Latency   p99.9 Latency       KB/sec
------------------------------------------------------------------------------------
Sets         5512.12          ---          ---         1.81205         1.69500         4.19100         8.51100       424.53
Totals      60633.36         0.00     55121.24         1.80412         1.68700         4.15900         8.38300      2571.75
"""
SYSBENCH = """\
    transactions:                        12345  (1234.10 per sec.)
    queries:                             24690  (2468.20 per sec.)
Latency (ms):
         avg:                                    3.24
         95th percentile:                        5.18
"""
SYSBENCH_MEMORY = "10240.00 MiB transferred (8123.45 MiB/sec)\n"
FIO = """\
job: (groupid=0, jobs=1): err= 0: pid=9: Fri Nov 27 10:00:00 2026
  read: IOPS=12.3k, BW=48.1MiB/s (50.4MB/s)(482MiB/10001msec)
    clat (usec): min=2, max=912, avg=80.10, stdev=12.00
    clat percentiles (usec):
     |  1.00th=[   60],  5.00th=[   65], 50.00th=[   78], 95.00th=[   96],
     | 99.00th=[  123], 99.50th=[  135], 99.90th=[  202], 99.99th=[  420]
  write: IOPS=345, BW=1380KiB/s (1413kB/s)(13.5MiB/10001msec); 0 zone resets
    clat percentiles (nsec):
     | 50.00th=[ 7840], 99.00th=[12300]
"""
YCSB = """\
[OVERALL], RunTime(ms), 10110
[OVERALL], Throughput(ops/sec), 9891.2
[READ], Operations, 50007
[READ], AverageLatency(us), 95.4
[READ], 99thPercentileLatency(us), 201
"""
JSON_LINE = (
    'begin\n{"type": "gups", "updates_per_s": 3097992, "p50_ns": 49152, '
    '"p99.9_ns": 5242880, "max_ns": 42047622, "warm_per_s": true}\n[1]\n7\n'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            REDIS,
            {
                "SET, requests/s": 81300.81,
                "GET, requests/s": 84033.61,
                "SET p99, ms": 0.655,
                "GET max, ms": 1.199,
            },
        ),
        (REDIS_QUIET, {"SET, requests/s": 81300.81, "SET p50, ms": 0.303}),
        (REDIS_CSV, {"SET, requests/s": 81300.81, "SET p99, ms": 0.655}),
        (
            MEMTIER,
            {"operations, 1/s": 60633.36, "p99, ms": 4.159, "Avg., ms": 1.80412},
        ),
        (SYSBENCH, {"transactions, 1/s": 1234.1, "p95, ms": 5.18}),
        (SYSBENCH_MEMORY, {"transferred, MiB/s": 8123.45}),
        (
            FIO,
            {
                "read IOPS, 1/s": 12300.0,
                "read p99, us": 123.0,
                "read p99.9, us": 202.0,
                "write IOPS, 1/s": 345.0,
                "write p99, us": 12.3,
            },
        ),
        (
            YCSB,
            {
                "throughput, ops/sec": 9891.2,
                "READ p99, us": 201.0,
                "READ avg, us": 95.4,
            },
        ),
        (
            JSON_LINE,
            {
                "updates, 1/s": 3097992.0,
                "p50, us": 49.152,
                "p99.9, us": 5242.88,
                "max, us": 42047.622,
            },
        ),
    ],
)
def test_known_formats(text: str, expected: dict[str, float]) -> None:
    found = figures.find(text, None)
    by_title = {figure.title: value for figure, value in found.items()}
    assert expected.items() <= by_title.items()
    for figure in found:
        rates = ("requests/s", "1/s", "MiB/s", "ops/sec")
        assert figure.more_is_better == (figure.unit in rates), figure


def test_unknown_output_has_no_figures() -> None:
    assert figures.find("hello\n42 things done\n", None) == {}


def test_the_last_match_counts() -> None:
    pattern = re.compile(r"rate: ([\d.]+)")
    found = figures.find("rate: 5\nrate: 7.5\n", pattern)
    assert list(found.values()) == [7.5]
    for text, bad in (("nothing", pattern), ("rate: x", re.compile("rate: (.)"))):
        with pytest.raises(PageferryError, match="no number"):
            figures.find(text, bad)
