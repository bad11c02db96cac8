# SPDX-License-Identifier: GPL-2.0-only
"""A real DMA controller: QEMU's Versal, driven by Linux's own zynqmp_dma."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import RunInVm
from pageferry.bench import build
from pageferry.bench.cost.rows import DMA_SHARE, DMA_SHARE_OF
from pageferry.bench.lines import parse_line
from pageferry.bench.move_pages.spec import Measurement
from pageferry.cli import main
from pageferry.kernel import bases
from pageferry.kernel.arch import ARM64
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import decode

pytestmark = pytest.mark.vm

MIB = 1 << 20
CHANNELS = 8


@dataclass(frozen=True)
class Engine:
    """An engine: whether it is a module, and whether it takes every folio."""

    module: bool = True
    takes_all: bool = True


ENGINES = {
    "cpu": Engine(module=False),
    "mtcopy": Engine(takes_all=False),
    "dcbm": Engine(),
}
TOTAL = 16 * MIB
LIMIT = "/sys/kernel/mm/migrate_offload/max_unmapped_us"
SIZES = [4096 << order for order in range(10) if order != 1]


def vm_run(
    capsys: pytest.CaptureFixture[str], kernel: BuiltKernel, *argv: str
) -> tuple[int, str, str]:
    capsys.readouterr()
    options = ("--kernel", str(kernel.image), "--topology", "versal")
    code = main(["vm", "run", *options, *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


SCRIPT = """
cat /sys/devices/system/node/has_cpu /sys/devices/system/node/has_memory
uname -rm
echo to stderr >&2
grep -c . /sys/class/dma/*/in_use | wc -l
lsmod | grep -o ^mtcopy
exit 7
"""


def test_it_runs_commands_as_any_machine_does(
    capsys: pytest.CaptureFixture[str], kernel_arm64: BuiltKernel
) -> None:
    code, out, err = vm_run(
        capsys,
        kernel_arm64,
        *("--module", "mtcopy", "--json", "--", "sh", "-c", SCRIPT),
    )
    document = json.loads(out)
    assert code == document["exit_code"] == 7, err
    release = f"{kernel_arm64.release} aarch64"
    assert document["stdout"].splitlines() == [
        *("0-1", "0-1", release, str(CHANNELS), "mtcopy")
    ]
    assert document["stderr"] == "to stderr\n"
    assert document["findings"] == []


@pytest.mark.parametrize(
    ("options", "script", "expected", "word"),
    [
        ((), "echo '<4>WARNING: CPU: 0 PID: 1 at x' >/dev/kmsg", 1, "WARNING: CPU"),
        ((), "echo c >/proc/sysrq-trigger; sleep 600", 1, "sysrq triggered crash"),
        (("--timeout", "2"), "sleep 600", 124, "still running after 2 s"),
    ],
)
def test_it_fails_as_any_machine_does(
    capsys: pytest.CaptureFixture[str],
    kernel_arm64: BuiltKernel,
    options: tuple[str, ...],
    script: str,
    expected: int,
    word: str,
) -> None:
    code, _, err = vm_run(capsys, kernel_arm64, *options, "--", "sh", "-c", script)
    assert code == expected
    assert word in err


def test_a_program_of_the_host_is_refused(
    capsys: pytest.CaptureFixture[str], kernel_arm64: BuiltKernel
) -> None:
    code, _, err = vm_run(capsys, kernel_arm64, "--", "/bin/ls")
    assert code == 2
    assert "static arm64 program" in err and "move_pages" in err


DMATEST = """
cd /sys/module/dmatest/parameters
echo {size} >test_buf_size; echo 5 >iterations; echo 2 >threads_per_chan
echo 60000 >timeout; echo {fixed} >norandom; echo {fixed} >alignment
echo '' >channel; echo 1 >run
# Reading its "wait" returns at once, and reading "run" stops threads, if they are
# just beginning.
tries=6000
while [ "$(dmesg | grep -c ': summary ')" -lt {threads} ] && [ $tries -gt 0 ]; do
    tries=$((tries - 1))
    sleep 0.1
done
dmesg
"""


@pytest.mark.parametrize("size", [4096, 65536, 2 * MIB])
def test_the_controller_copies(
    in_vm: RunInVm, kernel_arm64: BuiltKernel, size: int
) -> None:
    """The kernel's own driver test, on each channel."""
    threads = 2 * CHANNELS
    fixed = "N" if size < 2 * MIB else "Y"
    done = in_vm(
        kernel_arm64,
        *("sh", "-c", DMATEST.format(size=size, fixed=fixed, threads=threads)),
        topology="versal",
        insert=("dmatest",),
    )
    assert done.status == 0, done.stderr
    summaries = re.findall(r"summary (\d+) tests, (\d+) failures", done.stdout)
    assert summaries == [("5", "0")] * threads, done.stdout


def test_every_engine_moves_and_is_verified(
    in_vm: RunInVm, kernel_arm64: BuiltKernel
) -> None:
    """All sizes from 4K to 2M; each page is verified, and the copying side is known."""
    move_pages = [
        *("move_pages", "--rounds=1", "--limit=none", f"--total-bytes={TOTAL}"),
        "--variants=" + ",".join(("stock", *ENGINES)),
        "--sizes=" + ",".join(map(str, SIZES)),
    ]
    done = in_vm(
        kernel_arm64,
        # Use no limit on unmapped time: an emulated controller may be too slow.
        *("sh", "-c", f"echo 0 >{LIMIT} && {' '.join(move_pages)}"),
        topology="versal",
        insert=[name for name, engine in ENGINES.items() if engine.module],
        carry=[build.build(ARM64) / "move_pages"],
    )
    assert done.status == 0, done.stderr
    lines = [parse_line(text, Measurement) for text in done.stdout.splitlines()]
    seen = [line for line in lines if isinstance(line, Measurement)]
    counted: dict[tuple[str, int], int] = {}
    for line in seen:
        assert line.verified
        assert line.moved_bytes == TOTAL
        assert not line.split_folios
        key = (line.engine, line.folio_bytes)
        counted[key] = counted.get(key, 0) + (line.engine_bytes or 0)
        # The kernel's counters tell which side copied.
        if line.engine in ENGINES and ENGINES[line.engine].takes_all:
            assert line.engine_bytes == TOTAL
    assert counted.keys() == {(e, s) for e in ("stock", *ENGINES) for s in SIZES}
    assert all(bool(count) == (key[0] != "stock") for key, count in counted.items())


def test_a_controller_spares_the_cpu_the_copy(
    kernel_arm64: BuiltKernel, tmp_path: Path
) -> None:
    """At 2M less than a tenth of the instructions; --check has the bounds."""
    output = tmp_path / "result.json"
    argv = ["bench", "cost", "--arch", "arm64", "--engines", "off,dcbm", "--check"]
    # The folios of 64K take the page frame 0, which this machine has.
    argv += ["--sizes", "4K,64K,2M", "--layouts", "1", "--output", str(output)]
    assert main(argv) == 0
    rows = {
        (row.engine, row.folio_bytes): row for row in decode(output.read_bytes()).rows
    }
    off, dcbm = rows["off", 2 * MIB], rows["dcbm", 2 * MIB]
    assert dcbm.verified and dcbm.engine_bytes
    assert off.instructions_per_folio and dcbm.instructions_per_folio
    share = DMA_SHARE_OF.get(bases.DEFAULT, DMA_SHARE)[2 * MIB]
    assert dcbm.instructions_per_folio <= off.instructions_per_folio * share
    assert dcbm.cost and dcbm.cost.descriptors_per_1000_folios


def test_a_benchmark_runs_there(kernel_arm64: BuiltKernel, tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    code = main(
        [
            *("bench", "move-pages", "--vm", "--topology", "versal", "--no-limit"),
            *("--engines", "stock,dcbm", "--channels", "1,8", "--sizes", "2M"),
            *("--total", "16M", "--rounds", "1", "--output", str(output)),
            # The controller is about as slow as a CPU, so it is often too slow.
            *("--max-unmapped-us", "0"),
        ]
    )
    assert code == 0
    result = decode(output.read_bytes())
    assert result.kernel.release == kernel_arm64.release
    assert result.machine.topology == "versal"
    rows = {(row.engine, row.channels): row for row in result.rows}
    assert rows.keys() == {("stock", 0), ("dcbm", 1), ("dcbm", CHANNELS)}
    assert all(row.verified for row in rows.values())
    assert rows["dcbm", CHANNELS].engine_bytes == TOTAL
