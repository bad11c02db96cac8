# SPDX-License-Identifier: GPL-2.0-only
"""No engine makes migration slower, however many tasks migrate at once."""

from __future__ import annotations

import pytest

from helpers import guests, ktap
from helpers.movers import LOAD, NAMES
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_BOOTS = 3


def _is_rate(name: str) -> bool:
    return name.endswith("is_no_slower_than_none")


@pytest.mark.parametrize(
    ("topology", "words"),
    [("two-node", "--movers=4"), ("eight-cpus", "--movers=4 --processes")],
)
def test_engines_are_no_slower_than_none(
    kernel_vm: BuiltKernel, topology: str, words: str
) -> None:
    """With the settings of boot, the kernel must find out by itself.

    Other work on the host changes these rates by a third, and more for threads that
    wait for a CPU of the host. So only a collapse in each of a few boots fails here:
    one was to a fortieth. `make perf` is stricter.
    """
    script = f"{LOAD}./movers --rounds=7 --ms=600 --least=50 {words}"
    for _ in range(_BOOTS):
        outcome = guests.boot(kernel_vm, script, topology=topology)
        report = ktap.parse(outcome.stdout)
        assert report.names() == NAMES
        wrong = [r for r in report.results if not r.ok and not _is_rate(r.name)]
        assert not wrong, outcome.stdout
        if not report.problems():
            break
    assert not report.problems(), outcome.stdout


def test_real_time_tasks_keep_no_folio_unmapped(kernel_vm: BuiltKernel) -> None:
    outcome = guests.boot(
        kernel_vm, "modprobe mtcopy && ./realtime", topology="two-node"
    )
    report = ktap.parse(outcome.stdout)
    assert not report.problems(), outcome.stdout
    assert len(report.names()) == 3
