# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's selftests on arm64, which has other page table entries."""

from __future__ import annotations

import pytest

from helpers import guests
from pageferry.kernel.arch import ARM64
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

# Programs, and the least number of tests that each must run.
_PROGRAMS = {
    "runs": ("./runs -k", 25),
    "notify": ("./notify -k", 10),
    "whole": ("./whole -v 16k -v 64k -v 2m_by_ptes", 30),
}


@pytest.fixture(scope="module")
def arm64_run(kernel_arm64_rules: BuiltKernel) -> guests.Steps:
    steps = {name: command for name, (command, _) in _PROGRAMS.items()}
    return guests.boot_once(kernel_arm64_rules, steps, topology="versal", arch=ARM64)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_memory_moves(arm64_run: guests.Steps, name: str) -> None:
    _, at_least = _PROGRAMS[name]
    guests.passes(arm64_run.text(name), at_least=at_least)


def test_the_machine_is_well_afterwards(arm64_run: guests.Steps) -> None:
    arm64_run.is_well()
