# SPDX-License-Identifier: GPL-2.0-only
"""A short real run of `bench tiers`, on a small machine with two tiers."""

from __future__ import annotations

import pytest

from pageferry.bench.tiers import policies
from pageferry.cli import main
from pageferry.kernel import bases
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import Row, decode

pytestmark = pytest.mark.vm
MIB = 1 << 20
HOT_MIB = 32
# Only a service that fails needs so long.
LIMIT_S = 300
# The fast node is small, so that filling it takes little time.
MACHINE = """\
description = "as tiered, with less memory"
cpus = 2

[[node]]
memory = "384M"
cpus = "0-1"
latency_ns = 80
bandwidth_mib_s = 102400

[[node]]
memory = "768M"
initiator = 0
latency_ns = 250
bandwidth_mib_s = 25600
"""
# The kernel keeps a larger part of a small node free for itself. A guest without KVM waits
# long for memory, so stalls do not count here.
TIER = """\
headroom = 0.15
cold_after = "2s"
stall = 1.0
interval = "1s"
"""


@pytest.fixture(scope="module")
def rows(
    kernel_vm: BuiltKernel, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Row]:
    """The row of each policy."""
    top = tmp_path_factory.mktemp("tiers")
    (top / "small.toml").write_text(MACHINE)
    (top / "tier.toml").write_text(TIER)
    words = ["--vm", "--topology", str(top / "small.toml"), "--quick"]
    words += ["--hot", f"{HOT_MIB}M", "--tier-config", str(top / "tier.toml")]
    # How much the service does within a time depends on the host. So its measurement
    # ends when hot memory has arrived.
    settles = [
        "--policies",
        policies.OURS,
        "--seconds",
        str(LIMIT_S),
        "--until-settled",
    ]
    others = ["--policies", ",".join(policies.NAMES[:-1]), "--seconds", "12"]

    def measure(part: list[str]) -> dict[str, Row]:
        out = top / f"{len(part)}.json"
        assert main(["bench", "tiers", *words, *part, "--output", str(out)]) == 0
        return {row.engine: row for row in decode(out.read_bytes()).rows}

    # If the host stops the program for seconds, looks at memory are left out.
    for _ in range(3):
        rows = measure(others)
        if all(has_all_looks(row) for row in rows.values()):
            break
    return rows | measure(settles)


def has_all_looks(row: Row) -> bool:
    """Say whether a row has nearly all looks of 12 s, and no late one."""
    own = row.tiers
    assert own.settled_ms is not None
    return len(own.at_ms) >= 20 and own.settled_ms.median <= 14_000


def test_all_policies_are_measured(rows: dict[str, Row]) -> None:
    assert list(rows) == list(policies.NAMES)
    for row in rows.values():
        own = row.tiers
        assert row.verified and row.rounds == 1
        assert own.hot_bytes == HOT_MIB * MIB and own.phases == 1
        # The program does not fit the fast node.
        assert own.program_bytes is not None and own.program_bytes > 200 * MIB
        assert len(own.at_ms) == len(own.share_over_time) >= 1
        assert own.longest_access_ns is not None and own.longest_access_ns.median > 0
        if row.engine != policies.OURS:
            assert has_all_looks(row)
    # The service sets quotas by itself.
    assert rows["tier"].tiers.goals is False
    # Only newer kernels measure goals on a node.
    assert rows["damo"].tiers.goals is (bases.DEFAULT != "6.12")
    assert rows["nothing"].tiers.goals is None


def test_without_a_policy_hot_memory_stays(rows: dict[str, Row]) -> None:
    own = rows["nothing"].tiers
    assert own.fast_share is not None and own.fast_share.max == 0
    assert own.settled_phases == 0 and own.up_bytes is not None
    assert own.up_bytes.max == 0
    assert own.model_access_ns is not None and own.model_access_ns.median == 300


def test_the_service_brings_hot_memory_up(rows: dict[str, Row]) -> None:
    own = rows["tier"].tiers
    assert own.up_bytes is not None and own.migrated_bytes is not None
    assert own.settled_phases == own.phases == 1
    assert own.settled_ms is not None and own.settled_ms.median < LIMIT_S * 1000
    # A sample of pages estimates the first figure.
    assert own.up_bytes.median > 0.8 * HOT_MIB * MIB
    assert own.migrated_bytes.median > 0.9 * HOT_MIB * MIB
    assert own.model_access_ns is not None and own.model_access_ns.median < 300
