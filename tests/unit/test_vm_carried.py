# SPDX-License-Identifier: GPL-2.0-only
"""Guests of another architecture: programs that they can run, and files to add."""

from __future__ import annotations

import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel.arch import ARM64, X86_64, Architecture
from pageferry.units import MIB
from pageferry.vm import accel, busybox, carried, guest, qemu, topology
from pageferry.vm.run import VmRequest

VERSAL = topology.load("versal")


def elf(machine: int, *segments: int) -> bytes:
    """Make the header of a program with these segment types."""
    head = b"\x7fELF\2\1\1" + b"\0" * 9 + struct.pack("<HH", 2, machine)
    head += struct.pack("<IQQQIHHHHHH", 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    return head + b"".join(struct.pack("<I52x", kind) for kind in segments)


@pytest.mark.parametrize(
    ("content", "obstacle"),
    [
        (elf(ARM64.machine, 1, 4), None),
        (b"#!/bin/sh\ntrue\n", None),
        (elf(ARM64.machine, 6, 3, 1), "not linked statically (-static)"),
        (elf(X86_64.machine, 1), "not a program for arm64"),
        (b"#!/usr/bin/python3\n", "neither a program for arm64 nor a script"),
        (b"", "neither a program for arm64 nor a script"),
        (b"\x7fELF", "neither a program for arm64 nor a script"),
    ],
)
def test_only_programs_that_can_run_are_taken(
    content: bytes, obstacle: str | None
) -> None:
    found = carried.program_obstacle(content, ARM64)
    assert found == obstacle or (obstacle and found and found.startswith(obstacle))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A busybox without a network. As in Debian 13, a space precedes the table."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "cache/pageferry/guest/arm64/busybox"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"\x7fELF\0usage\0\xae [\0[[\0ash\0cat\0sh\0\0more")
    busybox.applets.cache_clear()
    return program


def request(directory: Path, *command: str) -> VmRequest:
    return VmRequest(command, image=directory / "Image", cwd=directory)


def test_the_table_of_names_is_read(shell: Path) -> None:
    assert busybox.applets(ARM64) == {"[", "[[", "ash", "cat", "sh"}


def test_a_command_is_known_or_carried_or_refused(shell: Path, tmp_path: Path) -> None:
    plain = request(tmp_path, "sh", "-c", "true")
    assert carried.check(plain, VERSAL) == plain
    program = tmp_path / "mine"
    program.write_bytes(elf(ARM64.machine, 1))
    program.chmod(0o755)
    assert carried.check(request(tmp_path, "./mine"), VERSAL).carry == (program,)
    by_name = replace(request(tmp_path, "mine"), carry=(program,))
    assert carried.check(by_name, VERSAL) == by_name
    for command, word in (
        ("mine", "not found"),
        ("ls", "not a program for arm64"),
        ("/bin/ls", "not a program for arm64"),
        ("./other", "no such program"),
    ):
        with pytest.raises(PageferryError, match=word) as caught:
            carried.check(request(tmp_path, command), VERSAL)
        assert caught.value.code == ExitCode.USAGE


def test_what_a_guest_alone_cannot_have(shell: Path, tmp_path: Path) -> None:
    good = request(tmp_path, "sh")
    for bad, word in (
        (replace(good, rw=(tmp_path,)), "--carry"),
        (replace(good, carry=(tmp_path / "none",)), "no such file"),
        (replace(good, carry=(Path("/proc/self/status"),)), "of its own"),
    ):
        with pytest.raises(PageferryError, match=word):
            carried.check(bad, VERSAL)


def test_everything_lies_where_the_host_has_it(shell: Path, tmp_path: Path) -> None:
    modules = tmp_path / "root/lib/modules/6.12.9"
    (modules / "kernel").mkdir(parents=True)
    (modules / "kernel/x.ko").write_text("x")
    (modules / "modules.dep").write_text("kernel/x.ko:\n")
    program, script = tmp_path / "mine", tmp_path / "run.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    script.write_text("true\n")
    wanted = replace(request(tmp_path, "mine"), carry=(program,), modules=modules)
    made = carried.archive(wanted, VERSAL, script)

    def listing(*options: str) -> list[str]:
        argv = ["cpio", "-it", "--quiet", *options]
        done = subprocess.run(argv, input=made, capture_output=True, check=True)
        return done.stdout.decode().splitlines()

    names, long = listing(), "\n".join(listing("-v"))
    inside = {str(path)[1:] for path in (program, modules / "kernel/x.ko")}
    assert inside | {"init", "bin/busybox", "dev/console"} <= set(names)
    assert re.search(rf"^-rwxr-xr-x .* {str(program)[1:]}$", long, re.MULTILINE)
    assert f"lib/modules/6.12.9 -> {modules}" in long
    # A directory comes once, and before its files.
    assert len(names) == len(set(names))
    for name in names:
        above = str(Path(name).parent)
        assert above == "." or names.index(above) < names.index(name)
    assert carried.environment(wanted)["PATH"] == f"{tmp_path}:/bin:/sbin"


def test_the_machine_makes_its_nodes_itself() -> None:
    assert VERSAL.kernel_words() == ["numa=fake=2", "nr_cpus=2"]
    argv = VERSAL.qemu_args()
    assert "-numa" not in argv and argv[argv.index("-smp") + 1] == "4"
    assert f"size={2048 * MIB}" in " ".join(argv)
    assert "prealloc=on" in " ".join(VERSAL.qemu_args(preallocate=True))
    assert not VERSAL.sees_host and topology.load("two-node").sees_host


def test_qemu_is_that_of_the_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(arch: Architecture) -> str:
        return arch.qemu

    monkeypatch.setattr(accel, "find_qemu", find)
    argv = qemu.bare_machine(VERSAL, accel.TCG, icount=False)
    assert argv[0] == "qemu-system-aarch64" and "-cpu" not in argv
    assert argv[argv.index("-machine") + 1] == "xlnx-versal-virt"
    counted = qemu.bare_machine(topology.load("versal-cost"), accel.TCG, icount=True)
    assert "shift=0,sleep=off" in counted
    # No options of x86 alone, and never KVM: this is another processor.
    assert topology.load("versal-cost").kernel_words() == ["numa=fake=2", "nr_cpus=1"]
    assert accel.choose(Path("/none"), ARM64) == accel.TCG


def test_nodes_that_the_kernel_makes_are_alike(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        'description = "x"\ncpus = 1\nfake_nodes = true\n'
        '[[node]]\nmemory = "1G"\n[[node]]\nmemory = "2G"\n'
    )
    with pytest.raises(PageferryError, match="makes no sense"):
        topology._read(path)
    path.write_text(
        'description = "x"\ncpus = 1\narch = "vax"\n[[node]]\nmemory = "1G"\n'
    )
    with pytest.raises(PageferryError, match="vax"):
        topology._read(path)


def test_ports_have_the_names_that_the_init_knows() -> None:
    text = guest.INIT.read_text()
    assert f"/dev/virtio-ports/{guest.STDOUT_PORT}" in text
    for name in guest.PORTS:
        assert f"/dev/virtio-ports/pageferry.{name}" in text
