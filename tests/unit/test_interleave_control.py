# SPDX-License-Identifier: GPL-2.0-only
"""Starting and stopping, with a DAMON that can spread memory and without one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from helpers.fake_damon import FakeDamon
from helpers.fake_process import BASE, FakeMover, add_area, add_node, add_process
from pageferry.cli import main
from pageferry.commands import interleave
from pageferry.damon.admin import SLOTS, TOP
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave import report
from pageferry.interleave.control import Control, Request
from pageferry.interleave.user_space import Quota, Report, parse_quota
from pageferry.interleave.weights import parse_weights
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files

PID = 42
SCHEME = f"{TOP}/0/contexts/0/schemes/0"


def furnish(files: Files) -> None:
    for node in (0, 1):
        add_node(files, node)
    add_process(files, PID)
    add_process(files, 43, parent=PID, name="child) S 1 (")
    add_process(files, 44, parent=43)
    for pid in (PID, 43, 44):
        add_area(files, pid, BASE, list(range(100, 108)))


@pytest.fixture
def damon(tmp_path: Path) -> FakeDamon:
    """A kernel whose DAMON can interleave."""
    files = FakeDamon(root=tmp_path)
    furnish(files)
    return files


@pytest.fixture
def plain(tmp_path: Path) -> Files:
    """A kernel without DAMON."""
    files = Files(root=tmp_path)
    furnish(files)
    return files


@pytest.fixture
def mover() -> FakeMover:
    """Memory, all on node 0."""
    return FakeMover()


def request(weights: str = "0=3,1=1", pid: int = PID, **options: object) -> Request:
    return Request(pid, parse_weights(weights), **options)  # type: ignore[arg-type]


def tree(root: Path, part: str = TOP) -> dict[str, str]:
    top = root / part.lstrip("/")
    return {
        str(path.relative_to(top)): path.read_text().strip()
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }


def test_damon_gets_the_weights(damon: FakeDamon, mover: FakeMover) -> None:
    control = Control(damon, mover)
    done = control.start(request(quota=Quota(100 << 20, 1.0), include_children=True))
    assert done.session.by == "kernel"
    assert damon.running() == ["0"]
    files = tree(damon.root)
    assert files["nr_kdamonds"] == str(SLOTS)
    assert files["0/contexts/0/operations"] == "vaddr"
    pids = [files[f"0/contexts/0/targets/{at}/pid_target"] for at in range(3)]
    assert pids == ["42", "43", "44"]
    scheme = {
        name.removeprefix("0/contexts/0/schemes/0/"): value
        for name, value in files.items()
    }
    assert scheme["action"] == "migrate_hot"
    assert scheme["dests/nr_dests"] == "2"
    assert (scheme["dests/0/id"], scheme["dests/0/weight"]) == ("0", "3")
    assert (scheme["dests/1/id"], scheme["dests/1/weight"]) == ("1", "1")
    assert scheme["quotas/bytes"] == str(100 << 20)
    assert scheme["quotas/reset_interval_ms"] == "1000"
    # Otherwise the hottest memory would use up the quota every time.
    assert scheme["quotas/weights/nr_accesses_permil"] == "0"
    assert scheme["access_pattern/nr_accesses/min"] == "0"
    # Only the kernel moves pages.
    assert mover.moves == []


def test_hot_memory_is_what_was_accessed(damon: FakeDamon, mover: FakeMover) -> None:
    Control(damon, mover).start(request(hot=True, quota=Quota(1 << 20, 1.0)))
    assert damon.read(f"{SCHEME}/access_pattern/nr_accesses/min") == "1"
    assert damon.read(f"{SCHEME}/quotas/weights/nr_accesses_permil") == "1000"


def test_a_quota_is_looked_after_often_enough(
    damon: FakeDamon, mover: FakeMover
) -> None:
    intervals = f"{TOP}/0/contexts/0/monitoring_attrs/intervals"
    control = Control(damon, mover)
    control.start(request())
    assert damon.read(f"{intervals}/aggr_us") == "500000"
    assert damon.read(f"{SCHEME}/quotas/bytes") == "0"
    assert damon.read(f"{SCHEME}/filters/nr_filters") == "0"
    # The scheme leaves out memory that cannot move.
    damon.path(f"/proc/{PID}/maps").write_text(
        "00400000-00404000 r-xp 00000000 00:20 12  /usr/bin/hold\n"
        "20000000-20021000 rw-p 00000000 00:00 0  [heap]\n"
    )
    control.set(PID, parse_weights("0=1,1=1"))
    assert damon.read(f"{SCHEME}/filters/nr_filters") == "0"
    # A short interval becomes longer, at the same rate.
    quotas = {(100 << 20, 1.0): (100 << 20, 1000), (1 << 20, 0.03): (7 << 20, 210)}
    for (size_bytes, interval_s), expected in quotas.items():
        control.set(PID, parse_weights("0=1,1=1"), Quota(size_bytes, interval_s))
        assert damon.read(f"{intervals}/aggr_us") == "100000"
        assert damon.read(f"{intervals}/sample_us") == "20000"
        assert damon.read(f"{SCHEME}/quotas/bytes") == str(expected[0])
        assert damon.read(f"{SCHEME}/quotas/reset_interval_ms") == str(expected[1])
        assert damon.read(f"{SCHEME}/filters/0/type") == "addr"
        assert damon.read(f"{SCHEME}/filters/0/matching") == "Y"
        assert damon.read(f"{SCHEME}/filters/0/addr_start") == str(0x404000)
        assert damon.read(f"{SCHEME}/filters/0/addr_end") == str(0x20000000)


def test_set_commits_and_stop_clears_up(damon: FakeDamon, mover: FakeMover) -> None:
    control = Control(damon, mover)
    control.start(request())
    control.set(PID, parse_weights("0=0,1=1"))
    assert damon.commits == ["commit"]
    assert damon.read(f"{SCHEME}/dests/nr_dests") == "1"
    assert damon.read(f"{SCHEME}/dests/0/id") == "1"
    assert damon.running() == ["0"]
    control.stop(PID)
    assert tree(damon.root) == {"nr_kdamonds": "0"}
    assert control.store.all() == []


def test_several_processes_have_a_kdamond_each(
    damon: FakeDamon, mover: FakeMover
) -> None:
    control = Control(damon, mover)
    control.start(request())
    control.start(request("0=1,1=1", 43))
    assert damon.running() == ["0", "1"]
    with pytest.raises(PageferryError, match="already started") as caught:
        control.start(request())
    assert caught.value.code == ExitCode.USAGE
    control.stop(PID)
    assert damon.running() == ["1"]
    control.stop(43)
    assert tree(damon.root) == {"nr_kdamonds": "0"}


def test_status_of_the_kernel(damon: FakeDamon, mover: FakeMover) -> None:
    control = Control(damon, mover)
    control.start(request())
    document = report.status(control.status(PID))
    assert damon.commits == ["update_schemes_stats"]
    assert document["moved_pages"] == 20
    assert document["left_pages"] == 2
    assert document["nodes"] == [
        {
            "id": 0,
            "weight": 3,
            "wanted_share": 0.75,
            "actual_share": 1.0,
            "pages": 8,
        },
        {
            "id": 1,
            "weight": 1,
            "wanted_share": 0.25,
            "actual_share": 0.0,
            "pages": 0,
        },
    ]
    assert document["unmovable_pages"] == 0


def somebody_elses(damon: FakeDamon, *, running: bool) -> None:
    other = FakeDamon(root=damon.root)
    other.write(f"{TOP}/nr_kdamonds", "2")
    other.write(f"{TOP}/1/contexts/nr_contexts", "1")
    if running:
        other.write(f"{TOP}/1/state", "on")


def test_a_running_kdamond_of_others_is_left_alone(
    damon: FakeDamon, mover: FakeMover
) -> None:
    somebody_elses(damon, running=True)
    before = tree(damon.root)
    control = Control(damon, mover)
    with pytest.raises(PageferryError, match="left alone") as caught:
        control.start(request())
    assert caught.value.code == ExitCode.FAILED
    assert "--by user" in (caught.value.hint or "")
    assert tree(damon.root) == before
    # Without DAMON, no other user of it exists.
    done = control.start(request(by="user"))
    assert done.report is not None and done.report.moved_pages == 2
    assert tree(damon.root) == before
    control.stop(PID)
    assert tree(damon.root) == before


def test_what_others_have_set_up_is_taken_over_only_when_told_to(
    damon: FakeDamon, mover: FakeMover
) -> None:
    somebody_elses(damon, running=False)
    before = tree(damon.root)
    control = Control(damon, mover)
    with pytest.raises(PageferryError, match="without running it") as caught:
        control.start(request())
    assert "--takeover" in (caught.value.hint or "")
    assert tree(damon.root) == before
    control.start(request(takeover=True))
    assert damon.running() == ["0"]


def test_a_kdamond_that_somebody_restarted_is_no_longer_ours(
    damon: FakeDamon, mover: FakeMover
) -> None:
    control = Control(damon, mover)
    control.start(request())
    damon.write(f"{TOP}/0/state", "off")
    damon.write(f"{TOP}/0/state", "on")
    assert not control.is_running(control.store.require(PID))
    with pytest.raises(PageferryError, match="no longer runs"):
        control.set(PID, parse_weights("0=1"))
    control.stop(PID)
    assert damon.running() == ["0"]


@pytest.mark.parametrize("module", ["damon_reclaim", "damon_lru_sort"])
def test_modules_that_use_damon_are_left_alone(
    damon: FakeDamon, mover: FakeMover, module: str
) -> None:
    switch = damon.path(f"/sys/module/{module}/parameters/enabled")
    switch.parent.mkdir(parents=True)
    switch.write_text("Y\n")
    with pytest.raises(PageferryError, match=module.upper()):
        Control(damon, mover).start(request())
    assert tree(damon.root) == {"nr_kdamonds": "0"}


def test_a_damon_without_dests_stays_as_it_was(
    tmp_path: Path, mover: FakeMover
) -> None:
    files = FakeDamon(root=tmp_path, dests=False)
    furnish(files)
    control = Control(files, mover)
    done = control.start(request())
    assert done.session.by == "user"
    assert done.why_user == "its schemes have no dests"
    assert tree(tmp_path) == {"nr_kdamonds": "0"}
    control.stop(PID)
    for options in ({"by": "kernel"}, {"hot": True}):
        with pytest.raises(PageferryError, match="cannot spread") as caught:
            control.start(request(**options))
        assert caught.value.code == ExitCode.UNSUPPORTED
        assert tree(tmp_path) == {"nr_kdamonds": "0"}


def test_a_kernel_without_damon(plain: Files, mover: FakeMover) -> None:
    control = Control(plain, mover)
    done = control.start(request("0=1,1=1"))
    assert "CONFIG_DAMON_VADDR" in (done.why_user or "")
    assert len(mover.moves) == 4
    document = report.outcome(done)
    assert document["moved_pages"] == 4
    control.set(PID, parse_weights("0=3,1=1"))
    assert report.status(control.status(PID))["moved_pages"] == 6
    with pytest.raises(PageferryError, match="cannot spread") as caught:
        control.start(request(pid=43, by="kernel"))
    assert caught.value.code == ExitCode.UNSUPPORTED


def test_memory_comes_home_on_request(plain: Files, mover: FakeMover) -> None:
    control = Control(plain, mover)
    control.start(request("0=0,1=1"))
    assert set(mover.where.values()) == {1}
    _, moved = control.stop(PID, parse_weights("0=1"))
    assert moved.moved_pages == 8
    assert set(mover.where.values()) == {0}


def test_a_full_node_is_noted(plain: Files, mover: FakeMover) -> None:
    mover.free[1] = 3
    control = Control(plain, mover)
    done = control.start(request("0=0,1=1"))
    assert done.report is not None and done.report.no_room == {1: 5}
    assert report.status(control.status(PID))["no_room_pages"] == 5
    assert "20 KiB found no room on node 1" in report.outcome_text(done)


def test_a_worker_hears_of_new_weights_and_of_the_end(
    plain: Files, mover: FakeMover
) -> None:
    add_process(plain, os.getpid())
    control = Control(plain, mover)
    control.start(request("0=1,1=1"), keep_on=True)
    assert control.is_running(control.store.require(PID))
    moved = []

    def say(done: Report) -> None:
        moved.append(done.moved_pages)
        other = Control(plain, mover)
        if len(moved) == 1:
            # The worker does the pass, not the caller.
            assert other.set(PID, parse_weights("0=3,1=1")).report is None
        else:
            other.stop(PID)

    control.keep_on(PID, 5.0, say)
    assert moved == [0, 2]


def test_a_process_that_ends_leaves_a_note(plain: Files, mover: FakeMover) -> None:
    mover.ends_after = 2
    control = Control(plain, mover)
    with pytest.raises(PageferryError, match="ended meanwhile"):
        control.start(request("0=0,1=1", quota=Quota(3 * 4096, 0.001)))
    assert control.store.require(PID).moved_pages == 3


def test_a_process_that_ends_during_a_look_hides_no_other(
    plain: Files,
    mover: FakeMover,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    control = Control(plain, mover)
    for pid in (PID, 43):
        control.start(request(pid=pid))
    query = mover.query

    def end(pid: int, addresses: Sequence[int]) -> Sequence[int]:
        if pid == PID:
            raise processes.ended(pid, "in the test")
        return query(pid, addresses)

    monkeypatch.setattr(mover, "query", end)
    monkeypatch.setattr(interleave, "Files", lambda: plain)
    monkeypatch.setattr(interleave, "MovePages", lambda files: mover)
    assert main(["interleave", "status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["sessions"]
    assert [(one["pid"], one["alive"]) for one in found] == [(PID, False), (43, True)]


def test_a_worker_ends_with_its_process(plain: Files, mover: FakeMover) -> None:
    add_process(plain, os.getpid())
    control = Control(plain, mover)
    control.start(request(), keep_on=True)
    mover.ends_after = 0
    control.keep_on(PID, 5.0, lambda done: pytest.fail("it has ended"))


@pytest.mark.parametrize("verb", ["start", "set"])
def test_damon_takes_the_processes_that_are_left(
    damon: FakeDamon, mover: FakeMover, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A child ends after the list was made."""
    control = Control(damon, mover)
    pids = control.pids

    def then_one_ends(named: Sequence[int], include_children: bool) -> list[int]:
        found = pids(named, include_children)
        damon.path("/proc/43/stat").unlink(missing_ok=True)
        return found

    if verb == "set":
        control.start(request(include_children=True))
    monkeypatch.setattr(control, "pids", then_one_ends)
    if verb == "start":
        control.start(request(include_children=True))
    else:
        control.set(PID, parse_weights("0=1,1=1"))
        assert damon.commits == ["commit"]
    top = f"{TOP}/0/contexts/0/targets"
    targets = [damon.read(f"{top}/{at}/pid_target") for at in range(2)]
    assert targets == ["42", "44"] and damon.read(f"{top}/nr_targets") == "2"
    assert damon.running() == ["0"]


