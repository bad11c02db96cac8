# SPDX-License-Identifier: GPL-2.0-only
"""Published figures: complete, parseable, and marked as others'."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.golden_files import check_golden
from pageferry.report import published

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FOLDER = Path(published.__file__).parent / "published"
NAMES = sorted(path.stem for path in FOLDER.glob("*.csv"))


def test_all_tables_are_there() -> None:
    assert NAMES == [
        "compaction_rfc_v4",
        "damon_interleave_2025",
        "first_folio_latency_batch_cap",
        "first_folio_latency_vanilla",
        "move_pages_rfc_v4",
        "move_pages_rfc_v5",
        "multithreaded_copy_2025",
        "single_vs_list_2019",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_each_table_says_where_it_comes_from(name: str) -> None:
    table = published.load(name)
    assert len(table.provenance) > 10
    document = table.as_json()
    assert document["measured_by"] == "others"
    assert len(document["rows"]) == len(table.rows) > 0


def test_numbers_are_numbers() -> None:
    rows = published.load("move_pages_rfc_v5").as_json()["rows"]
    best = [r for r in rows if r["channels"] == 16 and r["folio_size"] == "2M"]
    assert best[0]["gb_per_s"] == 65.23
    busy = published.load("compaction_rfc_v4").as_json()["rows"][0]
    assert busy["dma_copies"] is None


def test_tables() -> None:
    text = published.render_move_pages()
    check_golden(GOLDEN / "published-move-pages.txt", text + "\n")
