# SPDX-License-Identifier: GPL-2.0-only
"""`bench cost`: the initramfs, rows, and the cases that --check rejects."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.bench_data import MIB, built, page, result
from helpers.golden_files import check_golden
from pageferry.bench import counted, disk
from pageferry.bench.cost.boots import Boot, Job
from pageferry.bench.cost.rows import (
    DEFAULT_PAGES,
    DEFAULT_PATHS,
    DEFAULT_SIZES,
    PADDING_STEP_BYTES,
    PATHS,
    Cost,
    check_same,
    default_engines,
    init_arguments,
    known_pages,
    make_rows,
    regressions,
    samples_of,
)
from pageferry.bench.cost.spec import SPEC, parse_paths
from pageferry.bench.lines import Done
from pageferry.errors import PageferryError
from pageferry.kernel.arch import ARM64, X86_64
from pageferry.kernel.build import BuildRequest
from pageferry.results.schema import Row
from pageferry.units import KIB

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def shown(rows: list[Row]) -> str:
    """Return the text that people read of these rows."""
    found = result(rows)
    machine = msgspec.structs.replace(found.machine, accel="tcg icount")
    return page(SPEC, msgspec.structs.replace(found, machine=machine))


def sample(
    engine: str,
    per_folio: int,
    *,
    folio_bytes: int = 4096,
    **changes: Any,  # noqa: ANN401
) -> Cost:
    folios = 8192 if folio_bytes == 4096 else 32
    fields: dict[str, Any] = {"copy_instructions": None, "engine_bytes": None}
    fields |= {"folios": folios, "pass_ns": [per_folio * folios] * 4, **changes}
    return Cost(engine=engine, folio_bytes=folio_bytes, verified=True, **fields)


def elsewhere(engine: str, path: str, per_folio: int, **changes: Any) -> Cost:  # noqa: ANN401
    """Two passes with different numbers of folios."""
    passes: dict[str, Any] = {"pass_ns": [1000 * per_folio, 3000 * per_folio]}
    passes |= {"pass_folios": [1000, 3000]}
    return sample(engine, 0, path=path, folios=1000, **passes, **changes)


def moved_again(engine: str, first: int, later: int, split: int) -> Cost:
    """Folios of 64K, moved ten times there and back."""
    seen: dict[str, Any] = {"pass_ns": [first * 256] + [later * 256] * 9}
    seen |= {"split_folios": split, "split": split, "split_deferred": split}
    seen |= {"folios": 256, "nr_anon_partially_mapped": 0}
    seen |= {"copy_instructions": 27_000 if engine == "cpu" else None}
    return sample(engine, 0, folio_bytes=64 * KIB, **seen)


def samples() -> list[Cost]:
    found = []
    for layout in range(5):
        found += [
            sample("stock", 6550 + layout),
            sample("off", 6560 + layout),
            sample("stock", 849350, folio_bytes=2 * MIB),
            sample("off", 849360, folio_bytes=2 * MIB),
            sample("mtcopy", 860000, folio_bytes=2 * MIB),
        ]
    return found


def test_rows_are_means_over_layouts() -> None:
    rows = make_rows(samples())
    assert [(row.folio_bytes, row.engine) for row in rows] == [
        (4096, "stock"),
        (4096, "off"),
        (2 * MIB, "stock"),
        (2 * MIB, "off"),
        (2 * MIB, "mtcopy"),
    ]
    off = rows[1]
    assert off.instructions_per_folio == 6562
    assert off.cost.instructions_per_folio_min == 6560
    assert off.cost.instructions_per_folio_max == 6564
    assert off.layouts == 5
    assert off.ratio_to_stock == pytest.approx(6562 / 6552)
    assert off.copy_instructions is None


def test_the_copy_is_told_apart_where_cpu_was_counted() -> None:
    rows = make_rows(
        [
            sample("stock", 6500),
            sample("cpu", 6900, copy_instructions=1700),
            sample("cpu", 6900, copy_instructions=1702),
            # This engine copies by itself, so its cost differs.
            sample("mtcopy", 6000, engine_bytes=1),
            sample("dcbm", 5000, engine_bytes=1),
            sample("stock", 900_000, folio_bytes=2 * MIB),
        ]
    )
    known = {(r.engine, r.folio_bytes): r.copy_instructions for r in rows}
    assert known == {
        ("stock", 4096): 1701,
        ("cpu", 4096): 1701,
        ("mtcopy", 4096): None,
        ("dcbm", 4096): None,
        ("stock", 2 * MIB): None,
    }


def test_sizes_in_between_have_a_first_move() -> None:
    stock, off, cpu = make_rows(
        [
            moved_again("stock", 49_000, 103_000, 256),
            moved_again("off", 35_000, 35_010, 0),
            moved_again("cpu", 35_600, 35_600, 0),
        ]
    )
    assert (stock.instructions_per_folio, stock.split_folios) == (49_000, 256)
    assert stock.cost.later_instructions_per_folio == 103_000
    assert off.instructions_per_folio == 35_000
    assert off.cost.later_instructions_per_folio == 35_010
    assert off.copy_instructions == cpu.copy_instructions == 27_000
    text = shown([stock, off, cpu])
    assert "besides the copy" in text
    assert "8,000" in text
    assert "partially mapped" in text


def test_check_passes_within_the_limits() -> None:
    assert regressions(make_rows(samples())) == []


@pytest.mark.parametrize(
    ("engine", "size", "stock", "off", "refused"),
    [
        ("unbatched", 4096, 10_000, 10_050, False),
        ("unbatched", 4096, 10_000, 10_051, True),
        ("unbatched", 4096, 10_000, 9_949, True),
        ("unbatched", 2 * MIB, 100_000, 100_100, False),
        ("unbatched", 2 * MIB, 100_000, 100_101, True),
        ("off", 4096, 10_000, 10_051, True),
        # The engine saves instructions of its own.
        ("off", 4096, 10_000, 5_000, False),
    ],
)
def test_check_limits(
    engine: str, size: int, stock: int, off: int, refused: bool
) -> None:
    rows = make_rows(
        [
            sample("stock", stock, folio_bytes=size),
            sample(engine, off, folio_bytes=size),
            # This engine copies, so it has no limit.
            sample("mtcopy", 2 * off, folio_bytes=size, engine_bytes=1),
        ]
    )
    assert bool(regressions(rows)) is refused


@pytest.mark.parametrize(
    ("pages", "count", "refused"),
    [
        ("runs", 2_915, False),
        ("runs", 2_916, True),
        ("random", 3_845, False),
        ("random", 3_846, True),
        ("shared", 3_355, False),
        ("shared", 3_356, True),
        ("shmem16", 8_081, True),
        ("file", 3_501, True),
        ("ksm", 6_630, False),
        ("ksm", 6_631, True),
        ("mlocked", 6_631, True),
    ],
)
def test_check_of_what_runs_spare(pages: str, count: int, refused: bool) -> None:
    rows = make_rows(
        [
            sample("stock", 6_500, pages=pages),
            sample("off", count, pages=pages),
            sample("cpu", count, pages=pages, copy_instructions=1_700),
        ]
    )
    assert [row.pages for row in rows] == [pages] * 3
    assert bool(regressions(rows)) is refused


@pytest.mark.parametrize(
    ("kib", "count", "refused"),
    [
        (16, 10_350, False),
        (16, 10_351, True),
        (64, 11_761, True),
        (1024, 99_000, False),
    ],
)
def test_check_of_large_folios(kib: int, count: int, refused: bool) -> None:
    size = kib * KIB
    rows = make_rows(
        [
            sample("off", count, folio_bytes=size),
            sample("cpu", count, folio_bytes=size, copy_instructions=7_000),
        ]
    )
    assert bool(regressions(rows)) is refused


def test_kinds_of_pages_are_told_apart() -> None:
    rows = make_rows(
        [sample("off", 5_000, pages="random"), sample("off", 4_000, pages="runs")]
    )
    assert [(row.pages, row.instructions_per_folio) for row in rows] == [
        ("runs", 4_000),
        ("random", 5_000),
    ]
    assert "random" in shown(rows)
    assert "--pages" not in init_arguments("off", (), 0)
    asked = init_arguments("unbatched", (), 0, pages=("runs", "ksm"))
    assert asked[-2:] == ["--pages", "runs,ksm"]
    # The program gets the settings of stock.
    assert asked[:2] == ["--engine", "stock"]


def test_only_pages_of_files_have_a_disk(tmp_path: Path) -> None:
    def machine(*pages: str, paths: tuple[str, ...] = DEFAULT_PATHS) -> counted.Machine:
        boot = Boot(
            *("off", 0, built(tmp_path), (), "cost"), *(DEFAULT_SIZES, pages, paths)
        )
        return boot.machine(tmp_path / "cost")

    without = machine("shared16", "shmem16")
    assert (without.words, without.disk) == ((), None)
    assert "--image" not in without.arguments
    assert machine("file", paths=("mbind", "tmpfs")).disk is None
    assert machine("runs", paths=("cached",)).disk is not None
    file = machine("runs", "file16")
    assert file.words == ("brd.rd_size=65536",)
    assert file.disk == disk.ext4_image()
    assert file.arguments[-2:] == ("--image", "/disk.img")
    # Millions of digits would hide what a message says about a machine.
    assert len(repr(file)) < 2000
    assert set(known_pages(X86_64)) - set(known_pages(ARM64)) == {"file", "file16"}


def test_the_disk_is_the_same_each_time() -> None:
    first = disk.ext4_image()
    disk.ext4_image.cache_clear()
    assert disk.ext4_image() == first
    # The magic number of ext4. Zeros at the end take no part of the initramfs.
    assert first[1024 + 56 : 1024 + 58] == b"\x53\xef"
    assert 4096 < len(first) < 256 * KIB


def test_paths_are_told_apart() -> None:
    rows = make_rows(
        [
            *samples(),
            elsewhere("off", "promotion", 9_900),
            elsewhere("stock", "promotion", 9_000),
            elsewhere("stock", "hugetlb", 850_000, folio_bytes=2 * MIB),
            elsewhere("stock", "mbind", 6_000),
        ]
    )
    found = [(row.path, row.engine) for row in rows[5:]]
    assert found == [
        ("mbind", "stock"),
        ("hugetlb", "stock"),
        ("promotion", "stock"),
        ("promotion", "off"),
    ]
    assert [row.path for row in rows[:5]] == [None] * 5
    assert rows[-1].instructions_per_folio == 9_900
    # The row is compared with the same path, not with other paths of that page size.
    assert rows[-1].ratio_to_stock == pytest.approx(1.1)
    assert regressions(rows) == [
        "off differs from stock by +10.00% in promotion, 1% is allowed"
    ]


@pytest.mark.parametrize(
    ("engine", "count", "base", "refused"),
    [
        ("unbatched", 10_100, "6.12", False),
        ("unbatched", 10_101, "6.12", True),
        ("unbatched", 9_899, "6.12", True),
        ("off", 10_100, "6.12", False),
        ("off", 10_101, "6.12", True),
        ("off", 10_200, "7.3", False),
        ("off", 10_201, "7.3", True),
        # The engine saves instructions of its own.
        ("off", 5_000, "6.12", False),
        ("cpu", 20_000, "6.12", False),
    ],
)
def test_check_of_other_paths(
    engine: str, count: int, base: str, refused: bool
) -> None:
    rows = make_rows(
        [elsewhere("stock", "mbind", 10_000), elsewhere(engine, "mbind", count)]
    )
    assert bool(regressions(rows, base)) is refused


def job(*paths: str) -> Job:
    """Plan a run of three engines."""
    request = BuildRequest(configs=("vm",))
    return Job(
        engines=("stock", "unbatched", "off"),
        layouts=2,
        kernel=request,
        vanilla=replace(request, vanilla=True),
        args=Namespace(words=[]),
        jobs=1,
        paths=paths,
    )


def test_other_paths_have_a_machine_of_their_own() -> None:
    assert job("move_pages").machines == {"cost": ("move_pages",)}
    assert job("mbind", "promotion").machines == {"tiered-cost": ("mbind", "promotion")}
    both = job(*PATHS)
    assert list(both.machines) == ["cost", "tiered-cost"]
    steps = [step for step in both.dry_run() if step.startswith("boot ")]
    assert len(steps) == 2 * (3 + 1)
    assert "--paths" not in init_arguments("off", (), 0)
    assert init_arguments("off", (), 0, paths=("mbind", "hugetlb"))[-2:] == [
        "--paths",
        "mbind,hugetlb",
    ]
    assert parse_paths("promotion, mbind") == ("mbind", "promotion")
    assert parse_paths("all") == PATHS


@pytest.mark.parametrize(
    ("mtcopy", "refused"), [(10_000, False), (10_309, False), (10_310, True)]
)
def test_check_of_what_declining_costs(mtcopy: int, refused: bool) -> None:
    rows = make_rows(
        [sample("stock", 10_000), sample("mtcopy", mtcopy, engine_bytes=0)]
    )
    assert bool(regressions(rows)) is refused


@pytest.mark.parametrize(
    ("size", "dcbm", "engine_bytes", "refused"),
    [
        (2 * MIB, 34_780, 1, False),
        (2 * MIB, 34_781, 1, True),
        (4096, 477_300, 1, False),
        (4096, 477_301, 1, True),
        # The kernel leaves the engine out where it does not pay.
        (65536, 370_001, 1, False),
        (2 * MIB, 370_500, 0, True),
    ],
)
def test_check_of_what_a_controller_spares(
    size: int, dcbm: int, engine_bytes: int, refused: bool
) -> None:
    rows = make_rows(
        [
            sample("off", 370_000, folio_bytes=size),
            sample("dcbm", dcbm, folio_bytes=size, engine_bytes=engine_bytes),
        ]
    )
    assert bool(regressions(rows, "6.12")) is refused


@pytest.mark.parametrize(("count", "refused"), [(16_324, False), (16_325, True)])
def test_check_of_another_architecture(count: int, refused: bool) -> None:
    """Its instructions are others. The same count is too much on x86-64."""
    row = make_rows([sample("off", count, folio_bytes=64 * KIB)])[0]
    row = msgspec.structs.replace(row, copy_instructions=11_004)
    assert bool(regressions([row], "6.12", ARM64)) is refused
    assert regressions([row], "6.12")
    assert not regressions([row], "7.3", ARM64)


def test_a_controller_may_spare_less_on_a_preemptible_kernel() -> None:
    def refused(instructions: int) -> bool:
        off = sample("off", 370_000, folio_bytes=2 * MIB)
        dcbm = sample("dcbm", instructions, folio_bytes=2 * MIB, engine_bytes=1)
        return bool(regressions(make_rows([off, dcbm]), "7.3"))

    assert not refused(51_800)
    assert refused(51_801)


def test_what_is_counted_where() -> None:
    assert default_engines(X86_64) == ("stock", "unbatched", "off", "cpu", "mtcopy")
    assert default_engines(ARM64) == (*default_engines(X86_64), "dcbm")


def test_no_ratio_without_stock() -> None:
    (row,) = make_rows([sample("off", 6550)])
    assert row.ratio_to_stock is None
    assert regressions([row]) == []


def test_other_digits_are_refused() -> None:
    check_same([sample("stock", 6550)], [sample("stock", 6550)])
    with pytest.raises(PageferryError, match="different instruction counts"):
        check_same([sample("stock", 6550)], [sample("stock", 6551)])


def test_a_boot_that_measured_nothing_is_refused() -> None:
    with pytest.raises(PageferryError, match="measured nothing"):
        samples_of("stock", [Done()])


def test_table() -> None:
    check_golden(GOLDEN / "bench-cost.txt", shown(make_rows(samples())) + "\n")


def test_table_of_paths() -> None:
    found = [
        elsewhere(engine, path, count + extra)
        for path, count in (("mbind", 6_000), ("compaction", 7_000))
        for engine, extra in (("stock", 0), ("unbatched", 30), ("off", -2_000))
    ]
    rows = make_rows([*samples(), *found])
    check_golden(GOLDEN / "bench-cost-paths.txt", shown(rows) + "\n")


def test_what_a_boot_is_told(tmp_path: Path) -> None:
    module = tmp_path / "mtcopy.ko"
    assert init_arguments("mtcopy", [module], 3) == [
        "--engine", "mtcopy", "--scatter", "3", "--module", "/mtcopy.ko",
    ]  # fmt: skip
    assert init_arguments("off", [], 0, (16 * KIB, 2 * MIB))[-2:] == [
        "--sizes",
        "16384,2097152",
    ]
    boot = Boot(
        *("mtcopy", 3, built(tmp_path), (module,), "cost"),
        *(DEFAULT_SIZES, DEFAULT_PAGES, DEFAULT_PATHS),
    )
    machine = replace(boot, again=True).machine(tmp_path / "cost")
    assert machine.name == "cost-mtcopy-3-again"
    assert machine.arguments[:4] == ("--engine", "mtcopy", "--scatter", "3")
    assert machine.padding_bytes == 3 * PADDING_STEP_BYTES
