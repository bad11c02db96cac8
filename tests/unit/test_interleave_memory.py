# SPDX-License-Identifier: GPL-2.0-only
"""Finds folios in the kernel's files about a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fake_process import (
    BASE,
    add_area,
    add_process,
    large,
    set_flags,
)
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave.gaps import Gap, before_heap
from pageferry.interleave.memory import (
    CHUNK_PAGES,
    Folios,
    Memory,
    cut,
    parse_areas,
)
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE

PID = 42
FIRST = BASE // PAGE


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A machine with one process."""
    files = Files(root=tmp_path)
    add_process(files, PID)
    return files


def look(files: Files) -> Folios:
    found = Folios()
    with Memory(files, PID) as memory:
        for part in memory.folios():
            found.add(part)
    return found


def test_areas_of_files_count_from_their_start() -> None:
    areas = parse_areas(
        f"{BASE:x}-{BASE + 4 * PAGE:x} rw-p 00000000 00:00 0\n"
        f"{BASE + 4 * PAGE:x}-{BASE + 5 * PAGE:x} r-xp 00003000 fe:01 77   /bin/a b\n"
        "7ffe00000000-7ffe00002000 rw-p 00000000 00:00 0          [stack]\n"
        "7fff00000000-7fff00001000 r-xp 00000000 00:00 0          [vdso]\n"
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n"
    )
    assert [area.page_offset for area in areas] == [FIRST, 0x3000 // PAGE]


def test_pages_and_holes(files: Files) -> None:
    add_area(files, PID, BASE, [100, 0, 0, 7, 8])
    found = look(files)
    assert found.addresses == [BASE, BASE + 3 * PAGE, BASE + 4 * PAGE]
    assert found.indexes == [FIRST, FIRST + 3, FIRST + 4]
    assert found.orders == [0, 0, 0]


def test_huge_pages_are_found_whole(files: Files) -> None:
    pfns = [*range(512, 1024), *range(2048, 2560)]
    add_area(files, PID, BASE, pfns)
    set_flags(files, 512, large(9))
    set_flags(files, 2048, large(9))
    found = look(files)
    assert found.addresses == [BASE, BASE + 512 * PAGE]
    assert found.orders == [9, 9]
    assert found.pages == [512, 512]
    assert found.indexes == [FIRST >> 9, (FIRST >> 9) + 1]


def test_folios_of_all_sizes_beside_each_other(files: Files) -> None:
    """64K folios that are adjacent in memory, single pages, and a cut folio."""
    pfns = [*range(64, 80), *range(80, 96), 5, 6, *range(104, 112)]
    add_area(files, PID, BASE, pfns)
    set_flags(files, 64, large(4))
    set_flags(files, 80, large(4))
    # Only the second half of this folio is mapped.
    set_flags(files, 96, large(4))
    found = look(files)
    assert found.orders == [4, 4, 0, 0, 4]
    assert found.pages == [16, 16, 1, 1, 8]
    assert found.indexes == [
        FIRST >> 4,
        (FIRST >> 4) + 1,
        FIRST + 32,
        FIRST + 33,
        # The place of its first page: 8 pages before the first mapped one.
        (FIRST + 34 - 8) >> 4,
    ]


def test_a_folio_with_a_page_replaced_in_its_middle_has_one_place(
    files: Files,
) -> None:
    add_area(files, PID, BASE, [*range(64, 70), 9, *range(71, 80)])
    set_flags(files, 64, large(4))
    found = look(files)
    assert found.orders == [4, 0, 4]
    assert found.indexes[0] == found.indexes[2]
    assert found.pages == [6, 1, 9]


def test_what_never_moves_is_counted_by_reason(files: Files) -> None:
    hugetlb, poisoned, reserved, zero = 1 << 17, 1 << 19, 1 << 32, 1 << 24
    add_area(files, PID, BASE, [*range(512, 1024), 3, 4, 5, 6])
    set_flags(files, 512, large(9, hugetlb))
    set_flags(files, 3, [poisoned, reserved, zero, 0])
    found = look(files)
    assert found.left_alone == {
        "hugetlb pages": 512,
        "poisoned": 1,
        "memory of the kernel": 1,
    }
    # No folio owns the zero page.
    assert found.addresses == [BASE + 515 * PAGE]


def test_many_small_areas_come_together(files: Files) -> None:
    for at in range(300):
        add_area(files, PID, BASE + at * 8 * PAGE, [10 + at, 20 + at])
    with Memory(files, PID) as memory:
        parts = list(memory.folios())
    assert len(parts) == 1
    assert len(parts[0].addresses) == 600


def test_large_areas_come_in_parts(files: Files) -> None:
    add_area(files, PID, BASE, [5] * (CHUNK_PAGES * 2 + 1))
    with Memory(files, PID) as memory:
        assert [len(p.addresses) for p in memory.folios()] == [CHUNK_PAGES] * 2 + [1]


def test_cuts_lie_at_multiples() -> None:
    assert list(cut(3, 10, 4)) == [(3, 4), (4, 8), (8, 10)]
    assert list(cut(4, 4, 4)) == []


def test_only_root_sees_physical_pages(files: Files) -> None:
    add_area(files, PID, BASE, [1])
    with files.path(f"/proc/{PID}/pagemap").open("r+b") as stream:
        stream.seek(FIRST * 8)
        stream.write((1 << 63).to_bytes(8, "little"))
    with pytest.raises(PageferryError) as caught:
        look(files)
    assert caught.value.hint == "run it as root"


def test_a_process_that_is_gone(files: Files) -> None:
    with pytest.raises(PageferryError, match="ended meanwhile"):
        Memory(files, PID + 1)
    with Memory(files, PID) as memory:
        files.path(f"/proc/{PID}/maps").unlink()
        assert list(memory.folios()) == []


def test_a_kernel_that_does_not_show_folios(files: Files) -> None:
    files.path("/proc/kpageflags").unlink()
    with pytest.raises(PageferryError) as caught:
        Memory(files, PID)
    assert caught.value.code == ExitCode.UNSUPPORTED
    assert "CONFIG_PROC_PAGE_MONITOR" in (caught.value.reason or "")


MAPS = """\
00400000-00401000 r-xp 00000000 00:20 12  /usr/bin/hold
00402000-00404000 rw-p 00002000 00:20 12  /usr/bin/hold
{heap} rw-p 00000000 00:00 0  [heap]
7f0000000000-7f0010000000 rw-p 00000000 00:00 0
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0  [stack]
"""


@pytest.mark.parametrize(
    ("heaps", "expected"),
    [
        (["20000000-20021000"], Gap(0x404000, 0x20000000)),
        # Free in both.
        (["20000000-20021000", "10000000-10021000"], Gap(0x404000, 0x10000000)),
        # Too small.
        (["00500000-00521000"], None),
        (["00404000-00421000"], None),
        # A heap at the place of the other process's gap.
        (["20000000-20021000", "00500000-10021000"], None),
    ],
)
def test_the_gap_before_the_heap(heaps: list[str], expected: Gap | None) -> None:
    assert before_heap([MAPS.format(heap=heap) for heap in heaps]) == expected


def test_no_gap_without_a_heap_or_where_something_is_in_it() -> None:
    one = MAPS.format(heap="20000000-20021000")
    without = "".join(line for line in one.splitlines(True) if "[heap]" not in line)
    assert before_heap([]) is before_heap([""]) is before_heap([without]) is None
    assert before_heap([one, without]) == Gap(0x404000, 0x20000000)
    within = "08000000-08001000 r--p 00000000 00:20 12  /usr/bin/other\n"
    assert before_heap([one, within]) is None
