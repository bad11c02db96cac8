# SPDX-License-Identifier: GPL-2.0-only
"""Memory of every kind moves with every engine, in a kernel full of checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import guests, ktap
from pageferry import proc
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_KINDS = {
    "anon",
    "anon_16k",
    "anon_64k",
    "anon_1m",
    "anon_2m",
    "mlocked",
    "shmem",
    "shmem_2m",
    "tmpfs",
    "ext4_dirty",
    "ext4_clean",
    "ksm",
    "swapcache",
}


def test_every_kind_of_memory_moves_with_every_engine(
    kernel_debug: BuiltKernel,
) -> None:
    outcome = guests.boot(
        kernel_debug,
        "modprobe mtcopy && modprobe migrate_offload_test && ./migrate_offload",
    )
    report = guests.passes(outcome.stdout, at_least=50)
    for kind in _KINDS:
        assert f"memory.{kind}.moves" in report.names()
        assert f"memory.{kind}.moves_in_use" in report.names()
    for engine in ("cpu", "mtcopy", "test"):
        assert f"engine {engine}" in outcome.stdout


def test_nothing_is_said_to_pass_where_nothing_can_be_tested(
    kernel_debug: BuiltKernel,
) -> None:
    if Path("/sys/kernel/mm/migrate_offload").exists():
        pytest.skip("this machine runs a patched kernel")
    for name in ("migrate_offload", "hazards", "latency"):
        report = ktap.parse(proc.capture([guests.programs(kernel_debug) / name]).stdout)
        assert not report.names()
        assert report.skipped or report.skips()
