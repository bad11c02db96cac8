# SPDX-License-Identifier: GPL-2.0-only
"""move_pages(2) reports the same status for each page as on stock Linux."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers import guests
from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmOutcome

pytestmark = pytest.mark.vm

_HERE = "/sys/kernel/mm/migrate_offload"
# Boots of their own would take longer; memory is new for each.
_WAYS = {
    "as it is": "true",
    "with an engine": f"echo cpu >{_HERE}/engine",
    "without batch_ptes": f"echo none >{_HERE}/engine; echo 0 >{_HERE}/batch_ptes",
}
_NEXT = "=== next"

RunInVm = Callable[..., VmOutcome]


def _said(in_vm: RunInVm, kernel: BuiltKernel, script: str) -> list[str]:
    outcome = in_vm(kernel, "sh", "-c", script, topology="two-node")
    guests.is_well(outcome)
    assert outcome.exit_code == 0, outcome.stdout
    return outcome.stdout.split(_NEXT)


def test_status_of_each_page_is_that_of_stock_linux(
    in_vm: RunInVm, kernel_vm: BuiltKernel, kernel_vanilla: BuiltKernel
) -> None:
    program = str(guests.programs(kernel_vm) / "status")
    (stock,) = _said(in_vm, kernel_vanilla, program)
    lines = stock.splitlines()
    # Each possible status occurs, and most pages have moved.
    for wanted in ("duplicates:", "mix:", "errno 19", " -2", " -14", " -13", " -16"):
        assert any(wanted in line for line in lines), wanted
    script = f"; echo; echo {_NEXT!r}; ".join(
        f"{{ {way}; }} && {program}" for way in _WAYS.values()
    )
    for way, said in zip(_WAYS, _said(in_vm, kernel_vm, script), strict=True):
        assert said.split("\n") and said.strip() == stock.strip(), way
