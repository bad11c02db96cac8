# SPDX-License-Identifier: GPL-2.0-only
"""Both services end well, whatever comes meanwhile."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import balance_machine, tier_machine
from helpers.balance_machine import put
from helpers.fake_damon import FakeDamon
from helpers.fake_process import FakeMover
from pageferry import proc
from pageferry.balance import metrics
from pageferry.damon.admin import TOP
from pageferry.errors import PageferryError
from pageferry.interleave.sessions import Session
from pageferry.interleave.user_space import Quota
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.tier.kdamonds import read_state


@pytest.fixture
def damon(tmp_path: Path) -> FakeDamon:
    return FakeDamon(root=tmp_path)


def interrupted(action: Callable[..., object]) -> Callable[..., object]:
    """Send SIGINT to this process before an action."""

    def act(*words: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return action(*words)

    return act


def test_held_signals_come_after_the_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), proc.signals_held():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("rest")
    assert done == ["rest"]


def test_signals_that_another_thread_gets_are_held() -> None:
    """Linux chooses a thread without the mask, such as that of a server of metrics."""
    done = []
    before = signal.getsignal(signal.SIGINT)
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt), proc.signals_held(), proc.signals_held():
            os.kill(os.getpid(), signal.SIGINT)
            # Python calls a handler between two instructions of this thread.
            time.sleep(0.1)
            done.append("rest")
    finally:
        end.set()
        thread.join()
    assert done == ["rest"] and signal.getsignal(signal.SIGINT) is before


def test_a_second_signal_leaves_no_kdamond(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier_machine.furnish(damon)
    machine = tier_machine.Machine(damon, [])
    machine.steps(1)
    assert damon.running() == ["0", "1"]
    admin = machine.service.kdamonds.admin
    monkeypatch.setattr(admin, "stop", interrupted(admin.stop))
    with pytest.raises(KeyboardInterrupt):
        machine.service.run(5.0, end_s=0.0)
    assert damon.running() == [] and read_state(damon) is None
    assert machine.said[-1].startswith("stopped: ")


def test_a_second_signal_ends_the_way_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(root=tmp_path)
    balance_machine.furnish(files)
    mover = FakeMover()
    machine = balance_machine.Machine(files, mover, on_stop="home")
    machine.until(20.0)
    assert machine.control.store.all() != []
    # Each step of the way home gets a signal.
    monkeypatch.setattr(mover, "move", interrupted(mover.move))
    machine.service.stop()
    assert machine.control.store.all() == [] and sum(mover.where.values()) == 2
    assert machine.said[-1] == "stopped: memory stays where it is"


def test_a_kdamond_that_cannot_stop_is_not_said_to_have_stopped(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    balance_machine.furnish(damon)
    machine = balance_machine.Machine(damon, FakeMover())
    machine.until(20.0)
    assert damon.running() == ["0"]
    drop = machine.control._drop

    def busy(session: Session) -> None:
        raise PageferryError("cannot write", reason="Device or resource busy")

    monkeypatch.setattr(machine.control, "_drop", busy)
    machine.service.stop()
    assert not any("stopped" in line for line in machine.said)
    assert "pageferry interleave status" in machine.said[-1]
    # Another stop tries again.
    monkeypatch.setattr(machine.control, "_drop", drop)
    machine.service.stop()
    assert damon.running() == []
    assert machine.said[-1] == "stopped: memory stays where it is"


def test_a_stop_waits_for_the_figures_of_one_busy_kdamond_only(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier_machine.furnish(damon)
    machine = tier_machine.Machine(damon, [])
    machine.steps(1)
    assert damon.running() == ["0", "1"]
    write, asked = damon.write, list[str]()

    def busy(name: str, value: str) -> None:
        write(name, value)
        if value == "update_schemes_stats":
            asked.append(name)
            raise PageferryError("cannot write", reason=os.strerror(errno.EBUSY))

    monkeypatch.setattr(damon, "write", busy)
    monkeypatch.setattr("pageferry.damon.admin._BUSY_WAIT_S", 0.0)
    machine.service.stop()
    assert set(asked) == {f"{TOP}/0/state"} and damon.running() == []


def test_a_look_writes_nothing_to_the_kdamond_of_another(damon: FakeDamon) -> None:
    tier_machine.furnish(damon)
    machine = tier_machine.Machine(damon, tier_machine.MERCI)
    machine.steps(1)
    damon.write(f"{TOP}/0/state", "off")
    damon.write(f"{TOP}/0/state", "on")
    commits = len(damon.commits)
    put(
        damon,
        "/sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: 4194304 kB\nNode 0 MemFree: 0 kB",
    )
    before = machine.scheme(0, "quotas/bytes")
    machine.service.look(0.5)
    assert machine.scheme(0, "quotas/bytes") == before
    assert len(damon.commits) == commits


def test_a_full_disk_ends_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(root=tmp_path)
    balance_machine.furnish(files)
    path = tmp_path / "metrics.prom"
    budget = Quota(100 * PAGE, 3600.0)
    machine = balance_machine.Machine(files, FakeMover(), budget, metrics=str(path))
    write = metrics.write
    space = False

    def write_if_space(name: Path, text: str) -> None:
        if not space:
            raise OSError(28, "No space left on device")
        write(name, text)

    monkeypatch.setattr(metrics, "write", write_if_space)
    machine.until(20.0)
    said = [line for line in machine.said if "No space left" in line]
    # Once for the metrics, and once for the spent budget.
    assert len(said) == 2 and not path.exists()
    space = True
    machine.until(21.0)
    assert "pageferry" in path.read_text()
    assert files.path("/run/pageferry/balance.json").read_text() != ""
