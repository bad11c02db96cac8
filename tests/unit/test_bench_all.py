# SPDX-License-Identifier: GPL-2.0-only
"""Bad values, bad lines and written files, for all benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgspec
import pytest

from helpers.bench_data import measurement
from helpers.compaction_data import compaction
from helpers.latency_data import measured
from helpers.tier_data import call, demotion, promotion
from pageferry.bench import options, spec, where
from pageferry.bench.compaction.spec import parse_total as parse_mapped
from pageferry.bench.demotion.spec import parse_call_bytes
from pageferry.bench.hugetlb.spec import parse_sizes as parse_hugetlb_sizes
from pageferry.bench.job import Job
from pageferry.bench.latency.cases import (
    Case,
    LatencyPlan,
    parse_limits,
    parse_streaming,
)
from pageferry.bench.lines import Timed
from pageferry.bench.plan import Plan
from pageferry.commands.bench import add_arguments
from pageferry.errors import PageferryError
from pageferry.kernel.build import BuildRequest
from pageferry.results.schema import Row

CASE = Case(threads=1)


def a_cap(text: str) -> tuple[int, ...]:
    return options.parse_list(text, "a cap", 1, 4096)


def a_part(text: str) -> Plan:
    return parsed("demotion", f"--parts={text}")


def a_state(text: str) -> Plan:
    return parsed("compaction", f"--states={text}")


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (options.parse_sizes, ["", "4K,", "3K", "4M", "2K", "64KB?", "4K,4096"]),
        (options.parse_engines, ["", "cpu,", "warp", "cpu,cpu", "none"]),
        (options.parse_threads, ["", "0", "-1", "2,2", "33", "two", "²", "1_0"]),
        (options.parse_channels, ["", "0", "4,4", "65", "all"]),
        (options.parse_total, ["0", "1M", "3M", "5000", "lots"]),
        (parse_hugetlb_sizes, ["", "4K", "3M", "2G", "2M,", "2M,2M", "all"]),
        (a_part, ["", "calls,", "sums", "calls,calls"]),
        (parse_call_bytes, ["0", "1M", "3M", "some"]),
        (a_state, ["", "idle,", "asleep", "busy,busy"]),
        (parse_mapped, ["0", "1M", "3M", "some"]),
        (a_cap, ["", "0", "5000", "1,1", "1_0", "²", "-1", "1,"]),
        (parse_limits, ["", "soon", "default,default", "5,5", "-1", "5us"]),
        (parse_streaming, ["", "yes", "true,true", "1"]),
    ],
)
def test_bad_values(parse: Callable[[str], object], texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(PageferryError) as caught:
            parse(text)
        assert caught.value.code == 2


def rows_of(name: str, *lines: Timed) -> list[Row]:
    made = spec.load(name).make_rows
    assert made is not None
    plan = LatencyPlan(cases=(CASE,)) if name == "latency" else parsed(name)
    return made(plan, lines)


def parsed(name: str, *argv: str) -> Plan:
    """Make a plan from a command line."""
    bench = spec.load(name)
    parser = argparse.ArgumentParser()
    add_arguments(parser, bench)
    assert bench.make_plan is not None
    args = parser.parse_args(["--vm", *argv])
    where.choose_nodes(args, bench.default_nodes)
    return bench.make_plan(args)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("move_pages", measurement("stock", 9)),
        ("hugetlb", measurement("stock", 9)),
        ("latency", measured(CASE, 0, 1, 9)),
        ("demotion", call("stock", "one page per call", 9)),
        ("demotion", demotion("stock", 9)),
        ("promotion", promotion("stock", 9)),
        ("compaction", compaction("stock", 9)),
    ],
)
def test_what_says_nothing_is_a_failure(name: str, line: Timed) -> None:
    (row,) = rows_of(name, line, msgspec.structs.replace(line, round=0))
    assert (row.rounds, row.verified) == (1, True)
    with pytest.raises(PageferryError, match="not verified"):
        rows_of(name, msgspec.structs.replace(line, verified=False))
    times = {"elapsed_ns", "moving_ns", "wall_ns"} & set(line.__struct_fields__)
    with pytest.raises(PageferryError, match="the clock stood still"):
        rows_of(name, msgspec.structs.replace(line, **dict.fromkeys(times, 0)))
    if name == "compaction":
        with pytest.raises(PageferryError, match="nothing was allocated"):
            rows_of(name, msgspec.structs.replace(line, allocated=0))


@pytest.mark.parametrize(
    ("name", "argv", "written"),
    [
        ("move_pages", (), ["hugepages-*kB/enabled"]),
        ("hugetlb", ("--sizes=1G",), ["nr_hugepages", "timeout_ms"]),
        ("demotion", (), ["tracefs", "cgroup.subtree_control"]),
        ("promotion", (), ["scan_delay_ms"]),
        ("compaction", ("--channel-percent=175",), ["compaction_proactiveness"]),
    ],
)
def test_what_is_written_on_a_live_machine_is_said(
    name: str, argv: tuple[str, ...], written: list[str]
) -> None:
    plan = parsed(name, "--max-unmapped-us=4000", *argv)
    job = Job(spec.load(name), plan, argparse.Namespace(), None, BuildRequest())
    said = "\n".join(job.dry_run())
    for words in ("engine_of/*", "max_unmapped_us", *written):
        assert said.index(words) < said.index("restore all of them")
    assert ("tracefs" in said) == (name == "demotion")
    assert ("compact_memory" in said) == (name != "compaction")
    if name == "compaction":
        # These cases use the rate with which dmasim was loaded.
        rates = "chan*/bandwidth_mbps"
        assert said.index("restore all of them") < said.index(rates)
