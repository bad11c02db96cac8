# SPDX-License-Identifier: GPL-2.0-only
"""The parser of kernel test reports must not miss a failure."""

from __future__ import annotations

from helpers import ktap

KSELFTEST = """\
TAP version 13
1..3
# Starting 3 tests from 3 test cases.
#  RUN           memory.anon.moves ...
#            OK  memory.anon.moves
ok 1 memory.anon.moves
# migrate_offload.c:99:moves:Expected kept (0) > 0 (0)
not ok 2 memory.ext4_dirty.moves
ok 3 memory.shmem_2m.moves # SKIP no folios of this size in this kernel
# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0
"""

KUNIT = """\
KTAP version 1
1..1
    KTAP version 1
    # Subtest: migrate_offload
    # module: migrate_offload
    1..2
    ok 1 keeps_order
        KTAP version 1
        # Subtest: splits
        ok 1 one_folio
        not ok 2 many_folios
    not ok 2 splits
# migrate_offload: pass:1 fail:1 skip:0 total:2
not ok 1 migrate_offload
"""


def test_results_of_a_kselftest() -> None:
    report = ktap.parse(KSELFTEST)
    assert [r.ok for r in report.results] == [True, False, True]
    assert report.names() == {"memory.anon.moves", "memory.ext4_dirty.moves"}
    assert report.skips() == {
        "memory.shmem_2m.moves": "no folios of this size in this kernel"
    }
    problems = report.problems()
    assert "not ok memory.ext4_dirty.moves" in problems
    assert "Expected kept (0) > 0 (0)" in problems


def test_results_of_nested_suites() -> None:
    report = ktap.parse(KUNIT)
    failed = [r.name for r in report.results if not r.ok]
    assert failed == [
        "migrate_offload/splits/many_folios",
        "migrate_offload/splits",
        "migrate_offload",
    ]
    assert not report.broken


def test_a_report_that_ends_early_is_a_failure() -> None:
    cut = KSELFTEST.partition("ok 3")[0]
    assert "2 of 3 tests reported" in ktap.parse(cut).problems()


def test_a_nested_report_that_ends_early_is_a_failure() -> None:
    lines = [line for line in KUNIT.splitlines() if "2 splits" not in line]
    assert "1 of 2 tests reported in migrate_offload" in (
        ktap.parse("\n".join(lines)).problems()
    )


def test_a_missing_number_is_a_failure() -> None:
    assert "missing" in ktap.parse("1..2\nok 2 second\n").problems()


def test_no_report_is_a_failure() -> None:
    assert ktap.parse("Killed\n").problems() == "no test reported a result"


def test_bail_out_is_a_failure() -> None:
    assert "Bail out! no node" in ktap.parse("1..1\nBail out! no node\n").problems()


def test_a_skipped_program_is_no_failure_but_known() -> None:
    report = ktap.parse("TAP version 13\n1..0 # SKIP needs root\n")
    assert report.problems() == ""
    assert report.skipped == "needs root"


def test_kernel_log_stamps_are_ignored() -> None:
    report = ktap.parse("[    1.234567] 1..1\n[    1.234568] not ok 1 a\n")
    assert "not ok a" in report.problems()


def test_an_expected_failure_is_none() -> None:
    assert ktap.parse("1..1\nnot ok 1 a # TODO later\n").problems() == ""
