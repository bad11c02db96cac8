# SPDX-License-Identifier: GPL-2.0-only
"""The service of the balancer, on a machine made of files."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from helpers.balance_machine import RATES, Machine, furnish, put, show
from helpers.fake_damon import FakeDamon
from helpers.fake_process import BASE, FakeMover, add_area, add_node, add_process
from pageferry.balance import bandwidth, perf, programs, sources
from pageferry.balance.balancer import Kind
from pageferry.balance.config import Program
from pageferry.errors import ExitCode, PageferryError
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Two nodes, a program with a child, and a foreign program."""
    files = Files(root=tmp_path)
    furnish(files)
    return files


def test_programs_are_found_by_pid_name_and_cgroup(files: Files) -> None:
    def pids(program: Program) -> list[int]:
        return [process.pid for process in programs.find(files, program)]

    assert pids(Program(pid=42)) == [42, 43]
    assert pids(Program(name="merci")) == [42, 43]
    assert pids(Program(name="merci", include_children=False)) == [42]
    put(files, "/sys/fs/cgroup/app/cgroup.procs", "")
    put(files, "/sys/fs/cgroup/app/job/cgroup.procs", "50\n99")
    assert pids(Program(cgroup="/sys/fs/cgroup/app")) == [50]
    assert pids(Program(cgroup="/sys/fs/cgroup/none")) == []
    assert pids(Program(name="nobody")) == []
    assert processes.resident_bytes(files, [42, 43, 99]) == 2 * 8 * 4096


def test_bandwidth_by_hmat_where_it_knows_all_nodes(files: Files) -> None:
    top = "/sys/devices/system/node"
    put(files, f"{top}/node0/access0/initiators/read_bandwidth", "102400")
    assert bandwidth.from_hmat(files) == {}
    put(files, f"{top}/node1/access1/initiators/read_bandwidth", "25600")
    found = {0: 102400.0 * (1 << 20), 1: 25600.0 * (1 << 20)}
    assert bandwidth.find(files, {}) == (found, "HMAT")
    said = {"0": 72.0, "1": 26.0}
    assert bandwidth.find(files, said) == (RATES, "configuration")
    assert bandwidth.first_with_cpus(files) == 0


def mbm(files: Files, group: str, total: object, local: object) -> None:
    put(files, f"/sys/fs/resctrl/{group}mon_data/mon_L3_00/mbm_total_bytes", total)
    put(files, f"/sys/fs/resctrl/{group}mon_data/mon_L3_00/mbm_local_bytes", local)


def test_resctrl_adds_up_its_groups(files: Files) -> None:
    assert "CONFIG" in (sources.resctrl_obstacle(files) or "")
    put(files, "/sys/fs/resctrl/tasks", "")
    assert "mount" in (sources.resctrl_obstacle(files) or "")
    features = "/sys/fs/resctrl/info/L3_MON/mon_features"
    put(files, features, "llc_occupancy")
    assert "does not count" in (sources.resctrl_obstacle(files) or "")
    # All traffic would count as remote.
    put(files, features, "llc_occupancy\nmbm_total_bytes")
    assert "local and total" in (sources.resctrl_obstacle(files) or "")
    put(files, features, "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes")
    put(files, "/sys/devices/system/cpu/cpu0/cache/index3/id", "0")
    assert sources.resctrl_obstacle(files) is None
    mbm(files, "", 1000, 900)
    mbm(files, "jobs/", 500, 500)
    # Jobs already count this.
    mbm(files, "jobs/mon_groups/one/", 100, 100)
    clock = iter([10.0, 12.0])
    source = sources.find(files, "auto", RATES, lambda: next(clock))
    assert source.name == "resctrl"
    mbm(files, "", 3000, 1900)
    mbm(files, "jobs/", "Unavailable", "Unavailable")
    # The group keeps its last value.
    assert source.read() == {0: (2400 - 1400) / 2, 1: (1100 - 100) / 2}


