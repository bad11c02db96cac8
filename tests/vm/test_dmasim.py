# SPDX-License-Identifier: GPL-2.0-only
"""The simulated DMA engine works, and fails on request."""

from __future__ import annotations

import pytest

from helpers import guests

pytestmark = pytest.mark.vm


def test_dmatest_and_unit_tests_pass_and_faults_show(bounced_run: guests.Steps) -> None:
    """Data reaches the device or the CPU only after a sync call.

    dcbm's tests use devices that access memory directly.
    """
    guests.passes(bounced_run.text("dmasim"), at_least=32)
