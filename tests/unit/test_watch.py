# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry top` on fake kernels."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import fake_watch as fake
from pageferry.cli import main
from pageferry.errors import PageferryError
from pageferry.sysfs.files import Files
from pageferry.watch import interval, pairs, screen, sources, tracing, view
from pageferry.watch.events import Moves, Totals
from pageferry.watch.interval import Watcher
from pageferry.watch.pairs import Pair


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Watcher]:
    """A watcher of a stock kernel."""
    fake.stock(tmp_path)
    found = Watcher(Files(tmp_path))
    yield found
    found.close()


def test_lines_of_the_trace_are_understood() -> None:
    totals = Totals()
    lines = [
        fake.migrated("my prog-x-77", "syscall_or_cpuset", 512),
        fake.migrated("my prog-x-77", "syscall_or_cpuset", 100, 12),
        fake.migrated("kswapd0-50", "demotion", 32),
        "CPU:1 [LOST 42 EVENTS]",
        "  bash-1 [000] ..... 1.0: sys_enter: NR 1",
        "",
    ]
    totals.add(lines, lambda pid, number: None)
    assert totals.reasons == {
        "syscall_or_cpuset": Moves(2, 612, 12),
        "demotion": Moves(1, 32, 0),
    }
    key = (77, "my prog-x", "syscall_or_cpuset")
    assert totals.callers[key] == Moves(2, 612, 12)
    assert totals.lost_events == 42


KDAMONDS = "sys/kernel/mm/damon/admin/kdamonds"


def kdamond(root: Path, pid: int) -> None:
    """Fake kdamond 3 with two schemes."""
    schemes = f"{KDAMONDS}/3/contexts/0/schemes"
    fake.write(root, {f"{KDAMONDS}/nr_kdamonds": "4", f"{KDAMONDS}/3/pid": str(pid)})
    fake.write(root, {f"{schemes}/0/action": "migrate_hot"})
    fake.write(root, {f"{schemes}/1/action": "migrate_cold"})


@pytest.mark.parametrize(
    "middle", ["(     77) [001] .....", "(-------) [001] d..1.", "[001]"]
)
def test_options_of_the_trace_change_no_figure(middle: str) -> None:
    line = fake.migrated("my prog-x-77", "demotion", 5)
    assert "[001] ....." in line
    totals = Totals()
    totals.add([line.replace("[001] .....", middle)], lambda pid, number: None)
    assert list(totals.callers) == [(77, "my prog-x", "demotion")]


def test_an_unknown_number_of_lost_events_counts() -> None:
    totals = Totals()
    totals.add(["CPU:3 [LOST EVENTS]"], lambda pid, number: None)
    assert totals.lost_events == 1


def test_the_instance_sets_its_options(tmp_path: Path) -> None:
    fake.stock(tmp_path)
    options = f"{fake.INSTANCE}/options"
    fake.write(tmp_path, {f"{options}/context-info": "0", f"{options}/hex": "1"})
    tracing.Trace(Files(tmp_path)).close()
    assert (tmp_path / options / "context-info").read_text() == "1\n"
    assert (tmp_path / options / "hex").read_text() == "0\n"


def test_names_send_no_commands_to_the_terminal(tmp_path: Path) -> None:
    fake.stock(tmp_path)
    fake.ours(tmp_path)
    group = tmp_path / "sys/fs/cgroup/e\x1b[2J"
    fake.write(group, {"memory.stat": "migrate_bytes 0"})
    watcher = Watcher(Files(tmp_path))
    fake.write(group, {"memory.stat": "migrate_bytes 4096"})
    fake.say(tmp_path, fake.migrated("a\x1b[2J-1", "demotion", 5))
    shown = view.text(watcher.interval())
    assert "a?[2J" in shown and "e?[2J" in shown and "\x1b" not in shown


def test_damon_promotes_or_demotes(tmp_path: Path) -> None:
    kdamond(tmp_path, 9)
    fake.stock(tmp_path)
    watcher = Watcher(Files(tmp_path))

    def before(number: int) -> str:
        head = "kdamond.0-9 [000] ..... 1.0: damos_before_apply: ctx_idx=0"
        return f"{head} scheme_idx={number} target_idx=0 nr_regions=9 1-2: 3 4"

    fake.say(
        tmp_path,
        before(0),
        fake.migrated("kdamond.0-9", "damon", 5),
        before(1),
        fake.migrated("kdamond.0-9", "damon", 6),
        fake.migrated("kdamond.0-9", "damon", 1),
        fake.migrated("kdamond.8-10", "damon", 3),
    )
    moved = {k: v.moved_pages for k, v in watcher.interval().reasons.items()}
    assert moved == {"damon promotion": 5, "damon demotion": 7, "damon": 3}


