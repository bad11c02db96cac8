# SPDX-License-Identifier: GPL-2.0-only
"""Does KVM work here? Found out by running a guest, not by looking at a file."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from pageferry import output, paths, proc
from pageferry.kernel.arch import X86_64, Architecture

KVM = "kvm"
TCG = "tcg"
# All CPUs of the guest take turns in one thread. QEMU before 8.1 may otherwise
# run code that the guest has just changed, as it was in the middle of that.
TCG_ONE_THREAD = "tcg,thread=single"
# The clock of instructions makes Linux distrust the local APIC's timer, after it
# has spent 400 million of them on finding that out.
_ICOUNT_WORDS = {X86_64: ("nolapic_timer",)}
_DEADLINE_S = 20.0


def find_qemu(arch: Architecture = X86_64) -> str:
    """Find QEMU, or say how to get it."""
    return proc.find_tool(arch.qemu, arch.qemu_package, paths.venv_path())


def cpu_args(
    accel: str, *, icount: bool = False, arch: Architecture = X86_64
) -> list[str]:
    """Choose the accelerator and the processor."""
    if accel == KVM:
        return ["-accel", "kvm", "-cpu", "host"]
    # TCG runs "rep movsb" a byte at a time: with ERMS or FSRM every copy in the
    # guest would be ten times slower than the same copy in a loop. A machine of
    # another architecture comes with its processor.
    processor = ["-cpu", "max,erms=off,fsrm=off"] if arch is X86_64 else []
    if icount:
        # Randomness would be the one thing left that differs between two runs.
        if processor:
            processor[1] += ",rdrand=off,rdseed=off"
        clock = ["-icount", "shift=0,sleep=off", "-seed", "1"]
        return ["-accel", "tcg", *clock, *processor]
    one_thread = accel == TCG_ONE_THREAD
    return ["-accel", accel if one_thread else "tcg,thread=multi", *processor]


def icount_words(arch: Architecture) -> tuple[str, ...]:
    """Say what the kernel has to hear when its clock counts instructions."""
    return _ICOUNT_WORDS.get(arch, ())


def choose(image: Path, arch: Architecture = X86_64) -> str:
    """Return kvm where a guest really runs, else tcg; asked once per boot."""
    if arch is not X86_64:
        return TCG
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    answer = known()
    if answer is not None:
        return answer
    reason = _try_kvm(image)
    accel = TCG if reason else KVM
    if reason:
        output.talk(f"/dev/kvm is here but cannot run a guest ({reason}): using TCG")
    remember(accel)
    return accel


def known() -> str | None:
    """Return what was found out since this machine booted."""
    memory = paths.cache_dir() / "vm" / "kvm.json"
    try:
        answer = json.loads(memory.read_text())
        if answer["identity"] == _identity() and answer["accel"] in (KVM, TCG):
            return str(answer["accel"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def remember(accel: str) -> None:
    """Keep the answer until the next boot of this machine."""
    try:
        memory = paths.make_cache_dir("vm") / "kvm.json"
        scratch = memory.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps({"identity": _identity(), "accel": accel}))
        scratch.replace(memory)
    except OSError:
        pass  # It is only asked again.


def _identity() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    device = os.stat("/dev/kvm") if os.path.exists("/dev/kvm") else None  # noqa: PTH110, PTH116
    return f"{boot}:{device.st_rdev if device else 0}:{os.geteuid()}"


def _try_kvm(image: Path) -> str | None:
    """Boot the image until it looks for a root file system; None when it did.

    A few instructions in real mode are not enough: there are machines on which
    those work and a kernel hangs.
    """
    argv = [find_qemu(), *cpu_args(KVM), "-machine", "q35", "-m", "256M"]
    argv += ["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"]
    argv += ["-kernel", str(image), "-append", "console=ttyS0 panic=-1 quiet"]
    with proc.group(argv) as process:
        try:
            said, _ = process.communicate(timeout=_DEADLINE_S)
        except subprocess.TimeoutExpired:
            return f"no end after {_DEADLINE_S:.0f} s"
    text = said.decode(errors="replace")
    if "Unable to mount root fs" in text:
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].strip()[:120] if lines else f"QEMU ended with {process.returncode}"
