# SPDX-License-Identifier: GPL-2.0-only
"""The settings and counters in /sys/kernel/mm/migrate_offload."""

from __future__ import annotations

from dataclasses import dataclass, field

from pageferry.errors import ExitCode, PageferryError, unsupported, usage_error
from pageferry.sysfs import histogram
from pageferry.sysfs.files import Files
from pageferry.sysfs.histogram import Histogram

DIRECTORY = "/sys/kernel/mm/migrate_offload"
OFF = "none"
# The value of engine_of/REASON for a reason without an engine of its own.
DEFAULT = "default"


# These files are no counters; histogram.parse() reads them.
HISTOGRAMS = ("unmapped_hist", "waited_hist")


@dataclass(frozen=True)
class Limits:
    """Limits of the unmapped time and of the unmapped memory."""

    # 0: no time limit, or no engine was active yet, so that there is no default.
    max_unmapped_us: int
    max_batch_pages: int
    max_windows: int
    streaming: bool
    measure: bool

    def as_json(self) -> dict[str, object]:
        """Return the limits for --json."""
        return {
            "max_unmapped_us": self.max_unmapped_us,
            "max_batch_pages": self.max_batch_pages,
            "max_windows": self.max_windows,
            "streaming": self.streaming,
            "measure": self.measure,
        }


@dataclass(frozen=True)
class State:
    """The settings, as the kernel shows them."""

    engine: str
    available_engines: tuple[str, ...]
    reasons: tuple[str, ...]
    available_reasons: tuple[str, ...]
    min_batch_bytes: int
    verify: bool
    # None on a kernel without windows.
    limits: Limits | None = None
    # The engines of reasons that have one of their own.
    engine_of: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """Return the settings for --json."""
        return {
            "engine": self.engine,
            "engine_of": self.engine_of,
            "available_engines": list(self.available_engines),
            "reasons": list(self.reasons),
            "available_reasons": list(self.available_reasons),
            "min_batch_bytes": self.min_batch_bytes,
            "verify": self.verify,
            **(self.limits.as_json() if self.limits is not None else {}),
        }