def test_the_lock_of_damon_is_taken_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdamond(tmp_path, 9)
    fake.stock(tmp_path)
    watcher = Watcher(Files(tmp_path))
    reads: list[str] = []
    read = Files.read_if_there

    def counted(files: Files, name: str) -> str:
        reads.append(name)
        return read(files, name)

    monkeypatch.setattr(Files, "read_if_there", counted)
    for _ in range(8):
        for pid in (9, 10):
            fake.say(tmp_path, *[fake.migrated(f"kdamond-{pid}", "damon", 5)] * 10)
        moved = {k: v.moved_pages for k, v in watcher.interval().reasons.items()}
        assert moved == {"damon promotion": 50, "damon": 50}
    # Once for the kdamond, and three times for a PID that no file names.
    assert reads.count(f"/{KDAMONDS}/3/pid") == 4


def test_an_interval_has_what_grew(tmp_path: Path, watcher: Watcher) -> None:
    fake.say(tmp_path, fake.migrated("a-1", "compaction", 40, 2))
    vmstat = "pgmigrate_success 140\npgmigrate_fail 3\n"
    fake.write(tmp_path, {"proc/vmstat": vmstat})
    node = "sys/devices/system/node/node2/vmstat"
    fake.write(tmp_path, {node: "pgdemote_kswapd 30\npgdemote_direct 2"})
    first = watcher.interval()
    assert (first.moved_pages, first.failed_pages) == (40, 2)
    assert first.reasons == {"compaction": Moves(1, 40, 2)}
    assert first.pairs == (Pair("demotion", (2,), (0,), 32),)
    said = view.document(first)
    assert said["moved_bytes"] == 40 * 4096
    assert said["pairs"] == [
        {"kind": "demotion", "from": [2], "to": [0], "bytes": 32 * 4096}
    ]
    shown = view.text(first)
    assert "160 KiB migrated" in shown
    assert "2 pages failed" in shown
    assert f"not shown: {interval.NO_OFFLOAD}" in shown
    # Nothing happened since.
    second = watcher.interval()
    assert second.moved_pages == 0
    assert (second.reasons, second.processes, second.pairs) == ({}, {}, ())


def test_the_first_interval_begins_with_its_snapshot(tmp_path: Path) -> None:
    fake.stock(tmp_path)
    fake.say(tmp_path, fake.migrated("a-1", "compaction", 1000))
    watcher = Watcher(Files(tmp_path))
    fake.say(tmp_path, fake.migrated("a-1", "compaction", 40))
    assert watcher.interval().reasons == {"compaction": Moves(1, 40, 0)}


THREE_TIERS = {0: 4, 1: 4, 2: 22, 3: 61}


@pytest.mark.parametrize(
    ("tiers", "nodes", "expected"),
    [
        # Two nodes make a pair without any tier.
        (
            {0: None, 1: None},
            {0: {"pgpromote_success": 5}},
            [("promotion", (1,), (0,), 5)],
        ),
        (
            THREE_TIERS,
            {2: {"pgpromote_success": 7, "pgdemote_kswapd": 1, "pgdemote_direct": 2}},
            [("promotion", (3,), (2,), 7), ("demotion", (2,), (3,), 3)],
        ),
        (THREE_TIERS, {1: {"pgdemote_kswapd": 4}}, [("demotion", (1,), (2, 3), 4)]),
        ({0: 4}, {0: {"pgdemote_kswapd": 4}}, [("demotion", (0,), (), 4)]),
    ],
)
def test_pairs_of_nodes_follow_from_tiers(
    tiers: dict[int, int | None],
    nodes: dict[int, dict[str, int]],
    expected: list[tuple[str, tuple[int, ...], tuple[int, ...], int]],
) -> None:
    assert list(pairs.found(nodes, tiers)) == [Pair(*one) for one in expected]


