# SPDX-License-Identifier: GPL-2.0-only
"""The scripts of damo's authors run unchanged on the newest base.

damo's package lacks them. `make damo-scripts DAMO=/path/to/damo` names its source.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from helpers.interleave import PAGES_PER_MIB, boot
from pageferry.kernel.build import BuildRequest, build_kernel

pytestmark = [pytest.mark.vm, pytest.mark.damo]
MIB = 16
PAGES = MIB * PAGES_PER_MIB
# The goals of nodes and of monitoring intervals are newer than Linux 6.12.
BASE = "7.3"


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """Results of both scripts, from one boot."""
    source = Path(os.environ["DAMO"]).resolve()
    assert (source / "scripts/mem_tier.sh").is_file(), "DAMO is not the source of damo"
    kernel = build_kernel(BuildRequest(base=BASE))
    guest = "helpers.damo_scripts_guest"
    return boot(kernel, "tiered", MIB, [str(source)], guest=guest)


def test_mem_tier_promotes_hot_memory_alone(seen: dict[str, Any]) -> None:
    found = seen["mem_tier"]
    assert found["script"]["code"] == 0, found["script"]["said"]
    assert found["hot"][0] >= 0.98 * PAGES, found
    assert found["cold"][1] >= 0.9 * PAGES, found
    assert all(verified["ok"] for verified in found["verified"])


def test_weighted_interleave_makes_two_halves(seen: dict[str, Any]) -> None:
    found = seen["weighted_interleave"]
    assert found["script"]["code"] == 0, found["script"]["said"]
    assert abs(found["hot"][0] - PAGES / 2) < 0.02 * PAGES, found
    assert found["verified"][0]["ok"]
    assert found["stopped"]["code"] == 0, found["stopped"]
    assert set(seen["states"]) == {"off"}
