# SPDX-License-Identifier: GPL-2.0-only
"""Short real runs of the benchmarks: content, output and rejected cases."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import guests
from pageferry.bench import build
from pageferry.bench.cost.rows import (
    BESIDES_COPY,
    BESIDES_COPY_OF,
    MOVE_PAGES,
    PAGES,
    PATHS,
)
from pageferry.bench.lines import Failure, parse_line
from pageferry.cli import main
from pageferry.kernel import bases
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import Result, Row, decode

pytestmark = pytest.mark.vm

MIB = 1 << 20
BESIDES = BESIDES_COPY_OF.get(bases.DEFAULT, BESIDES_COPY)
Rows = dict[tuple[str, int], Row]


def bench(
    capsys: pytest.CaptureFixture[str], output: Path, *argv: str
) -> tuple[Result, str]:
    """Run a benchmark and return its document, which must equal the stored one."""
    capsys.readouterr()
    code = main([*argv, "--json", "--output", str(output)])
    said = capsys.readouterr()
    assert code == 0, said.err
    result = decode(said.out)
    assert result == decode(output.read_bytes())
    return result, said.err


def test_every_engine_moves_and_is_verified(
    kernel_vm: BuiltKernel, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    result, said = bench(
        capsys,
        tmp_path / "result.json",
        *("bench", "move-pages", "--vm", "--total", "8M", "--rounds", "2"),
        *("--busy", "--published"),
    )
    rows = {(r.engine, r.threads, r.folio_bytes, r.busy): r for r in result.rows}
    for size in (4096, 65536, 2 * MIB):
        for busy in (False, True):
            for variant in (("stock", 1), ("cpu", 1), ("mtcopy", 2), ("limit", 2)):
                row = rows[(*variant, size, busy)]
                assert row.verified
                assert row.rounds == 2
                assert row.moved_bytes == 8 * MIB
                assert row.bytes_per_s is not None
                assert row.bytes_per_s.min > 0
            # Fresh memory each time: no earlier move can have split it.
            assert rows["mtcopy", 2, size, busy].split_folios == 0
            # The engine's own counter shows that it copied.
            assert rows["cpu", 1, size, busy].engine_bytes == 2 * 8 * MIB
    assert "warning: 2 rounds are few" in said
    assert result.command[:4] == ["pageferry", "bench", "move-pages", "--vm"]
    assert result.kernel.release == kernel_vm.release
    assert result.kernel.vanilla is False
    assert result.kernel.config_sha256
    assert result.machine.topology == "two-node"
    assert result.published


def test_vanilla_kernel_has_a_baseline_and_no_engines(
    kernel_vanilla: BuiltKernel, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    small = ("--vm", "--vanilla", "--total", "4M", "--rounds", "1", "--sizes", "64K")
    result, _ = bench(
        capsys,
        tmp_path / "result.json",
        *("bench", "move-pages", *small, "--engines", "stock", "--no-limit"),
    )
    (row,) = result.rows
    assert row.engine == "stock"
    assert result.kernel.release == kernel_vanilla.release
    code = main(["bench", "move-pages", *small, "--engines", "cpu", "--json"])
    said = capsys.readouterr()
    assert code == 3
    assert "/sys/kernel/mm/migrate_offload" in said.err
    assert json.loads(said.out)["error"]["exit_code"] == 3


# All settings that the program may pin, as the guest's shell reads them.
SETTINGS = (
    "cat /sys/kernel/mm/migrate_offload/engine "
    "/sys/kernel/debug/migrate_offload/verify "
    "/sys/module/mtcopy/parameters/max_threads "
    "/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled "
    "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag"
)
ENDINGS = {"end": 0, "INT": 130, "TERM": 143}
SABOTAGE = ("content", "node")


def settings_script(program: Path, ending: str) -> str:
    """Check that settings are restored, however the program ends."""
    engine = "/sys/kernel/mm/migrate_offload/engine"
    rounds = "1" if ending == "end" else "1000"
    script = f"""
        echo cpu >{engine}; echo 5 >/sys/module/mtcopy/parameters/max_threads
        echo 1 >/sys/kernel/debug/migrate_offload/verify
        {SETTINGS} >/tmp/before
        {program} --variants=mtcopy:threads=2 --sizes=64K --total-bytes=4M \
            --busy=both --rounds={rounds} >/tmp/lines & child=$!
        if [ {ending} != end ]; then
            until [ "$(cat {engine})" = mtcopy ]; do sleep 0.1; done
            kill -{ending} $child
        fi
        wait $child; echo "status $?"
        {SETTINGS} >/tmp/after
        diff /tmp/before /tmp/after && echo same
        pgrep -c move_pages
    """
    # A shell starts background jobs with SIGINT ignored; bash with job control does
    # not.
    return guests.program(shlex.join(("bash", "-mc", script)))


@pytest.fixture(scope="module")
def small_runs(kernel_vm: BuiltKernel) -> guests.Steps:
    """Runs of the program that take no time, in one boot."""
    program = build.build() / "move_pages"
    small = f"{program} --sizes=64K --rounds=1 --total-bytes=4M"
    spoilt = "--variants=mtcopy:threads=2 --sabotage"
    steps = {
        "modules": "modprobe mtcopy && echo loaded",
        **{f"settings {how}": settings_script(program, how) for how in ENDINGS},
        **{what: guests.program(f"{small} {spoilt}={what}") for what in SABOTAGE},
        "no room": guests.program(f"{small} --total-bytes=8G"),
        "unknown": guests.program(f"{small} --variants=stock,warp"),
    }
    run = guests.boot_once(kernel_vm, steps)
    run.is_well()
    return run


@pytest.mark.parametrize("what", SABOTAGE)
def test_a_spoilt_page_fails_the_run(small_runs: guests.Steps, what: str) -> None:
    """The check works: it finds one wrong bit, or one page left behind."""
    code, lines, said = small_runs.ended(what)
    assert code == 1
    last = parse_line(lines[-1])
    assert isinstance(last, Failure)
    assert f"{4 * MIB - 1}" in last.message or "on node 0, not 1" in last.message
    assert "error: " in said


def test_no_room_on_the_target_node(small_runs: guests.Steps) -> None:
    code, lines, said = small_runs.ended("no room")
    assert code == 3
    assert "bytes free" in said
    assert isinstance(parse_line(lines[-1]), Failure)


def test_unknown_engine_on_the_target(small_runs: guests.Steps) -> None:
    code, _, said = small_runs.ended("unknown")
    assert code == 3
    assert "warp" in said
    assert "mtcopy" in said


@pytest.mark.parametrize("ending", list(ENDINGS))
def test_settings_come_back(small_runs: guests.Steps, ending: str) -> None:
    _, lines, said = small_runs.ended(f"settings {ending}")
    assert lines == [f"status {ENDINGS[ending]}", "same", "0"], said


def test_interrupt_leaves_nothing_running(
    kernel_vm: BuiltKernel, tmp_path: Path
) -> None:
    output = tmp_path / "result.json"
    argv = [sys.executable, "-m", "pageferry", "bench", "move-pages", "--vm"]
    argv += ["--rounds", "1000", "--output", str(output)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("booting"):
                    break
            deadline = time.monotonic() + 120
            while not descendants(process.pid) and time.monotonic() < deadline:
                time.sleep(0.1)
            children = descendants(process.pid)
            assert children
            time.sleep(5)
            children |= descendants(process.pid)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
    # A process that was killed may take a moment to free its memory.
    deadline = time.monotonic() + 60
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in children if alive(pid)]
    assert not output.exists()


def descendants(pid: int) -> set[int]:
    """List the descendants of a process."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        tasks = Path(f"/proc/{waiting.pop()}/task")
        try:
            text = " ".join((t / "children").read_text() for t in tasks.iterdir())
        except OSError:
            continue
        fresh = {int(word) for word in text.split()} - found
        found |= fresh
        waiting += fresh
    return found


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not count."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


