# SPDX-License-Identifier: GPL-2.0-only
"""Finds the pages of a process, and names their kinds."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from helpers.fake_process import BASE, add_area, add_process, large, set_flags
from pageferry.interleave.memory import CHUNK_PAGES
from pageferry.move import scan
from pageferry.move.account import Reason
from pageferry.move.scan import Part, Scanner, parse_areas
from pageferry.sysfs import pagebits
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE

PID = 42
LRU = pagebits.LRU
ANON = pagebits.ANON | pagebits.SWAP_BACKED | LRU
SHMEM = pagebits.SWAP_BACKED | LRU
FILE_LINE = "r--p 00000000 fe:01 77    /srv/d\u00e4ten \u00fcber"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A machine with one process."""
    files = Files(root=tmp_path)
    add_process(files, PID)
    return files


def look(files: Files, span: tuple[int, int] | None = None) -> Part:
    """Scan all memory into one part."""
    total = Part()
    with Scanner(files, PID, span) as scanner:
        for part in scanner.parts():
            total.stayed.update(part.stayed)
            for kind, units in part.units.items():
                mine = total.units.setdefault(kind, scan.Units())
                mine.addresses += units.addresses
                mine.pages += units.pages
                mine.marks += units.marks
    return total


def pages_of(part: Part) -> dict[str, list[int]]:
    return {kind: list(units.pages) for kind, units in part.units.items()}


def test_small_pages_of_each_content(files: Files) -> None:
    add_area(files, PID, BASE, [101, 102, 103])
    set_flags(files, 101, [ANON, SHMEM, LRU])
    found = look(files)
    assert pages_of(found) == {"anonymous": [1], "shmem": [1], "file": [1]}


def test_folios_of_each_size(files: Files) -> None:
    pfns = [*range(512, 1024), *range(1024, 1040), *range(2048, 2560)]
    add_area(files, PID, BASE, pfns)
    set_flags(files, 512, large(9, ANON))
    set_flags(files, 1024, large(4, LRU))
    set_flags(files, 2048, large(9, SHMEM))
    assert pages_of(look(files)) == {
        "anonymous huge": [512],
        "file large": [16],
        "shmem huge": [512],
    }


def test_a_huge_page_that_is_mapped_in_part_is_huge(files: Files) -> None:
    # The middle of a folio, and the middle of another one.
    add_area(files, PID, BASE, [*range(600, 700), *range(1034, 1036)])
    set_flags(files, 512, large(9, ANON))
    set_flags(files, 1032, large(3, ANON))
    assert pages_of(look(files)) == {"anonymous huge": [100], "anonymous mTHP": [2]}


def test_hugetlb_pages_count_once_across_parts(files: Files) -> None:
    pages = CHUNK_PAGES * 4
    add_area(files, PID, BASE, range(pages, pages * 3))
    set_flags(files, pages, large(16, pagebits.HUGETLB))
    set_flags(files, pages * 2, large(16, pagebits.HUGETLB))
    found = look(files)
    assert pages_of(found) == {"hugetlb": [pages, pages]}
    assert list(found.units["hugetlb"].addresses) == [BASE, BASE + pages * PAGE]


