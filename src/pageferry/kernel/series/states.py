# SPDX-License-Identifier: GPL-2.0-only
"""The files of the kernel after each patch of a series."""

from __future__ import annotations

import fnmatch
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel.hooks import Changes, Hook, WantedFile, wanted_files
from pageferry.kernel.series.lines import Growing
from pageferry.kernel.series.spec import Lines, Part, Patch, Series
from pageferry.kernel.series.weave import Hunk, Unit, Weave, parse

Files = dict[str, WantedFile]
Pristine = Callable[[str], Path | None]


def diffs(patches: Sequence[Patch], base: str) -> list[Hook]:
    """Read the diffs that only the series of these patches have."""
    return [
        Hook(path, _read(path))
        for patch in patches
        for path in (patch.directory / base / name for name in patch.diffs)
    ]


def touched(patches: Sequence[Patch], base: str, changes: Changes) -> set[str]:
    """List all files that the patches may change."""
    names = {name for hook in changes.hooks for name in hook.touched()}
    names.update(name for diff in diffs(patches, base) for name in diff.touched())
    names.update(name for patch in patches for name in patch.files)
    return names | changes.tree.keys()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _mistake("the series has no such file", path) from error


def _mistake(what: str, value: str | Path, reason: str | None = None) -> PageferryError:
    return PageferryError(what, value=value, reason=reason, code=ExitCode.NOT_STARTED)


@dataclass
class _Taken:
    """The changes that the patches so far have taken."""

    weaves: dict[str, Weave]
    hunks: dict[str, list[Hunk]]
    tree: dict[str, Growing]
    units: set[Unit] = field(default_factory=set)

    def take(self, number: int, patch: Patch) -> None:
        """Take the changes of one patch."""
        new: list[Unit] = []
        for part in patch.hooks:
            new += self._hunks_of(Part(part) if isinstance(part, str) else part)
        for pattern in patch.tree:
            self._take_files(number, pattern)
        for lines in patch.lines:
            self._take_lines(number, lines)
        if patch.rest:
            new += [unit for unit in self._all() if unit not in {*self.units, *new}]
            for file in self.tree.values():
                file.take_rest(number)
        for unit in new:
            if unit in self.units:
                raise _mistake("two patches take the same change", str(unit))
        self.units.update(new)
        for unit in new:
            for needed in self.weaves[unit.file].needs[unit] - self.units:
                raise _mistake(
                    "a patch takes a change too early",
                    str(unit),
                    f"it changes lines of {needed}",
                )

    def _all(self) -> list[Unit]:
        return [hunk.unit for hunks in self.hunks.values() for hunk in hunks]

    def _take_lines(self, number: int, lines: Lines) -> None:
        growing = self.tree.get(lines.file)
        for text in lines.match:
            if growing is None or not growing.take(number, text):
                raise _mistake(
                    "a patch takes lines that are not left",
                    lines.file,
                    f"no line with {text!r}",
                )

    def _hunks_of(self, part: Part) -> list[Unit]:
        hunks = self.hunks.get(part.hook)
        if hunks is None:
            raise _mistake("this base has no such hook", part.hook)
        hunks = [h for h in hunks if fnmatch.fnmatchcase(h.unit.file, part.file)]
        chosen = [h for h in hunks if _is_chosen(h, part)]
        unknown = [
            wanted
            for wanted in part.hunks
            if not any(_matches(hunk, wanted) for hunk in hunks)
        ]
        if unknown or not chosen:
            raise _mistake(
                "a hook has no such part",
                part.hook,
                f"{part.file}: {', '.join(map(str, unknown)) or 'no change'}",
            )
        return [hunk.unit for hunk in chosen]

    def _take_files(self, number: int, pattern: str) -> None:
        names = [
            name
            for name in self.tree
            if name == pattern or fnmatch.fnmatchcase(name, pattern)
        ]
        taken = [self.tree[name].take_rest(number) for name in names]
        if not any(taken):
            raise _mistake(
                "a patch takes files that are not left", pattern, "linux/tree has none"
            )

    def left(self) -> list[str]:
        """List the changes that no patch has taken."""
        files = [
            name
            for name, file in self.tree.items()
            if not file.owners or None in file.owners
        ]
        return [str(unit) for unit in self._all() if unit not in self.units] + files


