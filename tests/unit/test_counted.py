# SPDX-License-Identifier: GPL-2.0-only
"""Machines whose clock counts instructions: initramfs, command line, and output."""

from __future__ import annotations

import subprocess
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.bench_data import built
from pageferry.bench import counted
from pageferry.bench.cost.rows import Cost
from pageferry.bench.counted import initramfs
from pageferry.bench.lines import Done, Environment
from pageferry.bench.target import describe_built
from pageferry.errors import ExitCode, PageferryError
from pageferry.vm import accel

ENVIRONMENT = '{"type": "environment", "bench": "x", "release": "6", "version": ""}'
DONE = '{"type": "done"}'


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> counted.Machine:
    """A machine that is a shell: its last argument is a script."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "program"
    program.write_bytes(b"program")

    def shell(boot: counted.Machine, _: Path) -> list[str]:
        return ["/bin/sh", "-c", boot.arguments[-1]]

    monkeypatch.setattr(counted, "qemu_args", shell)
    return counted.Machine("one", "cost", built(tmp_path), program, ("true",))


def says(machine: counted.Machine, script: str, name: str = "one") -> counted.Machine:
    return replace(machine, name=name, arguments=(script,))


def test_lines_come_in_the_order_of_the_machines(machine: counted.Machine) -> None:
    slow = says(machine, f"sleep 0.3; echo '{ENVIRONMENT}'; echo '{DONE}'")
    quick = says(machine, f"echo 'noise'; echo '{DONE}'", "two")
    first, second = counted.run([slow, quick], (Cost,), 2)
    assert isinstance(first[0], Environment)
    assert second == [Done()]


@pytest.mark.parametrize(
    ("script", "code", "named"),
    [
        ("echo", ExitCode.NOT_STARTED, "ended before it was done"),
        ("echo '[    1.0] WARNING: CPU: 0'", ExitCode.FAILED, "kernel complained"),
        ("sleep 9", ExitCode.TIMEOUT, "did not end in time"),
        (
            'echo \'{"type": "error", "exit": 3, "message": "no room"}\'',
            *(ExitCode.UNSUPPORTED, "no room"),
        ),
    ],
)
def test_a_machine_that_fails_is_named(
    machine: counted.Machine, script: str, code: ExitCode, named: str
) -> None:
    machine = replace(says(machine, script), limit_s=0.5 if "sleep" in script else 60)
    with pytest.raises(PageferryError, match=named) as caught:
        counted.run([machine], (Cost,), 1)
    assert caught.value.code == code
    assert "one" in str(caught.value.value)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "find_qemu", lambda _: "qemu")
    machine = counted.Machine(
        *("one", "eight-cpus", built(tmp_path), tmp_path / "program"),
        *(("--engine", "off"), (), ("quiet",)),
    )
    argv = counted.qemu_args(machine, tmp_path / "initrd")
    assert argv[argv.index("-icount") + 1] == "shift=0,sleep=off"
    assert argv[argv.index("-smp") + 1] == "8,sockets=2,cores=4,threads=1"
    assert argv[-1].endswith("nolapic_timer quiet -- --engine off")


def test_the_kernels_of_a_result(tmp_path: Path) -> None:
    machine = counted.Machine("one", "cost", built(tmp_path), tmp_path, ())
    vanilla = replace(machine, kernel=replace(machine.kernel, vanilla=True))
    here = Environment(bench="x", release="6", version="#1", cpus=8)
    both = [("stock", vanilla, [here, Done()]), ("off", machine, [here, Done()])]
    args = Namespace(words=["bench"])
    found = counted.result(0, args, [], both, "cost")
    assert found.kernel.vanilla is False
    assert found.stock_kernel is not None
    assert found.stock_kernel.vanilla is True
    assert (found.machine.cpus, found.machine.accel) == (8, "tcg icount")
    assert counted.result(0, args, [], both[1:], "cost").stock_kernel is None
    alone = counted.result(0, args, [], both[:1], "cost")
    assert alone.kernel == alone.stock_kernel


@pytest.mark.parametrize("gone", [False, True])
def test_a_result_is_about_one_kernel(machine: counted.Machine, gone: bool) -> None:
    """An edit of linux/ and a build during a benchmark change the image of all boots."""
    image = machine.kernel.image
    image.write_bytes(b"kernel")
    kernel = replace(machine.kernel, written_ns=image.stat().st_mtime_ns)
    assert describe_built(kernel, None).image == str(image)
    again = f"echo '{DONE}'; touch -d @1 {image}" + (f"; rm {image}" if gone else "")
    boots = [says(replace(machine, kernel=kernel), again)] * 2
    boots[1] = replace(boots[1], name="two")
    with pytest.raises(PageferryError, match="built again") as caught:
        counted.run(boots, (Cost,), 1)
    assert caught.value.value == str(image)
    with pytest.raises(PageferryError, match="built again"):
        describe_built(kernel, None)


def test_initramfs_is_a_cpio_archive(tmp_path: Path) -> None:
    program, module = tmp_path / "cost", tmp_path / "mtcopy.ko"
    program.write_bytes(b"program")
    module.write_bytes(b"module")
    listing = subprocess.run(
        ["cpio", "-itv", "--quiet"],
        input=initramfs(program, [module], 4096, b"disk"),
        capture_output=True,
        check=True,
    )
    assert listing.stderr == b""
    names = [line.split()[-1] for line in listing.stdout.decode().splitlines()]
    assert names == [
        "dev", "proc", "sys", "dev/console", "init", "mtcopy.ko", "disk.img", "padding",
    ]  # fmt: skip


def test_initramfs_is_the_same_from_the_same_input(tmp_path: Path) -> None:
    program = tmp_path / "cost"
    program.write_bytes(b"program")
    first = initramfs(program, [], 0)
    program.touch()
    assert initramfs(program, [], 0) == first
    assert len(initramfs(program, [], 8192)) - len(first) > 4096
