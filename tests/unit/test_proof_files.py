# SPDX-License-Identifier: GPL-2.0-only
"""The parts of tests/packages/test_install.py that need no virtual machine."""

from __future__ import annotations

import ast
import json
import re
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from helpers import proof, proof_guest, proof_image, proof_machine
from helpers.proof_files import (
    EXPECTED,
    Entry,
    copied,
    differences,
    is_newer,
    pack,
    read_results,
    sorted_out,
)
from pageferry import paths
from pageferry.kernel import config
from pageferry.vm import accel

# --- results ----------------------------------------------------------------------


def disk_with(path: Path, *entries: Entry) -> Path:
    """Write an archive to a disk with room behind it."""
    pack(path, entries)
    with path.open("r+b") as stream:
        stream.truncate(1 << 20)
    return path


def test_results_are_read_from_a_disk(tmp_path: Path) -> None:
    disk = disk_with(
        tmp_path / "disk",
        Entry("./kernel.out", "6.12.117+pageferry\n"),
        Entry("./kernel.err", ""),
        Entry("./kernel.status", "0"),
        Entry("./purge.status", "100"),
        Entry("./purge.err", "E: lock\n"),
        Entry("./ended.txt", "use"),
    )
    stage = read_results(disk)
    assert stage.ended("use") and not stage.ended("after")
    assert stage.steps["kernel"].out == "6.12.117+pageferry\n"
    assert stage.trouble("kernel") == []
    assert stage.trouble("purge", "off") == [
        "purge: exit status 100: E: lock",
        "off: did not run",
    ]


def test_a_guest_that_wrote_nothing_has_no_results(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    assert read_results(disk).steps == {}


def test_a_torn_archive_has_no_results(tmp_path: Path) -> None:
    disk = disk_with(tmp_path / "disk", Entry("a.status", "0"), Entry("b", "x" * 9000))
    with disk.open("r+b") as stream:
        stream.truncate(4096)
    assert not read_results(disk).ended("use")


def test_counters_of_an_engine_are_found() -> None:
    status = {"stats": {"engines": {"mtcopy": {"engine_folios": 7}}}}
    assert copied(status, "mtcopy") == 7
    assert copied(status, "dcbm") == 0


@pytest.mark.parametrize(
    ("release", "than", "newer"),
    [
        ("6.12.118+deb13-amd64", "6.12.117+pageferry", True),
        ("6.12.117+deb13-amd64", "6.12.117+pageferry", False),
        ("6.12.99+deb13-amd64", "6.12.117+pageferry", False),
        ("6.13+deb13-amd64", "6.12.117+pageferry", True),
    ],
)
def test_releases_are_compared_by_number(release: str, than: str, newer: bool) -> None:
    assert is_newer(release, than) is newer


# --- files that stay ----------------------------------------------------------------


def test_differences_name_each_file() -> None:
    before = {"/etc/a": "1", "/etc/b": "1", "/etc/c": "1"}
    after = {"/etc/a": "1", "/etc/b": "2", "/etc/default/pageferry": "1"}
    assert differences(before, after) == [
        "changed: /etc/b (1; now 2)",
        "missing: /etc/c (1)",
        "left behind: /etc/default/pageferry (1)",
    ]


def test_logs_and_caches_may_differ() -> None:
    files = ("/var/log/apt/history.log", "/var/cache/apt/pkgcache.bin")
    assert differences({}, dict.fromkeys(files, "new")) == []


@pytest.mark.parametrize(
    "path",
    [
        "/boot/initrd.img-6.12.117+pageferry",
        "/etc/default/pageferry",
        "/usr/lib/modules/6.12.117+pageferry/modules.dep",
        "/usr/lib/python3/dist-packages/pageferry/__pycache__",
        "/var/lib/dpkg/info/pageferry.list",
        "/var/lib/systemd/deb-systemd-helper-enabled/pageferry-engine.service",
    ],
)
def test_no_expected_difference_covers_a_file_of_ours(path: str) -> None:
    assert len(differences({}, {path: "new"})) == 1
    assert all(reason for reason in EXPECTED.values())


def test_the_inventory_describes_types_modes_links_and_contents(tmp_path: Path) -> None:
    (tmp_path / "folder/below").mkdir(parents=True)
    (tmp_path / "folder/file").write_text("one")
    (tmp_path / "link").symlink_to("folder")
    first = proof_guest.inventory(tmp_path)
    assert set(first) == {"/folder", "/folder/below", "/folder/file", "/link"}
    assert first["/link"].endswith(" -> folder")
    assert first["/folder"].startswith("d")
    (tmp_path / "folder/file").write_text("two")
    (tmp_path / "folder/below").chmod(0o700)
    second = proof_guest.inventory(tmp_path)
    changed = {line.split()[1] for line in differences(first, second)}
    assert changed == {"/folder/below", "/folder/file"}


# --- the guest ------------------------------------------------------------------------


def test_the_guest_needs_only_pythons_own_library() -> None:
    tree = ast.parse(proof_machine.GUEST.read_text())
    names = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not names & {"helpers", "pageferry", "msgspec", "pytest"}


def test_a_step_keeps_output_and_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_guest, "RESULTS", tmp_path)
    code = proof_guest.step("talk", "sh", "-c", "echo out; echo err >&2; exit 3")
    found = sorted_out({path.name: path.read_text() for path in tmp_path.iterdir()})
    step = found.steps["talk"]
    assert (code, step.status, step.out, step.err) == (3, 3, "out\n", "err\n")


