# SPDX-License-Identifier: GPL-2.0-only
"""Short real runs of `bench latency`: measurements and checks."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from conftest import RunInVm
from helpers import guests
from pageferry.bench import build
from pageferry.bench.latency.rows import Latency
from pageferry.bench.lines import Failure, parse_line
from pageferry.cli import main
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import Result, Row, decode

pytestmark = pytest.mark.vm

MIB = 1 << 20
ROUNDS = 3


@pytest.fixture(scope="module")
def result(kernel_vm: BuiltKernel, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """All engines, with few channels and little memory; one boot."""
    path = tmp_path_factory.mktemp("latency") / "result.json"
    code = main(
        [
            *("bench", "latency", "--vm", "--total", "8M"),
            *("--rounds", str(ROUNDS)),
            *("--engines", "stock,cpu,mtcopy,dcbm", "--channels", "4"),
            *("--windows", "1,2", "--touch", "write", "--output", str(path)),
        ]
    )
    assert code == 0
    return decode(path.read_bytes())


def all_rows(result: Result) -> list[tuple[str, Row]]:
    return [
        (str([r.engine, r.folio_bytes, r.latency.max_windows]), r) for r in result.rows
    ]


def test_every_engine_is_measured(result: Result) -> None:
    # Stock once, and three engines with one and with two windows.
    assert len(result.rows) == 2 * (1 + 3 * 2)
    assert {row.engine for row in result.rows} == {"stock", "cpu", "mtcopy", "dcbm"}
    for name, row in all_rows(result):
        assert row.verified, name
        assert row.rounds == ROUNDS
        assert row.moved_bytes == 8 * MIB
        assert row.split_folios == 0, name
        assert row.bytes_per_s is not None
        assert row.bytes_per_s.min > 0


def test_folios_were_out_of_reach_for_a_while(result: Result) -> None:
    for name, row in all_rows(result):
        times, most = row.unmapped_ns, row.latency.unmapped_ns_max
        assert times is not None, name
        assert most is not None
        assert times.p50 is not None
        assert 0 < times.p50 <= times.p99 <= times.last, name
        assert 0 < times.mean <= times.last, name
        # No folio was unmapped for longer than the whole call.
        assert row.bytes_per_s is not None
        all_of_it_ns = row.moved_bytes * 1e9 / row.bytes_per_s.min
        assert most.last <= 1.2 * all_of_it_ns, name
        # The first folio came back, and not before the start.
        assert times.first is not None, name
        assert 0 < times.first <= all_of_it_ns, name


def test_limits_are_those_of_the_engine(result: Result) -> None:
    for name, row in all_rows(result):
        if row.engine == "stock":
            assert row.latency.max_windows is None
            continue
        assert row.latency.batch_cap_pages == 512, name
        assert row.latency.streaming
        assert row.latency.default_limit
        # The kernel has measured the default.
        assert row.latency.max_unmapped_us, name
        # mtcopy declines without an idle CPU, and then no window counts.
        assert row.latency.windows is not None
        if row.engine != "mtcopy":
            assert row.latency.windows.min >= row.moved_bytes // (512 * 4096), name


def test_engines_did_the_copying(kernel_vm: BuiltKernel, tmp_path: Path) -> None:
    """Without a limit, which would leave out an engine on a slow host."""
    path = tmp_path / "result.json"
    code = main(
        [
            *("bench", "latency", "--vm", "--total", "4M", "--rounds", "1"),
            *("--engines", "cpu,dcbm", "--channels", "4", "--windows", "2"),
            *("--limits-us", "0", "--output", str(path)),
        ]
    )
    assert code == 0
    rows = decode(path.read_bytes()).rows
    assert {row.engine for row in rows} == {"cpu", "dcbm"}
    for row in rows:
        assert row.engine_bytes, row.engine


def test_a_program_touched_the_memory(result: Result) -> None:
    for name, row in all_rows(result):
        assert row.touch is not None, name
        # A round takes 10 ms, and another guest may have had the CPU in one of them.
        assert row.touch.touches.max > 0, name
        assert row.touch.quiet_ns < row.touch.threshold_ns
        assert row.touch.slowest_ns >= row.touch.quiet_ns, name
        assert row.touch.lost_ns_all >= row.touch.slept_ns_all, name
        assert row.latency.waited_ns is not None


SABOTAGE = ("content", "node")


def settings_script(program: Path) -> str:
    """Check that settings are restored."""
    here = "/sys/kernel/mm/migrate_offload"
    debug = "/sys/kernel/debug/migrate_offload"
    tracing = "/sys/kernel/tracing"
    shown = f"{here}/* {here}/engine_of/* {debug}/[!b]* {tracing}/options/record-cmd"
    show = f"grep -H . {shown} /sys/module/dcbm/offloading; ls {tracing}/instances"
    script = f"""
        echo cpu >{here}/engine; echo 5 >{debug}/max_windows
        echo 77 >{here}/max_unmapped_us; echo 0 >{debug}/streaming
        {{ {show}; }} >/tmp/before 2>&1
        {program} --rounds=1 --case=engine=mtcopy:threads=2,total=4M,limit=0 \
            --case=engine=stock,total=4M >/tmp/lines; echo "status $?"
        {{ {show}; }} >/tmp/after 2>&1
        diff /tmp/before /tmp/after && echo same
        # To put back what dcbm had makes it the engine of all reasons.
        modprobe dmasim channels=2 && modprobe dcbm
        echo none >{here}/engine; echo 1 >/sys/module/dcbm/offloading
        echo none >{here}/engine; echo dcbm >{here}/engine_of/demotion
        {{ {show}; }} >/tmp/before 2>&1
        {program} --rounds=1 --case=engine=dcbm,total=4M >/tmp/lines; echo "status $?"
        {{ {show}; }} >/tmp/after 2>&1
        diff /tmp/before /tmp/after && echo same
    """
    return guests.program(shlex.join(("bash", "-c", script)))


@pytest.fixture(scope="module")
def small_runs(kernel_vm: BuiltKernel) -> guests.Steps:
    """Runs of the program that take no time, in one boot."""
    program = build.build() / "latency"
    case = "engine=mtcopy:threads=2,folio=4K,total=4M,touch=write"
    spoilt = f"{program} --rounds=1 --case={case} --sabotage"
    steps = {
        "modules": "modprobe mtcopy && echo loaded",
        **{what: guests.program(f"{spoilt}={what}") for what in SABOTAGE},
        # Run this last, because it leaves another engine.
        "settings": settings_script(program),
    }
    run = guests.boot_once(kernel_vm, steps)
    run.is_well()
    return run


@pytest.mark.parametrize("what", SABOTAGE)
def test_a_spoilt_page_fails_the_run(small_runs: guests.Steps, what: str) -> None:
    """The check works, although a thread wrote to the memory meanwhile."""
    code, lines, said = small_runs.ended(what)
    assert code == 1
    last = parse_line(lines[-1])
    assert isinstance(last, Failure)
    assert f"{4 * MIB - 1}" in last.message or "on node 0, not 1" in last.message
    assert "error: " in said


def test_settings_come_back(small_runs: guests.Steps) -> None:
    _, lines, said = small_runs.ended("settings")
    assert lines == 2 * ["status 0", "same"], said


def test_a_vanilla_kernel_has_rates_alone(
    in_vm: RunInVm, kernel_vanilla: BuiltKernel
) -> None:
    program = build.build() / "latency"
    case = "--case=engine=stock,folio=2M,total=4M,touch=read"
    done = in_vm(kernel_vanilla, str(program), "--rounds=1", case)
    assert done.exit_code == 0, done.stderr
    lines = [parse_line(text, Latency) for text in done.stdout.splitlines()]
    found = [line for line in lines if isinstance(line, Latency)]
    assert len(found) == 2
    assert found[1].unmapped_hist is None
    assert found[1].first_ns is None
    assert found[1].touches > 0


def test_channels_get_slower_in_mid_run(
    kernel_vm: BuiltKernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    fixed = ["bench", "latency", "--vm", "--engines", "dcbm", "--channels", "4"]
    fixed += ["--sizes", "2M", "--total", "64M", "--rounds", "1", "--windows", "1"]
    fixed += ["--limits-us", "0", "--channel-mbps", "20", "--output", str(path)]
    assert main([*fixed, "--slow-after-percent", "40", "--json"]) == 0
    capsys.readouterr()
    (row,) = decode(path.read_bytes()).rows
    assert row.latency.slowed is not None
    assert row.latency.slowed.factor == 10
    assert row.latency.slowed.skipped_windows >= 6
    assert row.unmapped_ns is not None
    # 2M by four channels of 2 MB/s, or a large part of that.
    assert row.unmapped_ns.mean > 20_000_000
