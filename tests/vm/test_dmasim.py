# SPDX-License-Identifier: GPL-2.0-only
"""The simulated DMA engine does, and fails, as it is told to."""

from __future__ import annotations

import pytest

from helpers import guests
from pageferry import paths
from pageferry.kernel.build import BuiltKernel

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


def test_they_pass_with_bounce_buffers(kernel_debug: BuiltKernel) -> None:
    """Where bytes get to and from the device only when somebody synchronises."""
    words = (*_WORDS, "swiotlb=force")
    outcome = guests.boot(kernel_debug, str(_SCRIPT), words=words)
    guests.passes(outcome.stdout, at_least=28)
