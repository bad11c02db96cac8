# SPDX-License-Identifier: GPL-2.0-only
"""Both services while one write to DAMON's files fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import balance_machine, tier_machine
from helpers.fake_damon import FakeDamon
from helpers.fake_process import BASE, FakeMover, add_area, add_process
from pageferry.balance.config import Program
from pageferry.damon.admin import TOP
from pageferry.errors import PageferryError
from pageferry.sysfs.files import Files
from pageferry.tier.kdamonds import stop_all

# A service tries again after 5 s.
QUIET_S = 20.0


class FailingDamon(FakeDamon):
    """A kernel that refuses the write with this number."""

    number = -1
    count = 0

    def write(self, name: str, value: str) -> None:
        """Fail, or do the same as the kernel."""
        if name.startswith(TOP):
            self.count += 1
            if self.count - 1 == self.number:
                raise PageferryError("cannot write", value=name, reason="Invalid")
        super().write(name, value)


Machine = balance_machine.Machine | tier_machine.Machine
Story = Callable[[FailingDamon], Machine]


def add(files: Files, pid: int) -> None:
    add_process(files, pid, name="merci")
    add_area(files, pid, BASE + (pid << 24), list(range(100, 108)))
    balance_machine.put(files, f"/proc/{pid}/statm", "100 8 0 0 0 0 0")


def balance_story(damon: FailingDamon) -> balance_machine.Machine:
    """Spread, add a process, come home, and end."""
    balance_machine.furnish(damon)
    balance_machine.show(damon, 8, 0)
    machine = balance_machine.Machine(damon, FakeMover(), again="3s")
    machine.until(15.0)
    balance_machine.show(damon, 6, 2)
    add(damon, 60)
    machine.until(32.0)
    balance_machine.show(damon, 8, 0)
    machine.until(32.0 + QUIET_S)
    return machine


def leaving_story(damon: FailingDamon) -> balance_machine.Machine:
    """Spread, and end while DAMON moves memory."""
    balance_machine.furnish(damon)
    balance_machine.show(damon, 8, 0)
    machine = balance_machine.Machine(damon, FakeMover())
    machine.until(20.0)
    return machine


def tier_story(damon: FailingDamon) -> tier_machine.Machine:
    """Watch processes that come and go, and change the rate."""
    tier_machine.furnish(damon)
    machine = tier_machine.Machine(damon, [Program(name="merci")])
    machine.steps(2)
    balance_machine.put(damon, "/proc/pressure/memory", "some total=100000")
    machine.steps(1)
    add(damon, 60)
    machine.steps(3)
    balance_machine.put(damon, "/proc/sys/kernel/numa_balancing", "2")
    machine.steps(int(QUIET_S / 5))
    return machine


def numbers(story: Story, top: Path, every: int) -> list[int]:
    """Return the numbers of some writes of a story, and of all writes of its end."""
    damon = FailingDamon(root=top / "all")
    machine = story(damon)
    before = damon.count
    machine.service.stop()
    return [*range(0, before, every), *range(before, damon.count)]


def check_balance(damon: FailingDamon) -> None:
    """All memory is at home in the end, so nothing may be left."""
    machine = balance_story(damon)
    assert machine.balancer.is_home, damon.number
    assert damon.running() == [], damon.number
    assert machine.control.store.all() == [], damon.number
    machine.service.stop()


def check_leaving(damon: FailingDamon) -> None:
    """A kdamond that could not be stopped has a session that names it."""
    machine = leaving_story(damon)
    assert damon.running() == ["0"] or machine.service.figures.failures
    machine.service.stop()
    for session in machine.control.store.all():
        machine.control.drop(session.pid)
    assert damon.running() == [], damon.number
    assert damon.read(f"{TOP}/nr_kdamonds") == "0", damon.number


def check_tiers(damon: FailingDamon) -> None:
    """The last plan is in force in the end, and a stop leaves nothing."""
    try:
        machine = tier_story(damon)
    except PageferryError:
        # The first look at the kernel's abilities failed: the command ends.
        assert damon.running() == [], damon.number
        return
    assert damon.running() == ["0"], damon.number
    assert machine.scheme(0, "action") == "migrate_cold", damon.number
    targets = damon.read(f"{TOP}/0/contexts/0/targets/nr_targets")
    assert targets == "2", damon.number
    try:
        machine.service.stop()
    except PageferryError:
        # The unit has this in ExecStopPost.
        stop_all(damon)
    assert damon.running() == [], damon.number
    assert damon.read(f"{TOP}/nr_kdamonds") == "0", damon.number


@pytest.mark.parametrize(
    "every", [9, pytest.param(1, marks=pytest.mark.loads)], ids=("some", "all")
)
@pytest.mark.parametrize("service", ["balance", "leaving", "tiers"])
def test_a_service_survives_any_write_that_fails(
    tmp_path: Path, service: str, every: int
) -> None:
    check, story = STORIES[service]
    for number in numbers(story, tmp_path, every):
        damon = FailingDamon(root=tmp_path / str(number))
        damon.number = number
        check(damon)


STORIES: dict[str, tuple[Callable[[FailingDamon], None], Story]] = {
    "balance": (check_balance, balance_story),
    "leaving": (check_leaving, leaving_story),
    "tiers": (check_tiers, tier_story),
}
