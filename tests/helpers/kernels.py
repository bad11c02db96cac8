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

# In the order in which they are needed.
REQUESTS = {
    # KUnit, the misbehaving engine, KASAN, lockdep and all the other checks.
    "kernel_debug": BuildRequest(
        configs=("vm", "debug-kasan", "debug-lockdep", "test")
    ),
    # The kernel that users run.
    "kernel_vm": BuildRequest(configs=("vm",)),
    # The base release as it is.
    "kernel_vanilla": BuildRequest(configs=("vm",), vanilla=True),
    # That of users, in which rules can be switched off.
    "kernel_rules": BuildRequest(configs=("vm", "break-rules")),
    # For machines with a DMA controller.
    "kernel_arm64": BuildRequest(configs=("vm",), arch=ARM64),
    # And with the modules of tests.
    "kernel_arm64_rules": BuildRequest(configs=("vm", "break-rules"), arch=ARM64),
}


def build(fixture: str) -> BuiltKernel:
    """Build it, or wait until somebody else has."""
    return build_kernel(REQUESTS[fixture])


if __name__ == "__main__":
    for name in sys.argv[2:]:
        build(name)
