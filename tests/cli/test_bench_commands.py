# SPDX-License-Identifier: GPL-2.0-only
"""`bench move-pages`, `bench cost` and `demo` before they measure anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pageferry.cli import main

MOVE = ["bench", "move-pages"]
COST = ["bench", "cost"]
LATENCY = ["bench", "latency"]
DEMOTION = ["bench", "demotion"]
PROMOTION = ["bench", "promotion"]
TIERS = ["bench", "tiers"]
HUGETLB = ["bench", "hugetlb"]
COMPACTION = ["bench", "compaction"]
SCALE = ["bench", "scale"]
COPY = ["bench", "copy"]


def add_nodes(root: Path, memory_mib: dict[int, int]) -> None:
    """Fake the nodes of a machine."""
    for number, mib in memory_mib.items():
        node = root / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        text = f"Node {number} MemTotal: {mib << 10} kB\n"
        (node / "meminfo").write_text(text)
        (node / "cpulist").write_text("\n")


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([*MOVE, "--engines", "warp"], "warp"),
        ([*MOVE, "--engines", ""], "unknown engine"),
        ([*MOVE, "--sizes", "64Q"], "64Q"),
        ([*MOVE, "--sizes", "3K"], "3K"),
        ([*MOVE, "--total", "1M"], "multiple of 2M"),
        ([*MOVE, "--total", "much"], "much"),
        ([*MOVE, "--threads", "0"], "number of threads"),
        ([*MOVE, "--rounds", "0"], "--rounds"),
        ([*MOVE, "--rounds", "-1"], "--rounds"),
        ([*MOVE, "--from-node", "0", "--to-node", "0"], "nothing would move"),
        ([*MOVE, "--to-node", "one"], "one"),
        ([*MOVE, "--vm", "--live"], "not allowed with"),
        ([*MOVE, "--vm", "--topology", "moebius"], "moebius"),
        ([*MOVE, "--timeout", "soon"], "soon"),
        ([*MOVE, "--busy", "no"], "busy"),
        ([*MOVE, "--wings"], "wings"),
        ([*MOVE, "--", "true"], "--"),
        ([*LATENCY, "--engines", "warp"], "warp"),
        ([*LATENCY, "--sizes", "3K"], "3K"),
        ([*LATENCY, "--total", "1M"], "whole number of folios"),
        ([*LATENCY, "--total", "much"], "much"),
        ([*LATENCY, "--caps", "0"], "a cap"),
        ([*LATENCY, "--caps", "512,262145"], "262145"),
        ([*LATENCY, "--windows", "17"], "17"),
        ([*LATENCY, "--streaming", "yes"], "--streaming"),
        ([*LATENCY, "--limits-us", "soon"], "soon"),
        ([*LATENCY, "--channels", "65"], "65"),
        ([*LATENCY, "--channel-mbps", "fast"], "--channel-mbps"),
        ([*LATENCY, "--touch", "poke"], "poke"),
        ([*LATENCY, "--pause-us", "-1"], "--pause-us"),
        ([*LATENCY, "--posted", "--windows", "2"], "--posted"),
        ([*LATENCY, "--slow-after-percent", "100"], "--slow-after-percent"),
        ([*LATENCY, "--slow-after-percent", "50", "--slow-factor", "1"], "factor"),
        ([*LATENCY, "--slow-after-percent", "50", "--channel-mbps", "0"], "rate"),
        ([*LATENCY, "--skip-windows", "few"], "--skip-windows"),
        ([*LATENCY, "--check", "speed"], "speed"),
        ([*LATENCY, "--check", "limit,limit"], "twice"),
        ([*LATENCY, "--check", "--caps", "512"], "says itself"),
        ([*LATENCY, "--check", "--published", "caps"], "exclude each other"),
        ([*LATENCY, "--published", "all"], "all"),
        ([*LATENCY, "--published", "caps", "--sizes", "4K"], "says itself"),
        ([*LATENCY, "--published", "caps", "--total", "3M"], "multiple of 2M"),
        ([*LATENCY, "--published", "caps", "--total", "2M,4M"], "one --total"),
        ([*LATENCY, "--caps", ",".join(map(str, range(1, 200)))], "combinations"),
        ([*LATENCY, "--from-node", "0", "--to-node", "0"], "nothing would move"),
        ([*LATENCY, "--rounds", "0"], "--rounds"),
        ([*LATENCY, "--vm", "--live"], "not allowed with"),
        ([*LATENCY, "--topology", "moebius"], "moebius"),
        ([*LATENCY, "--timeout", "soon"], "soon"),
        ([*DEMOTION, "--engines", "warp"], "warp"),
        ([*DEMOTION, "--parts", "sums"], "sums"),
        ([*DEMOTION, "--parts", "calls,calls"], "twice"),
        ([*DEMOTION, "--pressure", "low"], "low"),
        ([*DEMOTION, "--call-total", "1M"], "multiple of 2M"),
        ([*DEMOTION, "--total", "1M"], "multiple of 2M"),
        ([*DEMOTION, "--sizes", "3K"], "3K"),
        ([*DEMOTION, "--threads", "2,4"], "--threads"),
        ([*DEMOTION, "--from-node", "1", "--to-node", "1"], "nothing would move"),
        ([*DEMOTION, "--from-node", "64"], "--from-node"),
        ([*DEMOTION, "--topology", "moebius"], "moebius"),
        ([*DEMOTION, "--timeout", "soon"], "soon"),
        ([*PROMOTION, "--touch", "poke"], "poke"),
        ([*PROMOTION, "--published"], "published"),
        ([*PROMOTION, "--from-node", "1", "--to-node", "1"], "nothing would move"),
        ([*PROMOTION, "--rounds", "0"], "--rounds"),
        ([*PROMOTION, "--vm", "--live"], "not allowed with"),
        ([*TIERS, "--policies", "luck"], "luck"),
        ([*TIERS, "--policies", "tier,tier"], "twice"),
        ([*TIERS, "--loads", "idle"], "idle"),
        ([*TIERS, "--memory", "swap"], "swap"),
        ([*TIERS, "--memory", "file", "--sizes", "2M"], "4K only"),
        ([*TIERS, "--seconds", "3"], "--seconds"),
        ([*TIERS, "--rounds", "0"], "--rounds"),
        ([*TIERS, "--hot", "1M"], "multiple of 2M"),
        ([*TIERS, "--fast-ns", "0"], "--fast-ns"),
        ([*TIERS, "--slow-ns", "slow"], "--slow-ns"),
        ([*TIERS, "--tier-config", "/nonexistent.toml"], "/nonexistent.toml"),
        ([*TIERS, "--check", "--policies", "nothing,tier"], "balancing or damo"),
        ([*TIERS, "--published"], "published"),
        ([*TIERS, "--from-node", "1", "--to-node", "1"], "nothing would move"),
        ([*HUGETLB, "--sizes", "4K"], "4K"),
        ([*HUGETLB, "--sizes", "2G"], "2G"),
        ([*HUGETLB, "--sizes", "2M,2M"], "twice"),
        ([*HUGETLB, "--sizes", "1G", "--total", "64M"], "multiple of 1024M"),
        ([*HUGETLB, "--engines", "off"], "off"),
        ([*HUGETLB, "--channels", "65"], "65"),
        ([*HUGETLB, "--max-unmapped-us", "soon"], "soon"),
        ([*HUGETLB, "--from-node", "0", "--to-node", "0"], "nothing would move"),
        ([*HUGETLB, "--published"], "published"),
        ([*COMPACTION, "--engines", "warp"], "warp"),
        ([*COMPACTION, "--states", "asleep"], "asleep"),
        ([*COMPACTION, "--states", "idle,idle"], "twice"),
        ([*COMPACTION, "--total", "1M"], "multiple of 2M"),
        ([*COMPACTION, "--total", "0"], "multiple of 2M"),
        ([*COMPACTION, "--count", "many"], "--count"),
        ([*COMPACTION, "--cpu", "-1"], "--cpu"),
        ([*COMPACTION, "--node", "64"], "--node"),
        ([*COMPACTION, "--topology", "moebius"], "moebius"),
        ([*COMPACTION, "--timeout", "soon"], "soon"),
        ([*COMPACTION, "--layouts", "0"], "--layouts"),
        ([*COMPACTION, "--max-unmapped-us", "never"], "never"),
        ([*PROMOTION, "--max-unmapped-us", "-1"], "--max-unmapped-us"),
        ([*DEMOTION, "--layouts", "101"], "--layouts"),
        ([*HUGETLB, "--live", "--layouts", "2"], "this machine is measured"),
        ([*COPY, "--sizes", "3K"], "3K"),
        ([*COPY, "--sizes", "2G"], "2G"),
        ([*COPY, "--threads", "0"], "number of threads"),
        ([*COPY, "--routines", "pages,warp"], "warp"),
        ([*COPY, "--total", "1M"], "2M"),
        ([*COPY, "--sizes", "1G", "--total", "512M"], "largest size"),
        ([*COPY, "--chase", "63"], "cache line"),
        ([*COPY, "--rounds", "0"], "--rounds"),
        ([*COPY, "--vm"], "--vm"),
        ([*COST, "--engines", "none"], "none"),
        ([*COST, "--layouts", "0"], "--layouts"),
        ([*COST, "--jobs", "many"], "--jobs"),
        ([*COST, "--engines", "off", "--check"], "--check"),
        ([*COST, "--vanilla"], "vanilla"),
        ([*COST, "--paths", "mbind,swap"], "swap"),
        ([*COST, "--paths", "mbind,mbind"], "twice"),
        ([*COST, "--pages", "runs,runs"], "twice"),
        ([*COST, "--arch", "arm64", "--paths", "all"], "memory tiers"),
        ([*SCALE, "--engines", "none"], "none"),
        ([*SCALE, "--parts", "sizes,shapes"], "shapes"),
        ([*SCALE, "--sizes", "1M"], "1M"),
        ([*SCALE, "--sizes", "64M,64M"], "twice"),
        ([*SCALE, "--movers", "65"], "65"),
        ([*SCALE, "--rounds", "3"], "--rounds"),
        ([*SCALE, "--jobs", "0"], "--jobs"),
        ([*SCALE, "--engines", "off", "--check"], "--check"),
        ([*SCALE, "--topology", "moebius"], "moebius"),
        ([*SCALE, "--arch", "arm64"], "arm64"),
        (["demo", "--engines", "cpu"], "engines"),
        (["bench"], "VERB"),
    ],
)
def test_bad_usage(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert named in said.err
    # One line names the fault, and at most one more line helps.
    lines = said.err.strip().splitlines()
    assert [line.startswith("pageferry: ") for line in lines][:1] == [True]
    assert len(lines) <= 2


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([*MOVE, "--vm", "--to-node", "7"], "no node 7"),
        ([*MOVE, "--vm", "--total", "64G"], "without enough memory"),
        ([*MOVE, "--live", "--to-node", "1023"], "no node 1023"),
        ([*LATENCY, "--vm", "--to-node", "7"], "no node 7"),
        ([*LATENCY, "--vm", "--total", "64G"], "without enough memory"),
        ([*LATENCY, "--live", "--to-node", "1023"], "no node 1023"),
        ([*DEMOTION, "--vm", "--to-node", "7"], "no node 7"),
        ([*DEMOTION, "--vm", "--total", "64G"], "without enough memory"),
        ([*PROMOTION, "--vm", "--total", "64G"], "without enough memory"),
        ([*TIERS, "--vm", "--hot", "64G"], "without enough memory"),
        ([*HUGETLB, "--vm", "--sizes", "1G"], "a --topology with more memory"),
        ([*HUGETLB, "--vm", "--total", "64G"], "--total"),
        ([*PROMOTION, "--live", "--from-node", "63"], "no node 63"),
        ([*COMPACTION, "--vm", "--node", "7"], "no node 7"),
        ([*COMPACTION, "--vm", "--total", "64G"], "without enough memory"),
        ([*COMPACTION, "--live", "--node", "63"], "no node 63"),
        ([*SCALE, "--topology", "gpu"], "nodes 0 and 1"),
    ],
)
def test_what_the_machine_lacks(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert named in said.err


def test_kernel_without_our_sysfs(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    add_nodes(tmp_path, {0: 1, 1: 1})
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    assert main([*MOVE, "--live"]) == 3
    said = capsys.readouterr()
    assert "/sys/kernel/mm/migrate_offload" in said.err
    assert "bench move-pages --vm" in said.err


@pytest.mark.parametrize("bench", [MOVE, LATENCY, DEMOTION, HUGETLB])
def test_defaults_are_nodes_with_memory(
    bench: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    add_nodes(tmp_path, {0: 0, 2: 8, 3: 0, 17: 8})
    (tmp_path / "sys/kernel/mm/migrate_offload").mkdir(parents=True)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main([*bench, "--live", "--dry-run"]) == 0
    assert "--from=2 --to=17" in capsys.readouterr().out
    assert main([*bench, "--live", "--dry-run", "--from-node", "17"]) == 0
    assert "--from=17 --to=2" in capsys.readouterr().out
    # Without --live, the obstacle of this machine chooses the other machine's nodes.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    gaps = [*bench, "--topology", "gaps", "--total", "64M"]
    assert main([*gaps, "--dry-run"]) == 0
    assert "--from=0 --to=3" in capsys.readouterr().out
    assert main([*gaps, "--dry-run", "--to-node", "1"]) == 3
    said = capsys.readouterr().err
    assert "node 1 of topology gaps has no memory" in said
    assert "nodes with memory: 0,3,17" in said


def test_promotion_goes_the_other_way(capsys: pytest.CaptureFixture[str]) -> None:
    argv = [*PROMOTION, "--vm", "--dry-run", "--topology", "gaps"]
    assert main([*argv, "--total", "64M"]) == 0
    assert "--from=3 --to=0" in capsys.readouterr().out
    argv = [*COMPACTION, "--vm", "--dry-run", "--topology", "gaps"]
    assert main(argv) == 0
    assert "--node=0" in capsys.readouterr().out


def test_tiers_say_what_they_would_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "tier.toml"
    file.write_text('cold_after = "7s"\n')
    argv = [*TIERS, "--vm", "--dry-run"]
    assert main([*argv, "--quick", "--tier-config", str(file)]) == 0
    said = capsys.readouterr().out
    assert (
        "tiers --from=1 --to=0 --sizes=4096 --total-bytes=134217728 --rounds=1" in said
    )
    assert "--loads=static --memory=anon --seconds=20" in said
    assert 'cold_after = "7s"' in said and "--variants" not in said
    assert "damo start" in said and "fill node 0" in said
    # An option replaces the default of --quick.
    assert "--until-settled" not in said
    assert main([*argv, "--quick", "--loads", "moving", "--hot", "64M"]) == 0
    said = capsys.readouterr().out
    assert "--loads=moving" in said and "--total-bytes=67108864" in said
    assert main([*argv, "--until-settled"]) == 0
    assert "--until-settled" in capsys.readouterr().out
    monkeypatch.setattr("pageferry.bench.tiers.policies.find_damo", lambda: None)
    assert main(argv) == 0
    found = capsys.readouterr()
    assert "--policies=nothing,balancing,tier" in found.out
    assert "damo is left out" in found.err
    assert "--rounds=5" in found.out and "--seconds=120" in found.out
    assert main([*argv, "--policies", "damo"]) == 2


def test_a_node_without_memory_is_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    add_nodes(tmp_path, {0: 8, 1: 0})
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    argv = [*DEMOTION, "--live", "--dry-run", "--engines", "stock", "--to-node", "1"]
    assert main(argv) == 3
    assert "node 1 of this machine has no memory" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[*MOVE, "--engines", "warp"], [*COST, "--layouts=x"]])
def test_json_also_on_failure(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*argv, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["exit_code"] == 2
    assert error["what"]


@pytest.mark.parametrize(
    "argv",
    [
        *(MOVE, LATENCY, COST, DEMOTION, PROMOTION),
        *(TIERS, HUGETLB, COMPACTION, SCALE, COPY, ["demo"]),
    ],
)
def test_help_fits_a_screen(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*argv, "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: pageferry")
    assert len(said.splitlines()) <= 60


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--engines", "stock,dcbm"], "--module=dmasim.ko channels=16"),
        (["--published", "caps"], "cap=32768,windows=1,streaming=false,limit=0"),
        (["--published", "workload"], "engine=stock,folio=2097152,total=2097152"),
        (["--check"], "twice more"),
        (["--engines", "stock", "--topology", "versal"], "boot topology versal"),
    ],
)
def test_latency_says_what_it_would_do(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*LATENCY, "--vm", "--dry-run", *argv]) == 0
    assert named in capsys.readouterr().out


def test_copy_says_what_it_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--sizes", "4K,1G", "--routines", "pages,wide", "--chase", "2M"]
    argv += ["--total", "1G"]
    assert main([*COPY, "--dry-run", *argv]) == 0
    said = capsys.readouterr().out
    assert "copy --sizes=4096,1073741824 --threads=1" in said
    assert "--routines=pages,wide --chase-bytes=2097152" in said
    # The program changes nothing.
    assert "write" not in said


def test_hugetlb_says_what_it_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--sizes", "1G", "--engines", "dcbm", "--channels", "1,4"]
    where = ["--vm", "--topology", "gigantic"]
    assert main([*HUGETLB, *where, "--dry-run", *argv]) == 0
    said = capsys.readouterr().out
    assert "move_pages --hugetlb --from=0 --to=1 --sizes=1073741824" in said
    assert "--total-bytes=1073741824" in said
    assert "topology gigantic hugepagesz=1024M hugepages=0:1,1:1" in said
    assert "--module=dmasim.ko channels=4" in said


@pytest.mark.parametrize("bench", [MOVE, HUGETLB, DEMOTION, PROMOTION, COMPACTION])
@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--layouts=3", ", 3 times in turn"),
        ("--max-unmapped-us=0", " --max-unmapped-us=0"),
    ],
)
def test_what_is_asked_for_is_handed_on(
    bench: list[str], option: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*bench, "--vm", "--dry-run", option]) == 0
    assert named in capsys.readouterr().out
    assert main([*bench, "--vm", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "in turn" not in said
    assert "unmapped" not in said


def test_not_enough_room_hint_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """The tool accepts the size that the hint names."""
    assert main([*MOVE, "--vm", "--total", "64G"]) == 3
    hint = capsys.readouterr().err.strip().splitlines()[-1]
    size = hint.split("--total ")[1].replace(" ", "")
    from pageferry.bench.options import parse_total

    assert parse_total(size) > 0
