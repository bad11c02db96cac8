# SPDX-License-Identifier: GPL-2.0-only
"""An engine costs no more than 3% against none, however many migrate at once."""

from __future__ import annotations

import pytest

from helpers import guests, ktap
from helpers.movers import LOAD, NAMES
from pageferry.kernel.build import BuiltKernel

pytestmark = [pytest.mark.vm, pytest.mark.perf]


@pytest.mark.parametrize("topology", ["two-node", "eight-cpus"])
@pytest.mark.parametrize("movers", [1, 4, 16])
@pytest.mark.parametrize("words", ["", "--processes"])
def test_engines_cost_no_more_than_none(
    kernel_vm: BuiltKernel, topology: str, movers: int, words: str
) -> None:
    options = f"--rounds=15 --ms=600 --least=97 --movers={movers} {words}"
    outcome = guests.boot(kernel_vm, f"{LOAD}./movers {options}", topology=topology)
    report = ktap.parse(outcome.stdout)
    assert not report.problems(), outcome.stdout
    assert report.names() == NAMES