@pytest.fixture(scope="module")
def once(kernel_vm: BuiltKernel, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The cost of a copy by the engine "cpu", and of an engine that declines."""
    path = tmp_path_factory.mktemp("once") / "result.json"
    argv = ("bench", "cost", "--engines", "cpu,mtcopy", "--layouts", "1")
    assert main([*argv, "--output", str(path)]) == 0
    rows = decode(path.read_bytes()).rows
    return {(row.engine, row.folio_bytes): row for row in rows}


def test_off_costs_nothing(
    kernel_vm: BuiltKernel,
    kernel_vanilla: BuiltKernel,
    once: Rows,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Within 0.5% of stock at 4K and 0.1% at 2M, over five memory layouts.

    These limits hold with everything turned off. Without an engine, 4K pages move in
    runs, with at most 1,255 instructions besides the copy. mtcopy costs next to nothing
    where it finds no idle CPU: here with one CPU, and with other work on all CPUs.
    """
    argv = ("bench", "cost", "--engines", "stock,unbatched,off", "--layouts", "5")
    result, _ = bench(capsys, tmp_path / "result.json", *argv, "--check")
    rows = {(row.engine, row.folio_bytes): row for row in result.rows}
    assert all(row.verified for row in result.rows)
    for size, tolerance in ((4096, 0.005), (2 * MIB, 0.001)):
        stock, unbatched = rows["stock", size], rows["unbatched", size]
        off, declined = rows["off", size], once["mtcopy", size]
        assert stock.layouts == unbatched.layouts == off.layouts == 5
        assert unbatched.ratio_to_stock is not None
        assert off.ratio_to_stock is not None
        assert abs(unbatched.ratio_to_stock - 1) <= tolerance
        assert off.ratio_to_stock - 1 <= tolerance
        assert declined.verified
        assert declined.engine_bytes == 0
        assert stock.instructions_per_folio is not None
        assert declined.instructions_per_folio is not None
        assert declined.instructions_per_folio <= stock.instructions_per_folio / 0.97
    small = rows["off", 4096].instructions_per_folio
    copy = once["cpu", 4096].copy_instructions
    assert small is not None
    assert copy is not None
    assert small - copy <= BESIDES["runs"]
    assert result.kernel.release == kernel_vm.release
    assert result.stock_kernel is not None
    assert result.stock_kernel.release == kernel_vanilla.release


def test_other_paths_cost_what_they_do_on_stock(
    kernel_vm: BuiltKernel,
    kernel_vanilla: BuiltKernel,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Within 3% with one layout. Promotion moves one folio at a time."""
    others = [path for path in PATHS if path != MOVE_PAGES]
    result, _ = bench(
        capsys,
        tmp_path / "result.json",
        *("bench", "cost", "--engines", "stock,unbatched,off", "--layouts", "1"),
        *("--paths", ",".join(others)),
    )
    rows = {(row.path, row.engine): row for row in result.rows}
    assert result.machine.topology == "tiered-cost"
    assert len(rows) == 3 * len(others)
    for path in others:
        stock, unbatched, off = (
            rows[path, engine] for engine in ("stock", "unbatched", "off")
        )
        assert stock.verified and unbatched.verified and off.verified
        assert stock.folio_bytes == (2 * MIB if path == "hugetlb" else 4096)
        assert unbatched.ratio_to_stock == pytest.approx(1, abs=0.03)
        assert off.ratio_to_stock is not None
        assert off.ratio_to_stock <= 1.03


def test_pages_that_cannot_move_in_runs_cost_no_more(
    kernel_vm: BuiltKernel,
    kernel_vanilla: BuiltKernel,
    once: Rows,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """At most 2% more than on stock. Pages in random order save some."""
    result, _ = bench(
        capsys,
        tmp_path / "result.json",
        *("bench", "cost", "--engines", "stock,off", "--sizes", "4K"),
        *("--pages", ",".join(page for page in PAGES if page != "runs")),
        *("--layouts", "1", "--check"),
    )
    rows = {(row.engine, row.pages): row for row in result.rows}
    assert all(row.verified for row in result.rows)
    for pages in sorted({*PAGES} - {*BESIDES}):
        ratio = rows["off", pages].ratio_to_stock
        assert ratio is not None
        assert ratio <= 1.02
    # The order does not matter, as the copy is the same.
    copy = once["cpu", 4096].copy_instructions
    assert copy is not None
    for pages in sorted({*BESIDES} & {*PAGES} - {"runs"}):
        counted = rows["off", pages].instructions_per_folio
        assert counted is not None
        assert counted - copy <= BESIDES[pages]


def test_large_folios_migrate_in_runs(
    kernel_vm: BuiltKernel, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # The bounds are of runs that begin with 4K, and leave its free lists.
    argv = ("bench", "cost", "--engines", "off,cpu", "--layouts", "1")
    sizes = ("--sizes", "4K,16K,64K")
    result, _ = bench(capsys, tmp_path / "result.json", *argv, *sizes)
    rows = {(row.engine, row.folio_bytes): row for row in result.rows}
    for size in (16, 64):
        row = rows["off", size * 1024]
        assert row.verified
        assert row.split_folios == 0
        assert row.instructions_per_folio is not None
        assert row.copy_instructions is not None
        taken = row.instructions_per_folio - row.copy_instructions
        assert taken <= BESIDES[f"{size}K"]
