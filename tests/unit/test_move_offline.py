# SPDX-License-Identifier: GPL-2.0-only
"""Names what keeps memory blocks online."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_process import (
    BASE,
    add_area,
    add_node,
    add_process,
    large,
    set_flags,
)
from pageferry.cli import main
from pageferry.sysfs import pagebits
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE

PID = 42
ANON = pagebits.ANON | pagebits.SWAP_BACKED | pagebits.LRU
PAGES = 1024
MEMORY = "/sys/devices/system/memory"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A machine with two nodes, and two blocks of 4 MiB on node 1."""
    files = Files(root=tmp_path)
    for node in (0, 1):
        add_node(files, node)
    add_process(files, PID, name="work")
    files.path(MEMORY).mkdir(parents=True)
    files.path(f"{MEMORY}/block_size_bytes").write_text(f"{PAGES * PAGE:x}\n")
    for number in (2, 10):
        block = files.path(f"{MEMORY}/memory{number}")
        (block / "node1").mkdir(parents=True)
        (block / "state").write_text("online\n")
        (block / "valid_zones").write_text("Normal Movable\n")
        (block / "phys_index").write_text(f"{number:08x}\n")
        set_flags(files, number * PAGES, [pagebits.FREE] * PAGES)
        files.path(f"/sys/devices/system/node/node1/memory{number}").mkdir()
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    return files


def check(capsys: pytest.CaptureFixture[str], what: str) -> tuple[int, dict[str, Any]]:
    code = main(["move", "--offline-check", what, "--json"])
    return code, json.loads(capsys.readouterr().out)


def blockers(document: dict[str, Any], at: int = 0) -> dict[str, int]:
    return {row["text"]: row["pages"] for row in document["blocks"][at]["blockers"]}


def test_nothing_keeps_free_and_movable_pages(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    set_flags(files, 2 * PAGES, [ANON, *large(9, pagebits.HUGETLB), pagebits.OFFLINE])
    code, found = check(capsys, "1")
    assert code == 0
    assert [block["name"] for block in found["blocks"]] == ["memory2", "memory10"]
    assert found["blocks"][0]["movable_pages"] == 2
    assert found["blocks"][0]["hugetlb_pages"] == 512
    assert found["kept_blocks"] == 0
    assert main(["move", "--offline-check", "1"]) == 0
    assert f"echo offline > {MEMORY}/memory2/state" in capsys.readouterr().out


def test_memory_of_the_kernel_is_named(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [pagebits.SLAB, pagebits.PAGE_TABLE, 0, pagebits.RESERVED, pagebits.NO_PAGE]
    set_flags(files, 10 * PAGES, flags)
    code, found = check(capsys, "memory10")
    assert code == 1
    words = ("slab", "page tables", "driver", "reserved", "hole")
    texts = blockers(found)
    assert sorted(texts.values()) == [1] * 5
    for word in words:
        assert any(word in text for text in texts)
    assert main(["move", "--offline-check", "node1"]) == 1
    told = capsys.readouterr().out
    assert "something keeps 1 of them" in told and "movable_node" in told


def test_a_movable_zone_has_no_memory_of_the_kernel(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.path(f"{MEMORY}/memory2/valid_zones").write_text("Movable\n")
    set_flags(files, 2 * PAGES, [0, pagebits.RESERVED])
    _, found = check(capsys, "memory2")
    assert list(blockers(found).values()) == [1]


def test_registered_buffers_and_secret_memory_name_their_process(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = range(2 * PAGES, 2 * PAGES + 4)
    add_area(files, PID, BASE, frames)
    set_flags(files, 2 * PAGES, [ANON] * 6)
    secret = "rw-s 00000000 00:0e 12   /secretmem (deleted)"
    add_area(files, PID, BASE + 16 * PAGE, [2 * PAGES + 5, 3 * PAGES], secret)
    for name in ("fd", "fdinfo"):
        files.path(f"/proc/{PID}/{name}").mkdir()
    files.path(f"/proc/{PID}/fd/3").symlink_to("anon_inode:[io_uring]")
    files.path(f"/proc/{PID}/fdinfo/3").write_text(
        f"UserBufs:\t1\n    0: {BASE + PAGE:#x}/{2 * PAGE}\n"
    )
    code, found = check(capsys, "memory2")
    assert code == 1
    assert blockers(found) == {
        f"pinned by io_uring of process {PID} (work)": 2,
        f"secret memory of process {PID} (work)": 1,
    }


def test_other_nodes_need_room(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.path("/sys/devices/system/node/node0/meminfo").write_text(
        "Node 0 MemTotal: 80 kB\nNode 0 MemFree: 40 kB\nNode 0 Inactive(file): 8 kB\n"
    )
    set_flags(files, 2 * PAGES, [ANON] * 12)
    set_flags(files, 10 * PAGES, [ANON])
    _, found = check(capsys, "1")
    assert blockers(found) == {}
    assert list(blockers(found, 1).values()) == [1]


def test_a_node_without_memory_is_no_other_node(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    meminfo = files.path("/sys/devices/system/node/node0/meminfo")
    meminfo.write_text("Node 0 MemTotal: 0 kB\nNode 0 MemFree: 0 kB\n")
    set_flags(files, 2 * PAGES, [ANON] * 12)
    code, found = check(capsys, "memory2")
    # The pages go to other blocks of their own node.
    assert (code, blockers(found)) == (0, {})


def test_the_head_of_a_folio_tells_its_kind(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """Linux 6.1 sets LRU and slab on the first page only."""
    tail = pagebits.TAIL | pagebits.ANON
    huge = [pagebits.HEAD | ANON, *[tail] * 511]
    slab = [pagebits.HEAD | pagebits.SLAB, *[pagebits.TAIL] * 3]
    set_flags(files, 2 * PAGES, [*huge, *slab, pagebits.FREE, pagebits.PAGE_TABLE])
    _, found = check(capsys, "memory2")
    assert found["blocks"][0]["movable_pages"] == 512
    assert sorted(blockers(found).values()) == [1, 4]
    assert any("slab" in text for text in blockers(found))


def test_offline_blocks_are_left_out(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.path(f"{MEMORY}/memory2/state").write_text("offline\n")
    files.path(f"{MEMORY}/memory10/valid_zones").write_text("none\n")
    code, found = check(capsys, "1")
    assert code == 1
    assert blockers(found) == {}
    assert list(blockers(found, 1).values()) == [0]
    assert main(["move", "--offline-check", "1"]) == 1
    assert "1 of 2 blocks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "code", "word"),
    [
        ("memory3", 2, "no such memory block"),
        ("7", 2, "no memory block"),
        ("all", 2, "not a node"),
    ],
)
def test_usage_errors(
    files: Files, capsys: pytest.CaptureFixture[str], what: str, code: int, word: str
) -> None:
    found_code, found = check(capsys, what)
    assert found_code == code
    assert word in found["error"]["what"]


def test_a_kernel_without_hotplug(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    code, found = check(capsys, "1")
    assert code == 3
    assert "CONFIG_MEMORY_HOTPLUG" in found["error"]["reason"]


def test_the_check_needs_root(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.path("/proc/kpageflags").unlink()
    code, found = check(capsys, "1")
    assert code == 1
    assert found["error"]["hint"] == "run it as root"
