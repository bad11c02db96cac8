# SPDX-License-Identifier: GPL-2.0-only
"""Parses the output of the C programs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pageferry.bench.lines import (
    Done,
    Environment,
    Failure,
    Line,
    complete,
    parse_line,
)
from pageferry.bench.move_pages.spec import Measurement
from pageferry.errors import PageferryError

MEASUREMENT = (
    '{"type": "measurement", "engine": "mtcopy", "threads": 2, "folio_bytes": 4096, '
    '"busy": false, "round": 1, "moved_bytes": 4096, "elapsed_ns": 7, '
    '"split_folios": null, "engine_bytes": 4096, "verified": true}'
)
ENVIRONMENT = (
    '{"type": "environment", "bench": "move-pages", "release": "6.12", '
    '"version": "#1", "nodes": "0-1", "cpus": 2, "reasons_found": "all", '
    '"added_by_a_later_program": 1}'
)


def read(text: str) -> Line | None:
    return parse_line(text, Measurement)


def test_measurement() -> None:
    line = read(MEASUREMENT + "\r\n")
    assert isinstance(line, Measurement)
    assert line.elapsed_ns == 7
    assert line.split_folios is None
    assert line.engine_bytes == 4096


def test_other_lines_are_passed_over() -> None:
    assert parse_line("[    0.5] random: crng init done\r\n") is None
    assert parse_line("") is None
    assert parse_line('{"other": "json"}') is None


def test_line_after_half_a_line_of_somebody_else() -> None:
    assert isinstance(read("SeaBIOS \x1b[2J" + MEASUREMENT), Measurement)


@given(st.text())
def test_noise_never_becomes_a_measurement(text: str) -> None:
    if '{"type": "' not in text:
        assert parse_line(text) is None


@pytest.mark.parametrize(
    "text",
    [
        MEASUREMENT[:-20],
        MEASUREMENT.replace('"elapsed_ns": 7', '"elapsed_ns": "7"'),
        MEASUREMENT.replace('"elapsed_ns": 7, ', ""),
        MEASUREMENT.replace("measurement", "surprise"),
        MEASUREMENT.replace("measurement", "latency"),
        ENVIRONMENT.replace('"all"', '["all"]'),
    ],
)
def test_damaged_lines_are_refused(text: str) -> None:
    with pytest.raises(PageferryError, match="unexpected"):
        read(text)


def test_settings_hold_what_was_found() -> None:
    line = parse_line(ENVIRONMENT)
    assert isinstance(line, Environment)
    found = line.settings
    assert found["reasons_found"] == "all"
    assert found.keys().isdisjoint({"type", "release", "cpus"})


def test_an_error_line_ends_the_run_with_its_code() -> None:
    with pytest.raises(PageferryError) as caught:
        complete([Failure(exit=3, message="node 1 does not exist")])
    assert caught.value.code == 3
    assert caught.value.what == "node 1 does not exist"


def test_a_run_without_its_last_line_is_a_failure() -> None:
    line = read(MEASUREMENT)
    assert line is not None
    with pytest.raises(PageferryError, match="before it was done") as caught:
        complete([line])
    assert caught.value.code == 1
    with pytest.raises(PageferryError) as caught:
        complete([])
    assert caught.value.code == 5
    assert complete([line, Done()])[0] is line
