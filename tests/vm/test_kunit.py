# SPDX-License-Identifier: GPL-2.0-only
"""The KUnit suites of the batch copy."""

from __future__ import annotations

import pytest

from helpers import guests
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_SUITES = ("migrate_eligible", "migrate_offload", "migrate_engine")


def test_kunit_suites_pass(kernel_debug: BuiltKernel) -> None:
    """They run at boot; debugfs keeps what they reported."""
    directory = "/sys/kernel/debug/kunit"
    outcome = guests.boot(
        kernel_debug,
        f"mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug\n"
        f"for suite in {' '.join(_SUITES)}; do\n"
        f"    echo SUITE; cat {directory}/$suite/results\ndone",
        words=("kunit.enable=1", "kunit.filter_glob=migrate_*"),
    )
    _, *parts = outcome.stdout.split("SUITE\n")
    assert len(parts) == len(_SUITES), outcome.stdout
    for part, suite in zip(parts, _SUITES, strict=True):
        report = guests.passes(part, at_least=5)
        assert suite in report.names()
