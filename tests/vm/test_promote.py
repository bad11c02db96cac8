# SPDX-License-Identifier: GPL-2.0-only
"""Promotions gather into batches: the selftest, on a machine with two tiers."""

from __future__ import annotations

import pytest

from helpers import guests, selftests
from helpers.debug_kernel import TIERED

pytestmark = pytest.mark.vm

_TESTS = selftests.names(TIERED["promote"])


@pytest.mark.parametrize("name", _TESTS)
def test_promotion(tiered_run: guests.Steps, name: str) -> None:
    tiered_run.passes("promote", name)


def test_all_of_it_was_tried(tiered_run: guests.Steps) -> None:
    tiered_run.ran_all("promote", _TESTS)
    tiered_run.is_well()
