# SPDX-License-Identifier: GPL-2.0-only
"""Engines copy hugetlb folios one by one, and no folio is lost."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from helpers import guests, selftests
from helpers.debug_kernel import STEPS
from pageferry.bench import build
from pageferry.bench.lines import Failure, parse_line
from pageferry.bench.move_pages.spec import Measurement
from pageferry.cli import main
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import decode

pytestmark = pytest.mark.vm

MIB = 1 << 20
GIB = 1 << 30
# An engine of each kind; folios of 1 GiB do not fit into memory.
_STEPS = ("hugetlb", "hugetlb of files")
_NAMES = {step: selftests.names(STEPS[step]) for step in _STEPS}


@pytest.mark.parametrize(
    ("step", "name"), [(step, name) for step in _STEPS for name in _NAMES[step]]
)
def test_engines_copy_hugetlb_folios(
    debug_run: guests.Steps, step: str, name: str
) -> None:
    debug_run.passes(step, name)


@pytest.mark.parametrize("step", _STEPS)
def test_all_of_hugetlb_was_tried(debug_run: guests.Steps, step: str) -> None:
    debug_run.ran_all(step, _NAMES[step])


def test_bench_verifies_and_every_engine_copies_all(
    kernel_vm: BuiltKernel, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    argv = ("bench", "hugetlb", "--vm", "--total", "8M", "--rounds", "1")
    words = ("--engines", "cpu,mtcopy,dcbm", "--channels", "1,2", "--output", str(path))
    # With a limit, the engine's part would depend on speed.
    limits = ("--channel-mbps", "0", "--max-unmapped-us", "0")
    assert main([*argv, *limits, *words]) == 0
    result = decode(path.read_bytes())
    rows = {(row.engine, row.threads, row.channels): row for row in result.rows}
    for variant in (("stock", 1, 0), ("cpu", 1, 0), ("limit", 1, 0), ("limit", 2, 0)):
        assert rows[variant].verified
        assert rows[variant].bench == "hugetlb"
        assert rows[variant].folio_bytes == 2 * MIB
        assert rows[variant].moved_bytes == 8 * MIB
    assert result.settings["max_unmapped_us"] == 0
    # No other process has hugetlb folios, so the count is exact.
    for variant in (("cpu", 1, 0), ("dcbm", 1, 1), ("dcbm", 1, 2)):
        assert rows[variant].engine_bytes == 8 * MIB
    # mtcopy declines without an idle CPU.
    assert rows["mtcopy", 2, 0].engine_bytes is not None


@pytest.mark.parametrize("bench", ["move-pages", "hugetlb"])
def test_channels_add_up(kernel_vm: BuiltKernel, tmp_path: Path, bench: str) -> None:
    """Huge pages, hugetlb or not, on simulated channels of 5 MB/s each."""
    path = tmp_path / "result.json"
    argv = ("bench", bench, "--vm", "--sizes", "2M", "--total", "32M", "--rounds", "5")
    words = ("--engines", "dcbm", "--channels", "1,2,4", "--channel-mbps", "5")
    limits = ("--no-limit", "--max-unmapped-us", "0", "--output", str(path))
    assert main([*argv, *words, *limits]) == 0
    rates = {
        # Other work of the host makes rounds slower, and never faster.
        row.channels: row.bytes_per_s.max / 1e6
        for row in decode(path.read_bytes()).rows
        if row.engine == "dcbm" and row.bytes_per_s is not None
    }
    for channels in (1, 2, 4):
        assert 4.5 * channels < rates[channels] <= 5.05 * channels, rates


# A folio of 1 GiB takes time, so this leaves tests out. The first filter counts.
_GIGANTIC = (
    "./hugetlb -T declined -T lies_but_is_verified -T lies -T is_left_to_the_cpu"
    " -T moves_while_written -T ends_with_its_engine -v private_1g"
)
_GIGANTIC_NAMES = selftests.names(_GIGANTIC)
_GIGANTIC_WORDS = ("hugepagesz=1G", "hugepages=0:1,1:1")
_GIGANTIC_NEEDS = 8 * GIB
_GIGANTIC_VARIANTS = ("stock", "mtcopy:threads=2", "dcbm:channels=4")


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


@pytest.fixture(scope="module")
def gigantic(kernel_rules: BuiltKernel) -> guests.Steps:
    """One folio of 1 GiB on each node, moved by good and by failing engines."""
    if _available_bytes() < _GIGANTIC_NEEDS:
        pytest.skip("the virtual machine takes 7 GiB")
    bench = [
        *(f"{build.build()}/move_pages", "--hugetlb", "--sizes=1G"),
        *("--total-bytes=1G", "--rounds=1", "--limit=none"),
        f"--variants={','.join(_GIGANTIC_VARIANTS)}",
    ]
    steps = {
        "hugetlb": _GIGANTIC,
        "modules": "modprobe mtcopy && modprobe dmasim channels=4 bandwidth_mbps=0"
        " && modprobe dcbm && echo loaded",
        "bench": guests.program(shlex.join(bench)),
    }
    run = guests.boot_once(
        kernel_rules, steps, topology="gigantic", words=_GIGANTIC_WORDS
    )
    run.is_well()
    return run


@pytest.mark.parametrize("name", _GIGANTIC_NAMES, ids=selftests.own_name)
def test_engines_copy_gigantic_folios(gigantic: guests.Steps, name: str) -> None:
    gigantic.passes("hugetlb", name)


def test_all_of_gigantic_was_tried(gigantic: guests.Steps) -> None:
    gigantic.ran_all("hugetlb", _GIGANTIC_NAMES)


def test_every_engine_copies_all_of_a_gigantic_folio(gigantic: guests.Steps) -> None:
    assert gigantic.text("modules").strip() == "loaded"
    code, lines, said = gigantic.ended("bench")
    assert code == 0, said
    moves = [
        line
        for text in lines
        if isinstance(line := parse_line(text, Measurement), Measurement)
        and line.round > 0
    ]
    copied = {move.engine: move.engine_bytes for move in moves}
    # mtcopy declines without an idle CPU.
    assert copied.pop("mtcopy") in (0, GIB)
    assert copied == {"stock": None, "dcbm": GIB}
    assert all(move.verified and move.folio_bytes == GIB for move in moves)


_POOLS = "cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages"
_SMALL = "move_pages --hugetlb --rounds=1 --total-bytes=4M"
ENDINGS = {"end": 0, "spoilt": 1, "INT": 130}


def _pools_script(program: Path, ending: str) -> str:
    """Check that the pools are restored, however the program ends.

    When the program corrupts a page, the target's pool has 32 MiB more in use than it
    is to keep. Without care, the kernel would leave pages in the other pool.
    """
    rounds = "1000" if ending == "INT" else "1"
    spoil = "--sabotage=content" if ending == "spoilt" else ""
    script = f"""
        echo 3 >/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
        {_POOLS} >/tmp/before
        {program} --hugetlb --total-bytes=32M --rounds={rounds} {spoil} >/tmp/lines &
        child=$!
        if [ {ending} = INT ]; then
            until grep -q measurement /tmp/lines; do sleep 0.1; done
            kill -{ending} $child
        fi
        wait $child; echo "status $?"
        {_POOLS} >/tmp/after
        diff /tmp/before /tmp/after && echo same
    """
    return guests.program(shlex.join(("bash", "-mc", script)))


@pytest.fixture(scope="module")
def runs(kernel_vm: BuiltKernel) -> guests.Steps:
    """Runs of the program that take no time, in one boot."""
    folder = build.build()
    steps = {
        **{
            f"pools {how}": _pools_script(folder / "move_pages", how) for how in ENDINGS
        },
        "spoilt": guests.program(f"{folder}/{_SMALL} --sabotage=content"),
        "left": guests.program(f"{folder}/{_SMALL} --sabotage=node"),
        "no room": guests.program(f"{folder}/{_SMALL} --total-bytes=8G"),
        "no 1G": guests.program(f"{folder}/{_SMALL} --sizes=1G --total-bytes=2G"),
    }
    run = guests.boot_once(kernel_vm, steps)
    run.is_well()
    return run


@pytest.mark.parametrize("ending", list(ENDINGS))
def test_pools_come_back(runs: guests.Steps, ending: str) -> None:
    _, lines, said = runs.ended(f"pools {ending}")
    assert lines == [f"status {ENDINGS[ending]}", "same"], said


@pytest.mark.parametrize("what", ["spoilt", "left"])
def test_a_spoilt_page_fails_the_run(runs: guests.Steps, what: str) -> None:
    code, lines, _ = runs.ended(what)
    assert code == 1
    last = parse_line(lines[-1])
    assert isinstance(last, Failure)
    assert "wrong content" in last.message or "on node 0, not 1" in last.message


@pytest.mark.parametrize("what", ["no room", "no 1G"])
def test_a_node_without_room_says_so(runs: guests.Steps, what: str) -> None:
    code, _, said = runs.ended(what)
    assert code == 3
    assert "huge pages of" in said
    assert "hugepages=" in said
