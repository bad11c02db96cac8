# SPDX-License-Identifier: GPL-2.0-only
"""Many CPUs migrate at once: no task hangs, and no byte is wrong."""

from __future__ import annotations

import pytest

from helpers import guests
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_SETUP = """\
modprobe mtcopy && modprobe dmasim channels=4 && modprobe dcbm || exit 1
echo 1 >/sys/module/dcbm/offloading"""


@pytest.mark.parametrize("cpus", [8, 16])
def test_memory_survives(kernel_rules: BuiltKernel, cpus: int) -> None:
    said = guests.boot_once(
        kernel_rules,
        {
            "setup": _SETUP,
            "torture": f"./torture --seconds 20 --movers {cpus}"
            " --engines none,mtcopy,dcbm",
        },
        topology="many",
        words=(f"maxcpus={cpus}",),
    )
    guests.passes(said.text("torture"), at_least=5)
    said.is_well()
