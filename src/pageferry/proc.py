# SPDX-License-Identifier: GPL-2.0-only
"""Run other programs, and end all of their processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pageferry.errors import unsupported

_KILL_AFTER_S = 5.0
# The signals that end a command.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ends_with_us(argv: Sequence[str]) -> list[str]:
    """Return a command that gets SIGKILL if the thread that started it ends."""
    return [find_tool("setpriv", "util-linux"), "--pdeathsig", "KILL", "--", *argv]


def find_tool(name: str, package: str, path: str | None = None) -> str:
    """Find a program, or raise an error that names its Debian package."""
    found = shutil.which(name, path=path)
    if found is None:
        raise unsupported(f"{name} is not installed", hint=f"apt-get install {package}")
    return found


def capture(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a short program to its end, and return its output."""
    return subprocess.run(
        [str(part) for part in argv],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def kill_group(
    process: subprocess.Popen[bytes], patience_s: float = _KILL_AFTER_S
) -> None:
    """End a process that leads its own group, and the rest of the group.

    patience_s: the time between SIGTERM and SIGKILL.
    """
    try:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    finally:
        # This runs after a second Ctrl-C, too. A member of the group may ignore
        # SIGTERM and outlive the leader.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def group(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.STDOUT,
    pass_fds: Sequence[int] = (),
    patience_s: float = _KILL_AFTER_S,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a process group that does not outlive the block."""
    process = subprocess.Popen(
        [str(part) for part in argv],
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(pass_fds),
        # With a group of its own, Ctrl-C reaches only this process, which then
        # ends the child. The child gets no session of its own: with autogroup,
        # Linux would not apply our nice value against other sessions.
        process_group=0,
    )
    try:
        yield process
    finally:
        kill_group(process, patience_s)
        for stream in (process.stdout, process.stderr, process.stdin):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Deliver no signal until the end of the block, so that it does all of its work."""
    held: list[int] = []
    ended = False
    found = {number: signal.getsignal(number) for number in _ENDING}
    before = {number: call for number, call in found.items() if callable(call)}

    def hold(number: int, frame: types.FrameType | None) -> None:
        if ended:
            # An earlier signal has interrupted the loop that brings back the handlers.
            before[signal.Signals(number)](number, frame)
        else:
            held.append(number)

    # Programs that the block starts block the signals, too. The mask is that of this
    # thread: Linux gives a signal to another one then, and Python calls the handler here.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        for number in before:
            signal.signal(number, hold)
        yield
    finally:
        ended = True
        try:
            for number, call in before.items():
                signal.signal(number, call)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for late in held:
            signal.raise_signal(late)


def interrupt_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt, so that `finally` runs."""

    def interrupt(_number: int, _frame: types.FrameType | None) -> None:
        raise KeyboardInterrupt

    handler: Callable[[int, types.FrameType | None], None] = interrupt
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def tail(path: Path, lines: int) -> str:
    """Read the last lines of a log, without reading all of it."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - lines * 400))
            text = stream.read().decode(errors="replace")
    except OSError as error:
        return f"(cannot read {path}: {error.strerror})"
    return "\n".join(text.splitlines()[-lines:])
