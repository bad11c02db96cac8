# SPDX-License-Identifier: GPL-2.0-only
"""Runs the tests of the kernel tree."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from helpers import ktap, sources
from pageferry import output, paths, proc
from pageferry.kernel.arch import X86_64, Architecture
from pageferry.kernel.build import BuiltKernel
from pageferry.kernel.tree import locked
from pageferry.vm.run import VmOutcome, VmRequest, run_vm

# memfd_secret(2) needs the first option. An emulated CPU on a busy host may not run for
# many seconds, so lockups and stalls count from two minutes on.
_WORDS = (
    *("secretmem.enable=1", "page_poison=1", "watchdog_thresh=60"),
    *("rcupdate.rcu_cpu_stall_timeout=120", "workqueue.watchdog_thresh=120"),
    # Each disk takes time at boot, and the tests use three.
    "brd.rd_nr=3",
)
_TIMEOUT_S = 3600.0
_BOOTS = 3
# A failure shows at most this much of a guest's output.
_TAIL_LINES = 30
# Suites of modules are in other files, and have runs of their own.
KUNIT_SUITES = [
    name
    for path in sources.ours("**/*_kunit.c", "**/*-kunit.h").values()
    for name in re.findall(
        r'^\t\.name = "(migrate_\w+)"', path.read_text(), re.MULTILINE
    )
]
_SUITE = Path("tools/testing/selftests/migrate_offload")


@cache
def programs(kernel: BuiltKernel, arch: Architecture = X86_64) -> Path:
    """Build the kselftests of a kernel's tree; returns their folder."""
    tree = kernel.build_dir.parent
    output = paths.make_cache_dir("selftests", f"{tree.name}-{arch.name}")
    # The system's headers suffice: programs define newer constants themselves.
    argv = ["make", "-C", str(tree / _SUITE), f"OUTPUT={output}", "KHDR_INCLUDES="]
    if arch.cross:
        # The guest has no libraries, so link statically.
        argv += [f"CROSS_COMPILE={arch.cross}", "USERLDFLAGS=-static"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    # Two processes boot guests, so another one may build.
    with locked(output):
        made = proc.capture([*argv, "USERCFLAGS=-Werror"], env=env)
    assert made.returncode == 0, f"{' '.join(argv)}\n{made.stdout}\n{made.stderr}"
    return output


def run(request: VmRequest) -> VmOutcome:
    """Run a machine; again if QEMU broke the guest, which proves nothing."""
    for _ in range(_BOOTS - 1):
        outcome = run_vm(request)
        if not outcome.broken_by_qemu:
            return outcome
        output.talk(f"QEMU broke the guest: once more (see {outcome.serial_log})")
    return run_vm(request)


def _run(
    kernel: BuiltKernel,
    script: str,
    *,
    topology: str,
    words: Sequence[str],
    accel: str | None,
    icount: bool = False,
    timeout_s: float = _TIMEOUT_S,
    arch: Architecture = X86_64,
) -> VmOutcome:
    folder = programs(kernel, arch)
    # The sh may be busybox's, which prefers its own modprobe.
    shell = "sh" if arch.cross else "/bin/sh"
    request = VmRequest(
        command=(shell, "-c", f"exec 2>&1\ncd {folder}\n{script}"),
        image=kernel.image,
        modules=kernel.modules,
        # A guest of another architecture cannot see the host's files.
        carry=tuple(sorted(folder.iterdir())) if arch.cross else (),
        topology=topology,
        append=(*_WORDS, *words),
        accel=accel,
        icount=icount,
        timeout_s=timeout_s,
        # All checks are on, and the host may be busy.
        boot_timeout_s=900,
    )
    return run(request)


def why_not_well(outcome: VmOutcome) -> str | None:
    """Describe the fault of a run in one line; None if there is none."""
    if outcome.timed_out:
        return f"not done after {outcome.run_s:.0f} s"
    if outcome.exit_code is None:
        return "the kernel did not live"
    if outcome.findings:
        return f"the kernel complained: {outcome.findings}"
    return None


def is_well(outcome: VmOutcome, *, steps: str = "") -> None:
    """Check that the script ended and the kernel logged no error."""
    why = why_not_well(outcome)
    assert why is None, (
        f"{why}\n{steps}\n{_end_of(outcome.stdout)}\n{outcome.serial_tail()}"
        f"\n{outcome.serial_log}"
    )


def _end_of(text: str) -> str:
    """Cut output to the size of a failure report, in which other tests follow."""
    lines = text.splitlines()
    return "\n".join(lines[-_TAIL_LINES:])


def boot(
    kernel: BuiltKernel,
    script: str,
    *,
    topology: str = "debug",
    words: Sequence[str] = (),
    accel: str | None = None,
    icount: bool = False,
) -> VmOutcome:
    """Run a shell script as root; messages keep the order of the output."""
    outcome = _run(
        kernel, script, topology=topology, words=words, accel=accel, icount=icount
    )
    is_well(outcome)
    return outcome


@dataclass(frozen=True)
class Steps:
    """The output of several scripts that ran in one boot."""

    outcome: VmOutcome
    said: Mapping[str, str]
    # The start of each step, in seconds since boot.
    began: Mapping[str, float]

    def times(self) -> str:
        """Return the start of each step, and the time of the boot."""
        began = (f"{name}: {at:.0f} s" for name, at in self.began.items())
        return f"steps began at {', '.join(began)}; all took {self.outcome.run_s:.0f} s"

    def is_well(self) -> None:
        """Check that all steps ended and the kernel logged no error."""
        is_well(self.outcome, steps=self.times())

    def text(self, step: str) -> str:
        """Return the output of a step."""
        assert step in self.said, (
            f"the guest did not get as far as {step}: {why_not_well(self.outcome)}"
            f"\n{self.times()}\n{self.outcome.serial_log}"
        )
        return self.said[step]

    def ended(self, step: str) -> tuple[int, list[str], str]:
        """Return exit code, stdout and stderr of a step made by program()."""
        lines, _, rest = self.text(step).rpartition(_ENDED)
        code, _, said = rest.partition("\n")
        return int(code), lines.splitlines(), said

    def passes(self, step: str, name: str) -> None:
        """Check that one test of a step ran and passed."""
        report = ktap.parse(self.text(step))
        found = [result for result in report.results if result.name == name]
        assert found, (
            f"{name} has no result: {why_not_well(self.outcome)}"
            f"\n{self.times()}\n{_end_of(report.problems())}"
        )
        for result in found:
            detail = "\n".join(result.detail)
            assert result.ok, f"not ok {name}\n{detail}"
            assert result.skipped is None, f"skipped: {result.skipped}\n{detail}"

    def ran_all(self, step: str, names: Collection[str]) -> ktap.Report:
        """Check that a step ran exactly these tests, and that all passed."""
        report = passes(self.text(step), at_least=len(names))
        assert report.names() == set(names)
        return report


_STEP = "=== step "
_ENDED = "=== ended with "


def program(command: str) -> str:
    """Make a step of a command, with stdout and stderr kept apart."""
    return f'{command} 2>/tmp/said; echo "{_ENDED}$?"; cat /tmp/said'


def boot_once(
    kernel: BuiltKernel,
    steps: Mapping[str, str],
    *,
    topology: str = "debug",
    words: Sequence[str] = (),
    accel: str | None = None,
    timeout_s: float = _TIMEOUT_S,
    arch: Architecture = X86_64,
) -> Steps:
    """Run several scripts in one boot; tests judge the output later."""
    # Use shell builtins alone: a debug kernel takes long to start a process.
    parts = [
        "read -r now _ </proc/uptime\n"
        f'echo; echo "{_STEP}{name} @ $now"\n(\n{steps[name]}\n)'
        for name in steps
    ]
    outcome = _run(
        kernel,
        "\n".join(parts),
        topology=topology,
        words=words,
        accel=accel,
        timeout_s=timeout_s,
        arch=arch,
    )
    said: dict[str, str] = {}
    began: dict[str, float] = {}
    for part in outcome.stdout.split(f"\n{_STEP}")[1:]:
        title, _, text = part.partition("\n")
        name, _, at = title.partition(" @ ")
        said[name], began[name] = text, float(at)
    return Steps(outcome, said, began)


def passes(text: str, *, at_least: int) -> ktap.Report:
    """Check that all tests ran and none failed."""
    report = ktap.parse(text)
    problems = report.problems()
    assert not problems, f"{problems}\n--- its end:\n{_end_of(text)}"
    assert report.skipped is None, report.skipped
    # The kernel and the machine are ours, so no test may skip.
    assert not report.skips(), f"skipped: {report.skips()}"
    assert len(report.names()) >= at_least, sorted(report.names())
    return report
