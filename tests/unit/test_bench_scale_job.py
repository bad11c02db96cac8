# SPDX-License-Identifier: GPL-2.0-only
"""`bench scale`: options, machines, the table, and its place in reports."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import msgspec

from helpers.bench_data import built, page, result
from helpers.golden_files import check_golden
from helpers.scale_data import MIB, movers, samples, sizes
from pageferry.bench.scale.boots import QUICK, Job, Work
from pageferry.bench.scale.rows import Sample, make_rows
from pageferry.bench.scale.spec import SPEC, make_job
from pageferry.commands.bench import add_arguments
from pageferry.kernel.build import BuildRequest
from pageferry.report.charts import charts
from pageferry.report.difference import label
from pageferry.report.verdict import sentence, warnings
from pageferry.units import GIB

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def job(*argv: str) -> Job:
    parser = argparse.ArgumentParser()
    add_arguments(parser, SPEC)
    made = make_job(parser.parse_args(argv), BuildRequest(configs=("vm",)))
    assert isinstance(made, Job)
    return made


def shown(*measured: Sample) -> str:
    """Return the text that people read of measurements."""
    found = result(make_rows(measured))
    machine = msgspec.structs.replace(found.machine, accel="tcg icount", cpus=8)
    return page(SPEC, msgspec.structs.replace(found, machine=machine))


def test_table() -> None:
    check_golden(GOLDEN / "bench-scale.txt", shown(*samples()) + "\n")
    assert "&zone->lock 3" in shown(movers("off", 8, 3_000, locks="&zone->lock 3"))


def test_defaults_are_what_the_help_says() -> None:
    text = " ".join(str(how.get("help")) for _, how in SPEC.options)
    work = Work()
    for numbers in (["64M", "256M", "1G", "4G", "16G"], map(str, work.movers)):
        assert f"(default: {','.join(numbers)})" in text
    assert work.sizes == (64 * MIB, 256 * MIB, GIB, 4 * GIB, 16 * GIB)
    assert f"(default: {work.rounds})" in text
    assert f"{QUICK.rounds} rounds" in text


def test_options_reach_the_program() -> None:
    words = job("--quick", "--sizes", "1G,64M", "--movers", "8,2").work.arguments()
    told = dict(zip(words[::2], words[1::2], strict=True))
    assert told["--parts"] == "sizes,movers,life"
    assert told["--sizes"] == "67108864,1073741824"
    assert told["--movers"] == "2,8"
    assert told["--repeats"] == "1"
    assert (told["--rounds"], told["--pause-ms"]) == ("200", "20")
    words = job("--parts", "life,sizes", "--rounds", "86400").work.arguments()
    assert words[:2] == ["--parts", "sizes,life"]
    assert "--movers" not in words
    assert words[-4:-2] == ["--rounds", "86400"]


def test_machines_of_engines(tmp_path: Path) -> None:
    for name in ("mtcopy", "dcbm", "dmasim"):
        (tmp_path / f"{name}.ko").touch()
    made = job("--engines", "stock,off,mtcopy,dcbm")
    assert [made.request_for(e).vanilla for e in made.engines] == [True, *[False] * 3]
    found = {
        engine: made.machine(engine, built(tmp_path), tmp_path / "scale")
        for engine in made.engines
    }
    assert found["dcbm"].arguments[:6] == (
        *("--engine", "dcbm:channels=4"),
        *("--module", '"/dmasim.ko cpu=7"', "--module", "/dcbm.ko"),
    )
    # Linux passes at most 32 words to /init.
    assert len(found["dcbm"].arguments) <= 30
    assert [path.name for path in found["mtcopy"].modules] == ["mtcopy.ko"]
    assert found["stock"].modules == ()
    # A real controller needs no simulated one.
    versal = job("--topology", "versal", "--engines", "dcbm")
    assert list(versal.modules("dcbm")) == ["dcbm"]
    assert versal.kernel.arch.name == "arm64"


def test_a_longer_run_may_take_longer() -> None:
    quick, whole = QUICK.limit_s, Work().limit_s
    assert 600 < quick < 1200 < whole
    assert replace(Work(), rounds=86_400).limit_s > 2 * whole
    alone = replace(Work(), parts=("movers",))
    assert alone.limit_s < whole
    assert alone.memory_bytes == GIB
    assert Work().memory_bytes == 33 * GIB


def test_what_would_be_done_is_said() -> None:
    steps = job("--quick", "--engines", "stock,off").dry_run()
    assert [step for step in steps if step.startswith("boot ")] == [
        "boot topology scale with engine stock",
        "boot topology scale with engine off",
    ]
    assert any(step.startswith("in each: scale --parts sizes") for step in steps)


def test_refused_only_with_check() -> None:
    found = result(make_rows([sizes("off", MIB, 1), sizes("off", GIB, 2)]))
    assert SPEC.refused(argparse.Namespace(check=False), found) == []
    assert len(SPEC.refused(argparse.Namespace(check=True), found)) == 1


def test_a_report_tells_the_rows_apart() -> None:
    rows = make_rows(samples())
    assert len({label(row) for row in rows}) == len(rows)
    found = result(rows)
    keys = {chart.key for chart in charts(found, [])}
    assert keys == {"instructions-over-size", "instructions-over-movers"}
    assert sentence(found).startswith("The most instructions take 0.609 times")
    assert not any("fewest rounds" in text for text in warnings(found))
