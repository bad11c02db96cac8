# SPDX-License-Identifier: GPL-2.0-only
"""Fake virtual machines for benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.bench_data import built
from pageferry.bench import build, job
from pageferry.bench.lines import Line
from pageferry.vm.run import VmRequest


class Outcome:
    accel = "tcg"


def boots(
    monkeypatch: pytest.MonkeyPatch,
    place: Path,
    lines: Callable[[int], list[Line]],
    module: Path | None = None,
) -> list[VmRequest]:
    """Have each boot print these lines; returns the requests of all boots."""
    seen: list[VmRequest] = []

    def run(
        request: VmRequest, kinds: object, progress: object
    ) -> tuple[list[Line], Outcome]:
        seen.append(request)
        return lines(len(seen)), Outcome()

    monkeypatch.setattr(build, "build", lambda arch: place)
    monkeypatch.setattr(job, "build_kernel", lambda request: built(place))
    monkeypatch.setattr(job, "module_path", lambda kernel, name: module)
    monkeypatch.setattr(job, "run_vm_lines", run)
    monkeypatch.setattr(job, "describe_built", lambda kernel, environment: None)
    return seen