def test_a_program_that_is_missing_fails_its_step_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_guest, "RESULTS", tmp_path)
    assert proof_guest.step("none", "no-such-program") == 127
    assert (tmp_path / "none.status").read_text() == "127"
    assert "no-such-program" in (tmp_path / "none.err").read_text()


def test_all_stages_of_the_host_exist_in_the_guest() -> None:
    assert {*proof.STAGES, "loader"} == set(proof_guest.STAGES)


def test_the_first_entry_of_grubs_menu() -> None:
    menu = """
menuentry 'Debian' --class debian {
	search --no-floppy --fs-uuid --set=root 1234
	echo	'Loading Linux 6.12.117+pageferry ...'
	linux	/boot/vmlinuz-6.12.117+pageferry root=UUID=1234 ro console=ttyS0
	initrd	/boot/initrd.img-6.12.117+pageferry
}
submenu 'Advanced options' {
	linux	/boot/vmlinuz-6.12.117+deb13-amd64 root=UUID=1234 ro
}
"""
    assert proof_guest.first_of_menu(menu) == "6.12.117+pageferry"
    assert proof_guest.first_of_menu("") == ""


# --- the image ------------------------------------------------------------------------


def test_the_partition_table_has_one_active_partition() -> None:
    table = proof_image.partition_table(64 << 20)
    assert len(table) == 512 and table[510:] == b"\x55\xaa"
    active, kind, first, sectors = struct.unpack("<B3xB3xII", table[446:462])
    assert (active, kind, first) == (0x80, 0x83, 2048)
    assert (first + sectors) * 512 == 64 << 20
    assert table[462:510] == bytes(48)


