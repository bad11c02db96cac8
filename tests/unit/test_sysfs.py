# SPDX-License-Identifier: GPL-2.0-only
"""The control files, against a tree made to look like the kernel's."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pageferry.errors import ExitCode, PageferryError
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.sysfs.offload import DIRECTORY, Offload, check_reasons, expand_reasons

SETTINGS = {
    "engine": "none",
    "available_engines": "none cpu mtcopy",
    "reasons": "all",
    "available_reasons": "compaction demotion damon",
    "min_batch_bytes": "0",
    "verify": "false",
    "stats/engines/mtcopy/engine_folios": "12",
    "stats/engines/cpu/engine_folios": "0",
    "stats/reasons/demotion/engine_folios": "12",
}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A kernel with our files."""
    for name, value in SETTINGS.items():
        path = tmp_path / DIRECTORY.lstrip("/") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return Files(root=tmp_path)


def written(files: Files) -> list[tuple[str, str]]:
    return [(path.name, value) for path, value in files.writes]


def test_the_state_is_read_as_it_is(files: Files) -> None:
    state = Offload(files).read()
    assert state.engine == "none"
    assert state.available_engines == ("none", "cpu", "mtcopy")
    assert state.reasons == ("compaction", "demotion", "damon")
    assert state.min_batch_bytes == 0
    assert not state.verify


def test_counters_keep_their_places(files: Files) -> None:
    assert Offload(files).counters("engines") == {
        "cpu": {"engine_folios": 0},
        "mtcopy": {"engine_folios": 12},
    }
    assert Offload(files).counters("reasons") == {"demotion": {"engine_folios": 12}}


def test_the_policy_is_in_place_before_the_engine(files: Files) -> None:
    state = Offload(files).set_engine(
        "mtcopy", reasons="damon,demotion", min_batch_bytes=65536
    )
    assert written(files) == [
        ("reasons", "damon,demotion"),
        ("min_batch_bytes", "65536"),
        ("engine", "mtcopy"),
    ]
    assert state.engine == "mtcopy"
    assert state.reasons == ("damon", "demotion")


def test_what_is_not_asked_for_is_not_written(files: Files) -> None:
    Offload(files).set_engine("cpu")
    assert written(files) == [("engine", "cpu")]


def test_a_dry_run_writes_nothing(files: Files) -> None:
    files.dry_run = True
    Offload(files).set_engine("mtcopy", reasons="none")
    Offload(files).off()
    assert written(files) == [
        ("reasons", "none"),
        ("engine", "mtcopy"),
        ("engine", "none"),
    ]
    assert files.read(f"{DIRECTORY}/engine") == "none"


def test_an_unknown_engine_lists_those_there_are(files: Files) -> None:
    with pytest.raises(PageferryError) as caught:
        Offload(files).set_engine("dcbm")
    assert caught.value.code == ExitCode.USAGE
    assert "none, cpu, mtcopy" in caught.value.what
    assert files.writes == []


def test_an_unknown_reason_is_refused_before_anything_is_written(files: Files) -> None:
    with pytest.raises(PageferryError) as caught:
        Offload(files).set_engine("mtcopy", reasons="damon,swap")
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.value == "swap"
    assert files.writes == []


def test_memory_failure_is_explained() -> None:
    with pytest.raises(PageferryError, match="never offloaded"):
        check_reasons("memory_failure", ("damon",))


def test_reasons_in_words() -> None:
    available = ("compaction", "damon")
    assert expand_reasons("all", available) == available
    assert expand_reasons("none", available) == ()
    assert expand_reasons("damon", available) == ("damon",)


def test_a_kernel_without_the_files_is_named(tmp_path: Path) -> None:
    for act in (Offload(Files(root=tmp_path)).read, Offload(Files(root=tmp_path)).off):
        with pytest.raises(PageferryError) as caught:
            act()
        assert caught.value.code == ExitCode.UNSUPPORTED
        assert "CONFIG_MIGRATION_COPY_OFFLOAD" in (caught.value.reason or "")


def test_a_setting_that_does_not_stick_is_a_failure(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "write", lambda name, value: None)
    with pytest.raises(PageferryError) as caught:
        Offload(files).set_engine("mtcopy")
    assert caught.value.code == ExitCode.FAILED


def test_without_root_the_way_out_is_named(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PageferryError) as caught:
        Offload(files).set_engine("mtcopy")
    assert caught.value.code == ExitCode.FAILED
    assert caught.value.hint == "run it as root"
    assert (caught.value.value or "").endswith("migrate_offload/engine")


def test_a_write_never_makes_a_file(tmp_path: Path) -> None:
    with pytest.raises(PageferryError) as caught:
        Files(root=tmp_path).write("/nothing", "x")
    assert caught.value.code == ExitCode.UNSUPPORTED
    assert not (tmp_path / "nothing").exists()


def test_nodes_and_tiers(tmp_path: Path) -> None:
    for number, cpus in ((0, "0-1"), (10, "")):
        node = tmp_path / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{cpus}\n")
        (node / "meminfo").write_text(
            f"Node {number} MemTotal:  2048 kB\nNode {number} MemFree:  1024 kB\n"
        )
    for tier, nodes in ((4, "0"), (56, "10")):
        path = tmp_path / f"sys/devices/virtual/memory_tiering/memory_tier{tier}"
        path.mkdir(parents=True)
        (path / "nodelist").write_text(f"{nodes}\n")
    found = read_nodes(Files(root=tmp_path))
    assert [(n.number, n.cpus, n.tier) for n in found] == [(0, "0-1", 4), (10, "", 56)]
    assert (found[0].total_bytes, found[0].free_bytes) == (2 << 20, 1 << 20)
