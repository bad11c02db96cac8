# SPDX-License-Identifier: GPL-2.0-only
"""Each hazard is prevented, and the tests would notice the damage."""

from __future__ import annotations

import pytest

from helpers import guests, selftests
from helpers.debug_kernel import STEPS
from pageferry import proc
from pageferry.kernel.build import BuiltKernel

pytestmark = [pytest.mark.vm, pytest.mark.fault]

_STEPS = ("hazards", "hazards of streams")
_NAMES = {step: selftests.names(STEPS[step]) for step in _STEPS}


@pytest.mark.parametrize(
    ("case", "step"), [(case, step) for step in _STEPS for case in _NAMES[step]]
)
def test_data_survives_each_hazard_and_damage_would_show(
    debug_run: guests.Steps, case: str, step: str
) -> None:
    debug_run.passes(step, case)


@pytest.mark.parametrize("step", _STEPS)
def test_all_hazards_were_tried(debug_run: guests.Steps, step: str) -> None:
    debug_run.ran_all(step, _NAMES[step])


def test_every_hazard_is_known_here(kernel_debug: BuiltKernel) -> None:
    listed = proc.capture([guests.programs(kernel_debug) / "hazards", "-l"]).stdout
    assert selftests.listed(listed) == selftests.names("./hazards")


def test_engines_go_only_when_nobody_copies(debug_run: guests.Steps) -> None:
    debug_run.ran_all("unload engines", selftests.names(STEPS["unload engines"]))


def test_copying_gives_way_to_others(kernel_rules: BuiltKernel) -> None:
    """The debug kernel is preemptible everywhere, so use another one."""
    outcome = guests.boot(kernel_rules, "./latency", topology="cost")
    guests.passes(outcome.stdout, at_least=4)
