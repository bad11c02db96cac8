# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry engine set dcbm`, on a fake kernel."""

from __future__ import annotations

import errno
import json
import stat
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers import fake_dma
from helpers.fake_dma import FakeDma, add_device
from pageferry import paths
from pageferry.cli import main
from pageferry.dma import control
from pageferry.dma.devices import DCBM
from pageferry.errors import ExitCode, PageferryError
from pageferry.sysfs import undo
from pageferry.sysfs.files import Files
from pageferry.sysfs.modules import Modules
from pageferry.sysfs.offload import DIRECTORY, Offload


@dataclass
class FakeModules(Modules):
    """modprobe, which makes the directories that a module would make."""

    broken: set[str] = field(default_factory=set)

    def _modprobe(self, name: str, what: str, hint: str, *options: str) -> None:
        self.commands.append(" ".join(["modprobe", *options, name]))
        if self.files.dry_run:
            return
        if name in self.broken:
            raise PageferryError(what, value=name, hint=hint)
        if options:
            self.files.path(f"/sys/module/{name}").rename(
                self.files.path(f"/gone-{name}")
            )
            if name == "dcbm":
                fake_dma.put(self.files, f"{DIRECTORY}/available_engines", "none cpu")
        elif name == "dcbm":
            fake_dma.add_dcbm(self.files)
        else:
            self.files.path(f"/sys/module/{name}").mkdir(parents=True)


@pytest.fixture
def kernel(tmp_path: Path) -> FakeDma:
    """A kernel without dcbm, on a machine with two channels."""
    fake = FakeDma(root=tmp_path)
    fake_dma.add_modules(fake, "ioatdma", "dcbm")
    fake_dma.add_offload(fake)
    add_device(fake, "0000:00:04.0", fake_dma.IOAT, driver="ioatdma", channels=2)
    return fake


def settings(kernel: FakeDma) -> dict[str, str]:
    """Return the content of all files that matter."""
    found = {}
    for top in (DIRECTORY, DCBM, "/sys/class/dma"):
        for path in sorted(kernel.path(top).rglob("*")):
            if path.is_file():
                found[str(path.relative_to(kernel.root))] = path.read_text()
    return found


def test_it_loads_acquires_and_selects(kernel: FakeDma) -> None:
    modules = FakeModules(kernel)
    state = control.set_dcbm(kernel, modules, channels=1)
    assert state.engine == "dcbm"
    assert modules.commands == ["modprobe dcbm"]
    assert kernel.names(f"{DCBM}/channels") == ["dma0chan0"]
    assert kernel.get(f"{DCBM}/nr_dma_chan") == "1"
    assert kernel.log == [
        f"1 > {DCBM}/nr_dma_chan",
        f"1 > {DCBM}/offloading",
        f"dcbm > {DIRECTORY}/engine",
    ]


def test_a_second_time_it_changes_nothing(kernel: FakeDma) -> None:
    control.set_dcbm(kernel, FakeModules(kernel), channels=2)
    before = settings(kernel)
    modules = FakeModules(kernel)
    kernel.log.clear()
    control.set_dcbm(kernel, modules, channels=2)
    assert settings(kernel) == before and modules.commands == []
    assert kernel.log == [f"dcbm > {DIRECTORY}/engine"]


def test_for_some_reasons_the_others_keep_theirs(kernel: FakeDma) -> None:
    fake_dma.put(kernel, f"{DIRECTORY}/engine_of/damon", "cpu")
    state = control.set_dcbm(kernel, FakeModules(kernel), only_for="demotion")
    assert state.engine == "none"
    assert state.exceptions() == {"damon": "cpu", "demotion": "dcbm"}


def test_another_engine_stays_for_the_other_reasons(kernel: FakeDma) -> None:
    fake_dma.put(kernel, f"{DIRECTORY}/engine", "cpu")
    state = control.set_dcbm(kernel, FakeModules(kernel), only_for="demotion")
    assert (state.engine, state.exceptions()) == ("cpu", {"demotion": "dcbm"})


def test_channels_that_came_later_are_acquired(kernel: FakeDma) -> None:
    """A work queue may be configured after dcbm was switched on."""
    fake_dma.add_dcbm(kernel)
    fake_dma.put(kernel, f"{DCBM}/offloading", "1")
    control.set_dcbm(kernel, FakeModules(kernel))
    assert len(kernel.names(f"{DCBM}/channels")) == 2


def test_it_loads_the_driver_of_a_device_without_one(tmp_path: Path) -> None:
    kernel = FakeDma(root=tmp_path)
    fake_dma.add_modules(kernel, "ioatdma", "dcbm")
    fake_dma.add_offload(kernel)
    add_device(kernel, "0000:00:04.0", fake_dma.IOAT)
    modules = FakeModules(kernel)
    with pytest.raises(PageferryError) as caught:
        control.set_dcbm(kernel, modules)
    assert caught.value.code == ExitCode.UNSUPPORTED
    assert modules.commands == [
        *("modprobe dcbm", "modprobe ioatdma"),
        *("modprobe -r ioatdma", "modprobe -r dcbm"),
    ]


@pytest.mark.parametrize("name", ["nr_dma_chan", "offloading"])
def test_a_failed_step_takes_all_back(kernel: FakeDma, name: str) -> None:
    fake_dma.put(kernel, f"{DIRECTORY}/engine_of/damon", "cpu")
    fake_dma.add_dcbm(kernel)
    before = settings(kernel)
    kernel.failing = {f"{DCBM}/{name}": errno.EIO}
    with pytest.raises(PageferryError, match=name):
        control.set_dcbm(kernel, FakeModules(kernel), channels=1)
    assert settings(kernel) == before


