# SPDX-License-Identifier: GPL-2.0-only
"""DMA channels fail, and no byte is lost: a short `make campaign`."""

from __future__ import annotations

import dataclasses

import pytest

from pageferry.bench import campaign, run_campaign
from pageferry.errors import PageferryError
from pageferry.kernel.build import BuildRequest, BuiltKernel

# A call may take a few seconds at most.
pytestmark = [pytest.mark.vm, pytest.mark.fault]

# These faults cover a CPU copy, a lost interrupt, held pages and lost pages.
_JOB = run_campaign.Job(
    folios=1000,
    faults=("fail", "lose-irq", "stall-held", "lie"),
    seed=3,
    timeout_ms=200,
    kernel=BuildRequest(configs=("vm", *run_campaign.CONFIGS)),
)


def test_no_fault_of_a_dma_channel_loses_anything(kernel_debug: BuiltKernel) -> None:
    report = run_campaign.run(_JOB)
    assert not report.problems()
    assert {phase["fault"] for phase in report.phases} == set(_JOB.faults)
    assert report.folios >= _JOB.folios


def test_damage_would_show(kernel_debug: BuiltKernel) -> None:
    """A driver lies, and dcbm was told to trust it."""
    job = dataclasses.replace(_JOB, folios=500, faults=campaign.DAMAGING, limit_s=180.0)
    for left in (2, 1, 0):
        try:
            report = run_campaign.run(job)
            break
        except PageferryError:
            # The device may have written anywhere. A guest that died of this proves
            # nothing.
            if not left:
                raise
    assert any("damaged memory" in problem for problem in report.problems())
