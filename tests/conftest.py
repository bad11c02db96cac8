# SPDX-License-Identifier: GPL-2.0-only
"""Kernels and machines for the tests, each built or booted only where needed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from helpers import guests
from pageferry.kernel.arch import ARM64, X86_64, Architecture
from pageferry.kernel.build import BuildRequest, BuiltKernel, build_kernel
from pageferry.vm.run import VmOutcome, VmRequest, run_vm

ROOT = Path(__file__).resolve().parent.parent
# Quick ones first: a typo should not wait for a kernel build.
_ORDER = ("unit", "style", "cli", "vm", "fault", "perf")

# A busy machine is no reason to fail, and the same examples every time make a
# failure one that somebody can look at.
settings.register_profile(
    "pageferry",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pageferry")

RunInVm = Callable[..., VmOutcome]


def pytest_configure() -> None:
    """Let tests interrupt what they start, also where a shell's `&` started us."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the directories in order of what they cost."""

    def place(item: pytest.Item) -> int:
        parts = item.path.relative_to(ROOT / "tests").parts
        return _ORDER.index(parts[0]) if parts[0] in _ORDER else len(_ORDER)

    items.sort(key=place)


def _build(
    *configs: str, vanilla: bool = False, arch: Architecture = X86_64
) -> BuiltKernel:
    request = BuildRequest(vanilla=vanilla, configs=("vm", *configs), arch=arch)
    return build_kernel(request)


@pytest.fixture(scope="session")
def kernel_vm() -> BuiltKernel:
    """The kernel that users run."""
    return _build()


@pytest.fixture(scope="session")
def kernel_vanilla() -> BuiltKernel:
    """The base release as it is."""
    return _build(vanilla=True)


@pytest.fixture(scope="session")
def kernel_arm64() -> BuiltKernel:
    """The kernel for machines with a DMA controller."""
    return _build(arch=ARM64)


@pytest.fixture(scope="session")
def kernel_debug() -> BuiltKernel:
    """KUnit, the misbehaving engine, KASAN, lockdep and all the other checks."""
    return _build("debug-kasan", "debug-lockdep", "test")


_HERE = "/sys/kernel/mm/migrate_offload"
_KUNIT = "/sys/kernel/debug/kunit"
_STEPS = {
    # KUnit ran at boot; debugfs keeps what it reported.
    "kunit": f"ls {_KUNIT}",
    **{f"kunit {name}": f"cat {_KUNIT}/{name}/results" for name in guests.KUNIT_SUITES},
    "kunit again": (
        f"cd {_HERE} && echo cpu >engine && echo demotion >reasons\n"
        f"echo 1 >{_KUNIT}/migrate_offload/run\n"
        f"cat {_KUNIT}/migrate_offload/results engine reasons\n"
        "echo none >engine; echo all >reasons"
    ),
    "modules": "modprobe mtcopy && modprobe migrate_offload_test && echo loaded",
    "kselftest": "./migrate_offload",
    # Last: they poison pages, and damage data where a rule is switched off.
    "hazards": "./hazards $(./hazards -l | cut -d' ' -f1 | grep -v unload)",
}


@pytest.fixture(scope="session")
def debug_run(kernel_debug: BuiltKernel) -> guests.Steps:
    """Everything that can share a boot of the debug kernel, which is slow."""
    words = ("kunit.enable=1", "kunit.filter_glob=migrate_*")
    return guests.boot_once(kernel_debug, _STEPS, words=words)


@pytest.fixture
def in_vm() -> RunInVm:
    """Run a command on a kernel: in_vm(kernel, "cmd", "arg", topology=...)."""

    def run(kernel: BuiltKernel, *command: str, **options: object) -> VmOutcome:
        settings: dict[str, object] = {"timeout_s": 900.0, "cwd": ROOT, **options}
        return run_vm(
            VmRequest(
                command=command,
                image=kernel.image,
                modules=kernel.modules,
                **settings,  # type: ignore[arg-type]
            )
        )

    return run
