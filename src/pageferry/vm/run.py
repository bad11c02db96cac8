# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel and run one command in it.

Our init runs the command, on the host's root (virtme.py) or in an initramfs
(carried.py). Virtual serial ports carry the command's output, so that the serial
console contains only the kernel log.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pageferry import output, paths, proc
from pageferry.errors import ExitCode, PageferryError, unsupported
from pageferry.vm import accel, carried, guest, klog, topology, virtme

# Boots take seconds, or minutes on a busy host.
BOOT_TIMEOUT_S = 300.0
# `make test` writes more than a hundred logs, and reads the first ones at its end.
_KEEP_LOGS = 400
_TAIL_LINES = 40
# Time for QEMU to end after a panic, or after the command.
_GRACE_S = 10.0
# Linux patches code with a temporary int3. QEMU before 8.1 may run that int3 after
# another guest CPU has replaced it. Most patching happens during boot.
_STALE_CODE = "Oops: int3"
# QEMU 7.2 with a thread for each CPU has also crashed during the guest's PCI scan.
# One of these signals is QEMU's fault, whatever the guest did.
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)
_CRASHED = "QEMU crashed"
# With 16 CPUs, one boot in two fails in one of these ways.
_BOOTS = 10


@dataclass(frozen=True)
class VmRequest:
    """A command, and the machine to run it in."""

    command: tuple[str, ...]
    image: Path
    modules: Path | None = None
    topology: str = "two-node"
    timeout_s: float | None = None
    boot_timeout_s: float = BOOT_TIMEOUT_S
    icount: bool = False
    insert: tuple[str, ...] = ()
    append: tuple[str, ...] = ()
    rw: tuple[Path, ...] = ()
    # Files for a guest that does not mount the host's root.
    carry: tuple[Path, ...] = ()
    allow_klog: tuple[str, ...] = ()
    accel: str | None = None
    preallocate: bool = False
    cwd: Path = field(default_factory=Path.cwd)
    environment: Mapping[str, str] = field(default_factory=dict)
    # Print the command's output as it comes, and keep it.
    stream: bool = False
    # Called with the bytes of stdout as they come.
    on_stdout: Callable[[bytes], None] | None = None


