# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry compare` runs real programs on a fake machine."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from helpers import fake_watch
from helpers.fake_process import BASE, FakeMover, add_area, add_process, set_flags
from pageferry.cli import main
from pageferry.compare import cgroup, machine, pressure, report, runs
from pageferry.compare.figures import Figure
from pageferry.compare.machine import Machine
from pageferry.compare.pressure import COMPACT, Target
from pageferry.compare.runs import Job
from pageferry.errors import PageferryError
from pageferry.sysfs import pagebits
from pageferry.sysfs.files import Files
from pageferry.sysfs.memory import BALANCING, DEMOTION
from pageferry.sysfs.pagebits import EXCLUSIVE, PAGE

GROUP = "/sys/fs/cgroup/mine"
MACHINE = Machine("6.12.117", "a processor", 2)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A machine with two nodes and the engines of our kernel."""
    fake_watch.write(tmp_path, fake_watch.STOCK)
    fake_watch.write(
        tmp_path, {f"{fake_watch.OFFLOAD}/{k}": v for k, v in fake_watch.OURS.items()}
    )
    fake_watch.write(tmp_path, {BALANCING[1:]: "1", COMPACT[1:]: "0"})
    fake_watch.write(tmp_path, {DEMOTION[1:]: "false"})
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    monkeypatch.setattr(pressure, "_EVERY_S", 0.001)
    return Files(tmp_path)


def tiers(root: Path) -> None:
    top = "sys/devices/virtual/memory_tiering"
    fake_watch.write(root, {f"{top}/memory_tier4/nodelist": "0"})
    fake_watch.write(root, {f"{top}/memory_tier22/nodelist": "2"})


def program(root: Path) -> list[str]:
    """A program that notes the engine, and prints a number."""
    engine = root / fake_watch.OFFLOAD / "engine"
    notes = root / "notes"
    return ["--", "sh", "-c", f"cat {engine} >> {notes}; sleep 0.05; echo rate: 5"]


def test_each_engine_runs_in_each_round(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--engines", "none,mtcopy", "--rounds", "3", "--pressure", "compaction"]
    words += ["--match", r"rate: (\d+)", "--json"]
    assert main(["compare", *words, *program(files.root)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["compared_with"] == "none"
    rows = {row["name"]: row for row in found["figures"]}
    for row in rows.values():
        assert [len(one["values"]) for one in row["variants"]] == [3, 3, 3]
    assert [one["median"] for one in rows["match"]["variants"]] == [5, 5, 5]
    assert all(one["min"] > 0.05 for one in rows["wall time"]["variants"])
    assert all(one["min"] > 0 for one in rows["copy rate of a neighbour"]["variants"])
    # A quiet run keeps the engine of the run before it.
    used = (files.root / "notes").read_text().split()
    assert used == [
        *("mtcopy", "mtcopy", "none", "mtcopy"),
        *("none", "mtcopy", "mtcopy"),
        *("mtcopy", "mtcopy", "none"),
    ]
    assert files.read(f"/{fake_watch.OFFLOAD}/engine") == "mtcopy"
    # The pressure was there, and the settings are as before.
    assert files.read(COMPACT) == "1"
    assert files.read(BALANCING) == "1"


def test_a_stock_kernel_has_one_engine(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.path(f"/{fake_watch.OFFLOAD}").rename(files.root / "away")
    words = ["--rounds", "1", "--pressure", "compaction", "--", "true"]
    assert main(["compare", *words]) == 0
    told = capsys.readouterr().out
    assert "stock" in told and "quiet" in told
    assert "not visible: waits" in told


def test_a_dry_run_writes_nothing(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    tiers(files.root)
    words = ["--dry-run", "--pressure", "both", "--rounds", "2"]
    assert main(["compare", *words, *program(files.root)]) == 0
    told = capsys.readouterr().out
    assert "round 2: none, cpu, mtcopy, quiet" in told
    assert f"write 2 to {BALANCING}" in told
    assert "write 100 to /sys/kernel/debug/sched/numa_balancing/scan_delay_ms" in told
    assert not (files.root / "notes").exists()
    assert files.read(BALANCING) == "1"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "needs a program"),
        (["--", "no-such-program"], 2, "no such program"),
        (["--engines", "x", "--", "true"], 2, "no such engine"),
        (["--match", "(", "--", "true"], 2, "not a regular expression"),
        (["--rounds", "0", "--", "true"], 2, "--rounds"),
        (["--pressure", "demote", "--", "true"], 3, "one memory tier"),
        (["--", "sh", "-c", "echo broken; exit 3"], 1, "exit code 3"),
        (["--match", "(9)", "--rounds", "1", "--", "true"], 1, "no number"),
    ],
)
def test_errors(
    files: Files,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    told: str,
) -> None:
    assert main(["compare", *words]) == code
    assert told in capsys.readouterr().err
    assert files.read(BALANCING) == "1"


def test_demotion_needs_a_cgroup(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    tiers(files.root)
    assert main(["compare", "--pressure", "demote", "--", "true"]) == 1
    assert "cannot make a cgroup" in capsys.readouterr().err
    assert files.read(DEMOTION) in ("false", "0")


def test_one_node_is_too_few(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.path("/sys/devices/system/node/node2/meminfo").unlink()
    assert main(["compare", "--", "true"]) == 3
    assert "one node with memory" in capsys.readouterr().err


def test_the_program_joins_its_cgroup(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A real cgroup takes its files with it.
    monkeypatch.setattr(cgroup, "_WAIT_S", 0)
    top = "sys/fs/cgroup"
    fake_watch.write(files.root, {f"{top}/cgroup.controllers": "cpu memory"})
    fake_watch.write(files.root, {f"{top}/cgroup.subtree_control": ""})
    with cgroup.made(files, memory=True) as group:
        assert group is not None and files.exists(group)
        assert files.read(f"/{top}/cgroup.subtree_control") == "+memory"
    assert not files.exists(group)
    job = Job(("sh", "-c", "true"), "compaction", (0, 2), None)
    found = runs.run(files, job, quiet=True)
    # The fake file of the cgroup keeps the PID that the shell wrote.
    (procs,) = files.root.glob(f"{top}/pageferry-compare-*/cgroup.procs")
    assert procs.read_text().strip().isdecimal()
    assert found[runs.WALL] > 0


@pytest.mark.parametrize(
    ("memory", "parent"), [(False, "/work.slice/mine"), (True, "/work.slice")]
)
def test_the_limits_around_the_command_hold_for_the_program(
    files: Files, monkeypatch: pytest.MonkeyPatch, memory: bool, parent: str
) -> None:
    monkeypatch.setattr(cgroup, "_WAIT_S", 0)
    top = "sys/fs/cgroup"
    fake_watch.write(files.root, {"proc/self/cgroup": "0::/work.slice/mine"})
    for name in ("work.slice", "work.slice/mine"):
        fake_watch.write(files.root, {f"{top}/{name}/cgroup.controllers": "memory"})
    fake_watch.write(files.root, {f"{top}/work.slice/cgroup.subtree_control": "memory"})
    fake_watch.write(files.root, {f"{top}/work.slice/memory.max": "4096"})
    fake_watch.write(files.root, {f"{top}/work.slice/mine/cpu.max": "max 100000"})
    with cgroup.made(files, memory=memory) as group:
        assert group is not None and files.path(group).parent == files.path(
            f"/{top}{parent}"
        )
    limit = f"{top}/work.slice/mine/memory.max"
    fake_watch.write(files.root, {limit: "max"})
    with cgroup.made(files, memory=memory) as group:
        assert group is not None
    # Beside this cgroup, its own limit would not hold.
    fake_watch.write(files.root, {limit: "4096"})
    with contextlib.ExitStack() as stack:
        if memory:
            stack.enter_context(pytest.raises(PageferryError, match="without a limit"))
        with cgroup.made(files, memory=memory) as group:
            assert group is not None and not memory


def test_demotion_does_not_swap(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """memory.reclaim would swap out what finds no room on the slow tier."""
    monkeypatch.setattr(cgroup, "_WAIT_S", 0)
    top = "sys/fs/cgroup"
    fake_watch.write(files.root, {f"{top}/cgroup.controllers": "memory"})
    fake_watch.write(files.root, {f"{top}/cgroup.subtree_control": "memory"})
    name = cgroup.name(files, memory=True)
    fake_watch.write(files.root, {f"{name[1:]}/memory.swap.max": "max"})
    with cgroup.made(files, memory=True):
        assert files.read(f"{name}/memory.swap.max") == "0"


def target(files: Files, mover: FakeMover) -> Target:
    return Target(files, 42, GROUP, (0, 2), mover)


def test_memory_moves_there_and_back(files: Files) -> None:
    add_process(files, 42)
    add_process(files, 43, parent=42)
    add_process(files, 44)
    for pid, frame in ((42, 100), (43, 101), (44, 102)):
        add_area(files, pid, BASE + pid * PAGE, [frame | EXCLUSIVE])
        set_flags(files, frame, [pagebits.ANON | pagebits.LRU])
    mover = FakeMover()
    made = target(files, mover)
    for turn in range(2):
        made.turn = turn
        pressure.KINDS["move"].act(made)
    ours = [BASE + pid * PAGE for pid in (42, 43)]
    assert mover.moves == [*((a, 2) for a in ours), *((a, 0) for a in ours)]


@pytest.mark.parametrize("name", ["demote", "both"])
def test_a_part_of_the_memory_is_demoted(files: Files, name: str) -> None:
    fake_watch.write(files.root, {f"{GROUP[1:]}/memory.current": "1000"})
    made = target(files, FakeMover())
    for turn in range(2):
        fake_watch.write(files.root, {f"{GROUP[1:]}/memory.reclaim": ""})
        made.turn = turn
        pressure.KINDS[name].act(made)
        assert files.read(f"{GROUP}/memory.reclaim") == "250"


def test_promotion_finds_all_memory_on_the_slow_tier(files: Files) -> None:
    """Reclaim does not demote what the program uses all the time."""
    tiers(files.root)
    add_process(files, 42)
    add_area(files, 42, BASE, [100 | EXCLUSIVE])
    set_flags(files, 100, [pagebits.ANON | pagebits.LRU])
    mover = FakeMover()
    made = target(files, mover)
    for turn in range(4):
        made.turn = turn
        pressure.KINDS["promote"].act(made)
        # Linux has promoted the page meanwhile.
        mover.where[BASE] = 0
        assert len(mover.moves) == (1 if turn < 3 else 2)
    assert mover.moves == [(BASE, 2)] * 2


def test_ctrl_c_does_not_wait_for_all_of_the_memory(files: Files) -> None:
    fake_watch.write(files.root, {f"{GROUP[1:]}/memory.current": str(1 << 40)})
    fake_watch.write(files.root, {f"{GROUP[1:]}/memory.reclaim": ""})
    made = target(files, FakeMover())
    written = []

    def write(name: str, value: str) -> None:
        written.append(value)
        made.stop.set()

    made.files.write = write  # type: ignore[method-assign]
    pressure.KINDS["demote"].act(made)
    assert written == [str(256 << 20)]


def test_a_failure_of_the_pressure_ends_the_run(files: Files) -> None:
    files.path(COMPACT).unlink()
    made = target(files, FakeMover())
    write, tried = made.files.write, threading.Event()

    def write_and_tell(name: str, value: str) -> None:
        tried.set()
        write(name, value)

    made.files.write = write_and_tell  # type: ignore[method-assign]
    with pytest.raises(Exception, match="compact_memory"):  # noqa: SIM117
        with pressure.running(made, "compaction"):
            assert tried.wait(30)


def test_verdicts() -> None:
    rate, wall = Figure("match", ""), runs.WALL
    found = {
        "quiet": [{rate: 9.0, wall: 1.0, runs.MIGRATED: 0.0}] * 4,
        "none": [{rate: 5.0, wall: 2.0, runs.MIGRATED: 10.0}] * 4,
        "mtcopy": [
            {rate: 6.0, wall: 1.5, runs.MIGRATED: 20.0},
            {rate: 7.0, wall: 2.5, runs.MIGRATED: 20.0},
        ]
        * 2,
    }
    job = Job(("work",), "move", (0, 2), None)
    said: Any = report.document(job, found, MACHINE)
    verdicts = {
        row["name"]: {one["variant"]: one["verdict"] for one in row["variants"]}
        for row in said["figures"]
    }
    assert verdicts["match"] == {"quiet": "better", "none": "equal", "mtcopy": "better"}
    assert verdicts["wall time"]["mtcopy"].startswith("noise")
    assert verdicts["migrated"]["mtcopy"] == ""
    shown = report.text(job, found, MACHINE, stock=False)
    assert "6.5 (6..7)" in shown and "not visible" not in shown
    assert "warning: runs of less than 3 s" in shown
    found["none"] = [{**one, wall: 5.0} for one in found["none"]]
    assert "warning" not in report.text(job, found, MACHINE, stock=False)


def test_few_rounds_give_no_verdict() -> None:
    """The ranges of 3 rounds are apart by chance once in 10 cases."""
    wall = runs.WALL
    found = {
        "none": [{wall: 4.0 + at, runs.MIGRATED: 10.0} for at in range(3)],
        "mtcopy": [{wall: 9.0 + at, runs.MIGRATED: 10.0} for at in range(3)],
    }
    job = Job(("work",), "move", (0, 2), None)
    assert "few rounds" in report.text(job, found, MACHINE, stock=False).splitlines()[3]
    for name in found:
        found[name].append(found[name][0])
    said: Any = report.document(job, found, MACHINE)
    assert said["figures"][0]["variants"][1]["verdict"] == "worse"


def test_a_run_without_migration_says_nothing_about_engines() -> None:
    """The program may be on a node that the pressure does not use."""
    job = Job(("work",), "move", (0, 2), None)
    found = {
        name: [{runs.WALL: 9.0, runs.MIGRATED: moved}] * 4
        for name, moved in (("quiet", 3.0), ("none", 4.0), ("mtcopy", 4.0))
    }
    said: Any = report.document(job, found, MACHINE)
    assert "hardly any memory migrated" in said["warnings"][0]
    assert "warning: hardly any" in report.text(job, found, MACHINE, stock=False)
    found["none"] = [{runs.WALL: 9.0, runs.MIGRATED: 40.0}] * 4
    assert "warning" not in report.text(job, found, MACHINE, stock=False)


def test_emulated_cpus_have_a_warning(files: Files) -> None:
    name = "QEMU TCG CPU version 2.5+"
    fake_watch.write(files.root, {"proc/cpuinfo": f"model name\t: {name}"})
    known = machine.read(files)
    assert (known.cpu, known.emulated, MACHINE.emulated) == (name, True, False)
    job = Job(("work",), "move", (0, 2), None)
    found = {"stock": [{runs.WALL: 9.0, runs.MIGRATED: 40.0}]}
    said: Any = report.document(job, found, known)
    assert said["machine"]["cpu"] == name
    assert "emulated" in said["warnings"][0]
    assert "warning: emulated" in report.text(job, found, known, stock=True)


def test_the_neighbour_counts_its_copies() -> None:
    with runs._neighbour() as process:
        # It copies once at least, however early the signal comes.
        assert runs._rate(process) > 0


def test_a_neighbour_that_was_killed(files: Files) -> None:
    with runs._neighbour() as process:
        process.kill()
        process.wait()
        with pytest.raises(PageferryError, match="ended early"):
            runs._rate(process)


def test_the_processes_of_another_namespace(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its numbers would name other processes, whose memory would move."""
    files.path("/proc/self").symlink_to("1")
    assert main(["compare", "--", "true"]) == 1
    assert "another PID namespace" in capsys.readouterr().err