def test_damon_takes_no_process_that_has_ended(
    damon: FakeDamon, mover: FakeMover, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(damon, mover)

    def choose(request: Request, pids: list[int]) -> tuple[str, None]:
        damon.path(f"/proc/{PID}/stat").unlink()
        return "kernel", None

    monkeypatch.setattr(control, "_choose", choose)
    with pytest.raises(PageferryError, match="ended meanwhile"):
        control.start(request())
    assert control.store.all() == [] and damon.read(f"{TOP}/nr_kdamonds") == "0"


def test_a_process_that_ends_before_its_memory_is_looked_at(
    damon: FakeDamon, mover: FakeMover, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(damon, mover)
    control.start(request(pid=43))
    monkeypatch.setattr(control, "sweep", lambda: None)
    monkeypatch.setattr(control, "pids", lambda named, include_children: [])
    with pytest.raises(PageferryError, match="ended meanwhile"):
        control.start(request())
    with pytest.raises(PageferryError, match="ended meanwhile"):
        control.set(43, parse_weights("0=1,1=1"))
    assert damon.running() == ["0"] and damon.commits == []


def test_a_number_that_means_another_process_now(
    plain: Files, mover: FakeMover
) -> None:
    control = Control(plain, mover)
    control.start(request())
    stat = plain.path(f"/proc/{PID}/stat")
    stat.write_text(stat.read_text().replace(str(PID * 10), "999"))
    with pytest.raises(PageferryError, match="nothing was started"):
        control.status(PID)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda files: add_process(files, PID, state="Z"), "has ended"),
        (lambda files: files.path(f"/proc/{PID}/maps").write_text(""), "no memory"),
        (lambda files: files.path(f"/proc/{PID}/stat").unlink(), "no such process"),
    ],
)
def test_processes_without_memory(
    damon: FakeDamon, mover: FakeMover, change: Callable[[Files], object], word: str
) -> None:
    change(damon)
    with pytest.raises(PageferryError, match=word) as caught:
        Control(damon, mover).start(request())
    assert caught.value.code == ExitCode.USAGE
    assert tree(damon.root) == {"nr_kdamonds": "0"}


