# SPDX-License-Identifier: GPL-2.0-only
"""Short real runs of the benchmark of compaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import RunInVm
from pageferry.bench import build
from pageferry.bench.compaction.rows import Compaction
from pageferry.bench.lines import Failure, parse_line
from pageferry.bench.target import module_path
from pageferry.cli import main
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import decode

pytestmark = pytest.mark.vm

MIB = 1 << 20


def test_huge_pages_come_out_of_fragments(
    kernel_vm: BuiltKernel, tmp_path: Path
) -> None:
    output = tmp_path / "result.json"
    words = ("bench", "compaction", "--vm", "--rounds", "1", "--output", str(output))
    assert main([*words, "--engines", "dcbm", "--total", "256M"]) == 0
    result = decode(output.read_bytes())
    rows = {(row.busy, row.engine): row for row in result.rows}
    assert len(rows) == 4
    for row in rows.values():
        assert row.verified
        assert row.compaction.asked_pages == 16
        assert row.compaction.allocated_pages is not None
        assert row.compaction.allocated_pages.median == 16
        # Half of each block was in use.
        assert row.compaction.migrated_pages is not None
        assert row.compaction.migrated_pages.median > 16 * 200
    for busy in (False, True):
        dcbm = rows[busy, "dcbm"]
        # On a busy host, channels are too slow for some windows.
        assert dcbm.engine_bytes
        assert (
            dcbm.compaction.hog_iterations is None
            or dcbm.compaction.hog_iterations.min > 0
        )
    assert rows[True, "dcbm"].compaction.hog_until_stock_is_done is not None
    assert result.settings["total_bytes"] == 256 * MIB


OFFLOAD = "/sys/kernel/mm/migrate_offload"
# Settings that the program pins or keeps.
STATE = (
    "cat /proc/sys/vm/compaction_proactiveness /proc/sys/vm/watermark_boost_factor "
    f"{OFFLOAD}/engine {OFFLOAD}/max_unmapped_is_default; "
    "cat /sys/kernel/debug/migrate_compact_test/{allocated,drained}"
)


def test_whole_blocks_are_taken_and_all_comes_back(
    in_vm: RunInVm, kernel_vm: BuiltKernel
) -> None:
    """With an engine, after a failed check and after a signal: one boot for all.

    A block that was isolated as a whole is finished: the next allocation does not scan
    it again.
    """
    program = build.build() / "compaction"
    module = module_path(kernel_vm, "migrate_compact_test")
    words = "--total-bytes=256M --states=idle --variants"
    script = f"""
        insmod {module}
        ({STATE}) >/tmp/before
        {program} {words}=cpu --rounds=2; echo "status $?"
        {program} {words}=cpu --rounds=1 --sabotage=content; echo "status $?"
        {program} {words}=cpu --rounds=1000 --max-unmapped-us=4321 >/tmp/lines &
        child=$!
        until grep -q '"compaction", "engine"' /tmp/lines; do sleep 0.1; done
        echo "limit $(cat {OFFLOAD}/max_unmapped_us)"
        kill -TERM $child; wait $child; echo "status $?"
        ({STATE}) >/tmp/after
        diff /tmp/before /tmp/after && echo same
    """
    done = in_vm(kernel_vm, "bash", "-mc", script, topology="two-node")
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("{")] == [
        "status 0",
        "status 1",
        "limit 4321",
        "status 143",
        "same",
    ], done.stderr
    seen = [parse_line(line, Compaction) for line in lines]
    assert any(isinstance(line, Failure) for line in seen)
    samples = [s for s in seen if isinstance(s, Compaction) and s.round > 0]
    by_cpu = [sample for sample in samples if sample.engine == "cpu"]
    assert by_cpu
    for sample in by_cpu:
        assert sample.allocated == sample.asked == 16
        assert sample.compact_migrate_scanned is not None
        assert sample.compact_migrate_scanned < 16 * 4 * 512
        assert sample.engine_bytes is not None
        assert sample.engine_bytes >= 16 * 200 * 4096


FILES = "/sys/kernel/debug/migrate_compact_test"


def test_the_module_is_bounded(in_vm: RunInVm, kernel_vm: BuiltKernel) -> None:
    """The module leaves free memory, ends at a signal, and frees all when unloaded.

    Of more than a GiB, some tens of MiB stay on the lists of CPUs, and do not count as
    free.
    """
    module = module_path(kernel_vm, "migrate_compact_test")
    script = f"""
        cd /
        free() {{ awk '/Node 1 MemFree/ {{print $4}}' /sys/devices/system/node/node1/meminfo; }}
        insmod {module}
        before=$(free)
        echo 9999 >{FILES}/node 2>/dev/null || echo "no such node"
        echo 1 >{FILES}/node
        echo 11 >{FILES}/order 2>/dev/null || echo "no such order"
        echo 1000000 >{FILES}/count
        echo 2 >{FILES}/run 2>/dev/null || echo "only 1"
        echo 1 >{FILES}/run
        cat {FILES}/ended
        [ $(free) -gt 40000 ] && echo "some is left"
        echo 3 >{FILES}/order
        echo 1 >{FILES}/run 2>/dev/null || echo "of one order"
        rmmod migrate_compact_test
        [ $(free) -gt $((before - 65536)) ] && echo "all is back"
    """
    done = in_vm(kernel_vm, "bash", "-c", script, topology="two-node")
    assert done.stdout.splitlines() == [
        "no such node",
        "no such order",
        "only 1",
        "reserve",
        "some is left",
        "of one order",
        "all is back",
    ], done.stderr
