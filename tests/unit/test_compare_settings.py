# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry compare` leaves no setting behind, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import fake_watch
from pageferry.compare import settings
from pageferry.errors import PageferryError
from pageferry.interleave import lock
from pageferry.sysfs.files import Files
from pageferry.sysfs.memory import BALANCING, DEMOTION
from pageferry.sysfs.offload import DIRECTORY

SOURCES = Path(__file__).resolve().parents[2] / "src"
ENGINE = f"{DIRECTORY}/engine"
DEMOTING = f"{DIRECTORY}/engine_of/demotion"
WANTED = {BALANCING: "0", DEMOTION: "1"}
BEFORE = {BALANCING: "2", DEMOTION: "false", ENGINE: "mtcopy", DEMOTING: "cpu"}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A machine whose operator has an engine for demotion."""
    fake_watch.write(tmp_path, fake_watch.STOCK)
    fake_watch.write(
        tmp_path, {f"{fake_watch.OFFLOAD}/{k}": v for k, v in fake_watch.OURS.items()}
    )
    fake_watch.write(tmp_path, {name[1:]: value for name, value in BEFORE.items()})
    return Files(tmp_path)


def present(files: Files) -> dict[str, str]:
    return {name: files.read(name) for name in BEFORE}


@contextlib.contextmanager
def kept(files: Files) -> Iterator[None]:
    with settings.kept(files, WANTED, "/sys/fs/cgroup/none", engines=True):
        yield


def test_the_engine_of_a_reason_comes_back(files: Files) -> None:
    """The kernel forgets it as soon as a run sets the engine none."""
    with kept(files):
        assert present(files) == {**BEFORE, **WANTED, DEMOTING: "default"}
        files.write(ENGINE, "none")
    assert present(files) == BEFORE


def test_the_engines_of_reasons_come_back_last(files: Files) -> None:
    with kept(files):
        files.write(ENGINE, "none")
        del files.writes[:]
    names = [path for path, _ in files.writes]
    assert names.index(files.path(ENGINE)) < names.index(files.path(DEMOTING))


def test_an_error_and_ctrl_c_take_everything_back(files: Files) -> None:
    for error in (KeyboardInterrupt, PageferryError("x")):
        with contextlib.suppress(KeyboardInterrupt, PageferryError), kept(files):
            raise error
        assert present(files) == BEFORE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root takes the lock")
def test_two_commands_do_not_mix_their_settings(files: Files) -> None:
    with kept(files), pytest.raises(PageferryError, match="at work"), kept(files):
        pass
    assert present(files) == BEFORE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root takes the lock")
def test_after_sigkill_others_wait_for_the_way_back(files: Files) -> None:
    begun, slow = files.path("/begun"), files.path(BALANCING)
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException), kept(files):
            slow.unlink()
            os.mkfifo(slow)
            begun.touch()
            time.sleep(60)
        os._exit(1)
    wait_for("the command never began", files, "/begun", "")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with pytest.raises(PageferryError, match="at work"), lock.hold_settings(files):
        pass
    # The other process waits for a reader and a writer of this file.
    slow.write_text("0\n")
    assert slow.read_text() == BEFORE[BALANCING]
    with lock.hold(files, "settings", 20.0, "wait"):
        assert files.read(DEMOTION) == BEFORE[DEMOTION]


def wait_for(what: str, files: Files, name: str, value: str) -> None:
    due = time.monotonic() + 20
    while files.read_or(name, "none") != value:
        assert time.monotonic() < due, what
        time.sleep(0.02)


def test_sigkill_takes_everything_back(files: Files) -> None:
    top = "sys/fs/cgroup"
    fake_watch.write(files.root, {f"{top}/cgroup.controllers": "memory"})
    fake_watch.write(files.root, {f"{top}/cgroup.subtree_control": "memory"})
    fake_watch.write(files.root, {"proc/sys/vm/compact_memory": "0"})
    words = ["compare", "--pressure", "compaction", "--", "sleep", "60"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pageferry", *words],
        env={
            **os.environ,
            "PAGEFERRY_SYSFS_ROOT": str(files.root),
            "PYTHONPATH": str(SOURCES),
        },
        start_new_session=True,
    )
    group = f"/{top}/pageferry-compare-{process.pid}"
    program = None
    try:
        wait_for("the command never began", files, BALANCING, "0")
        due = time.monotonic() + 20
        while not files.read_or(f"{group}/cgroup.procs", ""):
            assert time.monotonic() < due
            time.sleep(0.02)
        program = int(files.read(f"{group}/cgroup.procs"))
        # No program can catch this signal.
        process.kill()
        process.wait()
        wait_for("it did not come back", files, DEMOTING, BEFORE[DEMOTING])
        assert present(files) == BEFORE
        wait_for("the program lives on", files, f"{group}/cgroup.kill", "1")
    finally:
        process.kill()
        # A fake cgroup kills nothing.
        if program is not None:
            os.kill(program, signal.SIGKILL)
