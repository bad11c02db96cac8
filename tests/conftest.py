# SPDX-License-Identifier: GPL-2.0-only
"""Kernels and machines for the tests, each built or booted only where needed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from helpers import debug_kernel, guests
from pageferry.kernel.arch import ARM64, X86_64, Architecture
from pageferry.kernel.build import BuildRequest, BuiltKernel, build_kernel
from pageferry.vm.run import VmOutcome, VmRequest, run_vm

ROOT = Path(__file__).resolve().parent.parent
# Quick ones first: a typo should not wait for a kernel build.
_ORDER = ("unit", "style", "cli", "vm", "fault", "perf")
# So many tests before the first one that needs the debug kernel.
_WORTH_A_START = 100

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


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with what takes longest, where there is something to do meanwhile."""
    needed = [
        at
        for at, item in enumerate(session.items)
        if isinstance(item, pytest.Function) and "debug_run" in item.fixturenames
    ]
    if needed and needed[0] >= _WORTH_A_START and not session.config.option.collectonly:
        debug_kernel.start()


def pytest_unconfigure() -> None:
    """Leave nothing running, however it ends."""
    debug_kernel.stop()


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
    return debug_kernel.build()


@pytest.fixture(scope="session")
def debug_run() -> guests.Steps:
    """Everything that can share a boot of the debug kernel, which is slow."""
    return debug_kernel.steps()


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
