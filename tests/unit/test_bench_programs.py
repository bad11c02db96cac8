# SPDX-License-Identifier: GPL-2.0-only
"""The C programs of bench/, as far as any machine can run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from pageferry.bench import build
from pageferry.bench.copy.spec import Copied
from pageferry.bench.lines import Failure, complete, parse_line
from pageferry.compare import figures
from pageferry.errors import PageferryError

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (
    *("move_pages", "latency", "cost", "demotion", "promotion", "tiers"),
    *("compaction", "scale", "copy"),
)
# Programs for `pageferry compare`.
WORKS = ("gups", "embed")
ONE_NODE = not Path("/sys/devices/system/node/node1").exists()


@pytest.fixture(scope="session")
def programs() -> Path:
    return build.build()


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("program", "least"),
    [
        ("selftest", 25),
        ("selftest_pages", 5),
        ("selftest_policies", 13),
        ("selftest_routines", 3),
    ],
)
def test_selftest(programs: Path, program: str, least: int) -> None:
    done = run(programs / program)
    assert done.returncode == 0, done.stdout
    assert "not ok" not in done.stdout
    assert done.stdout.count("\nok ") >= least


@pytest.mark.parametrize("program", [*PROGRAMS, *WORKS])
def test_help(programs: Path, program: str) -> None:
    done = run(programs / program, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {program}")
    assert "example: " in done.stdout


@pytest.mark.parametrize(
    ("program", "option", "named"),
    [
        ("move_pages", "--sizes=3K", "3K"),
        ("move_pages", "--sizes=4M", "4M"),
        ("move_pages", "--sizes=", "sizes"),
        ("move_pages", "--total-bytes=1M", "multiple of 2M"),
        ("move_pages", "--total-bytes=-2M", "-2M"),
        ("move_pages", "--total-bytes=0", "multiple of 2M"),
        ("move_pages", "--rounds=0", "rounds"),
        ("move_pages", "--rounds=5x", "5x"),
        ("move_pages", "--variants=cpu:threads=2", "cpu:threads=2"),
        ("move_pages", "--limit=0", "limit"),
        ("move_pages", "--busy=perhaps", "perhaps"),
        ("move_pages", "--max-unmapped-us=soon", "soon"),
        ("move_pages", "--to=0", "nothing would move"),
        ("move_pages", "--sabotage=clock", "clock"),
        ("move_pages", "stray", "stray"),
        ("demotion", "--sizes=3K", "3K"),
        ("demotion", "--total-bytes=1M", "multiple of 2M"),
        ("demotion", "--call-bytes=1M", "call-bytes"),
        ("demotion", "--parts=sums", "sums"),
        ("demotion", "--pressure=low", "low"),
        ("demotion", "--sabotage=node", "node"),
        ("demotion", "--to=0", "nothing would move"),
        ("promotion", "--touch=poke", "poke"),
        ("promotion", "--percent=0", "percent"),
        ("promotion", "--wait=never", "never"),
        ("promotion", "stray", "stray"),
        ("tiers", "--policies=damo", "--damo COMMAND"),
        ("tiers", "--policies=tier,luck", "luck"),
        ("tiers", "--loads=idle", "idle"),
        ("tiers", "--memory=swap", "swap"),
        ("tiers", "--seconds=3", "seconds"),
        ("tiers", "--sizes=3K", "3K"),
        ("tiers", "--total-bytes=1M", "multiple of 2M"),
        ("tiers", "--to=1", "nothing would move"),
        ("tiers", "stray", "stray"),
        ("compaction", "--total-bytes=1M", "multiple of 2M"),
        ("compaction", "--states=asleep", "asleep"),
        ("compaction", "--count=-1", "-1"),
        ("compaction", "--node=64", "node"),
        ("compaction", "--sabotage=node", "node"),
        ("compaction", "stray", "stray"),
        ("copy", "--sizes=3K", "3K"),
        ("copy", "--sizes=2G", "2G"),
        ("copy", "--threads=0", "threads"),
        ("copy", "--routines=warp", "warp"),
        ("copy", "--total-bytes=1M", "total-bytes"),
        ("copy", "--chase-bytes=1", "chase-bytes"),
        ("copy", "--sabotage=node", "node"),
        ("latency", "--rounds=2", "nothing to measure"),
        ("latency", "--case=", "case"),
        ("latency", "--case=engine=dcbm:channels=65", "channels=65"),
        ("latency", "--case=folio=3K", "3K"),
        ("latency", "--case=total=1M,folio=2M", "total=1M"),
        ("latency", "--case=cap=262145", "262145"),
        ("latency", "--case=windows=0", "windows=0"),
        ("latency", "--case=slow=50:10", "slow=50:10"),
        ("latency", "--case=warp=9", "warp=9"),
        ("latency", "--pause-us=-1", "-1"),
        ("latency", "--sabotage=clock", "clock"),
        ("latency", "stray", "stray"),
        ("cost", "--passes=3", "even"),
        ("cost", "--base-pages=0", "base-pages"),
        ("cost", "--engine=:", "engine"),
        ("cost", "--paths=mbind,swap", "swap"),
        ("cost", "--middle-bytes=3M", "middle-bytes"),
        ("cost", "--sizes=3K", "3K"),
        ("cost", "--pages=runs,flags", "flags"),
        ("promotion", "--touch=none", "none"),
        ("compaction", "--variants=cpu,", "cpu,"),
        ("demotion", "--max-unmapped-us=4294967296", "4294967296"),
        ("cost", "stray", "stray"),
        ("scale", "--sizes=1M", "1M"),
        ("scale", "--sizes=2M,", "sizes"),
        ("scale", "--movers=4,65", "65"),
        ("scale", "--movers=0", "movers"),
        ("scale", "--parts=sizes,shapes", "shapes"),
        ("scale", "--rounds=3", "rounds"),
        ("scale", "--engine=:", "engine"),
        ("scale", "stray", "stray"),
        ("gups", "--bytes=3M", "3M"),
        ("gups", "--hot=100", "100"),
        ("embed", "--threads=0", "threads"),
        ("embed", "--share=101", "101"),
    ],
)
def test_bad_options(programs: Path, program: str, option: str, named: str) -> None:
    done = run(programs / program, option)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    error = parse_line(done.stdout)
    assert isinstance(error, Failure)
    assert error.exit == 2


@pytest.mark.parametrize("program", PROGRAMS)
def test_unknown_option(programs: Path, program: str) -> None:
    done = run(programs / program, "--wings")
    assert done.returncode == 2
    assert "wings" in done.stderr


@pytest.mark.parametrize(
    "program", ["move_pages", "latency", "cost", "demotion", "tiers", "scale"]
)
@pytest.mark.skipif(not ONE_NODE, reason="this machine has a second node")
def test_one_node_is_not_enough(programs: Path, program: str) -> None:
    words = ["--case=engine=stock"] if program == "latency" else []
    done = run(programs / program, *words)
    assert done.returncode == 3
    assert "node 1 does not exist" in done.stderr
    line = parse_line(done.stdout)
    assert line is not None
    with pytest.raises(PageferryError, match="node 1") as caught:
        complete([line])
    assert caught.value.code == 3


def test_no_files_of_common_need_each_other(tmp_path: Path) -> None:
    """Checks the symbols that each object defines and uses."""
    names = [path.stem for path in (ROOT / "bench" / "common").glob("*.c")]
    objects = [tmp_path / "common" / f"{name}.o" for name in names]
    make = ("make", "-s", "-C", ROOT / "bench", f"OUT={tmp_path}", "CFLAGS=-O0")
    subprocess.run((*make, *objects), check=True)
    defined: dict[str, str] = {}
    lacking: dict[str, set[str]] = {name: set() for name in names}
    for name, path in zip(names, objects, strict=True):
        listed = subprocess.check_output(["nm", "-g", "-P", path], text=True)
        for symbol, kind, *_ in map(str.split, listed.splitlines()):
            if kind == "U":
                lacking[name].add(symbol)
            else:
                defined[symbol] = name
    needs = {
        name: {defined[symbol] for symbol in symbols if symbol in defined}
        for name, symbols in lacking.items()
    }
    # Raises CycleError with the files' names if they have no order.
    assert sorted(TopologicalSorter(needs).static_order()) == sorted(names)
    assert needs["options"] >= {"parse"}


def test_too_much_memory_names_node_and_bytes(programs: Path) -> None:
    done = run(programs / "move_pages", "--total-bytes=8192G")
    assert done.returncode == 3
    assert "node 0 has" in done.stderr
    assert str(8192 << 30) in done.stderr


def test_build_is_cached_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "bench"
    shutil.copytree(ROOT / "bench", copy)
    before = build.content_key(copy)
    (copy / "build").mkdir()
    (copy / "build" / "cost.o").write_text("")
    assert build.content_key(copy) == before
    monkeypatch.setenv("CFLAGS", "-O0")
    assert build.content_key(copy) != before
    monkeypatch.delenv("CFLAGS")
    with (copy / "cost.c").open("a") as stream:
        stream.write("\n")
    assert build.content_key(copy) != before


def test_a_failed_build_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CFLAGS", "-D__no_such_thing -include /nonexistent.h")
    with pytest.raises(PageferryError) as caught:
        build.build()
    assert caught.value.code == 5
    assert caught.value.detail is not None
    assert "nonexistent.h" in caught.value.detail
    assert list((tmp_path / "pageferry" / "bench").iterdir()) == []


@pytest.mark.parametrize("program", WORKS)
def test_work_is_measured_and_verified(programs: Path, program: str) -> None:
    words = ("--bytes", "4M", "--seconds", "1", "--threads", "2")
    done = run(programs / program, *words)
    assert done.returncode == 0, done.stderr
    found = {f.title: value for f, value in figures.find(done.stdout, None).items()}
    unit = {"gups": "updates", "embed": "rows"}[program]
    assert found[f"{unit}, 1/s"] > 1000
    ranks = [found[f"{rank}, us"] for rank in ("p50", "p95", "p99", "p99.9", "max")]
    assert ranks == sorted(ranks) and ranks[0] > 0
    # The program itself notices a wrong word.
    done = run(programs / program, *words, "--sabotage", "content")
    assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_build_is_reused(programs: Path) -> None:
    stamp = (programs / "cost").stat().st_mtime_ns
    assert build.build() == programs
    assert (programs / "cost").stat().st_mtime_ns == stamp
    assert os.access(programs / "move_pages", os.X_OK)


def test_json_lines_are_json(programs: Path) -> None:
    done = run(programs / "move_pages", '--sizes="quoted\\"')
    assert done.returncode == 2
    assert '"quoted\\"' in json.loads(done.stdout)["message"]


def test_hold_knows_what_it_has(programs: Path) -> None:
    done = subprocess.run(
        [programs / "hold", "-b", "4M"],
        input="nodes\nverify\ntouch\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ready, nodes, verified, touched = map(json.loads, done.stdout.splitlines())
    assert ready["pages"] == sum(nodes["pages"])
    assert verified["ok"] is True
    assert touched["type"] == "touched"
    assert run(programs / "hold", "-b", "3M").returncode == 2


def test_memory_of_hold_may_move(programs: Path) -> None:
    """A bound mapping is refused to DAMON, so tests of DAMON need another one."""
    hold = subprocess.Popen(
        [programs / "hold", "-b", "4M"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert hold.stdout is not None
        ready = json.loads(hold.stdout.readline())
        line = next(
            line
            for line in Path(f"/proc/{hold.pid}/numa_maps").read_text().splitlines()
            if int(line.split()[0], 16) == ready["address"]
        )
        assert line.split()[1] == "default"
    finally:
        hold.kill()
        hold.communicate()


def test_bandwidth_is_measured(programs: Path) -> None:
    done = run(programs / "bandwidth", "-t", "50", "-b", "2M")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes_per_s"] > 1_000_000
    assert run(programs / "bandwidth", "-n", "999").returncode == 3
    assert run(programs / "bandwidth", "-b", "1").returncode == 2


def test_copies_are_verified(programs: Path) -> None:
    """Each routine copies each kind of memory; one wrong byte is a failure."""
    small = ("--total-bytes=4M", "--rounds=1", "--sizes=4K,2M")
    done = run(programs / "copy", *small)
    assert done.returncode == 0, done.stderr
    lines = complete(
        line for text in done.stdout.splitlines() if (line := parse_line(text, Copied))
    )
    found = [line for line in lines if isinstance(line, Copied)]
    kinds = {(line.engine, line.folio_bytes, line.memory) for line in found}
    assert {
        (engine, size, memory)
        for engine in ("pages", "nontemporal")
        for size in (4096, 2 << 20)
        for memory in ("cold", "read", "warm")
    } < kinds
    assert ("nontemporal", 512 << 10, "boot") in kinds
    assert all(line.verified and line.elapsed_ns > 0 for line in found)
    spoiled = run(programs / "copy", *small, "--sabotage=content")
    assert spoiled.returncode == 1
    assert "differs from its source" in spoiled.stdout + spoiled.stderr
