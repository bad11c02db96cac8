# SPDX-License-Identifier: GPL-2.0-only
"""The tables about measured runs of `pageferry compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers import compare_results, compare_tables
from pageferry.compare import report
from pageferry.compare.figures import Figure, Found
from pageferry.compare.machine import Machine
from pageferry.compare.runs import MIGRATED, WALL, Job

MACHINE = Machine("6.12.117", "QEMU TCG CPU", 2)


def document(program: str, pressure: str, rates: dict[str, float]) -> dict[str, Any]:
    """A document; each round is a little faster than the one before."""
    rate, latency = compare_tables.FIGURES[program]
    runs: dict[str, list[Found]] = {
        name: [
            {
                Figure(rate, "1/s"): number * (1 + at / 100),
                Figure(latency, "us", more_is_better=False): 1e6 / number,
                WALL: 9.0,
                MIGRATED: 0.0 if name == "quiet" else 100.0 + at,
            }
            for at in range(5)
        ]
        for name, number in rates.items()
    }
    job = Job((program, "--seconds", "5"), pressure, (0, 1), None)
    said: Any = report.document(job, runs, MACHINE)
    load = 0.04 if "stock" in rates else 0.08
    return {**said, "machine": {**said["machine"], "host_other_load": load}}


def test_a_page_has_tables_of_all_programs(tmp_path: Path) -> None:
    old = "# Head\n"
    for program in compare_tables.FIGURES:
        stock = {"quiet": 1000.0, "stock": 500.0}
        ours = {"quiet": 2000.0, "none": 1200.0, "mtcopy": 1600.0}
        documents = [
            document(program, "both", stock),
            document(program, "both", ours),
            document(program, "move", stock),
            document(program, "move", {**ours, "mtcopy": 1190.0}),
        ]
        lines = "".join(f"{json.dumps(one)}\n" for one in documents)
        (tmp_path / f"compare-{program}.jsonl").write_text(lines)
        old += f"<!-- begin {program} -->\nold\n<!-- end {program} -->\n"
    text = compare_tables.page(old, tmp_path)
    assert "old" not in text and compare_tables.page(text, tmp_path) == text
    rates = "| 0.50 (0.50..0.50) | 0.60 (0.60..0.60) | 0.80 (0.80..0.80) |"
    assert f"| `both` {rates}" in text
    latencies = "| 2.00 (2.00..2.00) | 1.67 (1.67..1.67) | 1.25 (1.25..1.25) |"
    assert f"| `both` {latencies}" in text
    assert "| `move` | 102 (100..104) | 102 (100..104) | 102 (100..104) |" in text
    assert (
        "GET with mtcopy, compared with no engine: better with `both`; noise with `move`."
    ) in text
    assert (
        "`gups --seconds 5`. Other work took 4% to 8% of the host's CPU time." in text
    )


def test_each_measured_program_has_a_table() -> None:
    assert list(compare_results.COMMANDS) == list(compare_tables.FIGURES)
