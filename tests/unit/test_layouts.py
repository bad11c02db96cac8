# SPDX-License-Identifier: GPL-2.0-only
"""Several memory layouts: boots that count as one run."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from helpers.compaction_data import compaction
from helpers.fake_machine import boots
from helpers.tier_data import call, promotion
from pageferry.bench.job import Job
from pageferry.bench.layouts import noted, one_after_the_other
from pageferry.bench.lines import Done, Environment, Line, Timed
from pageferry.bench.move_pages.spec import SPEC, Measurement, MovePlan, make_rows
from pageferry.bench.target import describe_machine
from pageferry.cli import main
from pageferry.kernel.build import BuildRequest
from pageferry.report.tables import rounds
from pageferry.results.schema import Kernel, Machine, Row, decode

HERE = Environment(bench="move_pages", release="6.12", version="")


def measured(engine: str, number: int, elapsed_ns: int) -> Measurement:
    return Measurement(
        engine=engine,
        threads=1 if engine == "stock" else 2,
        folio_bytes=2 << 20,
        busy=False,
        round=number,
        moved_bytes=2 << 20,
        elapsed_ns=elapsed_ns,
        split_folios=0,
        engine_bytes=0,
        verified=True,
    )


def rows_of(lines: list[Line]) -> list[Row]:
    plan = MovePlan(sizes=(2 << 20,), engines=("mtcopy",), total_bytes=0, rounds=2)
    return make_rows(plan, lines)


def boot(speed: int, rounds: int = 2) -> list[Line]:
    """Return the lines of one boot: a warm-up round, and `rounds` that count.

    Stock Linux takes `speed` times as long as mtcopy.
    """
    lines: list[Line] = [HERE]
    for number in range(rounds + 1):
        lines.append(measured("stock", number, 1000 * speed))
        lines.append(measured("mtcopy", number, 1000))
    return [*lines, Done()]


def test_rounds_are_numbered_on() -> None:
    lines = one_after_the_other([boot(2), boot(4, rounds=3), boot(8)])
    stock = [line for line in lines if isinstance(line, Timed)][::2]
    assert [line.round for line in stock] == [0, 1, 2, 0, 3, 4, 5, 0, 6, 7]


def test_one_boot_stays_as_it_is() -> None:
    assert one_after_the_other([boot(2)]) == boot(2)


def test_ratios_are_of_rounds_of_the_same_boot() -> None:
    lines = one_after_the_other([boot(2), boot(4), boot(8)])
    rows = rows_of(lines)
    (row,) = (row for row in noted(rows, 3) if row.engine == "mtcopy")
    assert row.layouts == 3
    # Each boot has two rounds. If boots shared round numbers, a round would
    # replace the round of an earlier boot.
    assert row.rounds == 6
    assert row.ratio_to_stock_spread is not None
    assert row.ratio_to_stock_spread.min == pytest.approx(2)
    assert row.ratio_to_stock == pytest.approx(4)
    assert row.ratio_to_stock_spread.max == pytest.approx(8)


def test_one_layout_is_not_mentioned() -> None:
    rows = rows_of(boot(2))
    assert [row.layouts for row in noted(rows, 1)] == [None, None]


def test_so_many_machines_are_booted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = boots(monkeypatch, tmp_path, boot)
    plan = MovePlan(sizes=(2 << 20,), engines=(), total_bytes=2 << 20, rounds=2)
    job = Job(SPEC, plan, argparse.Namespace(), "two-node", BuildRequest(), 10.0, 3)
    lines, _, machine = job.measure(plan)
    assert len(seen) == 3
    assert {request.timeout_s for request in seen} == {10.0}
    rounds = {line.round for line in lines if isinstance(line, Timed)}
    assert rounds == set(range(7))
    assert machine.topology == "two-node"
    assert (
        "booting 6.12.117-pageferry, topology two-node, 3 of 3"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("bench", "lines"),
    [
        ("move-pages", boot(2)),
        ("hugetlb", boot(2)),
        ("demotion", [HERE, call("stock", "one page per call", 9)]),
        ("promotion", [HERE, promotion("stock", 9)]),
        ("compaction", [HERE, compaction("stock", 9)]),
    ],
)
def test_every_benchmark_hands_it_on(
    bench: str, lines: list[Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def fake(job: Job, _: object) -> tuple[list[Line], Kernel, Machine]:
        given.append(job.layouts)
        return lines, Kernel(release="6.12", version=""), describe_machine(HERE)

    monkeypatch.setattr(Job, "measure", fake)
    output = tmp_path / "result.json"
    words = ["bench", bench, "--vm", "--layouts", "3", "--json"]
    assert main([*words, "--output", str(output)]) == 0
    assert given == [3]
    assert {row.layouts for row in decode(output.read_bytes()).rows} == {3}


def test_the_table_says_how_many() -> None:
    rows = rows_of(boot(2))
    assert rounds(rows[0]) == "2 rounds"
    assert rounds(noted(rows, 3)[0]) == "2 rounds, 3 memory layouts"
