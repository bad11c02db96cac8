# SPDX-License-Identifier: GPL-2.0-only
"""`vm run`: the output of a guest, and the ways in which it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pageferry.kernel.build import BuiltKernel
from pageferry.vm.cpio import Archive
from pageferry.vm.initramfs import boot_initramfs

pytestmark = pytest.mark.vm
ROOT = Path(__file__).resolve().parents[2]


def start(
    kernel: BuiltKernel, *options: str | Path, command: list[str]
) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "pageferry", "vm", "run"]
    argv += ["--kernel", str(kernel.image), *map(str, options), "--", *command]
    return subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )


def run(
    kernel: BuiltKernel, *options: str | Path, command: list[str]
) -> tuple[int, str, str]:
    with start(kernel, *options, command=command) as process:
        out, err = process.communicate(timeout=600)
    return process.returncode, out.decode(), err.decode()


SCRIPT = """
pwd
cat /sys/devices/system/node/has_cpu /sys/devices/system/node/has_memory
uname -r
echo to stderr >&2
echo again >/dev/stdout
touch "$2/x" 2>/dev/null && echo the host can be written
touch /tmp/x && echo /tmp can be written
echo kept >"$1/file"
exit 7
"""


def test_streams_exit_code_directories_and_topology(
    kernel_vm: BuiltKernel, tmp_path: Path
) -> None:
    # Do not use the checkout: it may lie below /tmp, where the guest has a layer.
    home = str(Path("/usr/share"))
    command = ["sh", "-c", SCRIPT, "sh", str(tmp_path), home]
    code, out, err = run(kernel_vm, "--rw", tmp_path, command=command)
    assert code == 7, err
    assert out.splitlines() == [
        str(ROOT),
        "0-1",
        "0-1",
        kernel_vm.release,
        "again",
        "/tmp can be written",
    ]
    assert err.splitlines()[-1] == "to stderr"
    assert (tmp_path / "file").read_text() == "kept\n"


def test_the_exit_code_does_not_come_by_the_console(kernel_vm: BuiltKernel) -> None:
    """The console may lose its last lines at power-off; here, all of them are lost."""
    mute = ["sh", "-c", "echo 0 >/proc/sys/kernel/printk; echo here; exit 7"]
    code, out, err = run(kernel_vm, command=mute)
    assert code == 7, err
    assert out == "here\n"


def test_complaints_of_the_kernel_fail_a_command_that_did_not(
    kernel_vm: BuiltKernel,
) -> None:
    say = ["sh", "-c", "echo '<4>WARNING: CPU: 0 PID: 1 at x' >/dev/kmsg"]
    code, _, err = run(kernel_vm, "--json", command=say)
    assert code == 1
    assert "kernel log: WARNING: CPU: 0 PID: 1 at x" in err


def test_tiers_and_json(kernel_vm: BuiltKernel) -> None:
    show = ["cat", "/sys/devices/system/node/has_cpu"]
    code, out, _ = run(kernel_vm, "--topology", "tiered", "--json", command=show)
    document = json.loads(out)
    assert code == document["exit_code"] == 0
    assert document["stdout"] == "0\n"
    assert document["findings"] == []
    assert 0 < document["guest_boot_ms"] < 60_000


def test_a_panic_is_noticed_at_once(kernel_vm: BuiltKernel) -> None:
    crash = ["sh", "-c", "echo c >/proc/sysrq-trigger; sleep 600"]
    begin = time.monotonic()
    code, _, err = run(kernel_vm, command=crash)
    assert code == 1
    assert "Kernel panic - not syncing: sysrq triggered crash" in err
    assert "see: " in err
    assert time.monotonic() - begin < 300


def test_a_command_that_does_not_end(kernel_vm: BuiltKernel) -> None:
    code, out, err = run(
        kernel_vm, "--timeout", "15", command=["sh", "-c", "echo here; sleep 600"]
    )
    assert code == 124
    assert out == "here\n"
    assert "still running after 15 s" in err


def test_a_guest_that_does_not_come_up(kernel_vm: BuiltKernel) -> None:
    words = ["--append", "init=/nonexistent", "--boot-timeout", "0.5", "--json"]
    code, out, err = run(kernel_vm, *words, "--accel", "tcg", command=["true"])
    assert code == 5
    error = json.loads(out)["error"]
    assert error["exit_code"] == 5
    assert Path(error["value"]).is_file()
    assert "Traceback" not in err


def children(parent: int) -> list[int]:
    """List the descendants of a process."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # pid (name) state parent ...; a name may hold anything.
            fields = status.read_text().rpartition(")")[2].split()
            parents[int(status.parent.name)] = int(fields[1])
    direct = [pid for pid, above in parents.items() if above == parent]
    return direct + [deeper for pid in direct for deeper in children(pid)]


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_an_interrupted_run_leaves_no_machine(kernel_vm: BuiltKernel) -> None:
    talk = ["sh", "-c", "echo here; sleep 600"]
    with start(kernel_vm, command=talk) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        machine = children(process.pid)
        assert machine
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert process.returncode == 130
    # A killed process may take a moment to free its memory.
    deadline = time.monotonic() + 20
    while any(map(is_running, machine)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in machine if is_running(pid)]


INIT = """
#include <stdio.h>
#include <sys/reboot.h>
#include <time.h>
int main(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("count %lld\\n", now.tv_sec * 1000000000LL + now.tv_nsec);
	fflush(stdout);
	return reboot(RB_POWER_OFF);
}
"""


def test_counting_instructions_gives_the_same_digits(
    kernel_vm: BuiltKernel, tmp_path: Path
) -> None:
    (tmp_path / "init.c").write_text(INIT)
    compiler = ["gcc", "-static", "-O1", "-o", "init", "init.c"]
    subprocess.run(compiler, check=True, cwd=tmp_path)
    archive = Archive()
    archive.directory("dev")
    archive.character_device("dev/console", 5, 1)
    archive.file("init", (tmp_path / "init").read_bytes(), 0o755)
    counts = []
    for _ in range(2):
        said = boot_initramfs(kernel_vm.image, archive.bytes(), append=["quiet"])
        assert said.findings == ()
        counts += [line for line in said.lines if line.startswith("count ")]
    assert len(counts) == 2
    assert counts[0] == counts[1]
