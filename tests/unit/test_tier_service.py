# SPDX-License-Identifier: GPL-2.0-only
"""The service of the tiers, on a machine made of files."""

from __future__ import annotations

import math
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from helpers.balance_machine import put
from helpers.fake_damon import FakeDamon
from helpers.fake_process import BASE, add_node, add_process
from helpers.tier_machine import MERCI, Machine, furnish
from pageferry.damon.admin import TOP
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave import lock
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.tier.kdamonds import STATE, read_state, stop_all
from pageferry.tier.machine import free_and_total
from pageferry.units import GIB, MIB

# The schemes of three tiers: a kdamond, and the number of the scheme.
WAYS = ((0, 0), (1, 0), (1, 1), (2, 0))


@pytest.fixture
def damon(tmp_path: Path) -> FakeDamon:
    """A kernel with DAMON, and two tiers."""
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    return damon


def whole_pages(size: int) -> str:
    """A quota with a part of a page would never be used up."""
    return str(size // PAGE * PAGE)


def set_free(files: Files, node: int, mib: int) -> None:
    text = (
        f"Node {node} MemTotal: {1024 * 1024} kB\nNode {node} MemFree: {mib * 1024} kB"
    )
    put(files, f"/sys/devices/system/node/node{node}/meminfo", text)


def test_processes_are_watched_by_virtual_address(damon: FakeDamon) -> None:
    machine = Machine(damon, MERCI)
    machine.steps(2)
    assert damon.running() == ["0"]
    context = f"{TOP}/0/contexts/0"
    assert damon.read(f"{context}/operations") == "vaddr"
    assert damon.read(f"{context}/targets/0/pid_target") == "42"
    down = [machine.scheme(0, name) for name in ("action", "target_nid")]
    up = [machine.scheme(1, name) for name in ("action", "target_nid")]
    assert (down, up) == (["migrate_cold", "1"], ["migrate_hot", "0"])
    # 30 s are 150 aggregations of 200 ms.
    assert machine.scheme(0, "access_pattern/nr_accesses/max") == "0"
    assert machine.scheme(0, "access_pattern/age/min") == "150"
    assert machine.scheme(1, "access_pattern/nr_accesses/min") == "2"
    # 1 GiB/s up, for the half second between two looks.
    assert machine.scheme(1, "apply_interval_us") == "100000"
    assert machine.scheme(1, "quotas/bytes") == whole_pages(GIB // 2)
    # All of the fast node is free. No bytes would be no limit.
    assert machine.scheme(0, "quotas/bytes") == "1"
    assert machine.scheme(0, "quotas/reset_interval_ms") == "450"
    # A cold page is not young, and a hot one is.
    assert machine.scheme(0, "filters/0/type") == "young"
    assert [machine.scheme(n, "filters/0/matching") for n in (0, 1)] == ["Y", "N"]


def test_the_service_leaves_itself_out(damon: FakeDamon) -> None:
    """A program may start the service that serves it."""
    add_process(damon, os.getpid(), parent=42, name="pageferry")
    add_process(damon, 43, parent=42)
    machine = Machine(damon, MERCI)
    machine.steps(1)
    targets = f"{TOP}/0/contexts/0/targets"
    found = [damon.read(f"{targets}/{n}/pid_target") for n in (0, 1)]
    assert damon.read(f"{targets}/nr_targets") == "2" and found == ["42", "43"]


def test_chance_does_not_make_busy_memory_young(damon: FakeDamon) -> None:
    """DAMON sets the age to 0 if the count of accesses changes by more than a tenth.

    Half of the samples find an access. The difference of two counts then has a deviation
    of the square root of half the samples.
    """
    machine = Machine(damon, MERCI)
    machine.steps(1)
    intervals = f"{TOP}/0/contexts/0/monitoring_attrs/intervals"
    sample, aggregate = (
        int(damon.read(f"{intervals}/{name}_us")) for name in ("sample", "aggr")
    )
    samples = aggregate / sample
    # Counts are whole numbers, and the curve is not.
    steady = math.erf((samples // 10 + 0.5) / math.sqrt(samples))
    age = int(machine.scheme(1, "access_pattern/age/min"))
    assert steady**age > 0.5


def test_the_quota_is_not_spent_on_memory_in_its_place(damon: FakeDamon) -> None:
    """DAMON charges it by virtual address, and the gap before the heap as cold."""
    with damon.path("/proc/42/maps").open("a") as maps:
        maps.write("400000-500000 r-xp 0 0:0 1 /bin/merci\n")
        maps.write("30000000-30100000 rw-p 0 0:0 0 [heap]\n")
    machine = Machine(damon, MERCI)
    machine.steps(1)
    for number in (0, 1):
        for name in ("sz", "nr_accesses", "age"):
            assert machine.scheme(number, f"quotas/weights/{name}_permil") == "0"
        assert machine.scheme(number, "filters/0/type") == "addr"
        assert machine.scheme(number, "filters/0/addr_start") == str(0x500000)
        assert machine.scheme(number, "filters/0/addr_end") == str(0x30000000)
    # A kdamond for a node sees no memory that is in its place.
    machine.service.stop()
    machine = Machine(damon, [])
    machine.steps(1)
    assert machine.scheme(0, "quotas/weights/age_permil") == "1000"
    assert machine.scheme(0, "quotas/weights/nr_accesses_permil", 1) == "1000"


def test_rates_follow_free_memory(damon: FakeDamon) -> None:
    set_free(damon, 0, 0)
    machine = Machine(damon, MERCI, headroom=0.1)
    machine.steps(1)
    # 102.4 MiB are missing for the next half second.
    assert int(machine.scheme(0, "quotas/bytes")) == pytest.approx(0.1 * GIB, rel=0.01)
    # The node is full, so nothing goes up.
    assert machine.scheme(1, "quotas/bytes") == "1"
    # An eighth of 30 s at the start, and a second after the first look.
    assert machine.scheme(0, "access_pattern/age/min") == "5"
    # There is room for 52.8 MiB. Looks are five seconds apart.
    set_free(damon, 0, 104)
    machine.steps(1)
    assert machine.scheme(0, "quotas/bytes") == "1"
    assert int(machine.scheme(1, "quotas/bytes")) == pytest.approx(
        52.8 * MIB / 2.5, rel=0.01
    )
    # The age of hot memory never changes.
    assert machine.scheme(1, "access_pattern/age/min") == "1"
    before = len(damon.commits)
    for _ in range(20):
        machine.steps(1)
    assert machine.scheme(0, "access_pattern/age/min") == "150"
    # Then there is nothing to change any more.
    settled = damon.commits.count("commit")
    machine.steps(3)
    assert damon.commits.count("commit") == settled and len(damon.commits) > before


def test_memory_that_the_kernel_keeps_is_not_free(damon: FakeDamon) -> None:
    zone = (
        "Node 0, zone {name}\n  pages free     {free}\n        boost    0\n"
        "        high     {high}\n        protection: (0, {kept}, {kept})\n"
    )
    low = zone.format(name="DMA", free=4000, high=100, kept=5000)
    rest = zone.format(name="Normal", free=40_000, high=10_000, kept=0)
    put(damon, "/proc/zoneinfo", low + rest)
    set_free(damon, 0, 500)
    free, total = free_and_total(damon)
    # The lower zone keeps all of its memory.
    assert free == {0: 30_000 * PAGE, 1: 4 * GIB} and total == {0: GIB, 1: 4 * GIB}
    # Both files are read one after the other.
    set_free(damon, 0, 1)
    assert free_and_total(damon)[0][0] == 1 << 20


def test_a_look_between_steps_changes_rates_alone(damon: FakeDamon) -> None:
    set_free(damon, 0, 200)
    machine = Machine(damon, MERCI)
    machine.steps(1)
    set_free(damon, 0, 0)
    machine.service.look(0.5)
    assert machine.service.control.busy
    assert int(machine.scheme(0, "quotas/bytes")) == pytest.approx(0.05 * GIB, rel=0.01)
    # Its errors are said, and end nothing.
    damon.path(f"{TOP}/0/state").unlink()
    damon.path(f"{TOP}/0/state").mkdir()
    machine.service.look(1.0)
    assert len(machine.said) == 3


def test_all_memory_is_watched_node_by_node(damon: FakeDamon) -> None:
    machine = Machine(damon, [])
    machine.steps(1)
    assert damon.running() == ["0", "1"]
    for slot, start in ((0, 0), (1, 1 << 30)):
        top = f"{TOP}/{slot}/contexts/0"
        assert damon.read(f"{top}/operations") == "paddr"
        region = f"{top}/targets/0/regions/0"
        assert damon.read(f"{region}/start") == str(start)
        assert damon.read(f"{region}/end") == str(start + (1 << 30))
    assert machine.scheme(0, "action", 1) == "migrate_hot"
    machine.service.stop()
    assert damon.running() == [] and read_state(damon) is None


def test_physical_memory_that_comes_later_is_watched(damon: FakeDamon) -> None:
    """NUMA balancing promotes, so there is one kdamond: the one that demotes."""
    put(damon, "/proc/sys/kernel/numa_balancing", "2")
    machine = Machine(damon, [])
    machine.steps(1)
    assert damon.running() == ["0"]
    put(damon, "/sys/devices/system/node/node0/memory7/state", "online")
    machine.steps(1)
    regions = f"{TOP}/0/contexts/0/targets/0/regions"
    assert damon.read(f"{regions}/nr_regions") == "2"
    assert damon.read(f"{regions}/1/start") == str(7 << 30)
    assert damon.running() == ["0"]


def test_bound_memory_stays_by_a_filter_of_addresses(damon: FakeDamon) -> None:
    machine = Machine(damon, MERCI)
    machine.steps(1)
    put(damon, "/proc/42/numa_maps", f"{BASE:x} bind:0 anon=64 N0=64")
    machine.steps(13)
    assert machine.scheme(0, "filters/nr_filters") == "2"
    assert machine.scheme(1, "filters/0/type") == "addr"
    assert machine.scheme(1, "filters/0/addr_start") == str(BASE)
    assert machine.scheme(1, "filters/0/addr_end") == str(BASE + 64 * PAGE)
    assert machine.scheme(1, "filters/1/type") == "young"
    assert damon.running() == ["0"]


def test_a_cpuset_leaves_its_process_out(damon: FakeDamon) -> None:
    put(damon, "/proc/42/status", "Mems_allowed_list:\t0")
    machine = Machine(damon, MERCI)
    machine.steps(2)
    assert damon.running() == []
    assert machine.said[0] == "left out: the cpuset of process 42 excludes node 1"
    # Physical memory has no owner, so nothing of it may move.
    machine = Machine(damon, [])
    machine.steps(1)
    assert damon.running() == []
    assert "name the other programs with [[process]]" in machine.said[0]


def test_a_process_that_numactl_bound_is_left_out(damon: FakeDamon) -> None:
    """Each new mapping is bound, too, so a filter for those of now is too little."""
    maps = f"{BASE:x} bind:0 anon=64 N0=64\n7ffe00000000 bind:0 stack anon=3 N0=3"
    put(damon, "/proc/42/numa_maps", maps)
    machine = Machine(damon, MERCI)
    machine.steps(1)
    assert damon.running() == []
    assert machine.said[0] == "left out: process 42 is bound to node 0 (numactl)"


def test_a_reused_pid_has_another_owner(damon: FakeDamon) -> None:
    put(damon, "/proc/42/numa_maps", f"{BASE:x} bind:0 anon=64 N0=64")
    machine = Machine(damon, MERCI)
    machine.steps(1)
    assert machine.scheme(0, "filters/nr_filters") == "2"
    stat = damon.path("/proc/42/stat")
    stat.write_text(stat.read_text().replace(" 420 ", " 999 "))
    damon.path("/proc/42/numa_maps").unlink()
    machine.steps(1)
    assert machine.scheme(0, "filters/nr_filters") == "1"


def test_a_new_process_comes_last(damon: FakeDamon) -> None:
    """DAMON keeps what it knows of a process by the place in its list."""
    machine = Machine(damon, MERCI)
    machine.steps(1)
    add_process(damon, 7, parent=42, name="helper")
    stat = damon.path("/proc/7/stat")
    stat.write_text(stat.read_text().replace(" 70 ", " 999 "))
    machine.steps(1)
    targets = f"{TOP}/0/contexts/0/targets"
    pids = [damon.read(f"{targets}/{at}/pid_target") for at in (0, 1)]
    assert pids == ["42", "7"]


def test_a_kdamond_that_stops_each_time_is_started_less_and_less(
    damon: FakeDamon,
) -> None:
    machine = Machine(damon, MERCI)
    for _ in range(60):
        machine.steps(1)
        if damon.running():
            damon.write(f"{TOP}/0/state", "off")
    # In five minutes: after 5, 10, 20, 40, 60, 60 and 60 s.
    assert damon.threads - 1000 <= 8
    assert len([line for line in machine.said if "has stopped" in line]) == 1
    # A kdamond that runs for a minute counts as good again.
    machine.steps(40)
    damon.write(f"{TOP}/0/state", "off")
    machine.steps(3)
    assert damon.running() == ["0"]


def test_jobs_that_follow_each_other_are_served_at_once(damon: FakeDamon) -> None:
    """DAMON stops by itself when all of its processes have ended."""
    machine = Machine(damon, MERCI)
    machine.steps(1)
    for pid in range(100, 110):
        for old in (42, pid - 1):
            damon.path(f"/proc/{old}/stat").unlink(missing_ok=True)
        damon.write(f"{TOP}/0/state", "off")
        add_process(damon, pid, name="merci")
        machine.steps(1)
        assert damon.running() == ["0"]
        assert damon.read(f"{TOP}/0/contexts/0/targets/0/pid_target") == str(pid)
    assert not any("has stopped" in line for line in machine.said)


def test_others_that_hide_the_abilities_of_damon_are_waited_for(
    damon: FakeDamon,
) -> None:
    """Their kdamond has no scheme, so no file tells what a scheme could do."""
    damon.write(f"{TOP}/nr_kdamonds", "1")
    damon.write(f"{TOP}/0/contexts/nr_contexts", "1")
    damon.write(f"{TOP}/0/state", "on")
    machine = Machine(damon, MERCI)
    machine.steps(1)
    assert "another user of DAMON" in machine.said[0]
    damon.write(f"{TOP}/0/state", "off")
    damon.write(f"{TOP}/nr_kdamonds", "0")
    machine.steps(2)
    assert damon.running() == ["0"] and damon.threads == 1002


def test_the_look_at_the_kernel_waits_for_other_commands(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pageferry.interleave.lock._DAMON_S", 0.1)
    with (
        lock.hold(damon, "interleave", 0.0, "wait"),
        pytest.raises(PageferryError, match="another pageferry command"),
    ):
        Machine(damon, MERCI)


def test_processes_come_and_go(damon: FakeDamon) -> None:
    machine = Machine(damon, MERCI)
    machine.steps(1)
    add_process(damon, 43, parent=42, name="helper")
    machine.steps(1)
    assert damon.read(f"{TOP}/0/contexts/0/targets/1/pid_target") == "43"
    for pid in (42, 43):
        damon.path(f"/proc/{pid}/stat").unlink()
    machine.steps(1)
    assert damon.read(f"{TOP}/nr_kdamonds") == "0"
    assert machine.said[-1] == "none of the processes is running"


def test_numa_balancing_promotes_if_it_has_tiers(damon: FakeDamon) -> None:
    put(damon, "/sys/kernel/mm/numa/demotion_enabled", "true")
    machine = Machine(damon, MERCI)
    machine.steps(1)
    assert "DAMON promotes" in machine.said[0]
    assert "reclaim demotes if a node is short" in machine.said[1]
    # An administrator switches it on.
    put(damon, "/proc/sys/kernel/numa_balancing", "2")
    machine.steps(1)
    assert damon.read(f"{TOP}/0/contexts/0/schemes/nr_schemes") == "2"
    assert [machine.scheme(n, "action") for n in (0, 1)] == ["migrate_cold"] * 2
    assert any(
        "NUMA balancing (numa_balancing has 2) promotes" in s for s in machine.said
    )


def test_the_rate_halves_while_programs_wait(damon: FakeDamon) -> None:
    machine = Machine(damon, MERCI)
    machine.steps(1)
    # 100 ms of 5 s are 2%.
    put(damon, "/proc/pressure/memory", "some avg10=0.00 total=100000")
    machine.steps(1)
    assert "waited 2.0% of the time: the rate of promotion is now" in machine.said[-1]
    # The next look sets it.
    machine.steps(1)
    assert machine.scheme(1, "quotas/bytes") == whole_pages(GIB // 4)
    # The rate grows again. A small change is not worth a commit.
    machine.steps(3)
    assert machine.scheme(1, "quotas/bytes") == whole_pages(GIB // 4)
    machine.steps(1)
    assert machine.scheme(1, "quotas/bytes") == whole_pages(GIB // 2)


def test_threads_that_wait_at_once_do_not_count_several_times(damon: FakeDamon) -> None:
    put(damon, "/sys/devices/system/node/node0/cpulist", "0-63")
    put(damon, "/sys/kernel/mm/migrate_offload/stats/reasons/damon/waited_sum_ns", "0")
    machine = Machine(damon, MERCI)
    machine.steps(1)
    # 64 threads waited for the same page, 10 ms of 5 s: 0.2%.
    sum_ns = 64 * 10_000_000
    put(
        damon,
        "/sys/kernel/mm/migrate_offload/stats/reasons/damon/waited_sum_ns",
        sum_ns,
    )
    machine.steps(1)
    assert machine.scheme(1, "quotas/bytes") == whole_pages(GIB // 2)


def test_the_rate_is_that_of_all_kdamonds_together(damon: FakeDamon) -> None:
    add_node(damon, 2)
    put(damon, "/sys/devices/system/node/node2/memory2/state", "online")
    machine = Machine(damon, [], tiers=[[0], [1], [2]])
    machine.steps(1)
    assert damon.running() == ["0", "1", "2"]
    rates = [machine.scheme(at, "quotas/bytes", slot) for slot, at in WAYS]
    # Two schemes promote, and two have nothing to demote.
    assert rates == ["1", "1", whole_pages(GIB // 4), whole_pages(GIB // 4)]


def test_the_rate_halves_by_ping_pong(damon: FakeDamon) -> None:
    machine = Machine(damon, MERCI)
    pages = [BASE + at * PAGE for at in range(64)]
    machine.mover.where = dict.fromkeys(pages, 1)
    machine.steps(1)
    machine.mover.where = dict.fromkeys(pages, 0)
    machine.steps(1)
    machine.mover.where = dict.fromkeys(pages, 1)
    machine.steps(1)
    state = read_state(damon)
    assert state is not None and state.rate_part == 0.5
    assert state.sampled_pages == 64 == state.sampled_promotions
    assert state.sampled_ping_pong == 64
    found = [line for line in machine.said if "64 sampled pages came back" in line]
    assert len(found) == 1 and found[0].endswith("is now 0.54 GB/s")
    # Each change is said.
    machine.steps(4)
    assert len([line for line in machine.said if "rate of promotion" in line]) == 5


def test_totals_outlast_a_restart_of_damon(damon: FakeDamon) -> None:
    machine = Machine(damon, MERCI)
    machine.steps(3)
    # FakeDamon says 80 KiB for each scheme of each kdamond.
    state = machine.service.kdamonds.state
    assert (state.promoted_bytes, state.demoted_bytes) == (81920, 81920)
    damon.write(f"{TOP}/0/state", "off")
    machine.steps(2)
    assert damon.running() == ["0"]
    assert state.promoted_bytes == 2 * 81920


def test_a_killed_service_leaves_nothing_in_the_way(damon: FakeDamon) -> None:
    Machine(damon, []).steps(1)
    assert damon.running() == ["0", "1"]
    machine = Machine(damon, MERCI)
    assert machine.said == ["stopped the kdamonds of a service that was killed"]
    machine.steps(1)
    assert damon.running() == ["0"]
    # No other service begins, so the administrator stops it.
    assert stop_all(damon) == 1
    assert damon.running() == [] and not damon.path(STATE).exists()
    with pytest.raises(PageferryError, match="nothing to stop"):
        stop_all(damon)


def test_kdamonds_of_others_are_left_alone(damon: FakeDamon) -> None:
    machine = Machine(damon, MERCI)
    damon.write(f"{TOP}/nr_kdamonds", "1")
    damon.write(f"{TOP}/0/contexts/nr_contexts", "1")
    damon.write(f"{TOP}/0/state", "on")
    machine.steps(3)
    assert damon.running() == ["0"]
    assert len([s for s in machine.said if "another user of DAMON" in s]) == 1
    damon.write(f"{TOP}/0/state", "off")
    damon.write(f"{TOP}/nr_kdamonds", "0")
    # The next tries wait for longer: 5 s, then 10 s.
    machine.steps(3)
    assert damon.running() == ["0"]


@pytest.mark.parametrize("failing", ["state", "quotas/bytes", "filters/0/type"])
def test_a_write_that_fails_leaves_no_kdamond(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    machine = Machine(damon, [])
    write = FakeDamon.write
    tries: list[str] = []

    def fail(self: FakeDamon, name: str, value: str) -> None:
        if name.startswith(f"{TOP}/1/") and name.endswith(failing) and not tries:
            tries.append(name)
            raise PageferryError("cannot write", value=name, reason="Invalid argument")
        write(self, name, value)

    monkeypatch.setattr(FakeDamon, "write", fail)
    machine.steps(1)
    assert damon.running() == [] and tries
    state = read_state(damon)
    assert state is not None and state.threads == {}
    machine.steps(2)
    assert damon.running() == ["0", "1"]


@pytest.mark.parametrize("failing", ["update_schemes_stats", "off"])
def test_one_kdamond_that_cannot_stop_does_not_keep_the_others(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    machine = Machine(damon, [])
    machine.steps(1)
    write = FakeDamon.write
    with monkeypatch.context() as patch:

        def fail(self: FakeDamon, name: str, value: str) -> None:
            if name == f"{TOP}/0/state" and value == failing:
                raise PageferryError("cannot write", value=name, reason="Invalid")
            write(self, name, value)

        patch.setattr(FakeDamon, "write", fail)
        if failing == "off":
            with pytest.raises(PageferryError, match="cannot write"):
                machine.service.stop()
        else:
            machine.service.stop()
    # The state still names the one that runs.
    left = ["0"] if failing == "off" else []
    assert damon.running() == left
    if left:
        assert stop_all(damon) == 1
    assert damon.running() == [] and damon.read(f"{TOP}/nr_kdamonds") == "0"


def test_a_full_disk_does_not_end_the_service(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(damon, MERCI)
    machine.steps(1)
    full = OSError(28, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.mkstemp", Mock(side_effect=full))
        machine.steps(2)
    assert "No space left on device" in machine.said[-1]
    machine.steps(2)
    assert damon.running() == ["0"] and read_state(damon) is not None


def test_what_a_kernel_lacks_is_named(damon: FakeDamon) -> None:
    damon.dests = False
    with pytest.raises(PageferryError, match="cannot serve these tiers") as caught:
        Machine(damon, MERCI)
    assert caught.value.code == ExitCode.UNSUPPORTED
    # One node for each tier, by physical address, needs no dests.
    Machine(damon, []).steps(1)
    assert damon.running() == ["0", "1"]


def test_processes_have_two_tiers(damon: FakeDamon) -> None:
    add_node(damon, 2)
    with pytest.raises(PageferryError, match="two tiers"):
        Machine(damon, MERCI, tiers=[[0], [1], [2]])
    with pytest.raises(PageferryError, match="no such node: 7"):
        Machine(damon, MERCI, tiers=[[0], [7]])
    damon.path("/sys/devices/virtual/memory_tiering/memory_tier22/nodelist").unlink()
    with pytest.raises(PageferryError, match="one memory tier"):
        Machine(damon, MERCI)


def test_a_tier_of_two_nodes_is_refused(damon: FakeDamon) -> None:
    """Hot memory of one socket would move to the other one."""
    add_node(damon, 2)
    put(damon, "/sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0,2")
    for programs in (MERCI, []):
        with pytest.raises(PageferryError, match="several nodes") as caught:
            Machine(damon, programs)
        assert caught.value.code == ExitCode.UNSUPPORTED
        assert caught.value.hint == "name one node for each tier: tiers = [[0], [1]]"


def test_a_process_with_memory_outside_all_tiers_is_left_out(damon: FakeDamon) -> None:
    add_node(damon, 2)
    # The kernel lists possible nodes, too; node 3 is not there.
    put(damon, "/proc/42/status", "Mems_allowed_list:\t0-3")
    machine = Machine(damon, MERCI, tiers=[[0], [1]])
    machine.steps(1)
    assert damon.running() == []
    assert (
        "process 42 may have memory on node 2, which is in no tier" in machine.said[0]
    )
    put(damon, "/proc/42/status", "Mems_allowed_list:\t0-1")
    machine.steps(13)
    assert damon.running() == ["0"]
    # By physical address, memory of node 2 is not watched.
    put(damon, "/proc/42/status", "Mems_allowed_list:\t0-3")
    machine.service.stop()
    machine = Machine(damon, [], tiers=[[0], [1]])
    machine.steps(1)
    assert damon.running() == ["0", "1"]
