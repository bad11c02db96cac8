# SPDX-License-Identifier: GPL-2.0-only
"""The commands for operators on the stock kernels of Debian 12 and 13."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import debian_kernels, guests
from helpers.stock_guest import MIB
from pageferry.errors import PageferryError
from pageferry.vm.run import VmRequest

pytestmark = pytest.mark.vm
ROOT = Path(__file__).resolve().parents[2]
PAGE = 4096
Found = dict[str, Any]


@pytest.fixture(scope="module", params=list(debian_kernels.SUITES))
def found(request: pytest.FixtureRequest) -> Found:
    """Boot a kernel, and run all commands."""
    try:
        kernel = debian_kernels.kernel(request.param)
    except PageferryError as error:
        pytest.skip(error.line())
    done = guests.run(
        VmRequest(
            command=(sys.executable, "-m", "helpers.stock_guest"),
            image=kernel.image,
            modules=kernel.modules,
            topology="tiered",
            timeout_s=900.0,
            cwd=ROOT,
            environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"},
        )
    )
    assert done.status == 0, f"{done.stderr}\n{done.findings}"
    document: Found = json.loads(done.stdout)
    assert document["release"] == kernel.release
    return {**document, "base": kernel.base}


def test_doctor_knows_a_stock_kernel(found: Found) -> None:
    checks = {check["name"]: check for check in found["doctor"]["checks"]}
    assert checks["kernel"]["detail"] == found["release"]
    assert checks["nodes"]["ok"]
    assert checks["batch copy"]["hint"]
    # Only a kernel with engines can choose one.
    assert not checks["DMA engines"]["hint"]
    assert checks["DAMON"]["ok"] == (found["base"] != "debian-12")
    assert "or in this CPU" in checks["use by resctrl"]["detail"]
    assert found["status"]["code"] == 3


def test_move_explains_each_page(found: Found) -> None:
    for name in ("foreseen", "move"):
        done = found[name]
        stayed = sum(row["pages"] for row in done["stayed"])
        assert done["found_pages"] == (
            done["moved_pages"] + done["movable_pages"] + stayed
        )
    reasons = {row["reason"] for row in found["move"]["stayed"]}
    assert "shared" in reasons
    assert found["move"]["code"] == 0
    assert found["move"]["moved_pages"] * PAGE >= MIB << 20
    assert found["foreseen"]["movable_pages"] >= found["move"]["moved_pages"]


def test_top_counts_what_move_moved(found: Found) -> None:
    rows = {row["reason"]: row["moved_bytes"] for row in found["top"]["reasons"]}
    moved_bytes = found["move"]["moved_pages"] * PAGE
    assert rows["syscall_or_cpuset"] == pytest.approx(moved_bytes, rel=0.02)
    assert "0 pages failed" in found["once"]


def test_other_commands_work(found: Found) -> None:
    assert "pageferry_migrated_bytes_total" in found["metrics"]
    assert found["offline"]["code"] in (0, 1)
    assert len(found["offline"]["blocks"]) == 16