def test_pages_without_memory(files: Files) -> None:
    add_area(files, PID, BASE, [0, 0, 7, 8, 9])
    set_flags(
        files, 7, [pagebits.ZERO_PAGE, pagebits.RESERVED, pagebits.POISONED | ANON]
    )
    add_area(files, PID, BASE + 8 * PAGE, [0] * 5, FILE_LINE)
    with files.path(f"/proc/{PID}/pagemap").open("r+b") as stream:
        stream.seek(BASE // PAGE * 8)
        stream.write((pagebits.SWAPPED | 3).to_bytes(8, "little"))
    assert look(files).stayed == {
        ("anonymous", Reason.NOT_PRESENT): 1,
        ("anonymous", Reason.NEVER_TOUCHED): 1,
        ("anonymous", Reason.ZERO_PAGE): 1,
        ("anonymous", Reason.KERNEL): 1,
        ("anonymous", Reason.POISONED): 1,
        ("file", Reason.NEVER_TOUCHED): 5,
    }


def test_marks(files: Files) -> None:
    add_area(files, PID, BASE, [5 | pagebits.EXCLUSIVE, 6, 7])
    set_flags(files, 5, [ANON, ANON | pagebits.WRITING, ANON])
    line = "rw-s 00000000 00:0e 12   /secretmem (deleted)"
    add_area(files, PID, BASE + 8 * PAGE, [8], line)
    set_flags(files, 8, [pagebits.UNEVICTABLE | LRU])
    found = look(files)
    assert list(found.units["anonymous"].marks) == [
        scan.MAPPED_ONCE,
        scan.IS_WRITTEN,
        0,
    ]
    assert list(found.units["shmem"].marks) == [scan.IS_SECRET]


@pytest.mark.parametrize("hidden", ["flags", "frames"])
def test_without_root_each_page_is_a_unit(files: Files, hidden: str) -> None:
    frames = [0, pagebits.FILE, 0] if hidden == "frames" else [5, 6 | pagebits.FILE, 7]
    add_area(
        files, PID, BASE, [frame | pagebits.EXCLUSIVE for frame in frames], FILE_LINE
    )
    if hidden == "flags":
        files.path("/proc/kpageflags").unlink()
    found = look(files)
    assert pages_of(found) == {"anonymous": [1, 1], "file": [1]}
    with Scanner(files, PID) as scanner:
        list(scanner.parts())
        assert not scanner.sees_frames


def test_the_memory_of_another_program_is_gone(files: Files) -> None:
    add_area(files, PID, BASE, [5, 6])
    files.path(f"/proc/{PID}/pagemap").write_bytes(b"")
    assert look(files).stayed == {("anonymous", Reason.GONE): 2}


def test_a_range_cuts_areas(files: Files) -> None:
    add_area(files, PID, BASE, [5, 6, 7])
    add_area(files, PID, BASE + 8 * PAGE, [8])
    set_flags(files, 5, [ANON] * 4)
    found = look(files, (BASE + PAGE, BASE + 2 * PAGE))
    assert list(found.units["anonymous"].addresses) == [BASE + PAGE]


def test_names_of_areas() -> None:
    rest = b"rw-p 00000000"
    areas = parse_areas(
        b"1000-2000 %b 00:00 0 [heap]\n" % rest
        + b"2000-3000 %b fe:01 5 /srv/\xff\xfe\n" % rest
        + b"3000-4000 %b 00:01 6 /memfd:x (deleted)\n" % rest
        + b"4000-5000 %b 00:0f 7 /anon_hugepage (deleted)\n" % rest
        + b"5000-6000 %b 00:00 0 [vdso]\n" % rest
        + b"6000-7000 %b 00:00 0 [stack]\n" % rest
    )
    assert [area.content for area in areas] == [
        "anonymous",
        "file",
        "shmem",
        "hugetlb",
        "anonymous",
    ]


def test_memory_of_the_scan_does_not_depend_on_the_process(files: Files) -> None:
    """Scans 256 MiB in four parts; 64 GiB have more parts, and not larger ones."""
    add_area(files, PID, BASE, range(1, CHUNK_PAGES + 1))
    set_flags(files, 1, [ANON] * CHUNK_PAGES)
    maps = files.path(f"/proc/{PID}/maps")
    end = BASE + CHUNK_PAGES * PAGE * 4
    maps.write_text(f"{BASE:x}-{end:x} rw-p 00000000 00:00 0\n")
    with files.path(f"/proc/{PID}/pagemap").open("r+b") as stream:
        stream.seek(BASE // PAGE * 8)
        once = stream.read(CHUNK_PAGES * 8)
        stream.write(once * 3)
    tracemalloc.start()
    try:
        seen: Counter[str] = Counter()
        with Scanner(files, PID) as scanner:
            for part in scanner.parts():
                seen.update(part.found())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen == {"anonymous": CHUNK_PAGES * 4}
    assert peak < 8 << 20
