# SPDX-License-Identifier: GPL-2.0-only
"""Exchanges pages of two processes, and gives each page that stays its reason."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_process import (
    BASE,
    FakeExchange,
    FakeMover,
    add_node,
    add_process,
    large,
    set_flags,
)
from pageferry.cli import main
from pageferry.commands import move as command
from pageferry.errors import PageferryError
from pageferry.interleave.moving import EHWPOISON, ExchangeFile
from pageferry.move import exchange as module
from pageferry.move.account import Account, Reason
from pageferry.move.exchange import Exchanger
from pageferry.move.mover import Request
from pageferry.sysfs import pagebits, processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE, PRESENT

HOT, COLD = 42, 43
# Linux 6.12 shows KSM for all anonymous pages.
ANON = pagebits.ANON | pagebits.SWAP_BACKED | pagebits.LRU | pagebits.KSM
FAR = BASE + (1 << 30)
WAY = Request(sources=(0,), targets=(1,), limit_s=0.02)
BOTH = Request(sources=(0,), targets=(1,), limit_s=0.02, shared=True)


def hot_at(page: int) -> int:
    return BASE + page * PAGE


def cold_at(page: int) -> int:
    return FAR + page * PAGE


class Machine:
    """Two nodes; a hot process on node 0, and a cold one on node 1."""

    def __init__(self, root: Path) -> None:
        self.files = Files(root=root)
        for node in (0, 1):
            add_node(self.files, node)
        for pid in (HOT, COLD):
            add_process(self.files, pid)
        self.mover = FakeMover()
        self.device = FakeExchange(self.files, self.mover)

    def hot(self, page: int, frame: int, *flags: int) -> None:
        self.device.add(HOT, hot_at(page), frame, flags or (ANON,))

    def cold(self, page: int, frame: int, *flags: int) -> None:
        self.device.add(COLD, cold_at(page), frame, flags or (ANON,))
        self.mover.where[cold_at(page)] = 1

    def pages(self, count: int) -> None:
        """Map small pages in both: frames from 100 and from 200 on."""
        for page in range(count):
            self.hot(page, 100 + page)
            self.cold(page, 200 + page)

    def say(self, pid: int, name: str, text: str) -> None:
        self.files.path(f"/proc/{pid}/{name}").write_text(text)

    def end(self, pid: int) -> None:
        """Let another process have this number."""
        stat = self.files.path(f"/proc/{pid}/stat")
        stat.write_text(stat.read_text().replace(f" {pid * 10} ", " 7777 "))

    def run(
        self, request: Request = WAY, keep_on: Callable[[], bool] = lambda: True
    ) -> Account:
        hot, cold = (processes.require(self.files, pid) for pid in (HOT, COLD))
        device: Any = None if request.dry_run else self.device
        work = Exchanger(self.files, self.mover, request, cold, device, keep_on=keep_on)
        self.account = work.account
        work.run(hot)
        assert not any(work.account.rest().values())
        return work.account


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    return Machine(tmp_path)


def test_pages_of_each_size_change_places(machine: Machine) -> None:
    machine.pages(3)
    machine.hot(512, 1024, *large(9, ANON))
    machine.cold(512, 2048, *large(9, ANON))
    machine.hot(2048, 4096, *large(4, ANON))
    machine.cold(2048, 5120, *large(4, ANON))
    found = machine.run()
    assert found.moved == {
        "anonymous": 3,
        "anonymous huge": 512,
        "anonymous mTHP": 16,
    }
    assert found.partner_pages == 531 and not found.kept_pages
    assert found.steps.count == len(machine.device.pairs) == 5
    assert all(machine.mover.where[hot_at(n)] == 1 for n in (0, 1, 2, 512, 2048))
    assert all(machine.mover.where[cold_at(n)] == 0 for n in (0, 1, 2, 512, 2048))
    assert (1024, 2048) in machine.device.pairs


def test_a_size_without_partner_stays(machine: Machine) -> None:
    machine.pages(2)
    machine.hot(512, 1024, *large(9, ANON))
    machine.hot(3, 110)
    found = machine.run()
    assert found.moved == {"anonymous": 2}
    assert found.reasons() == {Reason.NO_PARTNER: 513}
    assert found.kept_pages == 513


def test_pages_on_other_nodes_stay(machine: Machine) -> None:
    machine.pages(4)
    machine.mover.where |= {hot_at(1): 1, hot_at(2): 2, cold_at(0): 2}
    found = machine.run()
    assert found.moved_pages == found.partner_pages == 2
    assert found.reasons() == {Reason.THERE: 1, Reason.ELSEWHERE: 1}
    assert not any(pair[1] == 200 for pair in machine.device.pairs)


def test_only_anonymous_memory_is_exchanged(machine: Machine) -> None:
    machine.hot(0, 100, pagebits.LRU)
    machine.hot(1, 101, pagebits.SWAP_BACKED | pagebits.LRU)
    machine.cold(0, 200, pagebits.LRU)
    found = machine.run()
    assert found.reasons() == {Reason.NOT_ANONYMOUS: 2}
    assert not found.kept_pages and not machine.device.pairs


UNFIT = [
    ANON | pagebits.MLOCKED,
    ANON | pagebits.UNEVICTABLE,
    ANON | pagebits.SWAP_CACHE,
    # MADV_FREE
    pagebits.ANON | pagebits.LRU,
]


@pytest.mark.parametrize("flags", UNFIT)
def test_a_page_that_cannot_be_exchanged(machine: Machine, flags: int) -> None:
    machine.pages(1)
    machine.hot(1, 101, flags)
    machine.cold(1, 201)
    found = machine.run()
    assert found.moved_pages == 1
    assert found.reasons() == {Reason.UNFIT: 1}
    assert found.examples[Reason.UNFIT] == (HOT, hot_at(1))


@pytest.mark.parametrize("flags", [*UNFIT, ANON | pagebits.POISONED])
def test_a_cold_page_that_cannot_be_exchanged_is_left_out(
    machine: Machine, flags: int
) -> None:
    machine.cold(0, 200, flags)
    machine.cold(1, 201)
    machine.hot(0, 100)
    found = machine.run()
    assert machine.device.pairs == [(100, 201)]
    assert found.moved_pages == found.partner_pages == 1


@pytest.mark.parametrize("whose", ["hot", "cold"])
def test_a_folio_that_is_mapped_in_part_stays(machine: Machine, whose: str) -> None:
    parts = machine.hot if whose == "hot" else machine.cold
    others = machine.cold if whose == "hot" else machine.hot
    parts(0, 1024, *large(4, ANON)[:8])
    set_flags(machine.files, 1024, large(4, ANON))
    others(0, 2048, *large(3, ANON))
    found = machine.run()
    assert not machine.device.pairs
    assert found.reasons() in ({Reason.UNFIT: 8}, {Reason.NO_PARTNER: 8})


@pytest.mark.parametrize("order", [0, 4])
@pytest.mark.parametrize("whose", [HOT, COLD])
def test_shared_pages_need_all(machine: Machine, whose: int, order: int) -> None:
    flags = large(order, ANON) if order else [ANON]
    machine.hot(0, 1024, *flags)
    machine.cold(0, 2048, *flags)
    address = hot_at(0) if whose == HOT else cold_at(0)
    frame = 1024 if whose == HOT else 2048
    with machine.files.path(f"/proc/{whose}/pagemap").open("r+b") as stream:
        stream.seek(address // PAGE * 8)
        stream.write((frame | PRESENT).to_bytes(8, "little"))
    found = machine.run()
    stays = Reason.SHARED if whose == HOT else Reason.NO_PARTNER
    assert found.reasons() == {stays: len(flags)}
    assert not machine.device.pairs
    assert machine.run(BOTH).moved_pages == len(flags)


@pytest.mark.parametrize("rule", ["bind:1", "bind=static:1-2"])
def test_a_bound_cold_page_stays(machine: Machine, rule: str) -> None:
    machine.pages(2)
    machine.say(
        COLD,
        "numa_maps",
        f"{cold_at(0) - PAGE:x} default\n{cold_at(0):x} {rule} anon=1 N1=1\n"
        f"{cold_at(1):x} prefer:1 anon=1 N1=1\n",
    )
    found = machine.run()
    assert machine.device.pairs == [(100, 201)]
    assert found.moved_pages == 1
    assert found.reasons() == {Reason.PARTNER_BOUND: 1}
    assert found.kept_pages == 1


def test_a_cpuset_of_the_cold_process_keeps_all(machine: Machine) -> None:
    machine.pages(2)
    machine.say(COLD, "status", "Mems_allowed_list:\t1\n")
    assert machine.run().reasons() == {Reason.PARTNER_BOUND: 2}
    assert not machine.device.pairs


def test_a_bound_hot_page_stays(machine: Machine) -> None:
    machine.pages(2)
    machine.say(HOT, "numa_maps", f"{hot_at(0):x} bind:0\n{hot_at(1):x} bind:0-1\n")
    found = machine.run()
    assert machine.device.pairs == [(101, 200)]
    assert found.reasons() == {Reason.BOUND: 1}


def test_a_cpuset_of_the_hot_process_is_an_error(machine: Machine) -> None:
    machine.pages(2)
    machine.say(HOT, "status", "Mems_allowed_list:\t0\n")
    with pytest.raises(PageferryError, match="a cpuset does not allow"):
        machine.run()
    assert not machine.device.pairs


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EBUSY])
def test_a_busy_pair_is_tried_again(machine: Machine, number: int) -> None:
    machine.pages(1)
    machine.device.errors[100] = [number] * 2
    assert machine.run().moved_pages == 1
    assert machine.device.pairs == [(100, 200)] * 3


@pytest.mark.parametrize(
    ("number", "reason", "tries"),
    [
        (errno.EAGAIN, Reason.PINNED, 3),
        (errno.EBUSY, Reason.PINNED, 3),
        (EHWPOISON, Reason.POISONED, 1),
        (errno.EINVAL, Reason.UNFIT, 1),
        (errno.ENXIO, Reason.KERNEL, 1),
        (errno.EOPNOTSUPP, Reason.UNFIT, 1),
    ],
)
def test_a_hot_page_that_fails_with_two_others_is_the_cause(
    machine: Machine, number: int, reason: Reason, tries: int
) -> None:
    machine.pages(3)
    machine.device.errors[100] = [number] * 99
    found = machine.run()
    assert found.reasons() == {reason: 1}
    # The others still get a place, also from those that failed.
    assert found.moved_pages == 2
    assert sum(pair[0] == 100 for pair in machine.device.pairs) == 2 * tries


def test_a_cold_page_that_fails_is_left_out(machine: Machine) -> None:
    machine.pages(3)
    machine.device.errors[200] = [errno.EAGAIN] * 99
    found = machine.run()
    assert found.moved_pages == 2
    assert found.reasons() == {Reason.NO_PARTNER: 1}
    assert sum(pair[1] == 200 for pair in machine.device.pairs) == 3


def test_frames_are_read_again_before_each_try(machine: Machine) -> None:
    machine.pages(1)
    machine.device.errors[100] = [errno.EAGAIN]
    exchange = machine.device.exchange

    def moves_on(first: int, second: int) -> int:
        error = exchange(first, second)
        if error:
            # NUMA balancing takes the page to another frame.
            machine.hot(0, 150)
        return error

    machine.device.exchange = moves_on  # type: ignore[method-assign]
    assert machine.run().moved_pages == 1
    assert machine.device.pairs == [(100, 200), (150, 200)]


def test_a_page_that_came_to_the_node_by_itself_stays_there(machine: Machine) -> None:
    machine.pages(2)
    exchange = machine.device.exchange

    def arrives(first: int, second: int) -> int:
        machine.mover.where[hot_at(1)] = 1
        return exchange(first, second)

    machine.device.exchange = arrives  # type: ignore[method-assign]
    assert machine.run().reasons() == {Reason.THERE: 1}
    assert machine.device.pairs == [(100, 200)]


def test_a_page_counts_only_where_it_was_seen(machine: Machine) -> None:
    """The page moves on before the kernel looks, so others change places."""
    machine.pages(1)
    machine.device.exchange = lambda first, second: 0  # type: ignore[method-assign]
    found = machine.run()
    assert not found.moved_pages and not found.partner_pages
    assert found.reasons() == {Reason.GONE: 1}


def test_a_reused_number_of_the_hot_process_ends_it(machine: Machine) -> None:
    machine.pages(3)
    exchange = machine.device.exchange

    def end(first: int, second: int) -> int:
        machine.end(HOT)
        return exchange(first, second)

    machine.device.exchange = end  # type: ignore[method-assign]
    found = machine.run()
    assert len(machine.device.pairs) == found.moved_pages == 1
    assert found.ended_processes == 1 and found.reasons() == {Reason.GONE: 2}


def test_a_reused_number_of_the_cold_process_ends_it(machine: Machine) -> None:
    machine.pages(3)
    exchange = machine.device.exchange

    def end(first: int, second: int) -> int:
        machine.end(COLD)
        return exchange(first, second)

    machine.device.exchange = end  # type: ignore[method-assign]
    with pytest.raises(PageferryError, match=processes.ENDED) as caught:
        machine.run()
    assert caught.value.value == str(COLD)
    assert len(machine.device.pairs) == machine.account.moved_pages == 1
    assert machine.account.reasons() == {Reason.NO_PARTNER: 2}


def test_the_command_stops_between_two_exchanges(machine: Machine) -> None:
    machine.pages(5)
    pairs = machine.device.pairs
    found = machine.run(keep_on=lambda: len(pairs) < 2)
    assert found.interrupted and found.moved_pages == len(pairs) == 2
    assert found.reasons() == {Reason.NOT_TRIED: 3}


def test_a_dry_run_counts_pairs(machine: Machine) -> None:
    add_node(machine.files, 2)
    machine.pages(3)
    # The cold process has one page less, and two nodes want its pages.
    machine.mover.where |= {hot_at(1): 2, cold_at(2): 0}
    request = Request((0, 2), (1,), 0.02, dry_run=True)
    found = machine.run(request)
    assert found.movable == {"anonymous": 2}
    assert found.reasons() == {Reason.NO_PARTNER: 1}
    assert not machine.device.pairs and not found.steps.count


def test_without_root_no_frame_shows(machine: Machine) -> None:
    machine.pages(1)
    machine.files.path("/proc/kpageflags").unlink()
    with pytest.raises(PageferryError, match="only to root"):
        machine.run()
    assert not machine.device.pairs


@pytest.fixture
def tool(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine behind the command."""
    monkeypatch.setattr(command, "MovePages", lambda files, shared: machine.mover)
    monkeypatch.setattr(command, "ExchangeFile", lambda files: machine.device)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(machine.files.root))
    machine.pages(3)
    return machine


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    """Run the command with --json."""
    code = main(["move", "--to", "1", "--exchange-with", *words, "--json"])
    told = capsys.readouterr()
    return code, json.loads(told.out), told.err


