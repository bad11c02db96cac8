# SPDX-License-Identifier: GPL-2.0-only
"""Cost, throughput and memory do not grow, and an engine costs at most 3%.

The clock counts the instructions of all CPUs, so other work does not disturb it. CPUs
take turns, so no engine can win: the tests show the cost of losing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import lock_names
from pageferry.cli import main
from pageferry.results.schema import Result, decode

pytestmark = [pytest.mark.vm, pytest.mark.perf]


def scale(tmp_path: Path, *argv: str) -> Result:
    path = tmp_path / "result.json"
    assert main(["bench", "scale", *argv, "--output", str(path)]) == 0
    return decode(path.read_bytes())


def test_nothing_grows(tmp_path: Path) -> None:
    """Takes most of an hour on two CPUs."""
    rows = scale(tmp_path, "--check").rows
    assert {row.scale.part for row in rows} == {"sizes", "movers", "life"}
    assert max(row.scale.size_bytes or 0 for row in rows) == 16 << 30


def test_engines_cost_no_more_than_none_on_two_cpus(tmp_path: Path) -> None:
    argv = ("--topology", "two-node", "--parts", "movers", "--movers", "1,4,16")
    rows = scale(tmp_path, *argv, "--check").rows
    assert len(rows) == 4 * 3 * 2


def test_cpus_wait_for_other_locks_than_ours(tmp_path: Path) -> None:
    argv = ("--parts", "movers", "--movers", "16,64", "--engines", "off,mtcopy,dcbm")
    rows = scale(tmp_path, *argv, "--config", "profile").rows
    assert any(row.scale.locks for row in rows)
    for row in rows:
        assert row.scale.locks is not None
        found = set(lock_names.named(row.scale.locks)) & lock_names.ours()
        assert not found, f"{row.engine}, {row.scale.movers}: {row.scale.locks}"
