# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry engine check dcbm` and `engine set dcbm` in a machine with dmasim."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pageferry import paths
from pageferry.bench import build
from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmOutcome

pytestmark = pytest.mark.vm

ROOT = Path(__file__).resolve().parents[2]
_HERE = "/sys/kernel/mm/migrate_offload"
_DCBM = "/sys/module/dcbm"
_TOOL = shlex.join([sys.executable, "-m", "pageferry"])
# Slow channels, so that the check finds them busy.
_LOAD = "modprobe dmasim channels=4 bandwidth_mbps=400 && modprobe dcbm || exit 9"
_STATE = (
    f"cat {_HERE}/engine {_HERE}/engine_of/* {_DCBM}/offloading {_DCBM}/nr_dma_chan"
    f" {_DCBM}/parameters/timeout_ms {_DCBM}/parameters/cpu_share"
    " /sys/kernel/debug/migrate_offload/verify"
    " /sys/kernel/debug/migrate_offload/engine_always"
    " /sys/kernel/debug/dmasim/dmasim.0/chan*/fail_every"
)
RunInVm = Callable[..., VmOutcome]


def run(in_vm: RunInVm, kernel: BuiltKernel, script: str) -> VmOutcome:
    # The guest cannot write to the host's cache.
    build.build()
    # The sh may be busybox's, which prefers its own modprobe.
    outcome = in_vm(
        kernel,
        *("/bin/sh", "-c", script),
        topology="two-node",
        environment={
            "PYTHONPATH": str(ROOT / "src"),
            "XDG_CACHE_HOME": str(paths.cache_dir().parent),
        },
    )
    assert not outcome.findings, outcome.findings
    return outcome


def check(in_vm: RunInVm, kernel: BuiltKernel) -> dict[str, Any]:
    script = (
        f"{_LOAD}\n{_STATE} >/tmp/before\n"
        f"{_TOOL} engine check dcbm --disturb --json; code=$?\n"
        f"{_STATE} >/tmp/after; cmp /tmp/before /tmp/after || exit 8\n"
        "exit $code"
    )
    outcome = run(in_vm, kernel, script)
    assert outcome.exit_code == 0, f"{outcome.stdout}\n{outcome.stderr}"
    document = json.loads(outcome.stdout)
    assert isinstance(document, dict)
    return document


def test_a_simulated_device_passes(in_vm: RunInVm, kernel_vm: BuiltKernel) -> None:
    document = check(in_vm, kernel_vm)
    found = {f["question"]: f["answer"] for f in document["findings"]}
    assert document["ok"] and len(document["channels"]) == 4
    for question in (
        *("every byte right", "off while busy", "errors of dmasim.0"),
        *("gives late transfers back", "unbind of dmasim.0 while busy"),
    ):
        assert found[question] == "yes", (question, document["findings"])
    assert document["best_channels"] in (1, 2, 4)
    assert len(document["channel_rates"]) == 4


def test_setting_dcbm_without_a_channel_leaves_nothing(
    in_vm: RunInVm, kernel_vm: BuiltKernel
) -> None:
    script = f"{_TOOL} engine set dcbm; echo CODE $?; test ! -e {_DCBM} && echo GONE"
    outcome = run(in_vm, kernel_vm, script)
    assert "CODE 3" in outcome.stdout and "GONE" in outcome.stdout
    assert "mtcopy" in outcome.stderr


def test_setting_dcbm_takes_channels(in_vm: RunInVm, kernel_vm: BuiltKernel) -> None:
    script = (
        f"modprobe dmasim channels=4; {_TOOL} doctor --json >/tmp/doctor\n"
        f"{_TOOL} engine set dcbm --channels 2 --for demotion\n"
        f"cat {_HERE}/engine {_HERE}/engine_of/demotion; ls {_DCBM}/channels | wc -l"
    )
    outcome = run(in_vm, kernel_vm, script)
    assert outcome.stdout.splitlines()[-3:] == ["none", "dcbm", "2"], outcome.stderr
