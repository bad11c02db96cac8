# SPDX-License-Identifier: GPL-2.0-only
"""An engine costs at most 3%, however many tasks migrate at once."""

from __future__ import annotations

import pytest

from helpers import guests, ktap
from helpers.movers import LOAD, NAMES
from pageferry.kernel.build import BuiltKernel

pytestmark = [pytest.mark.vm, pytest.mark.perf]

# CPUs take turns on this clock. RCU reports a stall after 21 s without a turn.
_PATIENCE = "echo 120 >/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout\n"


@pytest.mark.parametrize("topology", ["two-node", "eight-cpus"])
@pytest.mark.parametrize("movers", [1, 4, 16])
@pytest.mark.parametrize("words", ["", "--processes"])
def test_engines_cost_no_more_than_none(
    kernel_vm: BuiltKernel, topology: str, movers: int, words: str
) -> None:
    """Rates per second of a clock that counts the instructions of all CPUs.

    By the host's clock even "none" differs by 10% between rounds. With this clock CPUs
    take turns, so no engine can win: it shows the cost of losing.
    """
    options = f"--rounds=3 --ms=400 --warm-ms=1000 --least=97 --movers={movers} {words}"
    outcome = guests.boot(
        kernel_vm,
        f"{LOAD}{_PATIENCE}./movers {options}",
        topology=topology,
        icount=True,
    )
    report = ktap.parse(outcome.stdout)
    assert not report.problems(), outcome.stdout
    assert report.names() == NAMES