def test_a_dry_run_shows_every_write_and_does_none(
    damon: FakeDamon, mover: FakeMover
) -> None:
    damon.dry_run = True
    control = Control(damon, mover)
    done = control.start(request(by="kernel"))
    plan = report.plan(done, damon)
    assert tree(damon.root) == {"nr_kdamonds": "0"}
    text = report.plan_text(plan)
    assert text.startswith("all memory of 42 by weights 0=3,1=1")
    assert f"8 > {damon.root}{TOP}/nr_kdamonds" in text
    assert f"3 > {damon.root}{SCHEME}/dests/0/weight" in text
    assert text.endswith(f"on > {damon.root}{TOP}/0/state")
    assert control.store.all() == []
    # Only a write tells whether DAMON can interleave.
    done = control.start(request())
    assert report.plan(done, damon)["would_move_pages"] == 2
    assert mover.moves == []


@pytest.mark.parametrize("by", ["kernel", "user"])
@pytest.mark.parametrize(
    "words",
    [
        ("start", "--pid", "42", "--weights", "0=1,1=3"),
        ("set", "--pid", "42", "--weights", "0=1,1=3"),
        ("stop", "--pid", "42"),
        ("stop", "--pid", "42", "--home", "0"),
    ],
)
def test_a_dry_run_beside_a_session_changes_nothing(
    damon: FakeDamon,
    mover: FakeMover,
    by: str,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if words[0] != "start":
        Control(damon, mover).start(request(by=by))
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(damon.root))
    monkeypatch.setattr(interleave, "MovePages", lambda files: mover)
    before = [tree(damon.root, part) for part in ("/sys", "/run")]
    moves = list(mover.moves)
    from pageferry.cli import main

    assert main(["interleave", *words, "--dry-run"]) == 0
    assert capsys.readouterr().out
    assert [tree(damon.root, part) for part in ("/sys", "/run")] == before
    assert mover.moves == moves


