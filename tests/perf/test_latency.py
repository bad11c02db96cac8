# SPDX-License-Identifier: GPL-2.0-only
"""Targets of windows, streaming and the limit on unmapped time."""

from __future__ import annotations

from pathlib import Path

import pytest

from pageferry.bench.disturbance import TOLERABLE
from pageferry.bench.latency.plans import CHECKS
from pageferry.cli import main
from pageferry.results.schema import decode

pytestmark = [pytest.mark.vm, pytest.mark.perf]

ATTEMPTS = 3
# Targets that depend neither on two CPUs nor on the host's load.
EVERYWHERE = {"tiered": ("limit",), "counted": ("limit", "throughput", "overlap")}
# Few touches meet an unmapped folio, so use enough of them.
ROUNDS = {"toucher": ("--rounds", "25")}


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("topology", ["two-node", "tiered", "counted"])
def test_what_has_to_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topology: str, name: str
) -> None:
    """Only a disturbed run is repeated, and never one with bad figures."""
    if name not in EVERYWHERE.get(topology, CHECKS):
        pytest.skip("has to hold on a machine with two nodes that has two CPUs")
    share = 0.0
    for number in range(ATTEMPTS):
        path = tmp_path / f"{number}.json"
        argv = ["bench", "latency", "--vm", "--topology", topology]
        argv += ROUNDS.get(name, ())
        main([*argv, "--check", name, "--output", str(path), "--json"])
        said = capsys.readouterr()
        assert path.exists(), said.err
        result = decode(path.read_bytes())
        share = result.machine.host_other_load or 0.0
        if share <= TOLERABLE:
            assert result.checks
            assert [check for check in result.checks if not check.ok] == []
            return
    pytest.skip(f"other work took {share * 100:.0f}% of this host's CPU time")