def _matches(hunk: Hunk, wanted: int | str) -> bool:
    if isinstance(wanted, int):
        return hunk.unit.number == wanted
    return hunk.mentions(wanted)


def _is_chosen(hunk: Hunk, part: Part) -> bool:
    return not part.hunks or any(_matches(hunk, wanted) for wanted in part.hunks)


def _weave(
    changes: Changes, pristine: Pristine
) -> tuple[dict[str, Weave], dict[str, list[Hunk]]]:
    """Read all hooks; each hunk gets its place in a weave."""
    weaves: dict[str, Weave] = {}
    hunks: dict[str, list[Hunk]] = {}
    for hook in changes.hooks:
        found = parse(hook.path.stem, hook.content)
        hunks[hook.path.stem] = found
        for name in hook.touched():
            if name not in weaves:
                weaves[name] = Weave.begin(name, _content(pristine(name)))
            weaves[name].apply(hunk for hunk in found if hunk.unit.file == name)
    return weaves, hunks


def _content(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()


def states(
    series: Series,
    patches: Sequence[Patch],
    base: str,
    changes: Changes,
    pristine: Pristine,
) -> list[Files]:
    """Return the files after each patch: those that differ from the base release.

    patches: those of the series, after those of the series that it builds on
    """
    weaves, hunks = _weave(changes, pristine)
    tree = {
        name: Growing(name, file.content, file.executable)
        for name, file in sorted(changes.tree.items())
    }
    taken = _Taken(weaves, hunks, tree)
    found: list[Files] = []
    for number, patch in enumerate(patches):
        taken.take(number, patch)
        files = _shown(taken, number, pristine)
        so_far = patches[: number + 1]
        for earlier in so_far:
            files.update({name: _own(earlier, name) for name in earlier.files})
        found.append(_with_diffs(files, diffs(so_far, base), pristine))
        if found[-1] == (found[-2] if number else {}):
            raise _mistake("a patch changes nothing", patch.subject)
    if series.everything:
        _check_everything(series, taken, found[-1], wanted_files(changes, pristine))
    return found


def _shown(taken: _Taken, number: int, pristine: Pristine) -> Files:
    """Return the files of hooks and of linux/tree."""
    files: Files = {}
    for name, weave in taken.weaves.items():
        if not taken.units.intersection(weave.units):
            continue
        content = weave.state(taken.units)
        original = pristine(name)
        mode = original is not None and bool(original.stat().st_mode & 0o100)
        if content is not None:
            files[name] = WantedFile(content, mode)
    for name, growing in taken.tree.items():
        content = growing.state(number)
        if content is not None:
            files[name] = WantedFile(content, growing.executable)
    return files


def _own(patch: Patch, name: str) -> WantedFile:
    path = patch.directory / "tree" / name
    content = _read(path)
    return WantedFile(content, bool(path.stat().st_mode & 0o100))


def _with_diffs(files: Files, own: Sequence[Hook], pristine: Pristine) -> Files:
    """Apply the series' own diffs on top."""
    if not own:
        return files
    with tempfile.TemporaryDirectory(prefix="pageferry-series-") as scratch_name:
        scratch = Path(scratch_name)

        def before(name: str) -> Path | None:
            if name not in files:
                return pristine(name)
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name].content)
            path.chmod(0o755 if files[name].executable else 0o644)
            return path

        return files | wanted_files(Changes({}, tuple(own)), before)


def _check_everything(
    series: Series, taken: _Taken, last: Files, wanted: Files
) -> None:
    left = taken.left()
    differing = sorted(
        name
        for name in wanted.keys() | last.keys()
        if wanted.get(name) != last.get(name)
    )
    if left or differing:
        raise _mistake(
            "the series has to contain everything",
            series.name,
            f"not in it: {', '.join([*left, *differing][:5])}",
        )
