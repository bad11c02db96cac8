# SPDX-License-Identifier: GPL-2.0-only
"""Reads the names of tests from the sources of the kernel's selftests.

A guest runs commands, such as "./hugetlb -v private". names() reads the program's source
and applies the filters of the command, so a list of tests always fits the command.
"""

from __future__ import annotations

import getopt
import re
from collections.abc import Iterable

from helpers import sources

SUITE = sources.TREE / "tools/testing/selftests/migrate_offload"
_COMMAND = re.compile(r"(?<!\S)\./(\w+)((?: +[\w.-]+)*)")
# Macros of kselftest_harness.h; TEST() has no fixture.
_VARIANT = re.compile(r"^FIXTURE_VARIANT_ADD\((\w+), (\w+)\)", re.MULTILINE)
_TEST = re.compile(r"^TEST(?:_F\w*\((\w+), |\()(\w+)", re.MULTILINE)
# Rows of a table of cases, and the members that follow the name.
_ROW = re.compile(r'\{ (?:\.name = )?"([\w-]+)"((?:, (?:test_|\.)[^}]*)?)\s*\}')


def _source(name: str) -> str:
    (path,) = sources.found(SUITE, f"*/{name}.c")
    return path.read_text()


def cases(name: str) -> list[str]:
    """List the cases in the table of a C file."""
    return [case for case, _ in _ROW.findall(_source(name))]


def names(command: str) -> list[str]:
    """List the tests that a command runs, as the program names them in its report."""
    match = _COMMAND.search(command)
    if match is None:
        raise LookupError(f"no program: {command}")
    text, words = _source(match[1]), match[2].split()
    rows = _ROW.findall(text)
    if "TEST_HARNESS_MAIN" in text:
        found = _of_harness(text, words)
    elif "mo_hazards_main(" in text:
        hazards = [(name, ".rule" in more, ".hints" in more) for name, more in rows]
        found = _of_hazards(hazards, words)
    else:
        found = _chosen([name for name, _ in rows], words)
    if not found:
        raise LookupError(f"no test: {command}")
    return found


def listed(report: str) -> list[str]:
    """List all tests of a program with hazards by the output of its option -l."""
    lines = [line.split() for line in report.splitlines()]
    return _of_hazards([(n, rule != "-", bool(more)) for n, rule, *more in lines], [])


def own_name(name: str) -> str:
    """Return the name of a test without fixture and variant, as a short id."""
    return name.rpartition(".")[2]


def _refuse_unknown(words: Iterable[str], known: Iterable[str]) -> None:
    """A command must not name a test that exists no longer."""
    unknown = sorted(set(words) - set(known))
    if unknown:
        raise LookupError(f"the source does not have {', '.join(unknown)}")


def _chosen(known: list[str], words: list[str]) -> list[str]:
    """Select the cases that the command names; without names, all."""
    _refuse_unknown(words, known)
    return [case for case in known if case in words or not words]


def _of_hazards(rows: list[tuple[str, bool, bool]], words: list[str]) -> list[str]:
    """Name the results of each hazard; -k leaves all rules on: see mo_hazard.c."""
    options, words = getopt.getopt(words, "ks")
    chosen, found = _chosen([name for name, _, _ in rows], words), []
    for name, rule, hints in rows:
        if name not in chosen:
            continue
        found.append(f"{name} with_all_rules")
        if hints:
            found.append(f"{name} without_hints")
        if rule and ("-k", "") not in options:
            found.append(f"{name} without_its_rule")
    return found


def _of_harness(text: str, words: list[str]) -> list[str]:
    """Name the tests of each fixture with each of its variants."""
    options, more = getopt.getopt(words, "f:F:t:T:v:V:r:")
    parts = [
        (fixture or "global", variant, test)
        for fixture, test in _TEST.findall(text)
        for variant in [v for f, v in _VARIANT.findall(text) if f == fixture] or [""]
    ]
    known = {word for part in parts for word in (*part, _full(part))}
    _refuse_unknown([*more, *(value for _, value in options)], known)
    return [_full(part) for part in parts if _enabled(options, part)]


def _full(part: tuple[str, str, str]) -> str:
    """Join fixture, variant and test as __run_test() does."""
    return ".".join(word for word in part if word)


def _enabled(options: list[tuple[str, str]], part: tuple[str, str, str]) -> bool:
    """Apply filters as test_enabled() of kselftest_harness.h does: the first one wins."""
    fixture, variant, test = part
    own = {"f": fixture, "v": variant, "t": test, "r": _full(part)}
    for option, value in options:
        if own[option[1].lower()] == value:
            return option[1].islower()
    return not any(option[1].islower() for option, _ in options)
