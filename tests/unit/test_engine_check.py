# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry engine check dcbm`, on a fake kernel and with a fake program."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import fake_dma
from helpers.fake_dma import DEBUG, FakeDma, add_device
from helpers.fake_process import add_node
from pageferry.bench import build
from pageferry.cli import main
from pageferry.dma.check import disturb, run, state, steps
from pageferry.dma.check.report import Finding
from pageferry.dma.devices import CLASS, DCBM
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave import lock
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.offload import DIRECTORY

MOVER = Path(__file__).resolve().parents[1] / "helpers" / "fake_mover.py"
Outcome = tuple[int, dict[str, Any], str]
Check = Callable[..., Outcome]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDma:
    """A machine with two nodes and an I/OAT device, whose channels are always busy."""
    fake = FakeDma(root=tmp_path)
    fake_dma.add_offload(fake)
    fake_dma.add_dcbm(fake)
    for number in range(2):
        add_node(fake, number)
    add_device(fake, "0000:00:04.0", fake_dma.IOAT, driver="ioatdma", channels=6)
    fake_dma.put(fake, "/behave", "well")
    program = tmp_path / "programs/move_pages"
    program.parent.mkdir()
    shutil.copy(MOVER, program)
    program.chmod(0o755)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    monkeypatch.setattr(build, "build", lambda: program.parent)
    monkeypatch.setattr("pageferry.commands.engine_check.Files", lambda: fake)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    log = tmp_path / "kmsg"
    log.write_text("")
    monkeypatch.setattr(run, "KernelLog", lambda: state.KernelLog(log))
    for name in ("_LATE_S", "_BACK_S", "_BUSY_S"):
        monkeypatch.setattr(disturb, name, 0.5)
    return fake


