# SPDX-License-Identifier: GPL-2.0-only
"""The text of an error for people, and its fields for programs."""

from __future__ import annotations

import errno
import json

import pytest

from pageferry import output
from pageferry.errors import ExitCode, PageferryError, from_os_error


def test_the_answer_and_the_talk_go_to_different_places(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = PageferryError("it broke", value="/x", reason="why", hint="do this")
    output.report_error(error, as_json=True)
    out, err = capsys.readouterr()
    document = json.loads(out)["error"]
    assert document == {
        "what": "it broke",
        "value": "/x",
        "reason": "why",
        "hint": "do this",
        "exit_code": 1,
    }
    assert err == "pageferry: it broke: /x: why\n  try: do this\n"


def test_without_json_stdout_stays_empty(capsys: pytest.CaptureFixture[str]) -> None:
    output.report_error(PageferryError("it broke"), as_json=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("number", "word"), [(errno.ENOSPC, "space"), (errno.EACCES, "root")]
)
def test_a_system_error_names_the_file_and_a_way_out(number: int, word: str) -> None:
    cause = OSError(number, "reason", "/some/file")
    error = from_os_error(cause, "cannot", ExitCode.NOT_STARTED)
    assert error.value == "/some/file"
    assert error.hint is not None and word in error.hint


def test_tables_align_numbers_to_the_right() -> None:
    text = output.table(["name", "n"], [["a", "5"], ["bcd", "123"]])
    assert text.splitlines() == ["name    n", "a       5", "bcd   123"]


def test_progress_never_claims_to_be_finished() -> None:
    progress = output.Progress("building", 10)
    progress.done = 25
    assert progress.text(progress.start + 100).startswith("99%")


def test_progress_guesses_the_time_left_from_what_is_done() -> None:
    progress = output.Progress("building", 100)
    assert progress.remaining_s(progress.start + 1) is None
    progress.done = 25
    assert progress.remaining_s(progress.start + 60) == pytest.approx(180)


def test_progress_without_a_total_shows_no_share() -> None:
    progress = output.Progress("building", None)
    progress.done = 3
    assert progress.text(progress.start + 2) == "3 steps, 2 s"
