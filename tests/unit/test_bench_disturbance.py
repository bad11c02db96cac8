# SPDX-License-Identifier: GPL-2.0-only
"""Detection of other load on the host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pageferry.bench import disturbance
from pageferry.bench.disturbance import TOLERABLE, Disturbance, busy_seconds

BURN = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"]


def stat_line(busy_ticks: int) -> str:
    return f"cpu  {busy_ticks} 0 0 999 7 0 0 0 0 0\ncpu0 1 2 3\n"


def test_idle_time_is_not_busy() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    text = f"cpu  {ticks} {ticks} {ticks} 500 500 {ticks} {ticks} {ticks} 9 9\n"
    assert busy_seconds(text) == 6
    assert busy_seconds("intr 1 2 3") is None
    assert busy_seconds("") is None


def test_own_work_is_no_disturbance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child burns CPU time, and the host's counter grows by the same time."""
    stat = tmp_path / "stat"
    stat.write_text(stat_line(0))
    monkeypatch.setattr(disturbance, "STAT", stat)
    others = Disturbance()
    subprocess.run(BURN, check=True)
    stat.write_text(stat_line(int(0.3 * os.sysconf("SC_CLK_TCK"))))
    share = others.share()
    assert share is not None
    assert share <= TOLERABLE


def test_the_work_of_others_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    stat.write_text(stat_line(0))
    monkeypatch.setattr(disturbance, "STAT", stat)
    others = Disturbance()
    stat.write_text(stat_line(1000 * os.sysconf("SC_CLK_TCK")))
    assert others.share() == 1.0


def test_unknown_where_there_is_no_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disturbance, "STAT", tmp_path / "missing")
    assert Disturbance().share() is None
