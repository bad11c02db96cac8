# SPDX-License-Identifier: GPL-2.0-only
"""The descriptions of all series: linux/series/NAME.toml.

The directory linux/series/NAME holds texts that only this series has: diffs for one
base in BASE/, and new files in tree/.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pageferry.errors import ExitCode, PageferryError, usage_error


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a hook.

    hook:  its file name without .patch
    file:  only changes of this file; a name may contain * and ?
    hunks: only these of the file; without `hunks`, all. A number counts from 1. A text,
           such as the name of a function, chooses the hunks that contain it.
    """

    hook: str
    file: str = "*"
    hunks: tuple[int | str, ...] = ()


class Lines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some lines of a new Makefile or Kconfig.

    Each text chooses the lines of a Makefile, or the entries of a Kconfig, that
    contain it. `tree` takes the lines that are left.
    """

    file: str
    match: tuple[str, ...]


class Patch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One patch: its message, and the changes that it takes.

    bases: only for these bases; without `bases`, for those of the series
    hooks: whole hooks, or parts
    tree:  files of linux/tree; a name may contain * and ?
    lines: lines of files of linux/tree
    diffs: files in linux/series/NAME/BASE
    files: files in linux/series/NAME/tree
    rest:  everything that no earlier patch has taken

    `read` sets `directory` to linux/series/NAME.
    """

    subject: str
    message: str
    bases: tuple[str, ...] = ()
    hooks: tuple[str | Part, ...] = ()
    tree: tuple[str, ...] = ()
    lines: tuple[Lines, ...] = ()
    diffs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    rest: bool = False
    directory: Path = Path()


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A series of patches.

    needs:      the parts of Linux, or other series, that this one builds on
    after:      the series whose patches have to be applied before this one
    cover:      the cover letter: the problem, the measured figures, the commands
    everything: the result has to be the tree that `kernel build` builds
    ignore:     types of checkpatch's complaints that are wrong here
    """

    title: str
    bases: tuple[str, ...]
    needs: str
    cover: str
    patch: tuple[Patch, ...]
    everything: bool = False
    after: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    name: str = ""
    earlier: tuple[Series, ...] = ()

    def patches(self, base: str) -> list[Patch]:
        """List the patches for a base."""
        return [patch for patch in self.patch if base in (patch.bases or self.bases)]

    def earlier_patches(self, base: str) -> list[Patch]:
        """List the patches of all series that this one builds on."""
        return [patch for series in self.earlier for patch in series.patches(base)]


def names(linux: Path) -> list[str]:
    """List the names of all series."""
    return sorted(path.stem for path in (linux / "series").glob("*.toml"))


def read(linux: Path, name: str) -> Series:
    """Read the description of a series, and of those that it builds on."""
    return _read(linux, name, ())


def _read(linux: Path, name: str, later: tuple[str, ...]) -> Series:
    known = names(linux)
    if name not in known:
        raise usage_error("unknown series", name, f"there is: {', '.join(known)}")
    path = linux / "series" / f"{name}.toml"
    try:
        series = msgspec.toml.decode(path.read_bytes(), type=Series)
        _check(series, known, (*later, name))
    except (msgspec.MsgspecError, ValueError) as error:
        raise PageferryError(
            "the description of a series is damaged",
            value=path,
            reason=str(error),
            code=ExitCode.NOT_STARTED,
        ) from error
    patches = tuple(
        msgspec.structs.replace(patch, directory=path.with_suffix(""))
        for patch in series.patch
    )
    earlier: dict[str, Series] = {}
    for before in (_read(linux, other, (*later, name)) for other in series.after):
        for other in (*before.earlier, before):
            earlier.setdefault(other.name, other)
    return msgspec.structs.replace(
        series, name=name, patch=patches, earlier=tuple(earlier.values())
    )


def _check(series: Series, known: list[str], later: tuple[str, ...]) -> None:
    """Find mistakes that msgspec does not find.

    later: the series that build on this one, and the name of this one
    """
    if not series.bases or not series.patch:
        raise ValueError("it has no base or no patch")
    for name in series.after:
        if name not in known:
            raise ValueError(f"it comes after an unknown series: {name}")
        if name in later:
            raise ValueError(f"it comes after itself: {' after '.join(later)}")
    for patch in series.patch:
        if "\n" in patch.subject or not patch.subject:
            raise ValueError(f"the subject has to be one line: {patch.subject!r}")
        if "signed-off-by:" in patch.message.lower():
            raise ValueError(f"the sender signs off, not the file: {patch.subject}")
        foreign = set(patch.bases) - set(series.bases)
        if foreign:
            raise ValueError(f"the series has no base {', '.join(sorted(foreign))}")


def for_base(series: Series, base: str) -> list[Patch]:
    """List the patches for a base, of which there has to be one."""
    for needed in (series, *series.earlier):
        if base not in needed.bases:
            raise usage_error(
                "the series is not for this base",
                base,
                f"{needed.name} is for: {', '.join(needed.bases)}",
            )
    return series.patches(base)
