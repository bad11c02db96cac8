# SPDX-License-Identifier: GPL-2.0-only
"""No data race in our code, whatever the selftests and the torture do."""

from __future__ import annotations

import pytest

from helpers import guests, kcsan
from pageferry.kernel.build import BuildRequest, build_kernel

pytestmark = pytest.mark.kcsan

_DCBM = "copies fail refuse lose_irq late stall_stopped share fair vanish"
_LOAD = "modprobe mtcopy && modprobe migrate_offload_test"
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
    },
    "debug-tiered": {
        "modules": _LOAD,
        "promote": "./promote -v 4k",
        "callers": "ENGINE=mtcopy ./callers",
    },
}


@pytest.mark.parametrize("topology", _BOOTS)
def test_no_data_race(topology: str) -> None:
    kernel = build_kernel(BuildRequest(configs=("vm", "debug-kcsan", "test")))
    said = guests.boot_once(kernel, _BOOTS[topology], topology=topology)
    for step in list(_BOOTS[topology])[1:]:
        guests.passes(said.text(step), at_least=1)
    log = said.outcome.serial_log.read_text(errors="replace")
    assert "kcsan: enabled early" in log
    assert not kcsan.ours(log), said.outcome.serial_log
    others = [line for line in said.outcome.findings if "KCSAN:" not in line]
    assert not others, said.outcome.serial_log
