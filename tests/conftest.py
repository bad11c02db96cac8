# SPDX-License-Identifier: GPL-2.0-only
"""Kernels and machines for the tests, each built or booted only where needed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmOutcome, VmRequest, run_vm

# What these assert is to be explained as in tests, which takes effect on import.
pytest.register_assert_rewrite("helpers.guests", "helpers.interleave")

from helpers import ahead, debug_kernel, guests, kernels  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
# Quick ones first: a typo should not wait for a kernel build.
_COSTS = {
    "unit": 0,
    "style": 1,
    "cli": 2,
    "releases": 2,
    "vm": 3,
    "fault": 3,
    "perf": 4,
}
_BOOTS = ("vm", "fault")
# In the order in which they are there on a new machine; what needs that of the
# debug kernel alone can always wait.
_WAITS = (
    *("kernel_vm", "kernel_vanilla", "kernel_rules"),
    *("kernel_arm64", "kernel_arm64_rules", "kernel_debug"),
)
# With so many tests before, to begin ahead is worth it.
_WORTH_A_START = 100
_KERNELS: list[ahead.Ahead] = []
_QUEUES: list[ahead.Queue] = []

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


def _waits_for(item: pytest.Item) -> int:
    """Say how long a test has to wait for kernels and boots that others do."""
    names = item.fixturenames if isinstance(item, pytest.Function) else ()
    if not debug_kernel.JOBS.keys().isdisjoint(names):
        return len(_WAITS)
    return max((_WAITS.index(name) for name in names if name in _WAITS), default=0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the directories in order of what they cost, and what must wait last."""

    def place(item: pytest.Item) -> tuple[int, int]:
        parts = item.path.relative_to(ROOT / "tests").parts
        cost = _COSTS.get(parts[0], len(_COSTS))
        return cost, _waits_for(item) if parts[0] in _BOOTS else 0

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
    if len(session.items) < _WORTH_A_START:
        return
    if len(needed) > 1:
        _KERNELS.append(ahead.Ahead("helpers.kernels", *needed))
    jobs = [name for name in debug_kernel.JOBS if name in first]
    if jobs and first[jobs[0]] > 0:
        _QUEUES.append(ahead.Queue("helpers.debug_kernel", jobs))


def pytest_unconfigure() -> None:
    """Leave nothing running, however it ends."""
    while _QUEUES:
        _QUEUES.pop().stop()
    while _KERNELS:
        _KERNELS.pop().stop()


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
def kernel_arm64_rules() -> BuiltKernel:
    """That for machines with a DMA controller, with the modules of tests."""
    return kernels.build("kernel_arm64_rules")


@pytest.fixture(scope="session")
def kernel_debug() -> BuiltKernel:
    """KUnit, the misbehaving engine, KASAN, lockdep and all the other checks."""
    return kernels.build("kernel_debug")


def _steps(name: str) -> guests.Steps:
    return debug_kernel.steps(_QUEUES[0] if _QUEUES else None, name)


@pytest.fixture(scope="session")
def debug_run() -> guests.Steps:
    """KUnit, the kselftest and hazards, in one boot of the debug kernel."""
    return _steps("debug_run")


@pytest.fixture(scope="session")
def torture_run() -> guests.Steps:
    """What programs do to memory while it moves, on CPUs with a thread each."""
    return _steps("torture_run")


@pytest.fixture(scope="session")
def plain_run() -> guests.Steps:
    """DMA engines, where they read and write folios themselves."""
    return _steps("plain_run")


@pytest.fixture(scope="session")
def bounced_run() -> guests.Steps:
    """DMA engines, where no device reads or writes a folio itself."""
    return _steps("bounced_run")


@pytest.fixture(scope="session")
def tiered_run() -> guests.Steps:
    """Everybody who has memory migrate, on a machine with two tiers."""
    return _steps("tiered_run")


@pytest.fixture(scope="session")
def pressure_run() -> guests.Steps:
    """What moves memory, while there is hardly any."""
    return _steps("pressure_run")


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
