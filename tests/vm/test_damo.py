# SPDX-License-Identifier: GPL-2.0-only
"""damo, the tool of DAMON's users, works with our kernel unchanged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from helpers import guests
from pageferry.bench import build
from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmRequest

pytestmark = pytest.mark.vm
ROOT = Path(__file__).resolve().parents[2]
MIB = 64


def test_damo_makes_two_halves(kernel_vm: BuiltKernel) -> None:
    hold = build.build() / "hold"
    command = (sys.executable, "-m", "helpers.interleave_guest", str(hold), str(MIB))
    outcome = guests.run(
        VmRequest(
            command=(*command, "damo"),
            image=kernel_vm.image,
            modules=kernel_vm.modules,
            topology="two-node",
            timeout_s=300.0,
            cwd=ROOT,
            environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"},
        )
    )
    assert outcome.exit_code == 0, f"{outcome.stderr}\n{outcome.serial_tail()}"
    assert not outcome.findings
    found = json.loads(outcome.stdout)["damo"]
    assert found["code"] == 0, found["said"]
    # The posted result: 514 and 514 of 1027 MB.
    first, second, total = found["megabytes"]
    assert abs(first - second) <= 1
    assert total >= MIB
    assert found["verified"]["ok"]
