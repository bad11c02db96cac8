# SPDX-License-Identifier: GPL-2.0-only
"""Memory whose owner the service cannot find out."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from helpers.balance_machine import put
from helpers.fake_damon import FakeDamon
from helpers.fake_process import add_process
from helpers.tier_machine import MERCI, Machine, furnish
from pageferry.damon.admin import TOP


def test_memory_stays_until_the_kernel_says_who_has_bound_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    add_process(damon, 60, name="merci")
    text, broken = damon._text, ["/proc/60/numa_maps"]

    def fail(name: str) -> str:
        if name in broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return text(name)

    monkeypatch.setattr(damon, "_text", fail)
    machine = Machine(damon, MERCI)
    machine.steps(1)
    targets = f"{TOP}/0/contexts/0/targets"
    assert damon.read(f"{targets}/nr_targets") == "1"
    assert damon.read(f"{targets}/0/pid_target") == "42"
    assert any("left out: cannot read" in line for line in machine.said)
    broken.clear()
    machine.steps(1)
    assert damon.read(f"{targets}/nr_targets") == "2"


def test_each_process_is_said_to_be_left_out_once(tmp_path: Path) -> None:
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    for pid in range(100, 200):
        add_process(damon, pid, name="merci")
        put(damon, f"/proc/{pid}/status", "Mems_allowed_list:\t0")
    machine = Machine(damon, MERCI)
    machine.steps(20)
    said = [line for line in machine.said if "left out" in line]
    assert len(said) == len(set(said)) == 100