def test_a_pair_names_its_candidates(tmp_path: Path, watcher: Watcher) -> None:
    top = "sys/devices/system/node/node3"
    fake.write(tmp_path, {f"{top}/meminfo": "Node 3 MemTotal: 4 kB"})
    node = "sys/devices/system/node/node2/vmstat"
    fake.write(tmp_path, {node: "pgdemote_kswapd 30"})
    assert re.search(r"demotion +2 +0 or 3 ", view.text(watcher.interval()))


def test_threads_count_for_their_process(tmp_path: Path, watcher: Watcher) -> None:
    fake.write(tmp_path, {"proc/71/status": "Name:\tio-1\nTgid:\t70\nNgid:\t0"})
    fake.write(
        tmp_path, {"proc/70/status": "Name:\tdb\nTgid:\t70", "proc/70/comm": "db"}
    )
    for name in ("db-70", "io-1-71", "gone-72"):
        fake.say(tmp_path, fake.migrated(name, "numa_misplaced", 5))
    watcher.collect()
    # A thread that has ended since was looked up before.
    (tmp_path / "proc/71/status").unlink()
    fake.say(tmp_path, fake.migrated("io-1-71", "numa_misplaced", 5))
    moved = {k: v.moved_pages for k, v in watcher.interval().processes.items()}
    assert moved == {
        (70, "db", "numa_misplaced"): 15,
        (72, "gone", "numa_misplaced"): 5,
    }


def test_a_line_may_come_in_two_parts(tmp_path: Path, watcher: Watcher) -> None:
    line = fake.migrated("a-1", "compaction", 40)
    pipe = tmp_path / fake.INSTANCE / "trace_pipe"
    with pipe.open("a") as stream:
        stream.write(line[:60])
    watcher.collect()
    fake.say(tmp_path, line[60:])
    assert watcher.interval().reasons == {"compaction": Moves(1, 40, 0)}


def test_our_kernel_shows_engines_and_times(tmp_path: Path) -> None:
    fake.stock(tmp_path)
    fake.ours(tmp_path)
    watcher = Watcher(Files(tmp_path))
    stats = f"{fake.OFFLOAD}/stats"
    fake.write(
        tmp_path,
        {
            f"{stats}/reasons/demotion/engine_bytes": str(4096 + (8 << 20)),
            f"{stats}/reasons/demotion/declined_folios": "3",
            f"{stats}/reasons/demotion/unmapped_hist": "1024 10\n2048 100",
            f"{stats}/engines/mtcopy/engine_bytes": str(4096 + (8 << 20)),
            "sys/module/dcbm/channels/dma0chan0/bytes": "65536",
            "sys/fs/cgroup/web/memory.stat": "migrate_bytes 8192",
        },
    )
    found = watcher.interval()
    assert found.engine == "mtcopy"
    assert found.offered["demotion"]["engine_bytes"] == 8 << 20
    times = found.times["demotion"]["unmapped_hist"]
    assert times.buckets == ((2048, 100),)
    assert found.cgroups == {"/web": {"migrate_bytes": 8192}}
    assert found.busy_channels == 1
    assert found.unseen == ()
    shown = view.text(found)
    for words in ("declined 3", "dma0chan0", "/web", "folios unmapped"):
        assert words in shown
    said: Any = view.document(found)
    assert said["times"][0]["p99_ns"] in range(2048, 2304)


