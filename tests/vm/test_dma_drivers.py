# SPDX-License-Identifier: GPL-2.0-only
"""The drivers of DMA engines that QEMU does not have."""

from __future__ import annotations

import pytest

from helpers import guests
from helpers.debug_kernel import DMA_DRIVERS

pytestmark = pytest.mark.vm


def test_drivers_without_a_device_load_and_unload(debug_run: guests.Steps) -> None:
    *found, refusal = debug_run.text("dma drivers").splitlines()
    assert found == [f"/sys/module/{name}" for name in DMA_DRIVERS]
    assert refusal == "No such device"
