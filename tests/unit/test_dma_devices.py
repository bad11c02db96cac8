# SPDX-License-Identifier: GPL-2.0-only
"""DMA engines as `pageferry doctor` shows them, on fakes of the kernel's tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers import fake_dma
from helpers.fake_dma import add_device
from pageferry.cli import main
from pageferry.commands import doctor
from pageferry.dma import advice, devices, drivers
from pageferry.sysfs.files import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A machine without DMA engines."""
    fake = Files(root=tmp_path)
    fake_dma.add_modules(fake, "ioatdma", "idxd", "dcbm")
    return fake


def advised(files: Files) -> advice.Advice:
    (found,) = advice.survey(files)
    return found


@pytest.mark.parametrize(
    ("modalias", "driver"),
    [
        (fake_dma.DSA, drivers.IDXD),
        (fake_dma.IOAT, drivers.IOATDMA),
        (fake_dma.PTDMA, drivers.PTDMA),
        (fake_dma.AE4DMA, drivers.AE4DMA),
        (fake_dma.SDXI, drivers.SDXI),
        (fake_dma.ZDMA, drivers.ZYNQMP),
        (f"{fake_dma.ZDMA}-extra", None),
        (fake_dma.DMASIM, drivers.DMASIM),
        (fake_dma.SOUND, None),
        # Intel IAA, which the same driver serves, cannot copy.
        (fake_dma.DSA.replace("0B25", "0CFE"), None),
        (fake_dma.IOAT.replace("2021", "2022"), None),
        (fake_dma.IOAT.replace("2021", "0E28"), None),
    ],
)
def test_devices_find_their_driver(
    modalias: str, driver: drivers.Driver | None
) -> None:
    assert drivers.of_modalias(modalias) is driver


def test_how_to_pages_exist() -> None:
    pages = Path(__file__).resolve().parents[2] / "docs" / "how-to"
    for driver in drivers.KNOWN:
        assert driver.module in (pages / driver.page).read_text()


def test_a_machine_without_engines(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert advice.survey(files) == []
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(files.root))
    main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["dma_engines"] == []
    (check,) = [c for c in document["checks"] if c["name"] == "DMA engines"]
    # Stock Linux has no other engine to choose.
    assert not check["ok"] and check["hint"] == ""
    (files.root / "sys/kernel/mm/migrate_offload").mkdir(parents=True)
    (ours,) = doctor.dma_checks([], files)
    assert not ours.ok and "mtcopy" in ours.hint
    assert set(check) == {"name", "ok", "detail", "hint"}


def test_a_device_whose_module_is_not_loaded(files: Files) -> None:
    add_device(files, "0000:00:04.0", fake_dma.IOAT)
    found = advised(files)
    assert (found.module, found.hint) == ("not loaded", "modprobe ioatdma")
    assert not found.usable


def test_a_device_whose_driver_this_kernel_lacks(files: Files) -> None:
    add_device(files, "0000:00:04.0", fake_dma.PTDMA)
    found = advised(files)
    assert found.module == "not in this kernel"
    assert "CONFIG_AMD_PTDMA" in found.hint


def test_a_device_whose_driver_is_newer(files: Files) -> None:
    add_device(files, "0000:00:04.0", fake_dma.AE4DMA)
    assert "6.14" in advised(files).hint


def test_a_device_that_a_guest_has(files: Files) -> None:
    add_device(files, "0000:00:04.0", fake_dma.IOAT, driver="vfio-pci")
    found = advised(files)
    assert "vfio-pci" in found.detail and "vfio-pci has it" in found.hint


def test_a_loaded_driver_that_did_not_take_the_device(files: Files) -> None:
    add_device(files, "0000:00:04.0", fake_dma.IOAT)
    files.path("/sys/module/ioatdma").mkdir(parents=True)
    assert "dmesg" in advised(files).hint


def test_dsa_without_a_work_queue(files: Files) -> None:
    add_device(files, "0000:6a:01.0", fake_dma.DSA, driver="idxd")
    assert "work queue of type kernel" in advised(files).hint


def test_free_channels_and_the_next_command(files: Files) -> None:
    add_device(files, "0000:00:04.0", fake_dma.IOAT, driver="ioatdma", channels=3)
    found = advised(files)
    assert found.takes == ("dma0chan0", "dma0chan1", "dma0chan2")
    assert "3 of 3 channels free" in found.detail
    assert "engine check dcbm" in found.hint


