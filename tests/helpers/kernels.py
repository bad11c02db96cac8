# SPDX-License-Identifier: GPL-2.0-only
"""The kernels that tests boot, by the name of their fixture.

On a new machine they take longer to build than all tests, and the machines that
boot them keep one CPU busy.  So they are built ahead, one after the other:
    python3 -m helpers.kernels FOLDER FIXTURE...
"""

from __future__ import annotations

import sys

from pageferry.kernel.arch import ARM64
from pageferry.kernel.build import BuildRequest, BuiltKernel, build_kernel

# The order of their first use.
REQUESTS = {
    # KUnit, the test engine, KASAN, lockdep and all other checks.
    "kernel_debug": BuildRequest(
        configs=("vm", "debug-kasan", "debug-lockdep", "test")
    ),
    # The kernel of users.
    "kernel_vm": BuildRequest(configs=("vm",)),
    # The unchanged base release.
    "kernel_vanilla": BuildRequest(configs=("vm",), vanilla=True),
    # The kernel of users, in which tests can switch rules off.
    "kernel_rules": BuildRequest(configs=("vm", "break-rules")),
    # For machines with a DMA controller.
    "kernel_arm64": BuildRequest(configs=("vm",), arch=ARM64),
    # The same with test modules.
    "kernel_arm64_rules": BuildRequest(configs=("vm", "break-rules"), arch=ARM64),
}


def build(fixture: str) -> BuiltKernel:
    """Build the kernel, or wait for another process that does."""
    return build_kernel(REQUESTS[fixture])


if __name__ == "__main__":
    for name in sys.argv[2:]:
        build(name)
