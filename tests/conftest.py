# SPDX-License-Identifier: GPL-2.0-only
"""Kernels and machines for the tests, built or booted only where needed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmOutcome, VmRequest

# Pytest rewrites asserts of these modules, if this call precedes their import.
pytest.register_assert_rewrite("helpers.guests", "helpers.interleave")

from helpers import ahead, debug_kernel, guests, kernels  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
# Run quick tests first: a typo should not wait for a kernel build.
_COSTS = {
    "unit": 0,
    "style": 1,
    "cli": 2,
    "browser": 2,
    "prometheus": 2,
    "releases": 2,
    "vm": 3,
    "fault": 3,
    "packages": 4,
    "perf": 4,
}
_BOOTS = ("vm", "fault")
# The order in which fixtures exist on a new machine. Tests that need only the debug
# kernel can wait longest.
_WAITS = (
    *("kernel_vm", "kernel_vanilla", "kernel_rules"),
    *("kernel_arm64", "kernel_arm64_rules", "kernel_debug"),
)
# Characters of a failure that appear at once.
_TOLD_AT_ONCE = 2000
# From this many tests before its first use on, a job begins ahead.
_WORTH_A_START = 100
_KERNELS: list[ahead.Ahead] = []
_QUEUES: list[ahead.Queue] = []

# A busy machine must not fail a test. Equal examples in every run make a failure
# reproducible.
settings.register_profile(
    "pageferry",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pageferry")

RunInVm = Callable[..., VmOutcome]


def pytest_configure() -> None:
    """Let tests interrupt their children, also if a shell's `&` started pytest.

    A run that is terminated stops its guests, and ends with pytest's summary.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once why a test failed: a run may be cut off before the summary."""
    if report.failed:
        sys.stdout.write(f"\n{report.nodeid} ({report.when}):\n")
        sys.stdout.write(f"{report.longreprtext[-_TOLD_AT_ONCE:]}\n")


def _waits_for(item: pytest.Item) -> int:
    """Rank a test by the kernels and boots that it has to wait for."""
    names = item.fixturenames if isinstance(item, pytest.Function) else ()
    if not debug_kernel.JOBS.keys().isdisjoint(names):
        return len(_WAITS)
    return max((_WAITS.index(name) for name in names if name in _WAITS), default=0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order directories by cost, and put tests that wait longest last."""

    def place(item: pytest.Item) -> tuple[int, int]:
        parts = item.path.relative_to(ROOT / "tests").parts
        cost = _COSTS.get(parts[0], len(_COSTS))
        return cost, _waits_for(item) if parts[0] in _BOOTS else 0

    items.sort(key=place)


def _first_use(items: list[pytest.Item]) -> dict[str, int]:
    """Count the tests before the first use of each fixture."""
    first: dict[str, int] = {}
    for at, item in enumerate(items):
        if isinstance(item, pytest.Function):
            for name in item.fixturenames:
                first.setdefault(name, at)
    return first


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with the longest jobs, if other tests can run meanwhile."""
    if session.config.option.collectonly:
        return
    first = _first_use(session.items)
    needed = [name for name in kernels.REQUESTS if name in first]
    if len(session.items) < _WORTH_A_START:
        return
    if len(needed) > 1:
        _KERNELS.append(ahead.Ahead("helpers.kernels", *needed))
    jobs = [name for name in debug_kernel.AHEAD if name in first]
    if jobs and first[jobs[0]] > 0:
        _QUEUES.append(ahead.Queue("helpers.debug_kernel", jobs))


def pytest_unconfigure() -> None:
    """Stop all background jobs, however the run ends."""
    while _QUEUES:
        _QUEUES.pop().stop()
    while _KERNELS:
        _KERNELS.pop().stop()


@pytest.fixture(scope="session")
def kernel_vm() -> BuiltKernel:
    """The kernel of users."""
    return kernels.build("kernel_vm")


@pytest.fixture(scope="session")
def kernel_vanilla() -> BuiltKernel:
    """The unchanged base release."""
    return kernels.build("kernel_vanilla")


@pytest.fixture(scope="session")
def kernel_rules() -> BuiltKernel:
    """The kernel of users, in which tests can switch rules off."""
    return kernels.build("kernel_rules")


@pytest.fixture(scope="session")
def kernel_arm64() -> BuiltKernel:
    """The kernel for machines with a DMA controller."""
    return kernels.build("kernel_arm64")


@pytest.fixture(scope="session")
def kernel_arm64_rules() -> BuiltKernel:
    """The kernel for machines with a DMA controller, with test modules."""
    return kernels.build("kernel_arm64_rules")


@pytest.fixture(scope="session")
def kernel_debug() -> BuiltKernel:
    """The debug kernel: KUnit, the test engine, KASAN, lockdep and all other checks."""
    return kernels.build("kernel_debug")


def _steps(name: str) -> guests.Steps:
    return debug_kernel.steps(_QUEUES[0] if _QUEUES else None, name)


@pytest.fixture(scope="session")
def debug_run() -> guests.Steps:
    """KUnit, the selftests and the hazards, in one boot of the debug kernel."""
    return _steps("debug_run")


@pytest.fixture(scope="session")
def torture_run() -> guests.Steps:
    """The torture test, on a guest whose CPUs have a thread each."""
    return _steps("torture_run")


@pytest.fixture(scope="session")
def plain_run() -> guests.Steps:
    """DMA engines whose devices access folios directly."""
    return _steps("plain_run")


@pytest.fixture(scope="session")
def iommu_run() -> guests.Steps:
    """DMA engines behind an IOMMU that unmaps at once."""
    return _steps("iommu_run")


@pytest.fixture(scope="session")
def lazy_iommu_run() -> guests.Steps:
    """DMA engines behind an IOMMU that unmaps later."""
    return _steps("lazy_iommu_run")


@pytest.fixture(scope="session")
def bounced_run() -> guests.Steps:
    """DMA engines whose devices use bounce buffers."""
    return _steps("bounced_run")


@pytest.fixture(scope="session")
def tiered_run() -> guests.Steps:
    """All callers that migrate memory, on a machine with two tiers."""
    return _steps("tiered_run")


@pytest.fixture(scope="session")
def pressure_run() -> guests.Steps:
    """Migration while memory is short."""
    return _steps("pressure_run")


@pytest.fixture
def in_vm() -> RunInVm:
    """Run a command on a kernel: in_vm(kernel, "cmd", "arg", topology=...)."""

    def run(kernel: BuiltKernel, *command: str, **options: object) -> VmOutcome:
        settings: dict[str, object] = {"timeout_s": 900.0, "cwd": ROOT, **options}
        return guests.run(
            VmRequest(
                command=command,
                image=kernel.image,
                modules=kernel.modules,
                **settings,  # type: ignore[arg-type]
            )
        )

    return run