@dataclass(frozen=True)
class VmOutcome:
    """The result of a run. exit_code is the command's; None if it did not end."""

    exit_code: int | None
    timed_out: bool
    stdout: str
    stderr: str
    serial_log: Path
    findings: tuple[str, ...]
    accel: str
    boot_s: float
    guest_boot_s: float
    run_s: float

    @property
    def status(self) -> int:
        """Return the exit code of the whole run."""
        if self.timed_out:
            return int(ExitCode.TIMEOUT)
        if self.findings or self.exit_code is None:
            return int(ExitCode.FAILED)
        return self.exit_code

    @property
    def broken_by_qemu(self) -> bool:
        """Say whether QEMU crashed, or ran stale code.

        Under KVM, and with all CPUs in one thread, an int3 is the kernel's fault.
        """
        if self.exit_code is not None:
            return False
        faults = [_CRASHED] + [_STALE_CODE] * (self.accel == accel.TCG)
        return any(fault in found for fault in faults for found in self.findings)

    def serial_tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the end of the kernel log."""
        return proc.tail(self.serial_log, lines)

    def as_json(self) -> dict[str, object]:
        """Return the document of `vm run --json`."""
        return {
            "exit_code": self.exit_code,
            "timed_out": self.timed_out,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "serial_log": str(self.serial_log),
            "findings": list(self.findings),
            "accel": self.accel,
            "boot_ms": int(self.boot_s * 1000),
            "guest_boot_ms": int(self.guest_boot_s * 1000),
            "run_ms": int(self.run_s * 1000),
        }


def run_vm(request: VmRequest) -> VmOutcome:
    """Boot, run the command, search the kernel log."""
    machine = topology.load(request.topology)
    if not request.image.is_file():
        raise PageferryError(
            "no such kernel image",
            value=request.image,
            hint="pageferry kernel build",
            code=ExitCode.USAGE,
        )
    arch = machine.architecture
    if not machine.sees_host:
        if request.accel == accel.KVM:
            raise unsupported(f"KVM cannot run {arch.name} here", request.topology)
        request = carried.check(request, machine)
    icount = request.icount or machine.icount
    chosen = request.accel or (
        accel.TCG if icount else accel.choose(request.image, arch)
    )
    for left in reversed(range(_BOOTS)):
        try:
            return _Run(request, machine, chosen, icount=icount).outcome()
        except _NoSignOfLifeError:
            if chosen != accel.KVM or request.accel is not None:
                raise
            output.talk(
                "the guest shows no sign of life under KVM: trying it under TCG"
            )
            chosen = accel.TCG
        except _EmulatorFaultError as error:
            # The command has not started, so a second boot repeats nothing.
            if not left:
                raise
            output.talk(f"{error.reason}: booting again (see {error.value})")
    raise AssertionError("the last boot returns or raises")


class _NoSignOfLifeError(PageferryError):
    """The guest printed no kernel log."""


class _EmulatorFaultError(PageferryError):
    """A fault of QEMU stopped the guest before the command ran."""


def new_log() -> Path:
    """Create a new log file, and remove the oldest ones."""
    directory = paths.make_cache_dir("vm", "logs")
    for old in sorted(directory.glob("*.log"))[:-_KEEP_LOGS]:
        old.unlink(missing_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S-")
    number, name = tempfile.mkstemp(prefix=stamp, suffix=".log", dir=directory)
    os.close(number)
    return Path(name)


class _Run:
    """One boot of one machine."""

    def __init__(
        self,
        request: VmRequest,
        machine: topology.Topology,
        chosen: str,
        *,
        icount: bool,
    ) -> None:
        self.request = request
        self.machine = machine
        self.accel = chosen
        self.icount = icount
        self.log = new_log()
        self.lines: list[str] = []
        self.partial = b""
        self.kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.said = b""
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.guest_boot_s = 0.0
        self.exit_code: int | None = None
        self.crash: str | None = None
        self.timed_out = False
        self.last_words_at: float | None = None
        self.boot_deadline = time.monotonic() + request.boot_timeout_s

    def outcome(self) -> VmOutcome:
        """Boot the machine, and return the result."""
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(
            prefix="run-", dir=paths.make_cache_dir("vm"), ignore_cleanup_errors=True
        ) as scratch:
            self._boot(Path(scratch))
        end = self.ended_at or time.monotonic()
        if self.started_at is None:
            raise self._boot_failure()
        found = klog.findings(self.lines, self.request.allow_klog)
        found += [self.crash] if self.crash else []
        return VmOutcome(
            exit_code=self.exit_code,
            timed_out=self.timed_out,
            stdout=self.kept["stdout"].decode(errors="replace"),
            stderr=self.kept["stderr"].decode(errors="replace"),
            serial_log=self.log,
            findings=tuple(found),
            accel=self.accel,
            boot_s=self.started_at - begin,
            guest_boot_s=self.guest_boot_s,
            run_s=end - self.started_at,
        )

    def _boot(self, scratch: Path) -> None:
        script = scratch / "run.sh"
        modules = self.request.modules
        insert: list[Path] = []
        if self.request.insert:
            if modules is None:
                raise PageferryError(
                    "the modules of this kernel image were not found",
                    value=self.request.image,
                    hint="build it with pageferry kernel build",
                    code=ExitCode.USAGE,
                )
            insert = guest.module_files(modules, self.request.insert)
        environment = self.request.environment
        if not self.machine.sees_host:
            environment = {**carried.environment(self.request), **environment}
        text = guest.run_script(
            self.request.command,
            cwd=self.request.cwd,
            modules=modules if self.machine.sees_host else None,
            insert=insert,
            environment=environment,
        )
        script.write_text(text)
        with contextlib.ExitStack() as pipes:
            ports = {name: _Pipe(pipes) for name in guest.PORTS}
            argv = self._command_line(script, {n: p.write for n, p in ports.items()})
            env = {**os.environ, "PATH": paths.venv_path()}
            if self.machine.sees_host:
                env |= virtme.environment({n: p.write for n, p in ports.items()})
            with proc.group(
                proc.ends_with_us(argv),
                env=env,
                stderr=subprocess.PIPE,
                pass_fds=[port.write for port in ports.values()],
            ) as process:
                for port in ports.values():
                    port.close_write()
                self._watch(process, {n: port.read for n, port in ports.items()})

    def _command_line(self, script: Path, ports: Mapping[str, int]) -> list[str]:
        make = virtme.command_line if self.machine.sees_host else carried.command_line
        return make(
            self.request,
            self.machine,
            self.accel,
            icount=self.icount,
            script=script,
            ports=ports,
        )

    def _watch(
        self, process: subprocess.Popen[bytes], ports: Mapping[str, int]
    ) -> None:
        """Read until QEMU ends or a deadline passes."""
        assert process.stdout is not None and process.stderr is not None
        with self.log.open("wb") as log, selectors.DefaultSelector() as selector:
            selector.register(process.stdout.fileno(), selectors.EVENT_READ, "stdout")
            selector.register(process.stderr.fileno(), selectors.EVENT_READ, "serial")
            for name, number in ports.items():
                selector.register(number, selectors.EVENT_READ, name)
            while selector.get_map():
                now = time.monotonic()
                if self._is_over(now):
                    return
                for key, _ in selector.select(timeout=0.25):
                    data = os.read(key.fd, 65536)
                    if not data:
                        selector.unregister(key.fd)
                    elif key.data == "serial":
                        log.write(data)
                        log.flush()
                        self._serial(data)
                    elif key.data == guest.STATE_PORT:
                        self._state(data)
                    else:
                        self._output(str(key.data), data)

    def _is_over(self, now: float) -> bool:
        if self.last_words_at is not None:
            return now > self.last_words_at + _GRACE_S
        if self.started_at is None:
            return now > self.boot_deadline
        limit = self.request.timeout_s
        if limit is not None and now > self.started_at + limit:
            self.timed_out = True
        return self.timed_out

    def _output(self, name: str, data: bytes) -> None:
        self.kept[name] += data
        if name == "stdout" and self.request.on_stdout is not None:
            self.request.on_stdout(data)
        if self.request.stream:
            output.pass_on(data, to_stderr=name == "stderr")

    def _serial(self, data: bytes) -> None:
        *whole, self.partial = (self.partial + data).split(b"\n")
        for raw in whole:
            line = raw.decode(errors="replace").rstrip("\r")
            self.lines.append(line)
            if klog.is_panic(line):
                self.last_words_at = time.monotonic()

    def _state(self, data: bytes) -> None:
        """Note when the command starts, and how it ended."""
        *whole, self.said = (self.said + data).split(b"\n")
        for raw in whole:
            what, _, number = raw.decode(errors="replace").partition(" ")
            if what == guest.STARTED:
                self.started_at = time.monotonic()
                self.guest_boot_s = float(number)
            elif what == guest.ENDED:
                self.exit_code = int(number)
                self.ended_at = self.last_words_at = time.monotonic()
            elif what != guest.KILLED or self.ended_at is not None:
                # A signal after the end of the command does not matter.
                continue
            elif int(number) in _CRASHES:
                self.crash = f"{_CRASHED} ({signal.Signals(int(number)).name})"

    def _boot_failure(self) -> PageferryError:
        ended = self.ended_at is not None
        alive = any("Linux version" in line for line in self.lines)
        reason = f"not there after {self.request.boot_timeout_s:.0f} s"
        if ended:
            reason = "it could not prepare the command, see its messages above"
        elif any(klog.is_panic(line) for line in self.lines):
            reason = "the kernel panicked"
        elif time.monotonic() < self.boot_deadline:
            reason = "QEMU ended early"
        kind: type[PageferryError] = PageferryError if alive else _NoSignOfLifeError
        stale = any(_STALE_CODE in line for line in self.lines)
        if self.crash:
            kind, reason = _EmulatorFaultError, self.crash
        elif stale and self.accel == accel.TCG:
            kind = _EmulatorFaultError
            reason = "QEMU ran code of the guest that was being changed"
        return kind(
            "the guest did not get as far as the command",
            value=self.log,
            reason=reason,
            detail=proc.tail(self.log, _TAIL_LINES),
            hint=f"less {self.log}",
            code=ExitCode.NOT_STARTED,
        )


class _Pipe:
    """A pipe whose other end goes to QEMU."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.read, self.write = os.pipe()
        stack.callback(os.close, self.read)
        stack.callback(self.close_write)

    def close_write(self) -> None:
        """Close our writing end, so that QEMU's exit ends the stream."""
        if self.write >= 0:
            os.close(self.write)
        self.write = -1
