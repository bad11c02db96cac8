# SPDX-License-Identifier: GPL-2.0-only
"""Memory moves while programs do all that programs do to memory.

Half a minute is part of all tests; `make torture` runs an hour.
"""

from __future__ import annotations

import os
import sys

import pytest

from helpers import guests, selftests
from pageferry.kernel.build import BuildRequest, build_kernel

_RESULTS = {
    *(f"torture {engine}" for engine in ("none", "cpu", "mtcopy", "test")),
    *("devices", "hints", "counters", "memory"),
}
_HOUR_S = 3600


def _passes(text: str) -> None:
    report = guests.passes(text, at_least=len(_RESULTS))
    assert report.names() == _RESULTS
    ends = [line for line in text.splitlines() if line.startswith("# ") and ";" in line]
    said = " ".join(ends)
    # No operation may be left out for lack of a feature.
    for name in selftests.cases("torture_ops"):
        assert any(f" {name} {n}" in said for n in range(1, 10)), name
    for lacking in ("userfaultfd", "io_uring", "/dev/ram0", "migrate_notifier_test"):
        assert f"no {lacking}" not in text
    assert "no NUMA balancing" not in text
    assert "no file system" not in text


@pytest.mark.vm
@pytest.mark.parametrize("name", sorted(_RESULTS))
def test_memory_survives(torture_run: guests.Steps, name: str) -> None:
    torture_run.passes("torture", name)


@pytest.mark.vm
def test_nothing_was_left_out(torture_run: guests.Steps) -> None:
    _passes(torture_run.text("torture"))
    torture_run.is_well()


@pytest.mark.torture
def test_memory_survives_an_hour() -> None:
    """With all checks on; the tests of single hazards pass, too."""
    seconds = int(os.environ.get("TORTURE_SECONDS", _HOUR_S))
    configs = ("vm", "debug-kasan", "debug-lockdep", "debug-pages", "test")
    steps = {
        "modules": "modprobe mtcopy min_thread_bytes=4096"
        " && modprobe migrate_offload_test",
        "kselftest": "./migrate_offload",
        "whole": "./whole -v 16k -v 64k -v 2m_by_ptes",
        "runs": "./runs -k",
        "cgroup": "./cgroup",
        "torture": f"./torture --seconds {seconds}",
    }
    said = guests.boot_once(
        build_kernel(BuildRequest(configs=configs)),
        steps,
        words=("page_owner=on",),
        timeout_s=3600.0 + 2 * seconds,
    )
    for step in ("kselftest", "whole", "runs"):
        guests.passes(said.text(step), at_least=10)
    guests.passes(said.text("cgroup"), at_least=len(selftests.names("./cgroup")))
    sys.stdout.write(said.text("torture"))
    _passes(said.text("torture"))
    said.is_well()
    log = said.outcome.serial_log.read_text(errors="replace")
    assert "page_owner=on" in log and "debug_vm_pgtable" in log