def test_resctrl_is_refused_with_a_third_node(files: Files) -> None:
    furnish_resctrl(files)
    assert sources.resctrl_obstacle(files) is None
    add_node(files, 2)
    with pytest.raises(PageferryError, match="no counter shows") as caught:
        sources.find(files, "resctrl", RATES, lambda: 0.0)
    assert "remote bytes among nodes 0-2" in (caught.value.reason or "")


def test_a_machine_that_counts_nothing_says_so(files: Files) -> None:
    with pytest.raises(PageferryError, match="no counter shows") as caught:
        sources.find(files, "auto", RATES, lambda: 0.0)
    assert caught.value.code == ExitCode.UNSUPPORTED
    assert "resctrl: " in (caught.value.reason or "")


def test_counters_that_are_reset_say_nothing() -> None:
    values = iter([{0: 100.0}, {0: 50.0}, {0: 150.0}])
    clock = iter([0.0, 1.0, 2.0])
    source = sources.Counting("x", lambda: next(values), lambda: next(clock))
    assert source.read() == {0: 0.0}
    assert source.read() == {0: 100.0}


def test_perf_events_by_their_description(files: Files) -> None:
    top = "/sys/bus/event_source/devices/uncore_imc_0"
    assert "no counters" in (perf.obstacle(files) or "")
    put(files, f"{top}/events/cas_count_read", "event=0x04,umask=0x03")
    put(files, f"{top}/events/cas_count_read.unit", "MiB")
    put(files, f"{top}/format/event", "config:0-7")
    put(files, f"{top}/format/umask", "config:8-15")
    put(files, "/sys/bus/event_source/devices/cpu/events/cycles", "event=0x3c")
    assert perf.events(files) == [("uncore_imc_0", "cas_count_read")]
    text = "event=0x04,umask=0x03"
    assert perf.config_of(files, "uncore_imc_0", text) == 0x304


def test_memory_goes_out_and_comes_home(files: Files, tmp_path: Path) -> None:
    mover = FakeMover()
    path = tmp_path / "balance.prom"
    machine = Machine(files, mover, metrics=str(path))
    assert machine.until(10.0) == []
    assert mover.moves == []
    assert machine.until(30.0) == [Kind.SPREAD]
    # A quarter each of the program and its child, which have the same addresses.
    assert sorted(mover.where.values()) == [1, 1]
    assert 'changes_total{kind="spread"} 1' in path.read_text()
    assert machine.until(50.0) == [Kind.HOME]
    assert set(mover.where.values()) == {0}
    assert 'node_weight{node="1"} 0' in path.read_text()
    assert machine.control.store.all() == []
    assert machine.until(80.0) == []
    assert len([line for line in machine.said if "->" in line]) == 2


def test_with_damon_the_kernel_moves(tmp_path: Path) -> None:
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    mover = FakeMover()
    machine = Machine(damon, mover, again="4s")
    show(damon, 8, 0)
    assert machine.until(20.0) == [Kind.SPREAD]
    assert damon.running() == ["0"]
    assert machine.balancer.is_moving
    show(damon, 6, 2)
    machine.until(22.0)
    # 95% have arrived, so DAMON moves the rest.
    assert not machine.balancer.is_moving and damon.running() == ["0"]
    machine.until(30.0)
    # Memory has arrived, so no kdamond runs, and the session goes on.
    assert damon.running() == []
    assert machine.control.store.require(42).resting
    assert machine.until(40.0) == [Kind.HOME]
    assert damon.running() == ["0"]
    show(damon, 8, 0)
    machine.until(50.0)
    # All memory is at home, so the balancer drops the program.
    assert damon.running() == []
    assert machine.control.store.all() == []
    assert mover.moves == []


