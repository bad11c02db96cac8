# SPDX-License-Identifier: GPL-2.0-only
"""Our code has no data race during the selftests and the torture test."""

from __future__ import annotations

import pytest

from helpers import guests, kcsan
from pageferry.kernel.build import BuildRequest, build_kernel

pytestmark = pytest.mark.kcsan

_DCBM = "copies fail refuse lose_irq late stall_stopped share fair vanish"
_LOAD = "modprobe mtcopy min_thread_bytes=4096 && modprobe migrate_offload_test"
_COUNTERS = "cat /sys/kernel/debug/kcsan"
_BOOTS = {
    "debug": {
        "modules": _LOAD,
        "kselftest": "./migrate_offload",
        "fallback": "./fallback",
        "whole": "./whole -v 64k -v 2m_by_ptes",
        "hugetlb": "./hugetlb -v private",
        "damon": "./damon -v anon_64k",
        "cgroup": "./cgroup",
        "dcbm": f"./dcbm {_DCBM}",
        "runs": "./runs -k",
        "torture": "./torture --seconds 120",
        "counters": _COUNTERS,
    },
    "debug-tiered": {
        "modules": _LOAD,
        "promote": "./promote -v 4k",
        "callers": "ENGINE=mtcopy ./callers",
        "counters": _COUNTERS,
    },
}


@pytest.mark.parametrize("topology", _BOOTS)
def test_no_data_race(topology: str) -> None:
    kernel = build_kernel(BuildRequest(configs=("vm", "debug-kcsan", "test")))
    said = guests.boot_once(kernel, _BOOTS[topology], topology=topology)
    for step in list(_BOOTS[topology])[1:-1]:
        guests.passes(said.text(step), at_least=1)
    counters = kcsan.counters(said.text("counters"))
    assert counters["enabled"] == 1, said.outcome.serial_log
    assert counters["setup_watchpoints"] > 100_000, counters
    # Linux itself has some. If KCSAN reports none, it does not work.
    assert counters["data_races"] > 0, counters
    log = said.outcome.serial_log.read_text(errors="replace")
    assert "kcsan: enabled early" in log
    assert not kcsan.ours(log), said.outcome.serial_log
    others = [line for line in said.outcome.findings if "KCSAN:" not in line]
    assert not others, said.outcome.serial_log
