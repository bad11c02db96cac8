# SPDX-License-Identifier: GPL-2.0-only
"""Interrupts for TLB flushes while all CPUs read memory that moves, and drains of caches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmRequest, run_vm

pytestmark = [pytest.mark.vm, pytest.mark.perf]

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ROUNDS = 5
SIZES = ("small", "huge")


def made(folder: Path, name: str) -> Path:
    """Compile a program for the guest, which has the host's files."""
    options = ["-O2", "-static", "-pthread", "-Wall", "-Wextra", "-D_GNU_SOURCE"]
    program, source = folder / name, FIXTURES / f"{name}.c"
    subprocess.run(["gcc", *options, "-o", program, source], check=True)
    return program


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
    program = made(tmp_path, "shootdowns")
    ours = counted(kernel_vm, program, cpus)
    stock = counted(kernel_vanilla, program, cpus)
    # A list flushes once for its first run and once for all others, Linux once.
    assert 0 < ours["small"] <= 2.5 * stock["small"] < 0.05
    assert ours["huge"] <= 1.1 * stock["huge"]


def test_calls_for_one_page_wait_for_no_other_cpu(
    kernel_vm: BuiltKernel, kernel_vanilla: BuiltKernel, tmp_path: Path
) -> None:
    """Linux lets all CPUs drain their LRU caches in each call."""
    program = made(tmp_path, "one_page_calls")
    found = {}
    for kernel in (kernel_vm, kernel_vanilla):
        outcome = run_vm(
            VmRequest(
                command=(str(program),), image=kernel.image, topology="eight-cpus"
            )
        )
        rounds = [float(line.split()[1]) for line in outcome.stdout.splitlines()]
        assert len(rounds) == ROUNDS
        sys.stdout.write(f"{kernel.release}: {rounds} ns per call\n")
        found[kernel.release] = median(rounds)
    assert found[kernel_vm.release] < 0.5 * found[kernel_vanilla.release]
