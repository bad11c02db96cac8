# SPDX-License-Identifier: GPL-2.0-only
"""DMA channels fail, and no byte is lost: a little of `make campaign`."""

from __future__ import annotations

import dataclasses

import pytest

from pageferry.bench import campaign, run_campaign
from pageferry.errors import PageferryError
from pageferry.kernel.build import BuildRequest, BuiltKernel

# Calls must not take longer than some seconds.
pytestmark = [pytest.mark.vm, pytest.mark.fault]

# A CPU copy, a lost interrupt, pages that are held, and pages that are lost.
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
    """A driver lies, and dcbm was told to believe it."""
    job = dataclasses.replace(_JOB, folios=500, faults=campaign.DAMAGING, limit_s=180.0)
    for left in (2, 1, 0):
        try:
            report = run_campaign.run(job)
            break
        except PageferryError:
            # What the device writes to may have become anything, and a machine
            # that did not live says nothing.
            if not left:
                raise
    assert any("damaged memory" in problem for problem in report.problems())