@pytest.fixture
def check(
    kernel: FakeDma,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Check:
    """Run the check, and see that it leaves every setting as it was."""

    def run_it(*words: str, behave: str = "well") -> Outcome:
        # On a busy host, the program takes long to begin.
        late = behave in ("late", "held")
        monkeypatch.setattr(disturb, "_LATE_S", 60.0 if late else 0.5)
        fake_dma.put(kernel, "/behave", behave)
        before = settings(kernel)
        code = main(["engine", "check", "dcbm", "--json", *words])
        assert settings(kernel) == before
        said = capsys.readouterr()
        return code, json.loads(said.out), said.err

    return run_it


def settings(kernel: FakeDma) -> dict[str, str]:
    names = [
        *(f"{DIRECTORY}/engine", f"{DIRECTORY}/engine_of/damon", f"{DEBUG}/verify"),
        *(f"{DCBM}/offloading", f"{DCBM}/nr_dma_chan"),
        *(state.CPU_SHARE, state.TIMEOUT_MS),
    ]
    found = {name: kernel.get(name) for name in names}
    found["channels"] = " ".join(kernel.names(f"{DCBM}/channels"))
    top = "/sys/devices/0000:00:04.0"
    return {**found, "driver": kernel.link(f"{top}/driver")}


def answers(document: dict[str, Any]) -> dict[str, str]:
    return {f["question"]: f["answer"] for f in document["findings"]}


def test_a_good_device(check: Check) -> None:
    code, document, said = check()
    assert code == 0 and document["ok"]
    assert document["drivers"] == ["ioatdma"] and len(document["channels"]) == 6
    assert answers(document) == {
        "every byte right": "yes",
        "best number of channels": "4",
        "faster than one CPU": "yes",
        "best piece": "64 KiB",
        "off while busy": "yes",
        "errors of 0000:00:04.0": "not known",
        "0000:00:04.0 stops": "not known",
        "gives late transfers back": "not known",
        "unbind while busy": "not known",
        "kernel log clean": "yes",
    }
    assert (document["best_channels"], document["best_piece_bytes"]) == (4, 65536)
    assert [rate["channels"] for rate in document["rates"]] == [1, 2, 4, 6]
    assert len(document["channel_rates"]) == 6
    assert len(document["piece_rates"]) == len(steps.SIZES)
    assert "next: pageferry engine set dcbm --channels 4" in said


def test_unknown_answers_have_reasons(check: Check) -> None:
    _, document, _ = check()
    for finding in document["findings"]:
        assert finding["detail"] or finding["answer"] == "yes"
    details = {f["question"]: f["detail"] for f in document["findings"]}
    assert "ioat/dma.c:823" in details["errors of 0000:00:04.0"]
    assert "no way to terminate" in details["0000:00:04.0 stops"]
    assert "dcbm assumes no" in details["0000:00:04.0 stops"]
    assert "--disturb" in details["unbind while busy"]


def test_the_table_for_people(
    kernel: FakeDma, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine", "check", "dcbm"]) == 0
    said = capsys.readouterr().out
    for words in ("best number of channels", "CPU", "64 KiB", "dma0chan5"):
        assert words in said


@pytest.mark.parametrize("behave", ["mismatch", "wrong"])
def test_wrong_data_ends_the_check(check: Check, behave: str) -> None:
    code, document, said = check("--disturb", behave=behave)
    assert code == ExitCode.FAILED and not document["ok"]
    assert answers(document)["every byte right"] == "no"
    assert document["rates"] == []
    assert "do not use this engine" in said


def test_a_wrong_byte_while_dcbm_is_switched_off(check: Check) -> None:
    code, document, _ = check(behave="wrong-later")
    assert code == ExitCode.FAILED
    assert answers(document)["off while busy"] == "no"


def test_a_kernel_that_lacks_something_is_no_failed_device(check: Check) -> None:
    code, document, _ = check(behave="kernel-lacks")
    assert code == ExitCode.UNSUPPORTED
    assert "not available" in document["error"]["what"]


def test_ctrl_c_takes_all_back(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "pieces", interrupt)
    code, document, _ = check()
    assert code == ExitCode.INTERRUPTED
    assert document["error"]["what"] == "interrupted"


def test_ctrl_c_while_memory_moves(
    check: Check, kernel: FakeDma, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FakeDma.write

    def interrupt(files: FakeDma, name: str, value: str) -> None:
        write(files, name, value)
        if (name, value) == (f"{DCBM}/offloading", "0") and not files.log.count("x"):
            files.log.append("x")
            raise KeyboardInterrupt

    monkeypatch.setattr(FakeDma, "write", interrupt)
    code, _, _ = check()
    assert code == ExitCode.INTERRUPTED


def gone(pid: int) -> bool:
    found = processes.find(Files(Path("/")), pid)
    return found is None or found.ended


def killed(kernel: FakeDma, begun: Path) -> None:
    """Run a check, and send it SIGKILL as soon as a file has something."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            main(["engine", "check", "dcbm"])
        os._exit(1)
    due = time.monotonic() + 30
    while not (begun.exists() and begun.read_text()):
        assert time.monotonic() < due
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_sigkill_takes_settings_back(
    kernel: FakeDma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    balancing = "/proc/sys/kernel/numa_balancing"
    fake_dma.put(kernel, balancing, "2")
    fake_dma.put(kernel, "/behave", "pins")
    before = settings(kernel)
    begun = tmp_path / "begun"

    def hang(check: state.Check, log: object, with_disturb: bool) -> None:
        for name in (state.TIMEOUT_MS, state.CPU_SHARE, f"{DEBUG}/verify"):
            kernel.write(name, "1")
        with check.bench.mover((4096,)) as mover:
            mover.move_on()
            assert kernel.get(balancing) == "0"
            begun.write_text(str(mover._process.pid))
            time.sleep(60)

    monkeypatch.setattr(run, "_all_steps", hang)
    killed(kernel, begun)
    # The program puts back the time limit of the check, and that of before comes last.
    with lock.hold(kernel, "settings", 20.0, "wait"):
        assert gone(int(begun.read_text()))
        # Only the kernel releases channels.
        assert settings(kernel) == {**before, "channels": settings(kernel)["channels"]}
        assert kernel.get(balancing) == "2"


def test_after_sigkill_others_wait_for_the_way_back(
    kernel: FakeDma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = settings(kernel)
    begun, slow = tmp_path / "begun", kernel.path(f"{DEBUG}/engine_always")

    def hang(*_: object, with_disturb: bool) -> None:
        kernel.write(state.TIMEOUT_MS, "1")
        slow.unlink()
        os.mkfifo(slow)
        begun.write_text("yes")
        time.sleep(60)

    monkeypatch.setattr(run, "_all_steps", hang)
    killed(kernel, begun)
    with pytest.raises(PageferryError, match="at work"), lock.hold_settings(kernel):
        pass
    # The other process waits for a reader and a writer of this file.
    slow.write_text("1\n")
    assert slow.read_text() == "0"
    with lock.hold(kernel, "settings", 20.0, "wait"):
        # Only the kernel releases channels.
        assert settings(kernel) == {**before, "channels": settings(kernel)["channels"]}


def test_settings_of_a_dcbm_in_use_come_back(check: Check, kernel: FakeDma) -> None:
    fake_dma.put(kernel, f"{DCBM}/nr_dma_chan", "2")
    kernel.write(f"{DCBM}/offloading", "1")
    kernel.write(f"{DIRECTORY}/engine_of/damon", "cpu")
    code, document, _ = check()
    assert code == 0 and len(document["channels"]) == 6


def test_disturbed(check: Check, kernel: FakeDma) -> None:
    code, document, _ = check("--disturb", behave="late")
    assert code == 0, document
    found = answers(document)
    assert found["gives late transfers back"] == "yes"
    assert found["unbind of 0000:00:04.0 while busy"] == "yes"
    assert "1 > /sys/module/dcbm/parameters/timeout_ms" in kernel.log
    where = "/sys/bus/pci/drivers/ioatdma"
    assert kernel.log.count(f"0000:00:04.0 > {where}/unbind") == 1
    assert kernel.log.count(f"0000:00:04.0 > {where}/bind") == 1


def test_transfers_that_never_time_out_are_not_known(check: Check) -> None:
    code, document, _ = check("--disturb")
    assert code == 0
    assert answers(document)["gives late transfers back"] == "not known"


def test_transfers_that_stay_away(check: Check) -> None:
    code, document, _ = check("--disturb", behave="held")
    assert code == ExitCode.FAILED
    found = answers(document)
    assert found["gives late transfers back"] == "no"
    assert "unbind of 0000:00:04.0 while busy" not in found


def test_channels_that_do_not_come_back(
    check: Check, kernel: FakeDma, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = FakeDma._bind

    def lose(files: FakeDma, name: str, device: str) -> None:
        bind(files, name, device)
        shutil.rmtree(files.path(f"{CLASS}/dma0chan5"), ignore_errors=True)

    monkeypatch.setattr(FakeDma, "_bind", lose)
    code, document, _ = check("--disturb")
    assert code == ExitCode.FAILED
    assert answers(document)["unbind of 0000:00:04.0 while busy"] == "no"


def test_a_device_that_others_use_stays_bound(check: Check, kernel: FakeDma) -> None:
    fake_dma.put(kernel, f"{CLASS}/dma0chan0/in_use", "1")
    code, document, _ = check("--disturb")
    assert code == 0
    assert answers(document)["unbind of 0000:00:04.0 while busy"] == "not known"
    assert not [line for line in kernel.log if "unbind" in line]


def simulated(kernel: FakeDma, *faults: str) -> str:
    """Replace the device by a simulated one with these faults."""
    shutil.rmtree(kernel.path(CLASS))
    platform = {"driver": "dmasim", "bus": "platform"}
    add_device(kernel, "dmasim.0", fake_dma.DMASIM, channels=1, **platform)  # type: ignore[arg-type]
    top = "/sys/kernel/debug/dmasim/dmasim.0/chan0"
    for name in (*(f"{fault}_every" for fault in faults), "errors", "hidden"):
        fake_dma.put(kernel, f"{top}/{name}", "0")
    return top


def test_errors_of_the_simulated_device_are_noticed(
    check: Check, kernel: FakeDma
) -> None:
    top = simulated(kernel, "fail", "hide_error")
    code, document, _ = check()
    assert code == 0
    found = answers(document)
    assert found["errors of dmasim.0"] == found["hidden errors of dmasim.0"] == "yes"
    assert kernel.get(f"{top}/fail_every") == "0"
    assert f"5 > {top}/hide_error_every" in kernel.log


def test_an_older_dmasim_hides_nothing(check: Check, kernel: FakeDma) -> None:
    simulated(kernel, "fail")
    _, document, _ = check()
    assert answers(document)["errors of dmasim.0"] == "yes"
    assert "hidden errors of dmasim.0" not in answers(document)


def test_errors_that_dcbm_does_not_notice(check: Check, kernel: FakeDma) -> None:
    simulated(kernel, "fail", "hide_error")
    code, document, _ = check(behave="deaf")
    assert code == ExitCode.FAILED
    assert answers(document)["hidden errors of dmasim.0"] == "no"


@pytest.mark.parametrize(
    ("trusted", "believes"), [(None, True), ("ioatdma,idxd", True), ("idxd", False)]
)
def test_the_trust_of_dcbm_is_told(
    check: Check, kernel: FakeDma, trusted: str | None, *, believes: bool
) -> None:
    if trusted is not None:
        fake_dma.put(kernel, f"{DCBM}/parameters/trust_errors", trusted)
    _, document, _ = check()
    assert document["trust"] == [
        {
            "device": "0000:00:04.0",
            "driver": "ioatdma",
            "believes_errors": believes,
            "assumes_stop": False,
        }
    ]
    details = {f["question"]: f["detail"] for f in document["findings"]}
    word = "dcbm believes it" if believes else "the end of each piece"
    assert word in details["errors of 0000:00:04.0"]


def test_a_warning_in_the_kernel_log_fails(
    check: Check, kernel: FakeDma, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = steps.pieces

    def complain(checked: state.Check) -> Finding:
        with kernel.path("/kmsg").open("a") as log:
            log.write("4,12,34,-;WARNING: CPU: 0 PID: 1 at mm/x.c:1\n")
        return pieces(checked)

    monkeypatch.setattr(steps, "pieces", complain)
    code, document, _ = check()
    assert code == ExitCode.FAILED
    assert answers(document)["kernel log clean"] == "no"


def test_a_log_that_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    log = state.KernelLog(tmp_path / "none")
    assert log.complaints() is None and "No such file" in log.obstacle
    log.close()


@pytest.mark.parametrize(
    ("break_it", "word"),
    [
        (lambda k: shutil.rmtree(k.path(DIRECTORY)), "MIGRATION_COPY_OFFLOAD"),
        (
            lambda k: shutil.rmtree(k.path("/sys/devices/system/node/node1")),
            "numa=fake=2",
        ),
        (lambda k: shutil.rmtree(k.path(CLASS)), "no free DMA channel"),
        (
            lambda k: fake_dma.put(
                k,
                "/sys/devices/system/node/node1/meminfo",
                "Node 1 MemTotal: 900000 kB\nNode 1 MemFree: 9 kB",
            ),
            "free 16 MiB",
        ),
    ],
)
def test_what_a_machine_lacks_is_named(
    kernel: FakeDma,
    capsys: pytest.CaptureFixture[str],
    break_it: Callable[[FakeDma], None],
    word: str,
) -> None:
    break_it(kernel)
    assert main(["engine", "check", "dcbm"]) == ExitCode.UNSUPPORTED
    assert word in capsys.readouterr().err


def test_only_root_may_check(
    kernel: FakeDma,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["engine", "check", "dcbm"]) == ExitCode.UNSUPPORTED
    assert "run it as root" in capsys.readouterr().err


def test_other_engines_have_no_devices(kernel: FakeDma) -> None:
    assert main(["engine", "check", "mtcopy"]) == ExitCode.USAGE


def test_a_dry_run_changes_nothing(
    kernel: FakeDma, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine", "check", "dcbm", "--dry-run", "--disturb"]) == 0
    said = capsys.readouterr().out
    assert "unbind each device" in said and state.TIMEOUT_MS in said
    assert kernel.log == []
    assert main(["engine", "check", "dcbm", "--dry-run", "--json"]) == 0
    assert "unbind" not in capsys.readouterr().out


def test_numbers_of_channels() -> None:
    assert steps.counts(1) == [1]
    assert steps.counts(6) == [1, 2, 4, 6]
    assert steps.counts(16) == [1, 2, 4, 8, 16]


def test_a_simulated_device_is_told_to_be_late(check: Check, kernel: FakeDma) -> None:
    top = simulated(kernel, "fail")
    fake_dma.put(kernel, f"{top}/late_nth", "0")
    code, _, _ = check("--disturb", behave="late")
    assert code == 0
    assert f"1 > {top}/late_nth" in kernel.log
