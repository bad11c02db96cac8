# SPDX-License-Identifier: GPL-2.0-only
"""Running the tests that are part of the kernel tree."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from helpers import ktap
from pageferry import paths, proc
from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmOutcome, VmRequest, run_vm

# memfd_secret(2) is off unless asked for. Under emulation, and with other work
# on the machine, a CPU of the guest may not run for many seconds.
_WORDS = ("secretmem.enable=1", "page_poison=1", "watchdog_thresh=60")
_SUITE = Path("tools/testing/selftests/migrate_offload")


@cache
def programs(kernel: BuiltKernel) -> Path:
    """Build the kselftests of a kernel's tree; returns where they are."""
    tree = kernel.build_dir.parent
    output = paths.make_cache_dir("selftests", tree.name)
    # Headers of the running system will do: what is new is defined in place.
    argv = ["make", "-C", str(tree / _SUITE), f"OUTPUT={output}", "KHDR_INCLUDES="]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    made = proc.capture([*argv, "USERCFLAGS=-Werror"], env=env)
    assert made.returncode == 0, f"{' '.join(argv)}\n{made.stdout}\n{made.stderr}"
    return output


def boot(
    kernel: BuiltKernel,
    script: str,
    *,
    topology: str = "debug",
    words: Sequence[str] = (),
    accel: str | None = None,
    timeout_s: float = 1500,
) -> VmOutcome:
    """Run a shell script as root; its messages come in the order of its output."""
    outcome = run_vm(
        VmRequest(
            command=("/bin/sh", "-c", f"exec 2>&1\ncd {programs(kernel)}\n{script}"),
            image=kernel.image,
            modules=kernel.modules,
            topology=topology,
            append=(*_WORDS, *words),
            accel=accel,
            timeout_s=timeout_s,
            # With every check there is, and other work on the machine.
            boot_timeout_s=900,
        )
    )
    tail = f"{outcome.stdout[-3000:]}\n{outcome.serial_tail()}\n{outcome.serial_log}"
    assert not outcome.timed_out, f"not done after {timeout_s} s\n{tail}"
    assert outcome.exit_code is not None, f"the kernel did not live\n{tail}"
    assert not outcome.findings, f"the kernel complained: {outcome.findings}\n{tail}"
    return outcome


def passes(text: str, *, at_least: int) -> ktap.Report:
    """Check that everything was run and nothing failed."""
    report = ktap.parse(text)
    problems = report.problems()
    assert not problems, f"{problems}\n--- all of it:\n{text}"
    assert report.skipped is None, report.skipped
    # The kernel and the machine are ours, so there is nothing to do without.
    assert not report.skips()
    assert len(report.names()) >= at_least, sorted(report.names())
    return report
