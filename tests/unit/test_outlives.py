# SPDX-License-Identifier: GPL-2.0-only
"""What goes wrong beside a command, and what it leaves then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import fake_watch as fake
from helpers.fake_process import BASE, FakeMover, add_area, add_node, add_process
from pageferry.cli import main
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave import lock
from pageferry.interleave.control import Control, Request
from pageferry.interleave.user_space import Pass
from pageferry.interleave.weights import parse_weights
from pageferry.sysfs.files import Files
from pageferry.sysfs.histogram import OPEN_NS, Histogram
from pageferry.sysfs.offload import DIRECTORY
from pageferry.vm import accel
from pageferry.watch.sources import histogram_grown

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(root=tmp_path)
    for node in (0, 1):
        add_node(files, node)
    return files


def test_children_that_ended_do_not_stop_a_pass(files: Files) -> None:
    for pid in (42, 43, 44):
        add_process(files, pid)
        add_area(
            files, pid, BASE + pid * (1 << 30), list(range(pid * 10, pid * 10 + 8))
        )
    files.path("/proc/43/pagemap").unlink()
    files.path("/proc/43/stat").unlink()
    work = Pass(files, FakeMover(), parse_weights("0=0,1=1"))
    assert work.run([42, 43, 44]).moved_pages == 16
    with pytest.raises(PageferryError, match="ended meanwhile"):
        Pass(files, FakeMover(), parse_weights("0=0,1=1")).run([43])


def test_a_pass_does_not_bring_a_stopped_session_back(files: Files) -> None:
    add_process(files, 42)
    add_process(files, os.getpid())
    add_area(files, 42, BASE, list(range(100, 108)))
    mover = FakeMover()
    control = Control(files, mover)
    control.start(Request(42, parse_weights("0=1,1=1"), by="user"))
    session = control.store.require(42)
    control.stop(42)
    # The pass has read its session before the stop.
    for keep_on in (True, False):
        done = control._user_pass(session, [42], keep_on=keep_on)
        assert done.moved_pages == 0 and control.store.find(42) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root takes the lock")
def test_one_command_at_a_time_sets_the_machine(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = lock.hold_settings(files), lock.hold_settings(files)
    with first, pytest.raises(PageferryError, match="at work"), second:
        pass
    fake.write(files.root, {f"{fake.OFFLOAD}/{k}": v for k, v in fake.OURS.items()})
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(files.root))
    assert main(["engine", "set", "mtcopy"]) == 0
    with lock.hold_settings(files):
        assert main(["engine", "set", "none"]) == ExitCode.FAILED
        assert "another pageferry command is at work" in capsys.readouterr().err
        assert files.read(f"{DIRECTORY}/engine") == "mtcopy"
        # In an emergency, nothing is in the way.
        assert main(["off"]) == 0
        assert "again: another pageferry command" in capsys.readouterr().err
    assert files.read(f"{DIRECTORY}/engine") == "none"
    assert main(["off"]) == 0
    assert "again" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("{python}", "-c", "{child}"),
        # virtme-run starts QEMU by a script.
        ("/bin/sh", "-c", '"$@"; true', "virtme-run", "{script}", "-c", "{child}"),
    ],
    ids=["counted", "run"],
)
def test_a_machine_does_not_outlive_its_command(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    pid = tmp_path / "pid"
    child = (
        "import os, pathlib, time; "
        f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(99)"
    )
    script = Path(SOURCE) / "pageferry/vm/qemu.sh"
    names = {"python": sys.executable, "child": child, "script": str(script)}
    text = (
        "import sys; from pageferry import proc\n"
        "with proc.group(proc.ends_with_us(sys.argv[1:])) as p:\n"
        "    p.wait()"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", text, *(word.format(**names) for word in words)],
        env={**os.environ, "PYTHONPATH": SOURCE, "PAGEFERRY_QEMU": sys.executable},
    )
    while not (pid.exists() and pid.read_text()):
        assert command.poll() is None
        time.sleep(0.01)
    command.send_signal(signal.SIGKILL)
    command.wait()
    stat = Path(f"/proc/{pid.read_text()}/stat")
    for _ in range(3000):
        # A zombie waits for init.
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.01)
    else:
        os.kill(int(pid.read_text()), signal.SIGKILL)
        pytest.fail("the machine lives")


def test_a_kernel_that_kvm_cannot_boot_says_nothing_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bad, good = tmp_path / "bad", tmp_path / "good"
    for image in (bad, good):
        image.write_text("kernel")
    accel.remember(accel.TCG, bad)
    assert accel.known(bad) == accel.TCG and accel.known(good) is None
    accel.remember(accel.KVM, good)
    assert accel.known(bad) == accel.known(good) == accel.KVM
    # QEMU has said that this host cannot.
    accel.remember(accel.TCG, None)
    assert accel.known(bad) == accel.known(good) == accel.TCG


def test_the_longest_time_of_an_interval_may_exceed_the_buckets() -> None:
    after = Histogram(((OPEN_NS, 2),), 10 * OPEN_NS)
    assert histogram_grown(Histogram(((OPEN_NS, 1),)), after).longest == 10 * OPEN_NS


def test_a_textfile_outlasts_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.stock(tmp_path)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    turns = []

    def write(path: str, _registry: object) -> None:
        turns.append(path)
        if len(turns) < 3:
            raise OSError(28, "No space left on device")
        raise KeyboardInterrupt

    monkeypatch.setattr("prometheus_client.write_to_textfile", write)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert main(["exporter", "--textfile", str(tmp_path / "x.prom")]) == 130
    assert len(turns) == 3
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_an_open_quote_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vm", "run", "--append", 'a="b', "--", "true"]) == 2
    assert "--append" in capsys.readouterr().err
