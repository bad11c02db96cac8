# SPDX-License-Identifier: GPL-2.0-only
"""The lines that programs in bench/ print: JSON objects, strictly parsed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Union

import msgspec

from pageferry.errors import ExitCode, PageferryError
from pageferry.results.schema import Setting

# These fields are not settings.
_BASE = ("bench", "release", "version", "nodes", "cpus", "cpu_model")


class Line(msgspec.Struct, tag_field="type", kw_only=True):
    """A line of any type."""


class Environment(Line, tag="environment", kw_only=True):
    """The first line: the machine of the program, and its settings."""

    bench: str
    release: str
    version: str
    nodes: str = ""
    cpus: int = 1
    cpu_model: str = "unknown"
    # All other fields of the line. Null: this kernel lacks it.
    settings: dict[str, Setting] = {}


class Timed(Line, kw_only=True):
    """One step of a run, in one of its rounds."""

    engine: str
    threads: int
    channels: int = 0
    # 0: a warm-up, which does not count.
    round: int
    verified: bool
    # Unknown on a kernel without migrate_offload, or if the program did not ask.
    engine_bytes: int | None = None
    cpu_bytes: int | None = None
    offered_folios: int | None = None
    batches: int | None = None


class Moved(Timed, kw_only=True):
    """Memory that moved."""

    folio_bytes: int
    moved_bytes: int
    elapsed_ns: int
    split_folios: int | None = None
    # Only if a thread touched the memory meanwhile.
    touch: str | None = None
    touches: int = 0
    touch_quiet_ns: int = 0
    touch_threshold_ns: int = 0
    touch_slow: int = 0
    touch_slept: int = 0
    touch_slowest_ns: int = 0
    touch_lost_ns: int = 0
    touch_slept_ns: int = 0
    touch_hist: list[int] | None = None


class Skipped(Line, tag="skipped", kw_only=True):
    """A folio size that this kernel lacks."""

    folio_bytes: int
    reason: str


class Failure(Line, tag="error", kw_only=True):
    """The program failed with this exit code."""

    exit: int
    message: str


class Done(Line, tag="done", kw_only=True):
    """The last line: all measurements are done."""


_ALWAYS: tuple[type[Line], ...] = (Environment, Skipped, Failure, Done)
_START = '{"type": "'


@cache
def _decoder(kinds: tuple[type[Line], ...]) -> msgspec.json.Decoder[Line]:
    return msgspec.json.Decoder(Union[(*_ALWAYS, *kinds)])


def parse_line(text: str, *kinds: type[Line]) -> Line | None:
    """Parse one line; None if the program did not write the line.

    The kernel and the firmware use the same serial console.
    """
    start = text.find(_START)
    if start < 0:
        return None
    words = text[start:].strip()
    try:
        line = _decoder(kinds).decode(words)
        if isinstance(line, Environment):
            said = msgspec.json.decode(words, type=dict[str, Setting])
            known = ("type", *_BASE)
            line.settings = {k: v for k, v in said.items() if k not in known}
    except msgspec.DecodeError as error:
        raise PageferryError(
            "the benchmark program printed something unexpected",
            value=words[:200],
            reason=str(error),
        ) from error
    return line


def complete(lines: Iterable[Line]) -> list[Line]:
    """Yield all lines of a run that reached its end, or raise its error."""
    seen = list(lines)
    for line in seen:
        if isinstance(line, Failure):
            known = line.exit in set(ExitCode)
            code = ExitCode(line.exit) if known else ExitCode.FAILED
            raise PageferryError(line.message, code=code)
    if not any(isinstance(line, Done) for line in seen):
        raise PageferryError(
            "the benchmark program ended before it was done",
            code=ExitCode.NOT_STARTED if not seen else ExitCode.FAILED,
        )
    return seen


def environment_of(lines: Sequence[Line]) -> Environment:
    """Find the line that describes the machine."""
    for line in lines:
        if isinstance(line, Environment):
            return line
    raise PageferryError(
        "the benchmark program did not say where it runs", code=ExitCode.NOT_STARTED
    )
