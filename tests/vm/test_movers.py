# SPDX-License-Identifier: GPL-2.0-only
"""No engine makes migration slower, however many migrate at once."""

from __future__ import annotations

import pytest

from helpers import guests, ktap
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_LOAD = """\
modprobe mtcopy && modprobe dmasim channels=4 && modprobe dcbm || exit 1
echo 1 >/sys/module/dcbm/offloading || exit 1
"""
_NAMES = {
    "movers.mtcopy is_no_slower_than_none",
    "movers.dcbm is_no_slower_than_none",
    "movers content_is_right",
}


@pytest.mark.parametrize("topology", ["two-node", "eight-cpus"])
@pytest.mark.parametrize("words", ["--movers=4", "--movers=4 --processes"])
def test_engines_are_no_slower_than_none(
    kernel_vm: BuiltKernel, topology: str, words: str
) -> None:
    """As after boot: the kernel is to find out by itself."""
    script = f"{_LOAD}./movers --rounds=7 --ms=600 --least=80 {words}"
    outcome = guests.boot(kernel_vm, script, topology=topology)
    report = ktap.parse(outcome.stdout)
    assert not report.problems(), outcome.stdout
    assert report.names() == _NAMES