def test_a_look_that_takes_long_does_not_end_a_move(tmp_path: Path) -> None:
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    show(damon, 8, 0)
    machine = Machine(damon, FakeMover())
    ticks = count(step=2.0)
    # Each look takes 2 s, so the next one is 200 s later.
    machine.service.stopwatch = lambda: next(ticks)
    machine.until(14.0)
    machine.service._next_look_s = 0.0
    machine.until(15.0)
    assert machine.balancer.is_moving
    assert machine.until(200.0) == [] and machine.balancer.is_moving


def test_without_processes_nothing_is_decided(files: Files) -> None:
    machine = Machine(files, FakeMover())
    machine.until(20.0)
    for pid in (42, 43):
        files.path(f"/proc/{pid}/stat").unlink()
    assert machine.until(30.0) == []
    assert machine.balancer.is_home
    assert machine.said[-1] == "none of the processes is running"
    assert machine.control.store.all() == []


def test_memory_that_comes_later_is_placed_too(files: Files) -> None:
    mover = FakeMover()
    machine = Machine(files, mover, again="5s")
    machine.until(20.0)
    add_area(files, 42, BASE + (1 << 30), list(range(200, 208)))
    machine.until(26.0)
    assert sorted(mover.where.values()) == [1, 1, 1, 1]


def test_a_process_that_comes_later_gets_the_same_weights(files: Files) -> None:
    mover = FakeMover()
    machine = Machine(files, mover)
    machine.until(20.0)
    add_process(files, 60, name="merci")
    add_area(files, 60, BASE + (1 << 30), list(range(200, 208)))
    # A child that ends at once would not be worth a change.
    machine.until(22.0)
    assert sorted(mover.where.values()) == [1, 1]
    machine.until(23.0)
    assert sorted(mover.where.values()) == [1, 1, 1, 1]
    # The program that names the session ends. The session stays in charge of the
    # others.
    files.path("/proc/42/stat").unlink()
    machine.until(24.0)
    assert [known.pid for known in machine.control.store.all()] == [60]


@pytest.mark.parametrize(("on_stop", "away"), [("leave", 2), ("home", 0)])
def test_the_way_back(files: Files, on_stop: str, away: int) -> None:
    mover = FakeMover()
    machine = Machine(files, mover, on_stop=on_stop)
    machine.until(20.0)
    machine.service.stop()
    assert sum(mover.where.values()) == away
    assert machine.control.store.all() == []
    assert machine.said[-1].startswith("stopped: memory")


def test_a_dry_run_explains_and_moves_nothing(files: Files) -> None:
    files.dry_run = True
    mover = FakeMover()
    machine = Machine(files, mover)
    assert machine.until(60.0) == [Kind.SPREAD, Kind.HOME]
    assert mover.moves == []
    assert any("0=1,1=0 -> 0=3,1=1" in line for line in machine.said)


def test_what_fails_is_said_once_and_counted(files: Files) -> None:
    mover = FakeMover(ends_after=0)
    machine = Machine(files, mover)
    machine.until(30.0)
    assert machine.service.figures.failures >= 1
    assert len([s for s in machine.said if "ended meanwhile" in s]) == 1


def test_what_somebody_has_started_by_hand_is_left_to_him(files: Files) -> None:
    damon = FakeDamon(root=files.root)
    machine = Machine(damon, FakeMover())
    from pageferry.interleave.control import Request
    from pageferry.interleave.weights import parse_weights

    machine.control.start(Request(42, parse_weights("0=1,1=1")))
    machine.until(30.0)
    assert any("already started" in line for line in machine.said)
    assert str(machine.control.store.require(42).wanted) == "0=1,1=1"


