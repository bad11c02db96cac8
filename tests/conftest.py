# SPDX-License-Identifier: GPL-2.0-only
"""Kernels and machines for the tests, each built or booted only where needed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from helpers import ahead, debug_kernel, guests, kernels
from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmOutcome, VmRequest, run_vm

ROOT = Path(__file__).resolve().parent.parent
# Quick ones first: a typo should not wait for a kernel build.
_ORDER = ("unit", "style", "cli", "vm", "fault", "perf")
# With so many tests before, to begin ahead is worth it.
_WORTH_A_START = 100
_AHEAD: dict[str, ahead.Ahead] = {}

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


def _first_use(items: list[pytest.Item]) -> dict[str, int]:
    """Say how many tests come before the first that needs each fixture."""
    first: dict[str, int] = {}
    for at, item in enumerate(items):
        if isinstance(item, pytest.Function):
            for name in item.fixturenames:
                first.setdefault(name, at)
    return first


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with what takes longest, where there is something to do meanwhile."""
    if session.config.option.collectonly:
        return
    first = _first_use(session.items)
    needed = [name for name in kernels.REQUESTS if name in first]
    if len(session.items) >= _WORTH_A_START and len(needed) > 1:
        _AHEAD["kernels"] = ahead.Ahead("helpers.kernels", *needed)
    if first.get("debug_run", 0) >= _WORTH_A_START:
        _AHEAD["debug_run"] = ahead.Ahead("helpers.debug_kernel")


def pytest_unconfigure() -> None:
    """Leave nothing running, however it ends."""
    while _AHEAD:
        _AHEAD.popitem()[1].stop()


@pytest.fixture(scope="session")
def kernel_vm() -> BuiltKernel:
    """The kernel that users run."""
    return kernels.build("kernel_vm")


@pytest.fixture(scope="session")
def kernel_vanilla() -> BuiltKernel:
    """The base release as it is."""
    return kernels.build("kernel_vanilla")


@pytest.fixture(scope="session")
def kernel_rules() -> BuiltKernel:
    """That of users, in which rules can be switched off."""
    return kernels.build("kernel_rules")


@pytest.fixture(scope="session")
def kernel_arm64() -> BuiltKernel:
    """The kernel for machines with a DMA controller."""
    return kernels.build("kernel_arm64")


@pytest.fixture(scope="session")
def kernel_debug() -> BuiltKernel:
    """KUnit, the misbehaving engine, KASAN, lockdep and all the other checks."""
    return kernels.build("kernel_debug")


@pytest.fixture(scope="session")
def debug_run() -> guests.Steps:
    """Everything that can share a boot of the debug kernel, which is slow."""
    return debug_kernel.steps(_AHEAD.get("debug_run"))


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