def test_the_command_says_how_many_pages_of_each_moved(
    tool: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, _ = run(capsys, str(COLD), "--pid", str(HOT))
    assert code == 0
    assert found["from"] == [0] and found["to"] == [1]
    assert found["moved_pages"] == found["found_pages"] == 3
    assert found["partner"] == {"pid": COLD, "name": "work", "moved_pages": 3}


def test_the_command_tells_people_of_both(
    tool: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    tool.hot(3, 103)
    words = ["move", "--pid", str(HOT), "--to", "1", "--exchange-with", str(COLD)]
    assert main([*words, "--dry-run"]) == 0
    assert "42 (work): 12 KiB would move" in capsys.readouterr().out
    assert main(words) == 1
    told = capsys.readouterr()
    assert "42 (work): 12 KiB moved from node 0 to 1" in told.out
    assert "43 (work): 12 KiB moved the other way" in told.out
    assert "1  no page of this size is left" in told.out
    assert "--exchange-with another process" in told.err


@pytest.mark.parametrize(
    ("pid", "text", "hint"),
    [
        (HOT, f"{hot_at(0):x} bind:0\n", "grep bind"),
        (COLD, f"{cold_at(0):x} bind:1\n", f"grep bind /proc/{COLD}/numa_maps"),
    ],
)
def test_a_rule_that_keeps_memory_is_named(
    tool: Machine, capsys: pytest.CaptureFixture[str], pid: int, text: str, hint: str
) -> None:
    tool.say(pid, "numa_maps", text)
    code, found, told = run(capsys, str(COLD), "--pid", str(HOT))
    assert code == 1
    assert found["moved_pages"] == 0
    assert hint in told


def test_a_signal_ends_the_command_between_two_exchanges(
    tool: Machine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = tool.device.exchange

    def interrupted(first: int, second: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return exchange(first, second)

    monkeypatch.setattr(tool.device, "exchange", interrupted)
    code, found, _ = run(capsys, str(COLD), "--pid", str(HOT))
    assert code == 130 and found["interrupted"]
    assert found["moved_pages"] == len(tool.device.pairs) == 1


def test_the_cpuset_of_the_command_does_not_count(
    tool: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    tool.files.path("/proc/self").mkdir()
    tool.say("self", "status", "Mems_allowed_list:\t0\n")  # type: ignore[arg-type]
    assert run(capsys, str(COLD), "--pid", str(HOT))[0] == 0


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([str(HOT), "--pid", str(HOT)], "two processes"),
        (["44", "--pid", str(HOT)], "two processes"),
        (["77", "--pid", str(HOT)], "no such process"),
        (["x", "--pid", str(HOT)], "number of a process"),
        ([str(COLD), "--cgroup", "x"], "--exchange-with needs --pid"),
        ([str(COLD), "--offline-check", "1"], "takes no --to"),
        ([str(COLD), "--pid", str(HOT), "--from", "1"], "let no memory move"),
        ([str(COLD), "--pid", str(HOT), "--from", "7"], "no such node"),
    ],
)
def test_usage_errors(
    tool: Machine, capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    add_process(tool.files, 44)
    for pid in (HOT, 44):
        tool.say(pid, "status", f"Tgid:\t{HOT}\n")
    code, found, _ = run(capsys, *words)
    assert code == 2
    assert what in found["error"]["what"]
    assert not tool.device.pairs


def test_a_kernel_without_the_file_moves_nothing(
    tool: Machine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "ExchangeFile", ExchangeFile)
    code, found, _ = run(capsys, str(COLD), "--pid", str(HOT))
    assert code == 3
    assert "debugfs" in found["error"]["reason"]
    # A dry run needs no such kernel.
    assert run(capsys, str(COLD), "--pid", str(HOT), "--dry-run")[0] == 0
