# SPDX-License-Identifier: GPL-2.0-only
"""The KUnit suites of the batch copy."""

from __future__ import annotations

import re

import pytest

from helpers import guests, sources

pytestmark = pytest.mark.vm


def _nr_cases(suite: str) -> int:
    """Count the cases of a suite in its source."""
    for path in sources.ours("**/*_kunit.c", "**/*-kunit.h").values():
        text = path.read_text()
        if f'.name = "{suite}"' in text:
            return len(re.findall(r"^\tKUNIT_CASE", text, re.MULTILINE))
    raise LookupError(suite)


@pytest.mark.parametrize("suite", guests.KUNIT_SUITES)
def test_kunit_suites_pass(debug_run: guests.Steps, suite: str) -> None:
    nr_cases = _nr_cases(suite)
    assert nr_cases
    # The suite itself also counts as a result.
    text = debug_run.text(f"kunit {suite}")
    assert suite in guests.passes(text, at_least=nr_cases + 1).names()


def test_every_suite_is_known_here(debug_run: guests.Steps) -> None:
    assert set(debug_run.text("kunit").split()) == set(guests.KUNIT_SUITES)


def test_kunit_leaves_the_settings_alone(debug_run: guests.Steps) -> None:
    """Also where an engine was active, and a reason had its own."""
    *lines, engine, of_demotion = debug_run.text("kunit again").strip().splitlines()
    assert (engine, of_demotion) == ("cpu", "cpu")
    guests.passes("\n".join(lines), at_least=5)