def test_a_failed_selection_takes_all_back(kernel: FakeDma) -> None:
    fake_dma.add_dcbm(kernel)
    before = settings(kernel)
    kernel.failing = {f"{DIRECTORY}/engine_of/demotion": errno.EBUSY}
    with pytest.raises(PageferryError):
        control.set_dcbm(kernel, FakeModules(kernel), only_for="damon,demotion")
    assert settings(kernel) == before


def test_ctrl_c_takes_all_back(
    kernel: FakeDma, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_args: object, **_words: object) -> None:
        raise KeyboardInterrupt

    fake_dma.add_dcbm(kernel)
    before = settings(kernel)
    monkeypatch.setattr(Offload, "set_engine", interrupt)
    with pytest.raises(KeyboardInterrupt):
        control.set_dcbm(kernel, FakeModules(kernel), channels=1)
    assert settings(kernel) == before


def test_without_a_free_channel_the_next_command_is_named(tmp_path: Path) -> None:
    kernel = FakeDma(root=tmp_path)
    fake_dma.add_offload(kernel)
    add_device(kernel, "0000:6a:01.0", fake_dma.DSA, driver="idxd")
    modules = FakeModules(kernel)
    with pytest.raises(PageferryError) as caught:
        control.set_dcbm(kernel, modules)
    assert caught.value.code == ExitCode.UNSUPPORTED
    assert "dma-intel-dsa.md" in (caught.value.hint or "")
    assert modules.commands == ["modprobe dcbm", "modprobe -r dcbm"]


def test_a_machine_without_engines_is_told_of_mtcopy(tmp_path: Path) -> None:
    kernel = FakeDma(root=tmp_path)
    fake_dma.add_offload(kernel)
    with pytest.raises(PageferryError) as caught:
        control.set_dcbm(kernel, FakeModules(kernel))
    assert "mtcopy" in (caught.value.hint or "")


def test_unknown_reasons_are_refused_before_anything_is_loaded(kernel: FakeDma) -> None:
    modules = FakeModules(kernel)
    with pytest.raises(PageferryError) as caught:
        control.set_dcbm(kernel, modules, only_for="boredom")
    assert caught.value.code == ExitCode.USAGE and modules.commands == []


def test_a_step_back_that_fails_does_not_stop_the_others(
    kernel: FakeDma, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []

    def fail() -> None:
        raise PageferryError("no way back", value="x")

    with undo.Undo(kernel) as way:
        way.call("first", lambda: done.append("first"))
        way.call("second", fail)
    assert done == ["first"]
    assert "could not take back second: no way back" in capsys.readouterr().err


def fake_modprobe(folder: Path, text: str) -> str:
    """Write a modprobe, and return the PATH that finds it."""
    path = folder / "bin/modprobe"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{path.parent}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        (
            "echo 'modprobe: FATAL: Module dcbm not found in directory /x' >&2; exit 1",
            *(ExitCode.UNSUPPORTED, "not found"),
        ),
        ("echo 'ERROR: Operation not permitted' >&2; exit 1", 1, "not permitted"),
        ("exit 9", 1, "ended with 9"),
    ],
)
def test_errors_of_modprobe(
    kernel: FakeDma,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    code: int,
    reason: str,
) -> None:
    path = fake_modprobe(kernel.root, text)
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(paths, "venv_path", lambda: path)
    with pytest.raises(PageferryError) as caught:
        Modules(kernel).load("dcbm")
    assert caught.value.code == code and caught.value.value == "dcbm"
    assert reason in (caught.value.reason or "") and caught.value.hint


def test_a_dry_run_prints_commands_and_writes(
    kernel: FakeDma,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = settings(kernel)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(kernel.root))
    words = ["engine", "set", "dcbm", "--channels", "4", "--dry-run"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "modprobe dcbm"
    assert [line.partition(" > ")[0] for line in lines[1:]] == ["4", "1", "dcbm"]
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["commands"] == ["modprobe dcbm"]
    assert [write["value"] for write in document["writes"]] == ["4", "1", "dcbm"]
    assert settings(kernel) == before


@pytest.mark.parametrize(
    "words", [["dcbm", "--channels", "65"], ["cpu", "--channels", "2"]]
)
def test_invalid_channels(
    kernel: FakeDma, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(kernel.root))
    assert main(["engine", "set", *words]) == ExitCode.USAGE


def test_the_answer_names_the_channels(
    kernel: FakeDma,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake_dma.add_dcbm(kernel)
    monkeypatch.setattr("pageferry.commands.engine.Files", lambda **_: kernel)
    assert main(["engine", "set", "dcbm"]) == 0
    said = capsys.readouterr()
    assert said.out == "engine dcbm\n"
    assert "dcbm has 2 channels: dma0chan0 dma0chan1" in said.err
    assert main(["engine", "set", "dcbm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["channels"] == ["dma0chan0", "dma0chan1"]


def test_modules_by_their_listing(tmp_path: Path) -> None:
    files = Files(root=tmp_path)
    fake_dma.add_modules(files, "ioatdma", "zynqmp-dma")
    fake_dma.put(
        files,
        f"/lib/modules/{fake_dma.RELEASE}/modules.builtin",
        "kernel/drivers/dma/idxd/idxd.ko",
    )
    modules = Modules(files)
    states = [modules.state(n) for n in ("ioatdma", "zynqmp_dma", "idxd", "ptdma")]
    assert states == ["not loaded", "not loaded", "loaded", "not in this kernel"]
