# SPDX-License-Identifier: GPL-2.0-only
"""Carries out the fault campaign: build, boot, check the kernel log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pageferry import output, paths, proc
from pageferry.bench import campaign
from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel.build import (
    BuildRequest,
    BuiltKernel,
    build_kernel,
    describe,
    plan_build,
)
from pageferry.vm import accel
from pageferry.vm.run import VmOutcome, VmRequest, run_vm

CONFIGS = ("debug-kasan", "debug-lockdep", "test")
TOPOLOGY = "debug"
# A CPU of the guest may not run for many seconds: lockups and stalls count from two
# minutes on.
_WORDS = (
    *("page_poison=1", "watchdog_thresh=60"),
    *("rcupdate.rcu_cpu_stall_timeout=120", "workqueue.watchdog_thresh=120"),
)
_SUITE = Path("tools/testing/selftests/migrate_offload")
_BASE_S = 600.0
_SLOWEST_PER_S = 100
# Boots that an emulator may break, which is no fault of the kernel.
_BOOTS = 3


@dataclass(frozen=True)
class Job:
    """The options of one campaign."""

    folios: int
    faults: tuple[str, ...]
    seed: int
    timeout_ms: int
    kernel: BuildRequest
    limit_s: float | None = None
    break_rule: str | None = None

    def arguments(self, faults: Sequence[str], folios: int) -> list[str]:
        """Return the program's command line."""
        words = ["--folios", str(folios), "--seed", str(self.seed)]
        words += ["--faults", ",".join(faults), "--timeout-ms", str(self.timeout_ms)]
        if self.break_rule is not None:
            words += ["--break", self.break_rule]
        return words


def boots(faults: Sequence[str], chosen: str) -> list[tuple[str, tuple[str, ...]]]:
    """Divide the faults by the abilities of the emulator."""
    if chosen != accel.TCG:
        return [(chosen, tuple(faults))]
    rest = tuple(f for f in faults if f not in campaign.SWITCHING)
    switching = tuple(f for f in faults if f in campaign.SWITCHING)
    parts = [(accel.TCG, rest), (accel.TCG_ONE_THREAD, switching)]
    return [(where, names) for where, names in parts if names]


def dry_run(job: Job) -> list[str]:
    """Describe the steps of a run."""
    program = " ".join(["./campaign", *job.arguments(job.faults, job.folios)])
    return [
        *describe(plan_build(job.kernel)),
        f"build {_SUITE}/campaign",
        f"boot topology {TOPOLOGY}; under TCG, once more with one thread for"
        f" {', '.join(campaign.SWITCHING)}",
        f"in it: {program}",
        "search the kernel log",
    ]


def build_program(kernel: BuiltKernel) -> Path:
    """Build the program from the kernel's tree."""
    tree = kernel.build_dir.parent
    where = paths.make_cache_dir("selftests", tree.name)
    argv = ["make", "-C", str(tree / _SUITE), f"OUTPUT={where}", "KHDR_INCLUDES="]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    made = proc.capture([*argv, str(where / "campaign")], env=env)
    if made.returncode:
        raise PageferryError(
            "cannot build the campaign's program",
            value=tree / _SUITE,
            detail=made.stdout + made.stderr,
            code=ExitCode.NOT_STARTED,
        )
    return where / "campaign"


def run(job: Job) -> campaign.Report:
    """Run all boots; the report may contain problems."""
    kernel = build_kernel(job.kernel)
    program = build_program(kernel)
    report = campaign.Report()
    progress = output.Progress("campaign", job.folios)
    parts = boots(job.faults, accel.choose(kernel.image))
    try:
        for where, faults in parts:
            share = sum(3 if f == "mixed" else 1 for f in faults)
            whole = sum(3 if f == "mixed" else 1 for f in job.faults)
            folios = -(-job.folios * share // whole)
            argv = [str(program), *job.arguments(faults, folios)]
            for left in reversed(range(_BOOTS)):
                part = campaign.Report()
                watch = _Watch(part, progress, report.folios)
                outcome = _boot(job, kernel, where, argv, watch)
                if not (outcome.broken_by_qemu and left):
                    break
                output.talk(
                    f"QEMU broke the guest: once more (see {outcome.serial_log})"
                )
            _judge(job, outcome, part)
            report.add(part)
    finally:
        progress.finish()
    if report.ended != len(parts):
        raise PageferryError("the campaign did not come to its end")
    return report


class _Watch:
    """Reads the output of the program while it runs."""

    def __init__(
        self, report: campaign.Report, progress: output.Progress, before: int
    ) -> None:
        self.report = report
        self.progress = progress
        self.before = before
        self.rest = b""
        # Do not show the progress of a repeated boot again.
        self.shown = progress.done

    def __call__(self, data: bytes) -> None:
        *whole, self.rest = (self.rest + data).split(b"\n")
        for raw in whole:
            line = campaign.read_line(self.report, raw.decode(errors="replace"))
            if line is not None:
                self._show(line)

    def _show(self, line: dict[str, Any]) -> None:
        current = int(line["folios"]) if line["type"] == "progress" else 0
        done = self.before + self.report.folios + current
        if done > self.shown:
            self.progress.advance(done - self.shown)
            self.shown = done


def _boot(
    job: Job, kernel: BuiltKernel, where: str, argv: Sequence[str], watch: _Watch
) -> VmOutcome:
    return run_vm(
        VmRequest(
            command=tuple(argv),
            image=kernel.image,
            modules=kernel.modules,
            topology=TOPOLOGY,
            append=_WORDS,
            accel=where,
            timeout_s=_limit_s(job),
            boot_timeout_s=900,
            on_stdout=watch,
        )
    )


def _limit_s(job: Job) -> float:
    return job.limit_s or _BASE_S + job.folios / _SLOWEST_PER_S


def _judge(job: Job, outcome: VmOutcome, report: campaign.Report) -> None:
    """Judge the end of the run, and the kernel log."""
    if outcome.timed_out:
        raise PageferryError(
            "the campaign did not end in time",
            value=f"{_limit_s(job):.0f} s",
            detail=outcome.serial_tail(),
            hint="give it more with --timeout, or move fewer folios",
            code=ExitCode.TIMEOUT,
        )
    said = outcome.serial_log.read_text(errors="replace").splitlines()
    found = campaign.unexplained(outcome.findings)
    report.kernel_log += [*found, *campaign.unannounced(said)]
    if outcome.exit_code not in (0, 1):
        raise PageferryError(
            "the campaign could not be carried out",
            value=outcome.serial_log,
            reason=f"exit status {outcome.exit_code}",
            detail=outcome.stdout[-2000:] + outcome.stderr + outcome.serial_tail(),
        )