def test_archives_become_a_partition(tmp_path: Path) -> None:
    """The script writes all files at the offset of the partition."""
    pack(
        tmp_path / "root.tar",
        [
            Entry("./boot/vmlinuz-1", "kernel"),
            Entry("./boot/initrd.img-1", "initrd"),
            Entry("./etc/hostname", "old\n"),
        ],
    )
    pack(tmp_path / "overlay.tar", proof_image.overlay())
    script = proof_image.file_system_script()
    small = script.replace(str(proof_image.DISK_BYTES), str(64 << 20))
    small = re.sub(r"root\.img \d+k", "root.img 60000k", small)
    done = subprocess.run(
        ["sh", "-c", small],
        cwd=tmp_path,
        # mke2fs lies in a directory that the PATH of many users lacks.
        env={"PATH": paths.venv_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "initrd").read_text() == "initrd"
    listed = subprocess.run(
        ["debugfs", "-R", "cat /etc/hostname", f"{tmp_path}/root.img?offset=1048576"],
        env={"PATH": paths.venv_path()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout == "proof\n"


def test_the_overlay_starts_the_runner_at_boot(tmp_path: Path) -> None:
    pack(tmp_path / "overlay.tar", proof_image.overlay())
    with tarfile.open(tmp_path / "overlay.tar") as archive:
        members = {member.name: member for member in archive}
    runner = members["usr/local/sbin/pageferry-proof"]
    assert runner.mode == 0o755 and runner.uid == 0
    service = proof_image.SERVICE
    wanted = members[f"etc/systemd/system/multi-user.target.wants/{service}"]
    assert wanted.linkname == f"../{service}"
    assert members["etc/systemd/system/apt-daily.timer"].linkname == "/dev/null"


def test_the_runner_is_a_shell_script(tmp_path: Path) -> None:
    script = tmp_path / "runner"
    script.write_text(proof_image.RUNNER)
    subprocess.run(["sh", "-n", script], check=True)


def test_the_root_comes_from_debians_archive() -> None:
    command = proof_image.bootstrap_command(Path("/x/root.tar"))
    assert command[0] == "mmdebstrap"
    assert command[-3:-1] == ["trixie", "/x/root.tar"]
    assert command[-1].startswith("deb [signed-by=")


# --- the machine ------------------------------------------------------------------------


def test_qemu_gets_the_disks_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "find_qemu", lambda: "qemu")
    disks = (Path("/a/root.img"), Path("/a/use.tar"), Path("/a/use.results"))
    argv = proof_machine.command_line(disks, "use", Path("/a/use.log"), accel.TCG)
    devices = [word for word in argv if word.startswith("virtio-blk-pci")]
    assert [re.findall(r"serial=([\w-]+)", word)[0] for word in devices] == [
        "root",
        "stage-use",
        "results",
    ]
    # A disk's serial number has room for 20 bytes.
    assert all(len(f"stage-{stage}") <= 20 for stage in proof_guest.STAGES)
    assert "-kernel" not in argv and "-no-reboot" in argv
    assert sum(word.startswith("node,nodeid=") for word in argv) == 2


def test_the_first_boot_uses_qemus_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "find_qemu", lambda: "qemu")
    direct = proof_machine.Direct(Path("/k"), Path("/i"), "root=LABEL=root")
    disks = (Path("/1"), Path("/2"), Path("/3"))
    argv = proof_machine.command_line(disks, "loader", Path("/l"), accel.KVM, direct)
    assert argv[-6:] == ["-kernel", "/k", "-initrd", "/i", "-append", direct.words]


# --- the packages -----------------------------------------------------------------------


def test_the_small_configuration_needs_an_initramfs() -> None:
    values = config.parse(proof.small_config(), "small")
    assert (values["VIRTIO_BLK"], values["EXT4_FS"]) == ("m", "m")
    assert (values["NUMA"], values["MIGRATION"]) == ("y", "y")


def test_packages_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "folder_of", lambda name: tmp_path)
    release = "6.12.117+pageferry"
    for name in (
        "pageferry_0.1.0_all.deb",
        "python3-msgspec_0.19.0-1~pageferry1_amd64.deb",
        f"linux-image-{release}_{release}0.1.0-1_amd64.deb",
        f"linux-headers-{release}_{release}0.1.0-1_amd64.deb",
    ):
        (tmp_path / name).touch()
    found = proof.find_packages("small")
    assert found.release == release
    assert found.tool.name == "pageferry_0.1.0_all.deb"
    entries = proof.entries_of("install", found)
    assert [entry.name for entry in entries] == [
        "packages/pageferry_0.1.0_all.deb",
        f"packages/linux-image-{release}_{release}0.1.0-1_amd64.deb",
    ]
    assert proof.entries_of("after", found) == []


def test_the_configuration_of_a_package_is_read(tmp_path: Path) -> None:
    release = "6.12.117+pageferry"
    (tmp_path / "root/DEBIAN").mkdir(parents=True)
    (tmp_path / "root/boot").mkdir()
    (tmp_path / f"root/boot/config-{release}").write_text("CONFIG_A=y\n")
    (tmp_path / "root/DEBIAN/control").write_text(
        "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n"
    )
    package = tmp_path / "x.deb"
    argv = [
        "dpkg-deb",
        "--root-owner-group",
        "-b",
        str(tmp_path / "root"),
        str(package),
    ]
    subprocess.run(argv, check=True, capture_output=True)
    packages = proof.Packages(package, package, release)
    assert proof.config_of(packages) == "CONFIG_A=y\n"


def test_a_list_of_files_survives_json() -> None:
    stage = sorted_out({"files.json": json.dumps({"/a\udcff": "x"})})
    assert stage.inventory() == {"/a\udcff": "x"}
