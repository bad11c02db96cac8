# SPDX-License-Identifier: GPL-2.0-only
"""Boots machines in which processes are interleaved, and judges the results."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers import guests
from pageferry.bench import build
from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmRequest

ROOT = Path(__file__).resolve().parents[2]
PAGES_PER_MIB = 256


def boot(
    kernel: BuiltKernel,
    topology: str,
    mib: int,
    cases: Sequence[str],
    guest: str = "helpers.interleave_guest",
) -> dict[str, Any]:
    """Boot once, and return the results of all cases of a guest's module."""
    hold = build.build() / "hold"
    command = (sys.executable, "-m", guest, str(hold), str(mib))
    outcome = guests.run(
        VmRequest(
            command=(*command, *cases),
            image=kernel.image,
            modules=kernel.modules,
            topology=topology,
            timeout_s=1800.0,
            cwd=ROOT,
            environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"},
        )
    )
    assert outcome.exit_code == 0, f"{outcome.stderr}\n{outcome.serial_tail()}"
    assert not outcome.findings
    document = json.loads(outcome.stdout)
    assert isinstance(document, dict)
    return document


def slack_of(found: dict[str, Any], pages: int) -> float:
    """Half a percent; with few folios, those of an incomplete round."""
    folios = pages // found["folio_pages"]
    return 0.005 if folios >= 256 else 2 / folios


def check_shares(found: dict[str, Any], mib: int) -> None:
    """Check interleaving from user space, with all weights."""
    pages = mib * PAGES_PER_MIB
    slack = slack_of(found, pages)
    before: list[int] | None = None
    for step in found["seen"]:
        assert step["first"]["code"] == step["again"]["code"] == 0, step
        assert step["first"]["by"] == "user"
        assert step["again"]["moved_pages"] == 0
        for node in step["status"]["nodes"]:
            at, wanted = node["id"], node["wanted_share"]
            assert abs(step["nodes"][at] / pages - wanted) < slack
            assert abs(node["actual_share"] - wanted) < slack
        assert step["status"]["left_pages"] == 0
        if step["weights"] == "0=3,1=1":
            assert before is not None
            assert step["nodes"][0] - before[0] == pages // 4
            # The rest belongs to other memory of the process.
            assert pages // 4 <= step["first"]["moved_pages"] < pages // 4 + 400
        before = step["nodes"]
    assert "from user space" in found["seen"][0]["first"]["said"]


def check_damon(found: dict[str, Any], mib: int) -> None:
    """Check interleaving by DAMON, with all weights."""
    assert "lacking" not in found, found["lacking"]
    pages = mib * PAGES_PER_MIB
    slack = slack_of(found, pages)
    for step in found["seen"]:
        assert step["first"]["code"] == 0
        # DAMON places each page as user space would.
        assert step["status"]["left_pages"] == 0
        for node in step["status"]["nodes"]:
            assert abs(step["nodes"][node["id"]] / pages - node["wanted_share"]) < slack
        # DAMON rests: a second pass moves no page.
        assert step["again"]["moved_pages"] == step["status"]["moved_pages"]
    assert found["verified"]["ok"] and found["verified"]["split_folios"] == 0
    assert found["stopped"]["code"] == 0 and found["left"] == "0"
    assert found["home"][0] == pages
