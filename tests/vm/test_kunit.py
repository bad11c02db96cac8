# SPDX-License-Identifier: GPL-2.0-only
"""The KUnit suites of the batch copy."""

from __future__ import annotations

import pytest

from helpers import guests

pytestmark = pytest.mark.vm


# The suite itself also counts as a result.
_AT_LEAST = {"migrate_compact": 4, "migrate_run": 4}


@pytest.mark.parametrize("suite", guests.KUNIT_SUITES)
def test_kunit_suites_pass(debug_run: guests.Steps, suite: str) -> None:
    at_least = _AT_LEAST.get(suite, 5)
    report = guests.passes(debug_run.text(f"kunit {suite}"), at_least=at_least)
    assert suite in report.names()


def test_every_suite_is_known_here(debug_run: guests.Steps) -> None:
    assert set(debug_run.text("kunit").split()) == set(guests.KUNIT_SUITES)


def test_kunit_leaves_the_settings_alone(debug_run: guests.Steps) -> None:
    """Also where an engine was active, and a reason had its own."""
    *lines, engine, of_demotion = debug_run.text("kunit again").strip().splitlines()
    assert (engine, of_demotion) == ("cpu", "cpu")
    guests.passes("\n".join(lines), at_least=5)
