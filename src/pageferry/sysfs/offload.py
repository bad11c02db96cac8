# SPDX-License-Identifier: GPL-2.0-only
"""The settings and counters in /sys/kernel/mm/migrate_offload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pageferry.errors import ExitCode, PageferryError, unsupported, usage_error
from pageferry.sysfs import histogram
from pageferry.sysfs.files import Files
from pageferry.sysfs.histogram import Histogram

DIRECTORY = "/sys/kernel/mm/migrate_offload"
OFF = "none"
# The value of engine_of/REASON for a reason without an engine of its own.
DEFAULT = "default"

# Counters of folios whose copy is not that of an engine, or came late, by cause.
WHY = (
    "not_eligible_folios",
    "declined_folios",
    "too_slow_folios",
    "failed_folios",
    "held_folios",
    "retried_folios",
    "mismatched_folios",
    "over_limit_folios",
)
# These files are no counters; histogram.parse() reads them.
HISTOGRAMS = ("unmapped_hist", "waited_hist")


@dataclass(frozen=True)
class State:
    """The settings, as the kernel shows them."""

    engine: str
    available_engines: tuple[str, ...]
    # The engine of each reason; DEFAULT for a reason without one of its own.
    engine_of: dict[str, str]
    # 0: no time limit, or no engine was active yet, so that there is no default.
    max_unmapped_us: int

    def exceptions(self) -> dict[str, str]:
        """Return the engines of reasons that have one of their own."""
        return {
            name: engine for name, engine in self.engine_of.items() if engine != DEFAULT
        }

    def as_json(self) -> dict[str, object]:
        """Return the settings for --json."""
        return {
            "engine": self.engine,
            "engine_of": self.engine_of,
            "available_engines": list(self.available_engines),
            "max_unmapped_us": self.max_unmapped_us,
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
                "pageferry vm run -- COMMAND, or install the kernel of pageferry kernel package",
            )

    def read(self) -> State:
        """Read the settings."""
        self.require()
        return State(
            engine=self._read("engine"),
            available_engines=tuple(self._read("available_engines").split()),
            engine_of={
                name: self._read(f"engine_of/{name}")
                for name in self.files.names(f"{DIRECTORY}/engine_of")
            },
            max_unmapped_us=self._number("max_unmapped_us"),
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

    def held_folios(self) -> int:
        """Read the number of folios that wait for a device which did not stop."""
        text = self.files.read_or(f"{DIRECTORY}/held_folios", "0")
        return int(text) if text.isdecimal() else 0

    def set_engine(
        self, engine: str, *, only_for: str | None = None, coming: Sequence[str] = ()
    ) -> State:
        """Make an engine active.

        With `only_for`, set the engine of these reasons, and leave the others alone.
        `coming` has engines that a dry run would have loaded.
        """
        before = self.read()
        known = before.available_engines
        if self.files.dry_run:
            known = (*known, *coming)
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
            words = parse_reasons(only_for, tuple(before.engine_of))
            where = [f"engine_of/{word}" for word in words]
        for name in where:
            self._write(name, engine)
        return before if self.files.dry_run else self._verified(engine, *where)

    def off(self) -> State:
        """Deactivate all engines; no engine code runs after this returns.

        In engine_of, the kernel replaces engines by "default"; "none" stays.
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


def parse_reasons(text: str, available: tuple[str, ...]) -> tuple[str, ...]:
    """Check a comma-separated list of reasons, because the kernel has no such list."""
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in available:
            hint = f"some of: {', '.join(available)}"
            if word == "memory_failure":
                hint = "pages on failing memory are never offloaded; " + hint
            raise usage_error("no such reason", word, hint)
    return words
