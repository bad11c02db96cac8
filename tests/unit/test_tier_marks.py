# SPDX-License-Identifier: GPL-2.0-only
"""The schemes of the tiers that only clear marks of accesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.balance_machine import put
from helpers.fake_damon import FakeDamon
from helpers.tier_machine import MERCI, Machine, furnish
from pageferry.damon.admin import TOP
from pageferry.damon.scheme import ANY_COUNT
from pageferry.tier.kdamonds import Kdamonds


def test_marks_of_old_accesses_are_cleared_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    starts: list[list[str]] = []
    start = Kdamonds.start

    def note(self: Kdamonds, *arguments: object) -> None:
        start(self, *arguments)  # type: ignore[arg-type]
        top = f"{TOP}/0/contexts/0/schemes"
        starts.append([damon.read(f"{top}/{n}/quotas/bytes") for n in range(4)])

    monkeypatch.setattr(Kdamonds, "start", note)
    full = f"Node 0 MemTotal: {1024 * 1024} kB\nNode 0 MemFree: {30 * 1024} kB"
    put(damon, "/sys/devices/system/node/node0/meminfo", full)
    machine = Machine(damon, MERCI)
    machine.steps(1)
    # No bytes are no limit, and one byte is too little for a page.
    assert starts == [["1", "1", "0", "0"]]
    found = [machine.scheme(n, "quotas/bytes") for n in range(4)]
    assert int(found[0]) > 1 and int(found[1]) > 1 and found[2:] == ["1", "1"]
    targets = [machine.scheme(n, "target_nid") for n in range(4)]
    assert targets == ["1", "0", "1", "0"]
    for number in (2, 3):
        for name, most in (("nr_accesses", ANY_COUNT), ("age", ANY_COUNT)):
            assert machine.scheme(number, f"access_pattern/{name}/min") == "0"
            assert machine.scheme(number, f"access_pattern/{name}/max") == most
        # They make young pages old, and leave all pages where they are.
        filters = [
            (
                machine.scheme(number, f"filters/{n}/type"),
                machine.scheme(number, f"filters/{n}/matching"),
            )
            for n in (0, 1)
        ]
        assert filters == [("young", "Y"), ("young", "N")]
