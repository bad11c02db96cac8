# SPDX-License-Identifier: GPL-2.0-only
"""Move memory with bench/move_pages, once or until the check has seen enough."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pageferry import output, proc
from pageferry.bench import target
from pageferry.bench.lines import Failure, Line, Moved, parse_line
from pageferry.errors import ExitCode, PageferryError

# A round of the mover takes this long on a very slow device.
_SLOWEST_S = 120.0
_POLL_S = 0.001
# The mover runs until the check ends it.
_ENDLESS = 10_000


class Copied(Moved, tag="measurement", kw_only=True):
    """Memory that one call of move_pages(2) moved, with the time of the engine."""

    engine_ns: int | None = None

    @property
    def rate(self) -> float:
        """Return the rate of the call in bytes per second."""
        return self.moved_bytes * 1e9 / max(self.elapsed_ns, 1)

    @property
    def engine_rate(self) -> float | None:
        """Return the rate of the engine alone; None if the kernel has no counters."""
        if not self.engine_ns or self.engine_bytes is None:
            return None
        return self.engine_bytes * 1e9 / self.engine_ns


@dataclass
class Bench:
    """The program, the two nodes, and the amount for each call."""

    program: Path
    from_node: int
    to_node: int
    total_bytes: int
    progress: output.Progress
    # After SIGKILL the guard of the settings waits for programs that have this.
    guard_fd: int

    def argv(
        self,
        variants: Sequence[str],
        sizes: Sequence[int],
        rounds: int,
        *,
        verify: bool = False,
        may_stay: bool = False,
    ) -> list[str]:
        """Return the command line."""
        return [
            str(self.program),
            f"--from={self.from_node}",
            f"--to={self.to_node}",
            f"--sizes={','.join(map(str, sizes))}",
            f"--total-bytes={self.total_bytes}",
            f"--rounds={rounds}",
            f"--variants={','.join(variants)}",
            "--limit=none",
            *(["--verify"] if verify else []),
            *(["--may-stay"] if may_stay else []),
        ]

    def run(self, argv: Sequence[str]) -> list[Copied]:
        """Run the program to its end; it has verified every byte that moved."""

        def seen(line: Line) -> None:
            if isinstance(line, Copied):
                self.progress.advance()

        lines = target.run_live(argv, (Copied,), seen, pass_fds=(self.guard_fd,))
        return [line for line in lines if isinstance(line, Copied)]

    def mover(self, sizes: Sequence[int]) -> Mover:
        """Move memory with dcbm until the end of the block.

        Pages that a late device may still use stay where they are.
        """
        argv = self.argv(["dcbm"], sizes, _ENDLESS, verify=True, may_stay=True)
        return Mover(argv, self.guard_fd)


class Mover:
    """The program in the background. It ends with an error at the first wrong byte."""

    def __init__(self, argv: Sequence[str], guard_fd: int) -> None:
        self.moves = 0
        self._argv = argv
        self._guard_fd = guard_fd
        self._failure: str | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        group = proc.group(self._argv, pass_fds=(self._guard_fd,))
        self._process = self._stack.enter_context(group)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # The program restores its settings, which may take long while a device is
            # slow. group() would kill the program after 5 s.
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_SLOWEST_S)
                self._reader.join(_SLOWEST_S)
        finally:
            self._stack.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            # The end of the program may cut its last line.
            if not raw.endswith(b"\n"):
                break
            try:
                line = parse_line(raw.decode(errors="replace"), Copied)
            except PageferryError as error:
                self._failure = error.line()
                break
            if isinstance(line, Copied):
                self.moves += 1
            elif isinstance(line, Failure):
                self._failure = line.message

    def until(self, reached: Callable[[], bool], limit_s: float) -> bool:
        """Wait until a condition holds; False after the time limit."""
        end = time.monotonic() + limit_s
        while not reached():
            if self._failure or self._process.poll() is not None:
                self._reader.join()
                raise PageferryError(
                    "memory did not move until the end",
                    value=Path(self._argv[0]).name,
                    reason=self._failure or f"exit status {self._process.returncode}",
                )
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True

    def move_on(self, calls: int = 2) -> None:
        """Wait until more calls have moved and verified their memory.

        The first of them may have begun before.
        """
        wanted = self.moves + calls
        if not self.until(lambda: self.moves >= wanted, calls * _SLOWEST_S):
            raise PageferryError(
                "memory does not move any more",
                reason=f"no call of move_pages(2) ended in {calls * _SLOWEST_S:.0f} s",
                hint="dmesg | tail",
                code=ExitCode.TIMEOUT,
            )