class Offload:
    """The control files of one kernel."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def is_present(self) -> bool:
        """Say whether this kernel has the batch copy."""
        return self.files.exists(DIRECTORY)

    def require(self) -> None:
        """Raise an error on a kernel without the batch copy."""
        if not self.is_present():
            raise unsupported(
                "this kernel cannot copy pages in batches",
                self.files.path(DIRECTORY),
                "it lacks CONFIG_MIGRATION_COPY_OFFLOAD, which pageferry's kernel has",
                "pageferry vm run -- COMMAND, or boot the kernel of pageferry kernel build",
            )

    def read(self) -> State:
        """Read the settings."""
        self.require()
        available = tuple(self._read("available_reasons").split())
        return State(
            engine=self._read("engine"),
            available_engines=tuple(self._read("available_engines").split()),
            reasons=expand_reasons(self._read("reasons"), available),
            available_reasons=available,
            min_batch_bytes=self._number("min_batch_bytes"),
            verify=self._read("verify") == "true",
            limits=self._limits(),
            engine_of=self._engines_of(),
        )

    def _engines_of(self) -> dict[str, str]:
        found = {
            name: self._read(f"engine_of/{name}")
            for name in self.files.names(f"{DIRECTORY}/engine_of")
        }
        return {name: engine for name, engine in found.items() if engine != DEFAULT}

    def _limits(self) -> Limits | None:
        if not self.files.exists(f"{DIRECTORY}/max_unmapped_us"):
            return None
        return Limits(
            max_unmapped_us=self._number("max_unmapped_us"),
            max_batch_pages=self._number("max_batch_pages"),
            max_windows=self._number("max_windows"),
            streaming=self._read("streaming") == "true",
            measure=self._read("measure") == "true",
        )

    def counters(self, kind: str) -> dict[str, dict[str, int]]:
        """Read the counters of all reasons or of all engines."""
        top = f"{DIRECTORY}/stats/{kind}"
        return {
            name: {
                counter: self._number(f"stats/{kind}/{name}/{counter}")
                for counter in self.files.names(f"{top}/{name}")
                if counter not in HISTOGRAMS
            }
            for name in self.files.names(top)
        }

    def unmapped(self) -> dict[str, dict[str, Histogram]]:
        """Read the histograms of all reasons that have any."""
        top = "stats/reasons"
        found: dict[str, dict[str, Histogram]] = {}
        for name in self.files.names(f"{DIRECTORY}/{top}"):
            for kind in HISTOGRAMS:
                text = self.files.read_or(f"{DIRECTORY}/{top}/{name}/{kind}", "")
                if not text:
                    continue
                longest = kind.replace("_hist", "_max_ns")
                max_ns = self._number(f"{top}/{name}/{longest}")
                found.setdefault(name, {})[kind] = histogram.parse(text, max_ns)
        return found

    def set_engine(
        self,
        engine: str,
        *,
        reasons: str | None = None,
        min_batch_bytes: int | None = None,
        only_for: str | None = None,
    ) -> State:
        """Make an engine active, after setting the policy.

        With `only_for`, set the engine of these reasons, and leave the others alone.
        """
        before = self.read()
        known = before.available_engines
        if only_for is not None:
            known = (DEFAULT, *known)
        if engine not in known:
            raise usage_error(
                f"no such engine (there is: {', '.join(known)})",
                engine,
                f"modprobe {engine}, if it is a module that is not loaded"
                if engine.isidentifier() and engine != DEFAULT
                else "pageferry engine list",
            )
        where = ["engine"]
        if only_for is not None:
            words = check_reasons(only_for, before.available_reasons)
            named = expand_reasons(words, before.available_reasons)
            where = [f"engine_of/{word}" for word in named]
        if reasons is not None:
            words = check_reasons(reasons, before.available_reasons)
            self._write("reasons", words)
        if min_batch_bytes is not None:
            self._write("min_batch_bytes", str(min_batch_bytes))
        for name in where:
            self._write(name, engine)
        return before if self.files.dry_run else self._verified(engine, *where)

    def off(self) -> State:
        """Deactivate all engines; no engine code runs after this returns.

        The kernel resets engine_of, too.
        """
        self.require()
        self._write("engine", OFF)
        return self.read() if self.files.dry_run else self._verified(OFF, "engine")

    def _verified(self, engine: str, *names: str) -> State:
        for name in names:
            found = self._read(name)
            if found != engine:
                raise PageferryError(
                    "the kernel took the setting and did not keep it",
                    value=self.files.path(f"{DIRECTORY}/{name}"),
                    reason=f"wrote {engine}, reads {found}: another program may set it",
                    hint="pageferry status",
                    code=ExitCode.FAILED,
                )
        return self.read()

    def _read(self, name: str) -> str:
        return self.files.read(f"{DIRECTORY}/{name}").strip()

    def _number(self, name: str) -> int:
        text = self._read(name)
        if not text.isdecimal():
            raise PageferryError(
                "not a number",
                value=self.files.path(f"{DIRECTORY}/{name}"),
                reason=repr(text),
            )
        return int(text)

    def _write(self, name: str, value: str) -> None:
        self.files.write(f"{DIRECTORY}/{name}", value)


def expand_reasons(text: str, available: tuple[str, ...]) -> tuple[str, ...]:
    """Turn `all`, `none` or a comma-separated list into reasons."""
    if text == "all":
        return available
    return tuple(word for word in text.split(",") if word and word != "none")


def check_reasons(text: str, available: tuple[str, ...]) -> str:
    """Check reasons, because the kernel would only return EINVAL."""
    if text in ("all", "none"):
        return text
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in available:
            hint = f"all, none, or some of: {', '.join(available)}"
            if word == "memory_failure":
                hint = "pages on failing memory are never offloaded; " + hint
            raise usage_error("no such reason", word, hint)
    return ",".join(words)
