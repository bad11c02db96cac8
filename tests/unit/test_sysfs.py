# SPDX-License-Identifier: GPL-2.0-only
"""The control files, on a fake of the kernel's tree."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from pageferry.cli import main
from pageferry.errors import ExitCode, PageferryError
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.sysfs.offload import (
    DIRECTORY,
    Offload,
    parse_reasons,
)

SETTINGS = {
    "engine": "none",
    "available_engines": "none cpu mtcopy",
    "engine_of/compaction": "default",
    "engine_of/damon": "default",
    "engine_of/demotion": "default",
    "max_unmapped_us": "750",
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
    assert list(state.engine_of) == ["compaction", "damon", "demotion"]
    assert state.exceptions() == {}
    assert state.max_unmapped_us == 750


def test_counters_keep_their_places(files: Files) -> None:
    assert Offload(files).counters("engines") == {
        "cpu": {"engine_folios": 0},
        "mtcopy": {"engine_folios": 12},
    }
    assert Offload(files).counters("reasons") == {"demotion": {"engine_folios": 12}}


def add(files: Files, **values: str) -> None:
    for name, value in values.items():
        path = files.path(f"{DIRECTORY}/{name.replace('__', '/')}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n" if value else "")


def test_a_limit_that_is_no_number_is_an_error(files: Files) -> None:
    add(files, max_unmapped_us="many")
    with pytest.raises(PageferryError, match="not a number"):
        Offload(files).read()


def test_histograms_are_no_counters(files: Files) -> None:
    add(
        files,
        stats__reasons__demotion__unmapped_hist="1024 3\n2048 1",
        stats__reasons__demotion__unmapped_max_ns="2100",
        stats__reasons__demotion__waited_hist="",
        stats__reasons__demotion__waited_max_ns="0",
    )
    offload = Offload(files)
    assert offload.counters("reasons")["demotion"] == {
        "engine_folios": 12,
        "unmapped_max_ns": 2100,
        "waited_max_ns": 0,
    }
    found = offload.unmapped()
    assert list(found) == ["demotion"]
    assert list(found["demotion"]) == ["unmapped_hist"]
    assert found["demotion"]["unmapped_hist"].count == 4
    assert found["demotion"]["unmapped_hist"].longest == 2100


def test_status_shows_the_limit_and_times(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add(
        files,
        stats__reasons__demotion__unmapped_hist="1024 3\n2048 1",
        stats__reasons__demotion__unmapped_max_ns="2100",
        stats__reasons__demotion__unmapped_sum_ns="5400",
        stats__reasons__damon__unmapped_folios="4",
    )
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(files.root))
    assert main(["status"]) == 0
    said = capsys.readouterr().out
    assert "750 us at most" in said
    assert "unmapped folios" in said
    assert "1,350" in said
    # Timed without an engine: nothing was offered to anybody.
    assert "damon" not in said
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["max_unmapped_us"] == 750
    times = document["stats"]["times"]["demotion"]["unmapped_hist"]
    assert times["count"] == 4
    assert times["last_ns"] == 2100


def test_a_reason_may_have_an_engine_of_its_own(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = Offload(files).set_engine("mtcopy", only_for="demotion")
    assert written(files) == [("demotion", "mtcopy")]
    assert state.engine == "none"
    assert state.exceptions() == {"demotion": "mtcopy"}
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(files.root))
    assert main(["status"]) == 0
    assert "mtcopy for demotion" in capsys.readouterr().out
    assert main(["engine", "set", "default", "--for", "demotion,damon"]) == 0
    assert capsys.readouterr().out == "engine none\n"
    assert Offload(files).read().exceptions() == {}


@pytest.mark.parametrize(
    ("engine", "only_for", "value"),
    [("default", None, "default"), ("warp", "damon", "warp"), ("cpu", "swap", "swap")],
)
def test_engines_of_reasons_are_checked(
    files: Files, engine: str, only_for: str | None, value: str
) -> None:
    with pytest.raises(PageferryError) as caught:
        Offload(files).set_engine(engine, only_for=only_for)
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.value == value
    assert files.writes == []


def test_what_is_not_asked_for_is_not_written(files: Files) -> None:
    Offload(files).set_engine("cpu")
    assert written(files) == [("engine", "cpu")]


def test_a_dry_run_writes_nothing(files: Files) -> None:
    files.dry_run = True
    Offload(files).set_engine("mtcopy", only_for="damon")
    Offload(files).set_engine("mtcopy")
    Offload(files).off()
    assert written(files) == [
        ("damon", "mtcopy"),
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
        Offload(files).set_engine("mtcopy", only_for="damon,swap")
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.value == "swap"
    assert files.writes == []


def test_memory_failure_is_explained() -> None:
    with pytest.raises(PageferryError, match="never offloaded"):
        parse_reasons("memory_failure", ("damon",))


def test_reasons_in_words() -> None:
    assert parse_reasons("damon, compaction", ("compaction", "damon")) == (
        "damon",
        "compaction",
    )


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


def test_the_log_of_writes_does_not_grow_for_ever(tmp_path: Path) -> None:
    files = Files(root=tmp_path)
    (tmp_path / "engine").write_text("")
    for number in range(1100):
        files.write("/engine", str(number))
    assert len(files.writes) == 1000 and files.writes[-1][1] == "1099"
