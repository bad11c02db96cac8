# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry move` as a command: its checks, its account and its exit codes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_process import (
    BASE,
    FakeMover,
    add_area,
    add_node,
    add_process,
    large,
    set_flags,
)
from pageferry.cli import main
from pageferry.commands import move as command
from pageferry.errors import PageferryError
from pageferry.interleave.moving import UNTRIED
from pageferry.interleave.sessions import Session, Store
from pageferry.move.account import Account
from pageferry.move.mover import NOWHERE
from pageferry.sysfs import pagebits, processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import EXCLUSIVE, PAGE

PID = 42
ANON = pagebits.ANON | pagebits.SWAP_BACKED | pagebits.LRU
WAY = ("--from", "0", "--to", "1")
GROUP = "/sys/fs/cgroup/system.slice/caf\u00e9.service"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeMover:
    """The mover behind the command."""
    fake = FakeMover()
    monkeypatch.setattr(command, "MovePages", lambda files, shared: fake)
    return fake


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A machine with two nodes and one process."""
    files = Files(root=tmp_path)
    for node in (0, 1):
        add_node(files, node)
    add_process(files, PID, name="w\u00f6rk \x1b[2J)")
    frames = [frame | EXCLUSIVE for frame in range(512, 1040)]
    add_area(files, PID, BASE, frames)
    set_flags(files, 512, [*large(9, ANON), *[ANON] * 16])
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    return files


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    """Run the command with --json."""
    code = main(["move", *words, "--json"])
    told = capsys.readouterr()
    return code, json.loads(told.out), told.err


def test_all_of_it_moves(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, _ = run(capsys, "--pid", str(PID), *WAY)
    assert code == 0
    assert found["moved_pages"] == found["found_pages"] == 528
    assert found["kept_pages"] == 0
    assert found["steps"]["count"] == len(fake.steps)
    assert {kind["kind"]: kind["moved_pages"] for kind in found["kinds"]} == {
        "anonymous": 16,
        "anonymous huge": 512,
    }


@pytest.mark.parametrize(
    ("owner", "end"),
    [
        ("", "pageferry interleave stop --pid 42"),
        ("balance", "stop pageferry balance"),
    ],
)
def test_a_session_may_move_the_memory_back(
    files: Files,
    fake: FakeMover,
    capsys: pytest.CaptureFixture[str],
    owner: str,
    end: str,
) -> None:
    process = processes.require(files, PID)
    made = Session(
        pid=PID,
        start_time=process.start_time,
        name="work",
        by="kernel",
        weights=[(0, 1), (1, 1)],
        owner=owner,
    )
    Store(files).save(made)
    code, _, told = run(capsys, "--pid", str(PID), *WAY)
    assert code == 0
    assert f"may move the memory of process 42 back; first {end}" in told
    # The session of an ended process moves nothing.
    made.start_time += 1
    Store(files).save(made)
    assert "back" not in run(capsys, "--pid", str(PID), *WAY)[2]


def test_pinned_pages_are_explained(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.stuck[BASE + 512 * PAGE] = -UNTRIED
    code = main(["move", "--pid", str(PID), *WAY])
    told = capsys.readouterr()
    assert code == 1
    assert "not all of it moved: 4 KiB" in told.err
    assert "1  pinned, or in use by the kernel" in told.out
    assert f"the first at {BASE + 512 * PAGE:x} of process {PID}" in told.out
    assert "1 by an unknown holder" in told.out
    # The name of the process sends no commands to the terminal.
    assert "w\u00f6rk ?[2J)" in told.out and "\x1b" not in told.out


def test_a_dry_run_says_what_would_move(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["move", "--pid", str(PID), *WAY, "--dry-run"])
    assert code == 0
    assert "2.06 MiB would move from node 0 to 1" in capsys.readouterr().out
    assert not fake.moves


def test_a_signal_ends_the_command_between_steps(
    files: Files,
    fake: FakeMover,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = fake.move

    def interrupted(pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        if list(addresses) != [NOWHERE]:
            os.kill(os.getpid(), signal.SIGINT)
        return step(pid, addresses, node)

    monkeypatch.setattr(fake, "move", interrupted)
    before = signal.getsignal(signal.SIGINT)
    code, found, _ = run(capsys, "--pid", str(PID), *WAY)
    assert code == 130
    assert found["interrupted"]
    assert len(fake.steps) == 1
    reasons = {row["reason"]: row["pages"] for row in found["stayed"]}
    assert reasons["not_tried"] == 528 - found["moved_pages"] > 0
    assert signal.getsignal(signal.SIGINT) is before


def test_a_process_that_ends_is_a_failure(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.ends_after = 1
    code, found, told = run(capsys, "--pid", str(PID), *WAY)
    assert code == 1
    assert found["ended_processes"] == 1
    assert "the process ended meanwhile" in told


def test_a_process_whose_first_thread_has_ended(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    add_process(files, PID, state="Z")
    files.path(f"/proc/{PID}/task/{PID}").mkdir(parents=True)
    files.path(f"/proc/{PID}/task/43").mkdir()
    add_process(files, 43)
    add_area(files, 43, BASE, [100 | EXCLUSIVE])
    set_flags(files, 100, [ANON])
    code, found, _ = run(capsys, "--pid", str(PID), *WAY)
    assert code == 0
    assert found["moved_pages"] == 1


def test_a_cgroup_moves_with_all_its_processes(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    add_process(files, 50)
    add_area(files, 50, BASE + 4096 * PAGE, [100 | EXCLUSIVE])
    set_flags(files, 100, [ANON])
    inner = files.path(f"{GROUP}/inner")
    inner.mkdir(parents=True)
    (inner.parent / "cgroup.procs").write_text(f"{PID}\n999\n")
    (inner / "cgroup.procs").write_text("50\n0\n")
    code, found, _ = run(
        capsys, "--cgroup", GROUP.removeprefix("/sys/fs/cgroup/"), *WAY
    )
    assert code == 0
    assert [process["pid"] for process in found["processes"]] == [PID, 50]
    assert found["moved_pages"] == 529


def test_a_refused_process_does_not_keep_its_cgroup(
    files: Files,
    fake: FakeMover,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_process(files, 50)
    add_area(files, 50, BASE + 4096 * PAGE, [100 | EXCLUSIVE])
    set_flags(files, 100, [ANON])
    files.path(GROUP).mkdir(parents=True)
    files.path(f"{GROUP}/cgroup.procs").write_text(f"{PID}\n50\n")
    step = fake.move

    def refuse(pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        if pid == PID:
            raise PageferryError("may not move pages of this process", value=str(pid))
        return step(pid, addresses, node)

    monkeypatch.setattr(fake, "move", refuse)
    code, found, told = run(capsys, "--cgroup", GROUP, *WAY)
    assert code == 1
    assert found["moved_pages"] == 1
    assert f"may not move pages of this process: {PID}" in told


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--pid", str(PID)], "--from"),
        (["--pid", str(PID), "--from", "0", "--to", "0"], "let no memory move"),
        (["--pid", str(PID), "--from", "0", "--to", "7"], "no such node"),
        (["--pid", str(PID), "--from", "x", "--to", "1"], "not a node list"),
        (["--pid", "77", *WAY], "no such process"),
        (["--pid", "0", *WAY], "number of a process"),
        (["--pid", str(PID), *WAY, "--stall-limit", "0"], "--stall-limit"),
        (["--pid", str(PID), *WAY, "--range", "20-10"], "range of addresses"),
        (["--cgroup", "none", *WAY], "no such cgroup"),
        (["--cgroup", "x", *WAY, "--range", "1-2"], "--range"),
        (["--offline-check", "1", "--from", "0"], "--from"),
        (["--pid", "1", "--cgroup", "x"], "not allowed with"),
    ],
)
def test_usage_errors(
    files: Files,
    fake: FakeMover,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    what: str,
) -> None:
    code, found, _ = run(capsys, *words)
    assert code == 2
    assert what in found["error"]["what"]


def test_shared_pages_move_once(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    add_node(files, 2)
    way = ("--from", "0,1", "--to", "1,2")
    code, found, _ = run(capsys, "--pid", str(PID), *way, "--all")
    assert code == 2
    assert "twice, by node 1" in found["error"]["what"]
    code, found, _ = run(capsys, "--pid", str(PID), *way)
    assert code == 0
    assert found["from"] == [0, 1]


@pytest.mark.parametrize(
    "way", [("--from", "0", "--to", "2"), ("--from", "0,2", "--to", "1")]
)
def test_a_node_without_memory_is_named(
    files: Files,
    fake: FakeMover,
    capsys: pytest.CaptureFixture[str],
    way: tuple[str, ...],
) -> None:
    add_node(files, 2, mib=0)
    code, found, _ = run(capsys, "--pid", str(PID), *way)
    assert code == 2
    assert found["error"]["what"] == "node 2 has no memory"
    assert "nodes with memory here: 0-1" in found["error"]["hint"]
    code, found, _ = run(capsys, "--pid", str(PID), "--from", "!1", "--to", "1")
    assert (code, found["from"]) == (0, [0])


@pytest.mark.parametrize("who", ["self", str(PID)])
def test_a_cpuset_is_named_before_anything_moves(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str], who: str
) -> None:
    files.path(f"/proc/{who}").mkdir(exist_ok=True)
    files.path(f"/proc/{who}/status").write_text("Mems_allowed_list:\t0,2-3\n")
    code, found, _ = run(capsys, "--pid", str(PID), *WAY)
    assert code == 1
    assert found["error"]["value"] == "node 1"
    assert "0,2-3" in found["error"]["reason"]
    assert "cpuset" in found["error"]["hint"]
    assert not fake.moves


def test_all_needs_a_capability(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    files.path("/proc/self").mkdir()
    files.path("/proc/self/status").write_text("CapEff:\t0000000000000000\n")
    code, found, _ = run(capsys, "--pid", str(PID), *WAY, "--all")
    assert code == 1
    assert "CAP_SYS_NICE" in found["error"]["reason"]


def test_the_numbers_of_another_namespace_are_refused(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    files.path("/proc/self").symlink_to("1")
    code, found, _ = run(capsys, "--pid", str(PID), *WAY)
    assert code == 1
    assert "another PID namespace" in found["error"]["what"]
    assert "nsenter" in found["error"]["hint"]


def test_a_container_without_nodes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    code, found, _ = run(capsys, "--pid", "1", *WAY)
    assert code == 3
    assert "no nodes" in found["error"]["what"]


def test_without_root_the_account_says_what_it_cannot_see(
    files: Files, fake: FakeMover, capsys: pytest.CaptureFixture[str]
) -> None:
    files.path("/proc/kpageflags").unlink()
    code, found, _ = run(capsys, "--pid", str(PID), *WAY)
    assert code == 0
    assert found["moved_pages"] == 528
    assert "without root" in found["unseen"][0]


def test_the_progress_shows_the_rate(files: Files, fake: FakeMover) -> None:
    progress = command._Progress(100)
    progress.account = Account()
    progress.account.moved["anonymous"] = 256
    progress.advance(50)
    text = progress.text(progress.start + 2)
    assert text == "50%, 2 s, 1 MiB moved, 0.00 GB/s"
