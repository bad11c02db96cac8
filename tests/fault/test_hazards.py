# SPDX-License-Identifier: GPL-2.0-only
"""Each hazard is prevented, and the tests would notice the damage."""

from __future__ import annotations

import pytest

from helpers import debug_kernel, guests
from pageferry import proc
from pageferry.kernel.build import BuiltKernel

pytestmark = [pytest.mark.vm, pytest.mark.fault]

# Name in hazards.c: whether its rule can be switched off.
_HAZARDS = {
    "pin": True,
    "retry": True,
    "buffers": True,
    "secret": True,
    "bad_page": True,
    "poisoned_thp": True,
    "poisoned_page": False,
    "failing_page": False,
    "order": True,
    "late": True,
    "huge_pin": True,
    "huge_retry": False,
    "huge_bad_page": False,
    "huge_late": True,
}

_CASES = [
    f"{name} {rules}"
    for name, rule in _HAZARDS.items()
    for rules in ("with_all_rules", *(["without_its_rule"] if rule else []))
]


_STEPS = ("hazards", "hazards of streams")


@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize("case", _CASES)
def test_data_survives_each_hazard_and_damage_would_show(
    debug_run: guests.Steps, case: str, step: str
) -> None:
    debug_run.passes(step, case)


@pytest.mark.parametrize("step", _STEPS)
def test_all_hazards_were_tried(debug_run: guests.Steps, step: str) -> None:
    report = guests.passes(debug_run.text(step), at_least=len(_CASES))
    assert report.names() == set(_CASES)


def test_every_hazard_is_known_here(kernel_debug: BuiltKernel) -> None:
    listed = proc.capture([guests.programs(kernel_debug) / "hazards", "-l"]).stdout
    names = {line.split()[0]: line.split()[1] != "-" for line in listed.splitlines()}
    assert names == _HAZARDS | {debug_kernel.UNLOAD: False}


def test_engines_go_only_when_nobody_copies(debug_run: guests.Steps) -> None:
    report = guests.passes(debug_run.text("unload engines"), at_least=1)
    assert report.names() == {f"{debug_kernel.UNLOAD} with_all_rules"}


def test_copying_gives_way_to_others(kernel_rules: BuiltKernel) -> None:
    """The debug kernel is preemptible everywhere, so use another one."""
    outcome = guests.boot(kernel_rules, "./latency", topology="cost")
    guests.passes(outcome.stdout, at_least=4)
