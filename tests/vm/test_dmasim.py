# SPDX-License-Identifier: GPL-2.0-only
"""The simulated DMA engine does, and fails, as it is told to."""

from __future__ import annotations

import pytest

from helpers import guests
from pageferry import paths
from pageferry.kernel.build import BuildRequest, BuiltKernel, build_kernel

pytestmark = pytest.mark.vm

_SCRIPT = (
    paths.repo_root() / "linux/tree/tools/testing/selftests/migrate_offload/dmasim.sh"
)
# Its unit tests come as a module; those that are built in have their own run.
_WORDS = ("kunit.enable=1", "kunit.filter_glob=migrate_dmasim*")


def test_dmatest_and_unit_tests_pass_and_faults_show(
    kernel_debug: BuiltKernel,
) -> None:
    outcome = guests.boot(kernel_debug, str(_SCRIPT), words=_WORDS)
    guests.passes(outcome.stdout, at_least=28)


def test_they_pass_with_bounce_buffers() -> None:
    """Where bytes get to and from the device only when somebody synchronises."""
    kernel = build_kernel(BuildRequest(configs=("test",)))
    outcome = guests.boot(
        kernel,
        str(_SCRIPT),
        topology="two-node",
        words=(*_WORDS, "swiotlb=force"),
    )
    guests.passes(outcome.stdout, at_least=28)