def test_what_dry_runs_show_is_what_is_done(damon: FakeDamon, mover: FakeMover) -> None:
    dry = FakeDamon(root=damon.root, dry_run=True)
    Control(dry, mover).start(request(by="kernel"))
    Control(damon, mover).start(request())
    # The first writes test the abilities of this DAMON, and are undone.
    assert damon.writes[-len(dry.writes) :] == dry.writes


@pytest.mark.parametrize("text", ["100M", "0/1s", "1M/0s", "x/1s", "1M/y"])
def test_quotas_that_make_no_sense(text: str) -> None:
    with pytest.raises(PageferryError) as caught:
        parse_quota(text)
    assert caught.value.code == ExitCode.USAGE


def test_status_is_one_document(
    plain: Files,
    mover: FakeMover,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(plain.root))
    monkeypatch.setattr(interleave, "MovePages", lambda files: mover)
    from pageferry.cli import main

    assert main(["interleave", "start", "--pid", "42", "--weights", "0=1,1=1"]) == 0
    assert "moved from user space" in capsys.readouterr().err
    assert main(["interleave", "status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [s["pid"] for s in document["sessions"]] == [42]
    assert main(["interleave", "status"]) == 0
    assert "50.0%" in capsys.readouterr().out
    mover.free[1] = 0
    words = ["interleave", "set", "--pid", "42", "--weights", "0=0,1=1"]
    assert main(words) == 1
    assert "not all of it fits" in capsys.readouterr().err
    assert main(["interleave", "stop", "--pid", "42", "--json"]) == 0
    assert main(["interleave", "status"]) == 0
