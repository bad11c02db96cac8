# SPDX-License-Identifier: GPL-2.0-only
"""Processes that end while the service looks at them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fake_damon import FakeDamon
from helpers.fake_process import add_process
from helpers.tier_machine import MERCI, Machine, furnish
from pageferry.damon.admin import TOP
from pageferry.tier.plan import Watch


@pytest.mark.parametrize("runs", [False, True])
def test_a_process_that_ends_during_a_step_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    machine = Machine(damon, MERCI)
    if runs:
        machine.steps(1)
    add_process(damon, 43, parent=42, name="helper")
    plan = machine.service._plan

    def then_one_ends() -> list[Watch]:
        found = plan()
        damon.path("/proc/43/stat").unlink()
        return found

    monkeypatch.setattr(machine.service, "_plan", then_one_ends)
    machine.steps(1)
    assert [watch.pids for watch in machine.service.kdamonds.watches] == [(42,)]
    assert damon.read(f"{TOP}/0/contexts/0/targets/nr_targets") == "1"
    assert damon.running() == ["0"]
    assert not any("cannot write" in line for line in machine.said)
