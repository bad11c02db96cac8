# SPDX-License-Identifier: GPL-2.0-only
"""Choose between KVM and TCG: a test guest shows whether KVM works."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from pageferry import output, paths, proc
from pageferry.kernel.arch import X86_64, Architecture

KVM = "kvm"
TCG = "tcg"
# All guest CPUs share one host thread. With a thread each, QEMU before 8.1 may run
# a half-changed instruction while Linux patches its code.
TCG_ONE_THREAD = "tcg,thread=single"
# With a clock of instructions, Linux rejects the local APIC timer, after a check
# that takes 400 million instructions. This word skips the check.
_ICOUNT_WORDS = {X86_64: ("nolapic_timer",)}
_DEADLINE_S = 60.0


def find_qemu(arch: Architecture = X86_64) -> str:
    """Return the path of QEMU, or raise an error with its package."""
    return proc.find_tool(arch.qemu, arch.qemu_package, paths.venv_path())


def cpu_args(
    accel: str, *, icount: bool = False, arch: Architecture = X86_64
) -> list[str]:
    """Return QEMU's arguments for the accelerator and the processor."""
    if accel == KVM:
        return ["-accel", "kvm", "-cpu", "host"]
    # TCG runs "rep movsb" a byte at a time. With ERMS or FSRM, Linux would use it,
    # and copies would take ten times as long. Machines of other architectures
    # choose their processor.
    processor = ["-cpu", "max,erms=off,fsrm=off"] if arch is X86_64 else []
    if icount:
        # Random numbers would differ between runs.
        if processor:
            processor[1] += ",rdrand=off,rdseed=off"
        clock = ["-icount", "shift=0,sleep=off", "-seed", "1"]
        return ["-accel", "tcg", *clock, *processor]
    one_thread = accel == TCG_ONE_THREAD
    return ["-accel", accel if one_thread else "tcg,thread=multi", *processor]


def icount_words(arch: Architecture) -> tuple[str, ...]:
    """Return the kernel parameters for a clock that counts instructions."""
    return _ICOUNT_WORDS.get(arch, ())


def choose(image: Path, arch: Architecture = X86_64) -> str:
    """Return kvm if a test guest runs, otherwise tcg; tried once per host boot."""
    if arch is not X86_64:
        return TCG
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    answer = known(image)
    if answer is not None:
        return answer
    reason = _try_kvm(image)
    accel = TCG if reason else KVM
    if reason:
        output.talk(f"/dev/kvm is here but cannot run a guest ({reason}): using TCG")
    # QEMU itself complains about the host, whatever the kernel is.
    remember(accel, None if reason and reason.startswith("qemu-") else image)
    return accel


def known(image: Path | None = None) -> str | None:
    """Return the result of an earlier test since the host booted.

    image: the kernel to boot. Another one may have failed for a reason of its own.
    """
    memory = paths.cache_dir() / "vm" / "kvm.json"
    try:
        answer = json.loads(memory.read_text())
        if answer["identity"] == _identity() and answer["accel"] in (KVM, TCG):
            failed = answer["accel"] == TCG and image is not None
            if not failed or answer["image"] in ("", _stamp(image)):
                return str(answer["accel"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def remember(accel: str, image: Path | None) -> None:
    """Store the result until the next boot of the host.

    image: the kernel that was tried; None if the result holds for any kernel.
    """
    found = {"identity": _identity(), "accel": accel, "image": _stamp(image)}
    try:
        memory = paths.make_cache_dir("vm") / "kvm.json"
        scratch = memory.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(found))
        scratch.replace(memory)
    except OSError:
        pass  # The next run tests again.


def _stamp(image: Path | None) -> str:
    """Tell one kernel from another."""
    if image is None or not image.exists():
        return ""
    return f"{image.resolve()}:{image.stat().st_mtime_ns}"


def _identity() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    device = os.stat("/dev/kvm") if os.path.exists("/dev/kvm") else None  # noqa: PTH110, PTH116
    return f"{boot}:{device.st_rdev if device else 0}:{os.geteuid()}"


def _try_kvm(image: Path) -> str | None:
    """Boot the image until it looks for a root file system; None on success.

    Running a few instructions is not enough. On some hosts these work, but a kernel
    hangs.
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
