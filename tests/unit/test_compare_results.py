# SPDX-License-Identifier: GPL-2.0-only
"""The measured runs of `pageferry compare`, and the page about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import compare_tables
from helpers.compare_results import COMMANDS, ROUNDS, TOPOLOGY
from helpers.golden_files import check_golden

TOP = Path(__file__).resolve().parents[2] / "docs" / "results"


def test_the_page_has_the_figures_of_the_files() -> None:
    page = TOP / "compare.md"
    check_golden(page, compare_tables.page(page.read_text(), TOP))


@pytest.mark.parametrize("program", COMMANDS)
def test_the_files_are_complete(program: str) -> None:
    path = TOP / f"compare-{program}.jsonl"
    assert f"`{path.name}`" in (TOP / "README.md").read_text()
    seen = set()
    for document in compare_tables.read(path):
        machine = document["machine"]
        assert document["schema"] == "pageferry/compare"
        assert document["command"] == list(COMMANDS[program])
        assert document["rounds"] == ROUNDS
        assert (machine["topology"], machine["accel"]) == (TOPOLOGY, "tcg")
        names = compare_tables.variants(document, "migrated").keys()
        ours = "pageferry" in machine["kernel"]
        others = {"none", "mtcopy"} if ours else {"stock"}
        assert names == {"quiet", *others}
        seen.add((document["pressure"], ours))
        for figure in compare_tables.FIGURES[program]:
            found = compare_tables.variants(document, figure).values()
            assert all(len(one["values"]) == ROUNDS for one in found)
    # Stock Linux is beside ours for each pressure.
    assert {(pressure, not ours) for pressure, ours in seen} == seen
    assert len(compare_tables.FIGURES) == len(COMMANDS)