def test_perf_is_refused_if_it_cannot_see_a_node(files: Files) -> None:
    top = "/sys/bus/event_source/devices/uncore_imc_0"
    put(files, f"{top}/events/cas_count_read", "event=0x04")
    put(files, f"{top}/events/cas_count_read.unit", "MiB")
    # The CPUs of a large machine have higher numbers than its nodes.
    put(files, "/sys/devices/system/node/node0/cpulist", "0,1100-1101")
    put(files, f"{top}/cpumask", "0,1100")
    assert perf.obstacle(files, RATES) == "no memory controller counts for node 1"
    with pytest.raises(PageferryError, match="no counter shows") as caught:
        sources.find(files, "perf", RATES, lambda: 0.0)
    assert "no memory controller counts for node 1" in (caught.value.reason or "")
    furnish_resctrl(files)
    with pytest.raises(PageferryError) as caught:
        sources.find(files, "perf", RATES, lambda: 0.0)
    assert caught.value.hint == "source = 'resctrl' in the configuration"
    assert sources.find(files, "auto", RATES, lambda: 0.0).name == "resctrl"


def furnish_resctrl(files: Files) -> None:
    features = "/sys/fs/resctrl/info/L3_MON/mon_features"
    put(files, features, "mbm_total_bytes\nmbm_local_bytes")
    put(files, "/sys/devices/system/cpu/cpu0/cache/index3/id", "0")


def test_a_service_that_was_killed_is_followed_by_another(tmp_path: Path) -> None:
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    show(damon, 8, 0)
    first = Machine(damon, FakeMover())
    first.until(15.0)
    show(damon, 6, 2)
    first.until(20.0)
    # No stop(): the first service was killed.
    machine = Machine(damon, FakeMover())
    assert str(machine.balancer.weights) == "0=3,1=1"
    assert any("goes on with 0=3,1=1" in line for line in machine.said)
    machine.now_s = 12.0
    machine.until(20.0)
    assert [known.pid for known in machine.control.store.all()] == [42]
    assert damon.running() == ["0"]
    # A third one takes care of other programs, so it stops the session.
    for pid in (42, 43):
        files = damon.path(f"/proc/{pid}/stat")
        files.write_text(
            files.read_text().replace("merci", "none").replace("helper", "x")
        )
    machine = Machine(damon, FakeMover())
    assert machine.control.store.all() == [] and damon.running() == []


def test_children_that_end_soon_change_nothing(tmp_path: Path) -> None:
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    show(damon, 8, 0)
    machine = Machine(damon, FakeMover())
    machine.until(15.0)
    show(damon, 6, 2)
    machine.until(20.0)
    commits = len(damon.commits)
    for pid in range(1000, 1004):
        add_process(damon, pid, parent=42, name="brief")
        add_area(damon, pid, BASE, [100])
        machine.until(machine.now_s + 1.0)
        damon.path(f"/proc/{pid}/stat").unlink()
    assert commits == len(damon.commits) == 0


def test_a_pid_that_means_another_process_now(files: Files) -> None:
    machine = Machine(files, FakeMover())
    machine.until(20.0)
    stat = files.path("/proc/42/stat")
    stat.write_text(stat.read_text().replace(" 420 ", " 99999 "))
    machine.until(24.0)
    session = machine.control.store.require(43)
    assert session.members in ([], [42]) and session.start_time == 430


def test_refused_starts_change_nothing(files: Files) -> None:
    put(files, "/proc/42/status", "Mems_allowed_list:\t0")
    mover = FakeMover()
    machine = Machine(files, mover)
    assert Kind.SPREAD in machine.until(30.0)
    assert machine.balancer.is_home and mover.moves == []
    assert len([line for line in machine.said if "cpuset" in line]) == 1
    assert machine.service.figures.changes == {}
    # Later tries wait longer.
    assert machine.service.figures.failures <= 3


def test_an_unknown_bandwidth_says_what_to_do(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Path:
        raise PageferryError("cannot find cc")

    monkeypatch.setattr("pageferry.bench.build.build", fail)
    with pytest.raises(PageferryError, match="bandwidth of the nodes") as caught:
        bandwidth.find(files, {})
    assert "--measure" in (caught.value.hint or "")
    assert "cannot find cc" in (caught.value.reason or "")
