# SPDX-License-Identifier: GPL-2.0-only
"""The routines that copy large folios, and an administrator's choice of each."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from helpers import guests
from pageferry.bench import build
from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmOutcome

pytestmark = pytest.mark.vm

_FILE = "/sys/kernel/mm/migrate_offload/copy_routine"
_SHOW = f'echo "copy=$(cat {_FILE}) $(cat {_FILE}_reason)"'
# Emulated CPUs lack "direct".
_ROUTINES = ("pages", "nontemporal")
_AUTO = re.compile(
    r"auto (pages no_time|(pages|nontemporal|direct) measured pages_mb_s=\d+"
    r" nontemporal_mb_s=\d+( direct_mb_s=\d+)? took_us=\d+)"
)


def test_each_routine_moves_all_bytes(
    in_vm: Callable[..., VmOutcome], kernel_vm: BuiltKernel
) -> None:
    program = build.build() / "move_pages"
    words = "--variants=stock,off,cpu --sizes=4K,64K,2M --total-bytes=8M --rounds=1"
    steps = [_SHOW]
    for routine in _ROUTINES:
        steps += [f"echo {routine} >{_FILE} || exit 1", _SHOW]
        steps += [f"{program} {words} || exit 1", _SHOW]
    steps += [f"! echo {word} >{_FILE} || exit 1" for word in ("faster", "2M")]
    steps += [_SHOW, f"echo auto >{_FILE} || exit 1", _SHOW]
    outcome = in_vm(kernel_vm, "sh", "-c", "; ".join(steps), topology="two-node")
    guests.is_well(outcome)
    assert outcome.exit_code == 0, outcome.stdout
    # The program verifies all moves.
    assert outcome.stdout.count('"verified": true') >= 3 * 3 * 2 * len(_ROUTINES)

    first, *chosen, after_errors, last = re.findall(
        r"^copy=(.*)$", outcome.stdout, re.MULTILINE
    )
    assert _AUTO.fullmatch(first) and last == first
    # "stock" copied page by page, and the program restored what it found.
    said = [f"{routine} {routine} administrator" for routine in _ROUTINES]
    assert chosen == [line for line in said for _ in range(2)]
    assert after_errors == said[-1]
