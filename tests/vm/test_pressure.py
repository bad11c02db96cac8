# SPDX-License-Identifier: GPL-2.0-only
"""Memory moves correctly while memory is short, and nothing leaks."""

from __future__ import annotations

import pytest

from helpers import guests
from helpers.debug_kernel import UNDER_PRESSURE, WAYS_OF_PRESSURE

pytestmark = [pytest.mark.vm, pytest.mark.pressure]


@pytest.mark.parametrize("way", WAYS_OF_PRESSURE)
@pytest.mark.parametrize("name", UNDER_PRESSURE)
def test_memory_moves(pressure_run: guests.Steps, name: str, way: str) -> None:
    guests.passes(pressure_run.text(f"{name} {way}"), at_least=4)


def test_nothing_else_is_wrong(pressure_run: guests.Steps) -> None:
    pressure_run.is_well()
