# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's selftests on arm64, which has other page table entries."""

from __future__ import annotations

import pytest

from helpers import guests, selftests
from pageferry.kernel.arch import ARM64
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_STEPS = {
    "runs": "./runs -k",
    "notify": "./notify -k",
    "whole": "./whole -v 16k -v 64k -v 2m_by_ptes",
}


@pytest.fixture(scope="module")
def arm64_run(kernel_arm64_rules: BuiltKernel) -> guests.Steps:
    return guests.boot_once(kernel_arm64_rules, _STEPS, topology="versal", arch=ARM64)


@pytest.mark.parametrize("name", _STEPS)
def test_memory_moves(arm64_run: guests.Steps, name: str) -> None:
    arm64_run.ran_all(name, selftests.names(_STEPS[name]))


def test_the_machine_is_well_afterwards(arm64_run: guests.Steps) -> None:
    arm64_run.is_well()
