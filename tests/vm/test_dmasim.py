# SPDX-License-Identifier: GPL-2.0-only
"""The simulated DMA engine works, and fails on request."""

from __future__ import annotations

import pytest

from helpers import guests

pytestmark = pytest.mark.vm


def test_dmatest_and_unit_tests_pass_and_faults_show(plain_run: guests.Steps) -> None:
    guests.passes(plain_run.text("dmasim"), at_least=32)


def test_they_pass_with_bounce_buffers(bounced_run: guests.Steps) -> None:
    """Data reaches the device or the CPU only after a sync call."""
    guests.passes(bounced_run.text("dmasim"), at_least=32)
