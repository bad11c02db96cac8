# SPDX-License-Identifier: GPL-2.0-only
"""Both services for a day: processes come and go, and system calls fail."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers import balance_machine, tier_machine
from helpers.balance_machine import put
from helpers.fake_damon import FakeDamon
from helpers.fake_process import BASE, FakeMover, add_area, add_process
from pageferry.balance import sources, trace
from pageferry.balance.config import Program
from pageferry.damon.admin import TOP
from pageferry.errors import PageferryError
from pageferry.sysfs.pagebits import PAGE

DAY_S = 24 * 3600
PAGES = 8
MOST_PROCESSES = 6
# Parts of all writes, of all reads, and of all calls of move_pages(2) that fail.
WRITES, READS, CALLS = 0.01, 0.002, 0.01
# After a day, no more objects than these have come to those of its first quarter. The log
# of the latest thousand writes has some, and is short in the beginning.
MOST_OBJECTS = 5000
# A service that tries again waits for at most a minute.
LONGEST_WAIT_S = 60.0
KINDS = ("free", "cpuset", "numactl", "mbind")


def area_of(pid: int) -> int:
    """Return the address of the memory of a process."""
    return BASE + (pid << 24)


@dataclass
class FaultyMachine(FakeDamon):
    """A kernel whose system calls fail by chance, and whose processes come and go."""

    seed: int = 0
    faults: bool = True
    # How the owner of each running process has bound its memory.
    kinds: dict[int, str] = field(default_factory=lambda: {42: "free"})
    next_pid: int = 100
    # How often the service told DAMON to move memory, or moved some itself.
    begun: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        super().__post_init__()

    def fails(self, part: float) -> bool:
        """Say whether a call fails."""
        return self.faults and self.chance.random() < part

    def write(self, name: str, value: str) -> None:
        """Fail, or do the same as the kernel."""
        if self.fails(WRITES):
            raise PageferryError("cannot write", value=name, reason="Invalid")
        super().write(name, value)

    def _text(self, name: str) -> str:
        if self.fails(READS):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super()._text(name)

    def come_and_go(self) -> None:
        """Start a process, or end one."""
        if self.chance.random() < 0.2 and len(self.kinds) < MOST_PROCESSES:
            pid, self.next_pid = self.next_pid, self.next_pid + 1
            self.add(pid, self.chance.choice(KINDS))
        if self.chance.random() < 0.2 and self.kinds:
            pid = self.chance.choice(list(self.kinds))
            del self.kinds[pid]
            shutil.rmtree(self.path(f"/proc/{pid}"))

    def add(self, pid: int, kind: str) -> None:
        """Start a process whose owner has bound all of its memory, a part, or nothing."""
        self.kinds[pid] = kind
        add_process(self, pid, name="merci")
        add_area(self, pid, area_of(pid), list(range(100, 100 + PAGES)))
        put(self, f"/proc/{pid}/statm", f"100 {PAGES} 0 0 0 0 0")
        put(self, f"/proc/{pid}/status", f"Mems_allowed_list:\t{self.nodes(kind)}")
        self.place(pid, PAGES)

    def spread(self) -> None:
        """Let the kernel show memory on any node, except for what is bound."""
        for pid, kind in self.kinds.items():
            free = kind == "free"
            self.place(pid, self.chance.randrange(PAGES + 1) if free else PAGES)

    def place(self, pid: int, here: int) -> None:
        """Let the kernel show so many pages of a process on node 0."""
        kind = self.kinds[pid]
        bound = "default" if kind in ("free", "cpuset") else "bind:0"
        text = f"anon={PAGES} N0={here} N1={PAGES - here} kernelpagesize_kB=4\n"
        maps = f"{area_of(pid):x} {bound} {text}"
        maps += "7ffe00000000 bind:0 stack anon=3 N0=3" if kind == "numactl" else ""
        put(self, f"/proc/{pid}/numa_maps", maps)

    @staticmethod
    def nodes(kind: str) -> str:
        """Return the nodes of the cpuset."""
        return "0" if kind == "cpuset" else "0-1"

    def _command(self, path: Path, value: str) -> None:
        super()._command(path, value)
        if value in ("on", "commit"):
            self.begun += 1
            self.check(path.parent / "contexts/0")

    def check(self, context: Path) -> None:
        """Check that DAMON moves nothing that its owner has bound to node 0."""
        schemes = [s for s in context.glob("schemes/[0-9]*") if self.leaves(s)]
        if not schemes:
            return
        for target in context.glob("targets/*/pid_target"):
            pid = int(target.read_text())
            # A process that has ended meanwhile has no memory.
            kind = self.kinds.get(pid, "free")
            assert kind in ("free", "mbind"), f"process {pid} has its {kind}"
            if kind == "mbind":
                for scheme in schemes:
                    self.check_keeps(scheme, pid)

    @staticmethod
    def leaves(scheme: Path) -> bool:
        """Say whether a scheme moves memory to node 1."""
        dests = {
            dest.read_text().strip(): (dest.parent / "weight").read_text().strip()
            for dest in scheme.glob("dests/*/id")
        }
        target = (scheme / "target_nid").read_text().strip()
        return dests["1"] != "0" if "1" in dests else target == "1"

    def check_keeps(self, scheme: Path, pid: int) -> None:
        """Check that a filter of a scheme leaves bound memory out."""
        kept = [
            (int(each.read_text()), int((each.parent / "addr_end").read_text()))
            for each in scheme.glob("filters/*/addr_start")
        ]
        start, end = area_of(pid), area_of(pid) + PAGES * PAGE
        assert any(first <= start and end <= last for first, last in kept), pid


class FaultyMover(FakeMover):
    """move_pages(2) that fails by chance."""

    machine: FaultyMachine

    def query(self, pid: int, addresses: Sequence[int]) -> Sequence[int]:
        """Fail, or return the node of each page."""
        self._may_fail()
        return super().query(pid, addresses)

    def move(self, pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        """Fail, or move pages that nobody has bound."""
        self._may_fail()
        kind = self.machine.kinds.get(pid, "free")
        assert node == 0 or kind == "free", f"process {pid} has its {kind}"
        self.machine.begun += 1
        return super().move(pid, addresses, node)

    def _may_fail(self) -> None:
        if self.machine.fails(CALLS):
            raise PageferryError("cannot move", reason="Cannot allocate memory")


class Days:
    """A service, and the time in which it runs."""

    def __init__(self, machine: FaultyMachine) -> None:
        self.machine = machine
        self.descriptors = self.count_descriptors()
        self.objects = 0

    @staticmethod
    def count_descriptors() -> int:
        """Count open files."""
        return len(list(Path("/proc/self/fd").iterdir()))

    def forget(self, mover: FakeMover, said: list[str]) -> None:
        """Forget what only these tests keep."""
        for each in (mover.moves, mover.steps, said, self.machine.commits):
            each.clear()

    def look(self, part: float) -> None:
        """Note the number of objects after a quarter of the time."""
        if part == 0.25:
            gc.collect()
            self.objects = len(gc.get_objects())

    def end(self) -> None:
        """Check that nothing is left."""
        gc.collect()
        assert len(gc.get_objects()) < self.objects + MOST_OBJECTS
        assert self.count_descriptors() == self.descriptors
        assert self.machine.begun
        assert self.machine.running() == []
        assert self.machine.read(f"{TOP}/nr_kdamonds") == "0"


def tiers(machine: FaultyMachine, steps: int) -> None:
    """Let the service of the tiers make a step each five seconds."""
    tier_machine.furnish(machine)
    days = Days(machine)
    machine.faults = False
    service = tier_machine.Machine(machine, [Program(name="merci")])
    machine.faults = True
    mover = FaultyMover()
    mover.machine = machine
    service.service.sampler.mover = mover
    for step in range(steps):
        machine.come_and_go()
        service.steps(1)
        assert set(machine.running()) <= {"0"}
        days.forget(mover, service.said)
        days.look(step / steps)
    machine.faults = False
    service.now_s += LONGEST_WAIT_S
    service.steps(2)
    free = [pid for pid, kind in machine.kinds.items() if kind in ("free", "mbind")]
    assert machine.running() == (["0"] if free else [])
    if free:
        count = int(machine.read(f"{TOP}/0/contexts/0/targets/nr_targets"))
        assert count == len(free)
    service.service.stop()
    days.end()
    assert not machine.path("/run/pageferry/tier.json").exists()


def balance(machine: FaultyMachine, steps: int) -> None:
    """Let the balancer make a step each second, while a load comes and goes."""
    balance_machine.furnish(machine)
    days = Days(machine)
    machine.faults = False
    mover = FaultyMover()
    mover.machine = machine
    service = balance_machine.Machine(machine, mover, again="3s")
    service.service.source = sources.Recorded(
        [
            trace.Moment(at, {}, 108e9 if at % 400 else 54e9)
            for at in range(0, DAY_S, 200)
        ],
        balance_machine.RATES,
        lambda: service.balancer.shares,
        lambda: service.now_s,
    )
    machine.faults = True
    for step in range(steps):
        machine.come_and_go()
        machine.spread()
        service.until(step + 1.0)
        days.forget(mover, service.said)
        service.service.decisions.clear()
        days.look(step / steps)
    machine.faults = False
    service.service.stop()
    for session in service.control.store.all():
        # A kdamond that could not be stopped has a session that names it.
        service.control.drop(session.pid)
    days.end()


@pytest.mark.parametrize("seed", range(2))
def test_some_minutes(tmp_path: Path, seed: int) -> None:
    tiers(FaultyMachine(root=tmp_path / "tier", seed=seed), steps=60)
    balance(FaultyMachine(root=tmp_path / "balance", seed=seed), steps=300)


@pytest.mark.loads
def test_a_day_of_tiers(tmp_path: Path) -> None:
    tiers(FaultyMachine(root=tmp_path), steps=DAY_S // 5)


@pytest.mark.loads
def test_a_day_of_the_balancer(tmp_path: Path) -> None:
    balance(FaultyMachine(root=tmp_path), steps=DAY_S)
