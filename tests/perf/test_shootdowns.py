# SPDX-License-Identifier: GPL-2.0-only
"""Interrupts for TLB flushes, while threads on all CPUs read the memory that moves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmRequest, run_vm

pytestmark = [pytest.mark.vm, pytest.mark.perf]

SOURCE = Path(__file__).resolve().parents[1] / "fixtures" / "shootdowns.c"
ROUNDS = 5
SIZES = ("small", "huge")


def counted(kernel: BuiltKernel, program: Path, cpus: int) -> dict[str, float]:
    """Return the interrupts per moved page or huge page: medians of all rounds."""
    each = " ".join(SIZES)
    script = (
        f"for round in $(seq {ROUNDS}); do for size in {each}; do\n"
        f'echo "count $size $({program} {cpus} $size)"; done; done'
    )
    outcome = run_vm(
        VmRequest(
            command=("sh", "-c", script), image=kernel.image, topology="eight-cpus"
        )
    )
    found: dict[str, list[float]] = {size: [] for size in SIZES}
    for line in outcome.stdout.splitlines():
        if line.startswith("count "):
            _, size, _, pages, _, interrupts = line.split()
            found[size].append(int(interrupts) / int(pages))
    assert all(len(each) == ROUNDS for each in found.values()), outcome.stdout
    sys.stdout.write(f"{kernel.release}, {cpus} CPUs: {found}\n")
    return {size: median(each) for size, each in found.items()}


@pytest.mark.parametrize("cpus", [4, 8])
def test_moves_interrupt_no_more_than_on_linux(
    kernel_vm: BuiltKernel, kernel_vanilla: BuiltKernel, tmp_path: Path, cpus: int
) -> None:
    program = tmp_path / "shootdowns"
    options = ["-O2", "-static", "-pthread", "-Wall", "-Wextra", "-D_GNU_SOURCE"]
    subprocess.run(["gcc", *options, "-o", program, SOURCE], check=True)
    ours = counted(kernel_vm, program, cpus)
    stock = counted(kernel_vanilla, program, cpus)
    # A list flushes once for its first run and once for all others, Linux once.
    assert 0 < ours["small"] <= 2.5 * stock["small"] < 0.05
    assert ours["huge"] <= 1.1 * stock["huge"]
