# SPDX-License-Identifier: GPL-2.0-only
"""Read and merge Kconfig fragments, and check the resulting .config."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pageferry.errors import ExitCode, PageferryError, usage_error
from pageferry.kernel import bases
from pageferry.kernel.arch import X86_64, Architecture

DEFAULT = "vm"
_SET = re.compile(r"CONFIG_(\w+)=(\S.*)")
_UNSET = re.compile(r"# CONFIG_(\w+) is not set")
# Symbols that exist only in the patched tree.
_OURS = re.compile(r"MIGRATION_COPY_OFFLOAD\w*|MIGRATE_\w+")


@dataclass(frozen=True)
class Fragments:
    """The fragments for an architecture, below linux/configs.

    A fragment in the directory of the architecture replaces the common one of the
    same name. One in the directory of the base comes after it, or stands alone.
    """

    directory: Path
    arch: Architecture = X86_64
    base: str = bases.DEFAULT

    def available(self) -> list[str]:
        """List the names of all fragments."""
        parts = ("", self.arch.name, self.base)
        places = [self.directory / part for part in parts]
        return sorted({p.stem for place in places for p in place.glob("*.config")})

    def files(self, name: str) -> list[Path]:
        """Return the files of a fragment, in their order."""
        common, for_arch, for_base = (
            self.directory / part / f"{name}.config"
            for part in ("", self.arch.name, self.base)
        )
        first = for_arch if for_arch.is_file() else common
        return [path for path in (first, for_base) if path.is_file()]


def canonical(names: Iterable[str], fragments: Fragments) -> tuple[str, ...]:
    """Put `vm` first and sort the rest, so that the order of options is irrelevant."""
    known = fragments.available()
    chosen = set(names) | {DEFAULT}
    for name in sorted(chosen):
        if name not in known:
            raise usage_error("unknown config", name, f"there is: {', '.join(known)}")
    return (DEFAULT, *sorted(chosen - {DEFAULT}))


def parse(text: str, where: str) -> dict[str, str]:
    """Parse a fragment; a symbol that is not set has the value n."""
    values: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        found = _SET.fullmatch(line) or _UNSET.fullmatch(line)
        if found is not None:
            values[found[1]] = found[2] if found.re is _SET else "n"
        elif line and not line.startswith("#"):
            raise PageferryError(
                "not a line of a Kconfig fragment",
                value=f"{where}:{number}",
                reason=line,
                code=ExitCode.NOT_STARTED,
            )
    return values


def merge(
    names: Sequence[str], fragments: Fragments, *, vanilla: bool, extra: dict[str, str]
) -> dict[str, str]:
    """Merge fragments; later ones win. A vanilla tree gets none of our symbols."""
    merged: dict[str, str] = {}
    for path in (file for name in names for file in fragments.files(name)):
        merged.update(parse(path.read_text(), str(path)))
    merged.update(extra)
    if vanilla:
        merged = {k: v for k, v in merged.items() if not _OURS.fullmatch(k)}
    return merged


def render(values: dict[str, str]) -> str:
    """Format values for KCONFIG_ALLCONFIG."""
    lines = [
        f"# CONFIG_{name} is not set" if value == "n" else f"CONFIG_{name}={value}"
        for name, value in sorted(values.items())
    ]
    return "\n".join(lines) + "\n"


def check(wanted: dict[str, str], result: str) -> None:
    """Raise an error for values that Kconfig has changed silently."""
    got = parse(result, ".config")
    refused = [
        f"CONFIG_{name}={value} (is {got.get(name, 'n')})"
        for name, value in sorted(wanted.items())
        if got.get(name, "n") != value
    ]
    if refused:
        raise PageferryError(
            "Kconfig did not grant what the fragments ask for",
            reason=", ".join(refused),
            hint="add what these symbols depend on to the fragment in linux/configs",
            code=ExitCode.NOT_STARTED,
        )
