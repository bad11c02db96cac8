# SPDX-License-Identifier: GPL-2.0-only
"""A list of tests names each test that the command of a guest runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers import selftests, sources

PYTHON = sources.found(Path(__file__).parents[1], "*/test_*.py", "helpers/*.py")
MAIN = re.compile(r"TEST_HARNESS_MAIN|return mo_hazards_main|\} tests\[\] =")
PROGRAMS = {
    path.stem: text
    for path in sources.found(selftests.SUITE, "*/*.c")
    if MAIN.search(text := path.read_text())
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_test_of_a_source_is_found_and_a_guest_runs_it(name: str) -> None:
    rows = re.compile(r"^TEST\w*\(|^\t\{ .*(?:test_|\.name)", re.MULTILINE)
    # Several variants have the same test, and several results the same hazard.
    found = {re.sub(r"\..*\.| with.*", ".", n) for n in selftests.names(f"./{name}")}
    assert len(found) == len(rows.findall(PROGRAMS[name])) > 0
    run = re.compile(rf"\./{name}\b")
    assert any(run.search(path.read_text()) for path in PYTHON)


def test_each_rule_has_a_test_that_breaks_it() -> None:
    core = selftests.SUITE.parents[3] / "mm/migrate_offload/break_rules.c"
    rules = set(re.findall(r'= "(\w+)",$', core.read_text(), re.MULTILINE))
    broken = {
        rule
        for text in PROGRAMS.values()
        for rule in re.findall(r'\.rule = "(\w+)"', text)
    }
    # latency.c breaks the one, and the other only saves time.
    assert rules == broken | {"resched", "run_hints"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("modprobe x && A=1 ./whole -v 1m -t stays_so; ls -t is_split_without", 8 + 10),
        ("A=/b/c\n./whole -T stays_so -T is_split_without\n./fallback", 8 * 9),
        ("./whole -r whole.1m.stays_so", 1),
        # The first filter that applies wins.
        ("./whole -V 1m -t stays_so", 7),
        ("./whole -t stays_so -V 1m -t is_split_without", 8 + 7),
        ("./fallback -v posted -v stream -f streams", 2 * 7 + 10),
        ("./fallback -F streams", 3 * 7),
        ("./notify run ptes", 3),
        ("./notify -k run ptes", 2),
        ("./runs -k shared not_exclusive", 4),
        ("./dcbm copies limits", 2),
    ],
)
def test_filters_apply_as_in_the_program(command: str, expected: int) -> None:
    assert len(selftests.names(command)) == expected


@pytest.mark.parametrize(
    "command",
    [
        *("echo whole", "./gone", "./latency", "./whole -F whole", "./whole -t gone"),
        *("./whole -v 1m gone", "./notify -k gone", "./dcbm copies gone"),
    ],
)
def test_a_command_without_its_tests_is_an_error(command: str) -> None:
    with pytest.raises(LookupError):
        selftests.names(command)


def test_names_have_the_form_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert selftests.names("./whole -r whole.1m.stays_so") == ["whole.1m.stays_so"]
    assert "policy.mbind" in selftests.names("./migrate_offload")
    ways = ("with_all_rules", "without_hints", "without_its_rule")
    assert selftests.names("./runs pinned") == [f"pinned {way}" for way in ways]
    assert selftests.listed("pinned run_pin hints") == selftests.names("./runs pinned")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "alone.c").write_text("TEST(works)\n{\n}\nTEST_HARNESS_MAIN\n")
    monkeypatch.setattr(selftests, "SUITE", tmp_path)
    assert selftests.names("./alone") == ["global.works"]
