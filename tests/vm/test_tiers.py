# SPDX-License-Identifier: GPL-2.0-only
"""Short real runs of the benchmarks of demotion and promotion."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conftest import RunInVm
from pageferry.bench import build
from pageferry.bench.demotion.spec import Calls, Demotion
from pageferry.bench.lines import Environment, Failure, parse_line
from pageferry.bench.promotion.spec import Promotion
from pageferry.cli import main
from pageferry.kernel import bases
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import Result, decode

pytestmark = pytest.mark.vm

MIB = 1 << 20
# One round isolates up to 32 small pages (SWAP_CLUSTER_MAX), and a huge page.
ROUND_PAGES = 32 + 512
OFFLOAD = "/sys/kernel/mm/migrate_offload"
DEBUG = "/sys/kernel/debug/migrate_offload"
LRU_GEN = "/sys/kernel/mm/lru_gen/enabled"
# The kernel clears many accessed bits of PTEs and PMDs at once: see mm/vmscan.c.
LRU_GEN_ON = "0x0007"


def bench(verb: str, output: Path, *argv: str) -> Result:
    words = ("bench", verb, "--vm", "--rounds", "1", "--output", str(output))
    assert main([*words, *argv]) == 0
    return decode(output.read_bytes())


def test_reclaim_demotes_through_an_engine(
    kernel_vm: BuiltKernel, tmp_path: Path
) -> None:
    result = bench(
        "demotion",
        tmp_path / "result.json",
        *("--engines", "cpu", "--total", "4M", "--call-total", "2M"),
    )
    moved = {(r.demotion.method, r.engine, r.folio_bytes): r for r in result.rows}
    for size in (4096, 2 * MIB):
        for engine in ("stock", "cpu"):
            row = moved["memory.reclaim", engine, size]
            assert row.verified
            assert row.moved_bytes > 3 * MIB
            assert row.demotion.pgdemote_proactive or row.demotion.pgdemote_direct
            assert row.split_folios == 0
        assert (
            moved["memory.reclaim", "cpu", size].demotion.share_offloaded or 0
        ) > 0.9
    single = moved["one page per call", "stock", 4096].demotion
    listed = moved["512 pages per call", "stock", 4096].demotion
    assert single.ratio_to_single is not None
    assert listed.ratio_to_single is not None
    assert single.ratio_to_single.median == 1
    assert result.settings["memory_tiers"]
    assert result.settings["demotion_enabled_found"] == "false"
    # Null if the kernel does not count stalls.
    known = result.settings["psi"] is True
    stall = moved["memory.reclaim", "stock", 4096].demotion.stall_some_us
    assert (stall is not None) == known


def test_a_limit_demotes_and_stalls_who_needs_memory(
    kernel_vm: BuiltKernel, tmp_path: Path
) -> None:
    result = bench(
        "demotion",
        tmp_path / "result.json",
        *("--engines", "cpu", "--parts", "reclaim", "--pressure", "max"),
        *("--sizes", "2M", "--total", "8M"),
    )
    rows = {row.engine: row for row in result.rows}
    for engine in ("stock", "cpu"):
        row = rows[engine]
        assert row.demotion.method == "memory.max"
        assert row.verified
        assert row.moved_bytes == 8 * MIB
        assert row.demotion.stall_some_us is not None
        # No copy of a 2M folio is faster.
        assert row.demotion.stall_some_us.median > 100
    assert (rows["cpu"].demotion.share_offloaded or 0) > 0.9


# One line for each migrated list.
LIST = re.compile(r"mm_migrate_pages: .*nr_thp_succeeded=(\d+) .*reason=demotion")


def test_several_huge_pages_are_demoted_at_once(
    in_vm: RunInVm, kernel_vm: BuiltKernel
) -> None:
    """From either LRU, for an engine that takes several, if the request is large.

    memory.reclaim reclaims a quarter of the rest at a time. Of 4 MiB this is always
    less than a huge page, and of 32 MiB only near the end. Small pages keep their
    rounds. memory.high reclaims all that is above it.

    The priority of reclaim limits each list. The newer LRU of Linux 6.12 takes a list
    as a whole for a cgroup. On 7.3 it begins with few pages, as the classic LRU does.
    """
    demotion = build.build() / "demotion"
    words = f"{demotion} --parts=reclaim --variants=cpu --rounds=1"
    # So that pages isolated together form one batch.
    script = f"""
        echo 0 >{OFFLOAD}/max_unmapped_us; echo 8192 >{DEBUG}/max_batch_pages
        cd /sys/kernel/tracing
        for on in n y; do
            echo $on >{LRU_GEN}
            {words} --sizes=4K --total-bytes=32M || exit
            echo 1 >events/migrate/mm_migrate_pages/enable
            for more in 4M 32M '32M --pressure=high'; do
                echo >trace
                {words} --sizes=2M --total-bytes=$more || exit
                echo "run $on $more" >&2; cat trace >&2
            done
            echo 0 >events/migrate/mm_migrate_pages/enable
        done
    """
    done = in_vm(kernel_vm, "bash", "-c", script, topology="tiered")
    assert done.exit_code == 0, done.stderr
    seen = [parse_line(line, Demotion) for line in done.stdout.splitlines()]
    lrus = [s.settings["lru_gen_found"] for s in seen if isinstance(s, Environment)]
    assert lrus == [*4 * ["0x0000"], *4 * [LRU_GEN_ON]]
    small = [
        (s.engine_bytes or 0) / s.folio_bytes / (s.batches or 1)
        for s in seen
        if isinstance(s, Demotion) and s.round > 0 and s.folio_bytes == 4096
    ]
    assert len(small) == 2
    assert all(16 < pages <= 64 for pages in small), small
    runs = {}
    for run in done.stderr.split("run ")[1:]:
        # Lists of the program's own small pages come between.
        huge = [int(n) for n in LIST.findall(run) if n != "0"]
        runs[run.splitlines()[0]] = huge
    for lru in "ny":
        # In the warm-up and in the round.
        assert runs[f"{lru} 4M"] == 4 * [1]
        quarters = runs[f"{lru} 32M"]
        assert sum(quarters) == 32, quarters
        assert max(quarters) <= 4, quarters
        if bases.DEFAULT == "6.12":
            assert max(quarters) > 1, quarters
        whole = runs[f"{lru} 32M --pressure=high"]
        assert sum(whole) == 32, whole
        # Sometimes fewer than 16. A small page in between ends a list, and on the
        # classic LRU a huge page uses up a round of its list.
        assert max(whole) > (8 if lru == "y" and bases.DEFAULT == "6.12" else 2), whole


def test_what_a_pass_has_so_far_is_subtracted(
    in_vm: RunInVm, kernel_vm: BuiltKernel
) -> None:
    """One pass isolates from an LRU list of more than 512 MiB several times.

    Of 400 MiB, memory.reclaim asks for a quarter first, then for a quarter of the
    rest. No list exceeds what is left of a quarter by more than one round. A pass
    that scans at a low priority may exceed the quarter round by round, as on stock.
    """
    hold = build.build() / "hold"
    script = f"""
        echo true >/sys/kernel/mm/numa/demotion_enabled
        echo +memory >/sys/fs/cgroup/cgroup.subtree_control
        echo 0 >{OFFLOAD}/max_unmapped_us; echo cpu >{OFFLOAD}/engine
        group=/sys/fs/cgroup/held; mkdir $group; mkfifo /tmp/words
        (echo $BASHPID >$group/cgroup.procs
         exec {hold} -b 640M -s 2M -n 0 </tmp/words >/tmp/said) &
        exec 3>/tmp/words
        until grep -qs ready /tmp/said; do sleep 0.1; done
        cd /sys/kernel/tracing; echo $$ >set_event_pid
        for event in lru_isolate lru_shrink_inactive memcg_reclaim_end; do
            echo 1 >events/vmscan/mm_vmscan_$event/enable
        done
        echo 400M >$group/memory.reclaim || exit
        exec 3>&-; wait $!; cat trace
    """
    done = in_vm(kernel_vm, "bash", "-c", script, topology="tiered")
    assert done.exit_code == 0, done.stderr
    events = re.findall(
        r"mm_vmscan_(\w+): .*?nr_(?:taken|reclaimed)=(\d+)", done.stdout
    )
    wanted = 400 * MIB // 4096
    in_pass = 0
    passes: list[list[int]] = [[]]
    for event, number in events:
        pages = int(number)
        if event == "lru_isolate":
            left = max(wanted // 4 - in_pass, 0)
            assert pages <= left + ROUND_PAGES, (events, left)
            passes[-1].append(pages)
        elif event == "lru_shrink_inactive":
            in_pass += pages
        else:
            wanted = max(wanted - pages, 0)
            in_pass = 0
            passes.append([])
    # One pass had the largest list and another long one, so the rule was tried.
    assert any(
        max(lists, default=0) >= 64 * MIB // 4096
        and len([pages for pages in lists if pages > ROUND_PAGES]) > 1
        for lists in passes
    ), events


def test_no_more_is_demoted_than_without_an_engine(
    in_vm: RunInVm, kernel_vm: BuiltKernel
) -> None:
    """The last huge page is demoted whole, and nothing more."""
    hold = build.build() / "hold"
    # The program has some small pages, which reclaim may take first.
    script = f"""
        echo true >/sys/kernel/mm/numa/demotion_enabled
        echo +memory >/sys/fs/cgroup/cgroup.subtree_control
        echo 0 >{OFFLOAD}/max_unmapped_us; echo 8192 >{DEBUG}/max_batch_pages
        group=/sys/fs/cgroup/held
        for engine in none cpu; do
            echo $engine >{OFFLOAD}/engine
            mkdir $group; mkfifo /tmp/$engine
            (echo $BASHPID >$group/cgroup.procs
             exec {hold} -b 64M -s 2M -n 0 </tmp/$engine >/tmp/said-$engine) &
            exec 3>/tmp/$engine
            until grep -qs ready /tmp/said-$engine; do sleep 0.1; done
            echo 25M >$group/memory.reclaim || exit
            echo nodes >&3; exec 3>&-; wait $!; tail -n 1 /tmp/said-$engine; rmdir $group
        done
    """
    done = in_vm(kernel_vm, "bash", "-c", script, topology="tiered")
    assert done.exit_code == 0, done.stderr
    pages = [
        [int(number) for number in re.findall(r"\d+", line)]
        for line in done.stdout.splitlines()
    ]
    # 25 MiB are no whole number of huge pages, and small pages count, too. If more than
    # 1 MiB of these went first, one huge page less moves.
    moved = [there for _, there, *_ in pages]
    assert len(moved) == 2
    assert set(moved) <= {24 * MIB // 4096, 26 * MIB // 4096}


_COUNTED = ("kswapd", "direct", "by the engine", "by the CPU")


@pytest.mark.parametrize("lru", ["n", "y"])
def test_a_node_that_is_full_is_demoted_through_an_engine(
    in_vm: RunInVm, kernel_vm: BuiltKernel, lru: str
) -> None:
    """By kswapd, and by tasks that cannot wait for it, which depends on timing."""
    hold = build.build() / "hold"
    reasons = f"{OFFLOAD}/stats/reasons/demotion"
    script = f"""
        echo true >/sys/kernel/mm/numa/demotion_enabled
        echo {lru} >{LRU_GEN}; echo cpu >{OFFLOAD}/engine
        echo 1 >{DEBUG}/engine_always
        count() {{
            awk '/pgdemote_(kswapd|direct)/ {{ print $2 }}' /proc/vmstat
            cat {reasons}/engine_bytes {reasons}/cpu_bytes
        }}
        free=$(awk '/MemFree/ {{ print int($4 / 1024) }}' \
               /sys/devices/system/node/node0/meminfo)
        mkfifo /tmp/words
        {hold} -b $(((free - 96) / 2 * 2))M -s 2M -n 0 </tmp/words >/tmp/said & first=$!
        exec 3>/tmp/words
        until grep -qs ready /tmp/said; do kill -0 $first || exit; sleep 0.1; done
        count >/tmp/before
        echo verify | {hold} -b 128M -s 4K -n 0 >/tmp/said-other || exit
        count | paste -d' ' - /tmp/before
        echo verify >&3; exec 3>&-; wait $first; echo "status $?"
        cat /tmp/said /tmp/said-other
    """
    done = in_vm(kernel_vm, "bash", "-c", script, topology="tiered")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    rows = [line.split() for line in lines[: len(_COUNTED)]]
    counted = {
        name: int(after) - int(before)
        for name, (after, before) in zip(_COUNTED, rows, strict=True)
    }
    assert "status 0" in lines, lines
    assert [json.loads(line)["ok"] for line in lines if '"verified"' in line] == [
        True,
        True,
    ], lines
    assert counted["kswapd"] > 0, counted
    assert counted["by the engine"] >= 32 * MIB, counted
    assert counted["by the CPU"] < counted["by the engine"] / 10, counted


def test_hot_memory_is_promoted_through_an_engine(
    kernel_vm: BuiltKernel, tmp_path: Path
) -> None:
    result = bench(
        "promotion",
        tmp_path / "result.json",
        *("--engines", "cpu", "--total", "4M"),
    )
    rows = {(row.engine, row.folio_bytes): row for row in result.rows}
    for size in (4096, 2 * MIB):
        for engine in ("stock", "cpu"):
            row = rows[engine, size]
            assert row.verified
            assert row.moved_bytes > 2 * MIB
            assert row.promotion.pgpromote_success
            assert row.touch is not None
            assert row.touch.mode == "write"
        assert (rows["cpu", size].promotion.share_offloaded or 0) > 0.9


# Settings that the programs pin, and files that they make.
STATE = (
    "cat /sys/kernel/mm/numa/demotion_enabled /proc/sys/kernel/numa_balancing "
    f"{OFFLOAD}/engine {OFFLOAD}/engine_of/demotion "
    f"{OFFLOAD}/max_unmapped_is_default /sys/fs/cgroup/cgroup.subtree_control; "
    "ls -d /sys/fs/cgroup/pageferry-* 2>&1; ls /sys/kernel/tracing/instances"
)


def test_settings_come_back_and_spoilt_bytes_are_found(
    in_vm: RunInVm, kernel_vm: BuiltKernel
) -> None:
    """At the end, after a failed check and after signals: one boot for all."""
    demotion = build.build() / "demotion"
    words = "--total-bytes=2M --call-bytes=2M --parts=reclaim --sizes=4K --variants"
    stock = f"{words}=stock"
    words += "=cpu"
    script = f"""
        echo 1 >/proc/sys/kernel/numa_balancing
        echo cpu >{OFFLOAD}/engine_of/demotion
        ({STATE}) >/tmp/before
        {demotion} {stock} --rounds=1 --max-unmapped-us=4321; echo "status $?"
        echo "by an engine: $(cat {OFFLOAD}/stats/reasons/demotion/engine_folios)"
        {demotion} {words} --rounds=1 --sabotage=content; echo "status $?"
        {demotion} {words} --rounds=1000 >/tmp/lines & child=$!
        until grep -q '"demotion", "engine"' /tmp/lines; do sleep 0.1; done
        kill -TERM $child; wait $child; echo "status $?"
        {demotion} {words} --rounds=1000 >/tmp/others & child=$!
        until grep -qs '"demotion", "engine"' /tmp/others; do sleep 0.1; done
        kill -QUIT $child; wait $child; echo "status $?"
        {demotion} {words} --rounds=1000 | head -n 3 >/tmp/lines
        echo "status ${{PIPESTATUS[0]}}"
        {demotion} {words} --rounds=1000 --pressure=max >/tmp/lines & child=$!
        until [ "$(cat /sys/fs/cgroup/pageferry-*/cgroup.procs 2>/dev/null |
                   wc -l)" = 2 ]; do :; done
        kill -TERM $child; wait $child; echo "status $?"
        ({STATE}) >/tmp/after
        diff /tmp/before /tmp/after && echo same
    """
    done = in_vm(kernel_vm, "bash", "-mc", script, topology="tiered")
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("{")] == [
        "status 0",
        "by an engine: 0",
        "status 1",
        "status 143",
        "status 131",
        "status 141",
        "status 143",
        "same",
    ], done.stderr
    failures = [
        f
        for line in lines
        if isinstance(f := parse_line(line, Calls, Demotion, Promotion), Failure)
    ]
    assert [f"{2 * MIB - 1}" in failure.message for failure in failures] == [True]
