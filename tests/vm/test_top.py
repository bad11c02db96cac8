# SPDX-License-Identifier: GPL-2.0-only
"""`top` beside a known load, on stock Linux and on ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import RunInVm
from helpers.top_guest import PAGE, TOTAL_BYTES
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm
ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 0.02


@pytest.mark.parametrize("which", ["kernel_vm", "kernel_vanilla"])
def test_top_shows_a_known_load(
    which: str, in_vm: RunInVm, request: pytest.FixtureRequest
) -> None:
    kernel: BuiltKernel = request.getfixturevalue(which)
    path = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    argv = (sys.executable, "-m", "helpers.top_guest")
    done = in_vm(kernel, *argv, topology="two-node", environment=path)
    assert done.status == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    load_bytes = found["moved"] * PAGE
    assert load_bytes > 2.9 * TOTAL_BYTES
    top = found["top"]
    near = pytest.approx(load_bytes, rel=TOLERANCE)
    (mine,) = (row for row in top["processes"] if row["pid"] == found["pid"])
    assert (mine["reason"], mine["moved_bytes"]) == ("syscall_or_cpuset", near)
    reasons = {row["reason"]: row["moved_bytes"] for row in top["reasons"]}
    assert reasons["syscall_or_cpuset"] == near
    # Compaction may move pages meanwhile.
    assert top["moved_bytes"] == pytest.approx(sum(reasons.values()), rel=TOLERANCE)
    assert top["lost_events"] == 0
    assert found["left"] == []
    blind = {row["what"].split(",")[0] for row in top["unseen"]}
    assert ("engines" in blind) == (which == "kernel_vanilla")
