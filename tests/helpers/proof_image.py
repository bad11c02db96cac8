# SPDX-License-Identifier: GPL-2.0-only
"""A disk with Debian 13: its own kernel, initramfs, systemd and boot loader.

mmdebstrap makes the files, and mke2fs writes them into a partition. The first boot
uses QEMU's loader, and installs GRUB on the disk. So the host needs neither a loop
device nor root, and no program of GRUB.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from helpers import proof_machine
from helpers.proof_files import Entry, pack
from pageferry import output, paths
from pageferry.errors import ExitCode, PageferryError

SUITE = "trixie"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Without trixie-security the kernel of the image is not newer than the package
# linux-source-6.12 of an up-to-date host, so GRUB boots ours first.
MIRROR = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {SUITE} main"
PACKAGES = (
    *("linux-image-amd64", "initramfs-tools", "zstd", "kmod", "udev"),
    *("grub-pc-bin", "grub2-common", "systemd-sysv", "e2fsprogs"),
    # The tool's package depends on these, and the guest has no network.
    *("python3", "python3-argcomplete", "python3-msgspec"),
)
TOOLS = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "tar": "tar",
    "qemu-system-x86_64": "qemu-system-x86",
}
# Other users than root need them.
USER_TOOLS = {"fakeroot": "fakeroot", "newuidmap": "uidmap"}

DISK_BYTES = 4 << 30
SECTOR_BYTES = 512
# GRUB's core lies between the partition table and the partition.
FIRST_SECTOR = 2048
LABEL = "root"
# A panic ends QEMU: the guest reboots.
WORDS = "console=ttyS0 panic=5"

# Unpacks the second disk, runs the stage that its serial number names, and writes the
# results to the third disk.
RUNNER = """\
#!/bin/sh
exec </dev/null >/dev/console 2>&1
for disk in /sys/block/vd*; do
	serial=$(cat "$disk/serial")
	case $serial in
	stage-*) given=/dev/${disk##*/} stage=${serial#stage-} ;;
	results) results=/dev/${disk##*/} ;;
	esac
done
mount -t tmpfs -o size=60% proof /mnt && mkdir -p /mnt/proof/results
tar -xf "$given" -C /mnt/proof
python3 -B /mnt/proof/proof_guest.py "$stage"
tar -cf "$results" -C /mnt/proof/results . && sync
systemctl --no-block reboot
"""
UNIT = """\
[Unit]
Description=Test of the packages
After=systemd-user-sessions.service

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/pageferry-proof

[Install]
WantedBy=multi-user.target
"""
GRUB = f"""\
GRUB_DEFAULT=0
GRUB_TIMEOUT=1
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT=
GRUB_CMDLINE_LINUX="{WORDS}"
GRUB_TERMINAL=serial
GRUB_SERIAL_COMMAND="serial --unit=0 --speed=115200"
GRUB_DISABLE_OS_PROBER=true
"""
# They would hold apt's lock, change files, or wait for a key.
MASKED = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer"),
    *("e2scrub_all.timer", "fstrim.timer", "systemd-tmpfiles-clean.timer"),
    *("systemd-firstboot.service", "serial-getty@ttyS0.service"),
)
SYSTEMD = "etc/systemd/system"
SERVICE = "pageferry-proof.service"


@dataclass(frozen=True)
class Image:
    """A disk to copy, and its kernel for a test of KVM."""

    disk: Path
    kernel: Path


def missing_tools() -> list[str]:
    """List the Debian packages that this host lacks."""
    wanted = TOOLS if os.geteuid() == 0 else TOOLS | USER_TOOLS
    path = paths.venv_path()
    lacks = {wanted[name] for name in wanted if shutil.which(name, path=path) is None}
    return sorted(lacks | (set() if Path(KEYRING).exists() else {KEYRING}))


def overlay() -> list[Entry]:
    """Return the files that turn the root into a machine that runs stages."""
    wants = f"{SYSTEMD}/multi-user.target.wants"
    return [
        Entry("etc/fstab", f"LABEL={LABEL} / ext4 defaults 0 0\n"),
        Entry("etc/hostname", "proof\n"),
        # Without a number, systemd takes each boot for the first one.
        Entry("etc/machine-id", f"{'13' * 16}\n"),
        Entry("etc/default/grub", GRUB),
        Entry("usr/local/sbin/pageferry-proof", RUNNER, mode=0o755),
        Entry(f"{SYSTEMD}/{SERVICE}", UNIT),
        Entry(f"{wants}/{SERVICE}", link=f"../{SERVICE}"),
        *(Entry(f"{SYSTEMD}/{name}", link="/dev/null") for name in MASKED),
    ]


def partition_table(disk_bytes: int) -> bytes:
    """Return a master boot record with one active partition of Linux."""
    sectors = disk_bytes // SECTOR_BYTES - FIRST_SECTOR
    # Nothing reads addresses of cylinders, so the numbers are the largest ones.
    unused = b"\xfe\xff\xff"
    entry = struct.pack("<B3sB3sII", 0x80, unused, 0x83, unused, FIRST_SECTOR, sectors)
    return bytes(440) + b"ferr\0\0" + entry + bytes(48) + b"\x55\xaa"


def bootstrap_command(archive: Path) -> list[str]:
    """Return the command that makes all files of the root."""
    options = ["--variant=apt", "--architectures=amd64", "--format=tar"]
    options.append(f"--include={','.join(PACKAGES)}")
    return ["mmdebstrap", *options, SUITE, str(archive), MIRROR]


def file_system_script() -> str:
    """Return a shell script that turns archives into a disk.

    It runs in an empty directory with root.tar and overlay.tar. With fakeroot, files
    belong to root for tar and mke2fs.
    """
    offset = FIRST_SECTOR * SECTOR_BYTES
    size = f"{(DISK_BYTES - offset) // 1024}k"
    # An older GRUB or e2fsck may not know these features.
    features = "^metadata_csum_seed,^orphan_file"
    return f"""\
set -e
mkdir tree
tar --numeric-owner -xpf root.tar -C tree
tar --numeric-owner -xpf overlay.tar -C tree
cp tree/boot/vmlinuz-* vmlinuz
cp tree/boot/initrd.img-* initrd
truncate -s {DISK_BYTES} root.img
mke2fs -q -F -t ext4 -O {features} -L {LABEL} -E offset={offset},root_owner=0:0 \\
    -d tree root.img {size}
"""


def root_image() -> Image:
    """Return the disk, and make it if the description is new."""
    cache = paths.make_cache_dir("packages-proof")
    wanted = cache / f"debian-{_key()}"
    if not wanted.is_dir():
        with tempfile.TemporaryDirectory(
            dir=cache, prefix=".image-", ignore_cleanup_errors=True
        ) as name:
            _make(Path(name))
            _keep(Path(name), wanted)
    return Image(wanted / "root.img", wanted / "vmlinuz")


def _key() -> str:
    """Hash everything that decides on the image."""
    parts = (MIRROR, *PACKAGES, WORDS, file_system_script(), *map(str, overlay()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _make(folder: Path) -> None:
    output.talk(f"making an image of Debian 13 in {folder}")
    _run(bootstrap_command(folder / "root.tar"), folder)
    pack(folder / "overlay.tar", overlay())
    script = ["sh", "-c", file_system_script()]
    _run(script if os.geteuid() == 0 else ["fakeroot", *script], folder)
    disk = folder / "root.img"
    with disk.open("r+b") as stream:
        stream.write(partition_table(DISK_BYTES))
    words = f"root=LABEL={LABEL} ro {WORDS}"
    kernel = folder / "vmlinuz"
    direct = proof_machine.Direct(kernel, folder / "initrd", words)
    found = proof_machine.boot(disk, "loader", folder, kernel, direct=direct)
    trouble = found.trouble("grub-install", "update-grub")
    if trouble:
        raise _failure("the guest could not install GRUB", "\n".join(trouble))


def _keep(folder: Path, wanted: Path) -> None:
    """Give the disk its final name; the other files go."""
    ready = folder / "ready"
    ready.mkdir()
    for name in ("root.img", "vmlinuz", "loader.log"):
        (folder / name).rename(ready / name)
    ready.rename(wanted)


def _run(argv: list[str], folder: Path) -> None:
    """Run a program in a directory."""
    environment = {**os.environ, "PATH": paths.venv_path(), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise _failure(f"{argv[0]} failed", (done.stdout + done.stderr)[-6000:])


def _failure(what: str, detail: str) -> PageferryError:
    return PageferryError(what, detail=detail, code=ExitCode.NOT_STARTED)