def test_without_root_the_trace_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.write(tmp_path, fake.STOCK)
    files = Files(tmp_path)
    assert "mount -t tracefs" in (tracing.obstacle(files) or "")
    (tmp_path / "sys/kernel/tracing/events").mkdir(parents=True)
    assert "mm_migrate_pages" in (tracing.obstacle(files) or "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert tracing.obstacle(files) == "only root may trace the kernel"
    fake.stock(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert tracing.obstacle(files) == "only root may trace the kernel"
    watcher = Watcher(files)
    fake.write(tmp_path, {"proc/vmstat": "pgmigrate_success 300"})
    found = watcher.interval()
    assert found.moved_pages == 200
    assert interval.NO_TRACE in view.text(found)


def test_a_fast_kernel_does_not_keep_the_reader(
    tmp_path: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"{fake.migrated('a-1', 'compaction', 40)}\n".encode()
    reads = 0

    def endless(_handle: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        assert reads < 1000
        return line * (size // len(line))

    monkeypatch.setattr(os, "read", endless)
    assert watcher.interval().reasons["compaction"].calls


@pytest.mark.parametrize("error", [KeyboardInterrupt, PageferryError("no counters")])
def test_a_failed_start_leaves_no_trace(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException] | BaseException,
) -> None:
    fake.stock(tmp_path)
    closed: list[tracing.Trace] = []
    monkeypatch.setattr(tracing.Trace, "close", lambda trace: closed.append(trace))

    def fail(_files: Files) -> sources.Snapshot:
        raise error

    monkeypatch.setattr(sources, "take", fail)
    with pytest.raises((KeyboardInterrupt, PageferryError)):
        Watcher(Files(tmp_path))
    assert len(closed) == 1


def test_a_refused_trace_leaves_the_counters(tmp_path: Path) -> None:
    fake.stock(tmp_path)
    (tmp_path / fake.INSTANCE / "buffer_size_kb").unlink()
    watcher = Watcher(Files(tmp_path))
    fake.write(tmp_path, {"proc/vmstat": "pgmigrate_success 300"})
    found = watcher.interval()
    assert found.moved_pages == 200
    assert "the kernel refused the trace" in view.text(found)


def test_a_trace_that_ends_leaves_the_counters(
    tmp_path: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_handle: int, _size: int) -> bytes:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(os, "read", gone)
    assert "the trace ended: No such device" in view.text(watcher.interval())


def test_an_instance_of_a_dead_command_goes(tmp_path: Path) -> None:
    fake.stock(tmp_path)
    instances = tmp_path / "sys/kernel/tracing/instances"
    (instances / "pageferry-4194304").mkdir()
    (instances / "perf-4194304").mkdir()
    trace = tracing.Trace(Files(tmp_path))
    left = {path.name for path in instances.iterdir()}
    assert left == {f"pageferry-{os.getpid()}", "perf-4194304"}
    enable = tmp_path / fake.INSTANCE / "events/migrate/mm_migrate_pages/enable"
    assert enable.read_text() == "1\n"
    trace.close()


def test_json_is_one_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.stock(tmp_path)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    lines = [fake.migrated("a-1", "compaction", 40, 2)]

    def sleep(_: float) -> None:
        fake.say(tmp_path, *lines)
        lines.clear()

    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["top", "--json", "--every", "100ms"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "pageferry/top"
    assert said["processes"] == [
        {
            "pid": 1,
            "name": "a",
            "reason": "compaction",
            "calls": 1,
            "moved_bytes": 163840,
            "failed_pages": 2,
        }
    ]
    assert main(["top", "--once", "--every", "100ms"]) == 0
    assert "0 B migrated" in capsys.readouterr().out
    assert main(["top", "--every", "1ms"]) == 2


@pytest.mark.parametrize("terminals", [(True, True), (False, True), (True, False)])
def test_the_live_view_needs_a_keyboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminals: tuple[bool, bool]
) -> None:
    """Without a keyboard no key could end the view, and curses would not wait for one."""
    fake.stock(tmp_path)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    for name, is_terminal in zip(("stdin", "stdout"), terminals, strict=True):
        stream = io.StringIO()
        monkeypatch.setattr(
            stream, "isatty", lambda is_terminal=is_terminal: is_terminal
        )
        monkeypatch.setattr(sys, name, stream)
    shown: list[str] = []
    monkeypatch.setattr(screen, "show", lambda *_: shown.append("live"))

    def text(_: object) -> str:
        shown.append("text")
        raise KeyboardInterrupt

    monkeypatch.setattr(view, "text", text)
    main(["top", "--every", "100ms"])
    assert shown == ["live" if all(terminals) else "text"]


class Window:
    """A terminal of 3 lines with 10 columns."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}

    def getmaxyx(self) -> tuple[int, int]:
        return 3, 10

    def erase(self) -> None:
        self.lines.clear()

    def refresh(self) -> None:
        pass

    def addnstr(self, row: int, _: int, text: str, most: int) -> None:
        self.lines[row] = text[:most]


def test_a_small_terminal_shows_the_beginning() -> None:
    window = Window()
    screen.draw(window, "0123456789ab\nb\nc\nd")  # type: ignore[arg-type]
    assert window.lines == {0: "012345678", 1: "b", 2: "c"}


def test_many_callers_are_cut_to_the_largest(tmp_path: Path, watcher: Watcher) -> None:
    names = [fake.migrated(f"task{n}-{n + 1}", "compaction", n) for n in range(13)]
    fake.say(tmp_path, *names)
    shown = view.text(watcher.interval())
    assert "task12" in shown and "task2 " not in shown
    assert "and 3 more: see --json" in shown