def test_users_have_names_where_linux_knows_them(files: Files) -> None:
    add_device(
        files, "0000:00:04.0", fake_dma.IOAT, driver="ioatdma", channels=4, busy=(0, 1)
    )
    fake_dma.add_users(files, dma0chan0="40000.sound:tx", dma0chan1="in-use")
    fake_dma.add_dcbm(files)
    files.path(f"{devices.DCBM}/channels/dma0chan3").mkdir()
    found = advised(files)
    assert found.device.users() == {
        "40000.sound:tx": ["dma0chan0"],
        devices.UNKNOWN: ["dma0chan1"],
        "dcbm": ["dma0chan3"],
    }
    assert found.takes == ("dma0chan3", "dma0chan2")
    assert "a user without a name has dma0chan1" in found.detail
    assert found.hint == "pageferry status"


def test_others_have_all_channels(files: Files) -> None:
    add_device(
        files, "0000:00:04.0", fake_dma.IOAT, driver="ioatdma", channels=1, busy=(0,)
    )
    assert "find the user" in advised(files).hint
    files.path("/sys/module/ntb_transport").mkdir(parents=True)
    found = advised(files)
    assert "perhaps ntb_transport" in found.detail
    assert found.hint == "modprobe -r ntb_transport"


def test_channels_come_from_all_devices_in_turn(files: Files) -> None:
    for number in range(2):
        name = f"0000:00:04.{number}"
        ioat = {"driver": "ioatdma", "first": number, "channels": 12}
        add_device(files, name, fake_dma.IOAT, **ioat)  # type: ignore[arg-type]
    found = devices.read_devices(files)
    takes = devices.would_take(files, found)
    assert takes[:3] == ["dma0chan0", "dma1chan0", "dma0chan1"]
    assert len(takes) == devices.DEFAULT_CHANNELS
    fake_dma.add_dcbm(files)
    fake_dma.put(files, f"{devices.DCBM}/nr_dma_chan", "1")
    assert devices.would_take(files, found) == ["dma0chan0"]
    assert "--channels 64" in advice.survey(files)[1].hint


def test_channels_for_sound_are_left_alone(files: Files) -> None:
    sound = {"driver": "dma-pl330", "bus": "platform", "channels": 8}
    add_device(files, "40000.dma", fake_dma.SOUND, **sound)  # type: ignore[arg-type]
    found = advised(files)
    assert found.allowed is False and not found.usable
    assert "not on its list" in found.detail and found.hint == ""


@pytest.mark.parametrize(
    ("listed", "allowed"),
    [
        # This dcbm has no list. Linux does not show whether the driver can copy.
        (None, None),
        ("ioatdma,idxd", False),
        ("", False),
        ("ioatdma,dma-pl330", True),
    ],
)
def test_the_list_of_dcbm_decides(
    files: Files, listed: str | None, allowed: bool | None
) -> None:
    sound = {"driver": "dma-pl330", "bus": "platform", "channels": 8}
    add_device(files, "40000.dma", fake_dma.SOUND, **sound)  # type: ignore[arg-type]
    fake_dma.add_dcbm(files, listed)
    assert advised(files).allowed is allowed


def test_a_known_driver_outside_the_list(files: Files) -> None:
    add_device(files, "0000:00:04.0", fake_dma.IOAT, driver="ioatdma", channels=1)
    fake_dma.add_dcbm(files, "idxd")
    found = advised(files)
    assert found.allowed is False
    assert "devices=ioatdma" in found.hint


def test_doctor_shows_every_engine(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_device(files, "0000:00:04.0", fake_dma.IOAT, driver="ioatdma", channels=2)
    add_device(files, "0000:6a:01.0", fake_dma.DSA)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(files.root))
    main(["doctor"])
    said = capsys.readouterr()
    assert "DMA engine 0000:00:04.0" in said.out
    assert "DMA engine 0000:00:04.0: pageferry engine check dcbm" in said.err
    assert "DMA engine 0000:6a:01.0: modprobe idxd" in said.err
    main(["doctor", "--json"])
    engine, other = json.loads(capsys.readouterr().out)["dma_engines"]
    assert engine["dcbm_takes"] == ["dma0chan0", "dma0chan1"]
    assert (engine["channels"], engine["free_channels"]) == (2, 2)
    assert other["driver"] is None and other["known_driver"] == "idxd"
