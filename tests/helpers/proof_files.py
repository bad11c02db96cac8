# SPDX-License-Identifier: GPL-2.0-only
"""The results of a stage in the guest, and files that a purge leaves behind."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

# Files that differ between two boots, or after any use of apt. No pattern covers a file
# of ours: dpkg's lists of files and systemd's notes about units stay compared.
EXPECTED = {
    "/boot/grub/grubenv": "GRUB's variables",
    "/var/backups/*": "copies of dpkg's state",
    "/var/cache/apt/*": "apt's caches",
    "/var/cache/debconf/*": "debconf's answers",
    "/var/lib/apt/*": "apt's state",
    "/var/lib/dpkg/lock*": "dpkg's locks",
    "/var/lib/dpkg/status*": "dpkg's state; the test compares the list of packages",
    "/var/lib/dpkg/triggers/*": "dpkg's queue of triggers",
    "/var/lib/systemd/random-seed": "new in each boot",
    "/var/lib/systemd/timers/*": "times of the last runs",
    "/var/log/*": "logs of systemd, apt and dpkg",
    "/var/tmp/*": "directories of running services",
}


@dataclass(frozen=True)
class Step:
    """A command of the guest."""

    status: int
    out: str
    err: str

    def json(self) -> Any:  # noqa: ANN401
        """Parse the output of a command with --json."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Stage:
    """The results of a boot: its steps and its other files."""

    steps: Mapping[str, Step]
    files: Mapping[str, str]

    def ended(self, name: str) -> bool:
        """Say whether the guest came to the end of the stage."""
        return self.files.get("ended.txt") == name

    def inventory(self) -> dict[str, str]:
        """Return the description of each file of the guest."""
        found: dict[str, str] = json.loads(self.files["files.json"])
        return found

    def trouble(self, *names: str) -> list[str]:
        """Describe those of these steps that are missing or failed."""
        found = []
        for name in names:
            step = self.steps.get(name)
            if step is None:
                found.append(f"{name}: did not run")
            elif step.status != 0:
                words = (step.err or step.out).strip()[-2000:]
                found.append(f"{name}: exit status {step.status}: {words}")
        return found


def read_results(disk: Path) -> Stage:
    """Read the archive that a guest wrote to its disk; none if it wrote nothing."""
    files: dict[str, str] = {}
    try:
        with tarfile.open(disk, "r:") as archive:
            for member in archive:
                stream = archive.extractfile(member)
                if stream is not None:
                    text = stream.read().decode(errors="replace")
                    files[Path(member.name).name] = text
    except tarfile.ReadError:
        # The guest wrote nothing, or ended while it wrote.
        files.clear()
    return sorted_out(files)


def sorted_out(files: Mapping[str, str]) -> Stage:
    """Put the three files of each step together."""
    names = [name.removesuffix(".status") for name in files if name.endswith(".status")]
    steps = {
        name: Step(
            int(files[f"{name}.status"]),
            files.get(f"{name}.out", ""),
            files.get(f"{name}.err", ""),
        )
        for name in names
    }
    return Stage(steps, files)


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """List the files that are new, missing or changed, except those of EXPECTED."""
    found = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new or any(fnmatchcase(path, pattern) for pattern in EXPECTED):
            continue
        if old is None:
            found.append(f"left behind: {path} ({new})")
        elif new is None:
            found.append(f"missing: {path} ({old})")
        else:
            found.append(f"changed: {path} ({old}; now {new})")
    return found


def copied(status: Mapping[str, Any], engine: str) -> int:
    """Return the folios that an engine copied, from `pageferry status --json`."""
    row = status["stats"]["engines"].get(engine, {})
    return int(row.get("engine_folios", 0))


def is_newer(release: str, than: str) -> bool:
    """Compare the numbers at the beginning of two releases of Linux."""

    def numbers(text: str) -> list[int]:
        found = re.match(r"[\d.]+", text)
        return [int(part) for part in found[0].split(".") if part] if found else []

    return numbers(release) > numbers(than)


# --- archives for the guest -----------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A file for the guest, of root: text, a file of the host, or a link."""

    name: str
    text: str | None = None
    source: Path | None = None
    link: str | None = None
    mode: int = 0o644


def pack(target: Path, entries: Iterable[Entry]) -> None:
    """Write an archive, which can be a disk of a guest."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.mode = entry.mode
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
                archive.addfile(info)
                continue
            if entry.source is not None:
                info.size = entry.source.stat().st_size
                with entry.source.open("rb") as stream:
                    archive.addfile(info, stream)
                continue
            content = (entry.text or "").encode()
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
