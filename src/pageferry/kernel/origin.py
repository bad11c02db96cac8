# SPDX-License-Identifier: GPL-2.0-only
"""Choose the source of a kernel: the first that the hooks fit.

docs/how-to/kernel-source.md lists the order.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pageferry import output, paths
from pageferry.errors import ExitCode, PageferryError, from_os_error
from pageferry.kernel import hooks, releases
from pageferry.kernel.samples import take_sample
from pageferry.kernel.source import BASES, Source, locate

DEBIAN_TARBALL = "/usr/src/linux-source-{base}.tar.xz"


@dataclass(frozen=True)
class Origin:
    """A source, its release, and our changes to it."""

    source: Source
    version: str
    changes: hooks.Changes


def choose(
    linux: Path, base: str, path: Path | None, *, vanilla: bool, fetch: bool
) -> Origin:
    """Find a source that the hooks apply to.

    A vanilla kernel uses the same source, because benchmarks compare the two. With
    `fetch`, this may download a tarball, and keeps a copy of Debian's.
    """
    known = releases.read_releases(linux, base)
    if path is not None or base not in BASES:
        # locate() rejects an unknown base.
        source = locate(base, path or Path())
        return _look_into(linux, source, vanilla=vanilla, check=not vanilla)
    tried: list[PageferryError] = []
    for get in _places(base, known, fetch=fetch):
        try:
            source = locate(base, get())
            found = _look_into(linux, source, vanilla=vanilla, known=known)
        except PageferryError as error:
            if isinstance(error, _UnfitError) and error.version in known.works:
                # This release is known to work, so a hook has changed.
                raise
            tried.append(error)
            continue
        if tried:
            output.warn(f"{tried[0].line()}; taking {source.path}")
        elif fetch:
            _keep(found)
        return found
    raise _nothing_fits(tried, known)


def _places(
    base: str, known: releases.Releases, *, fetch: bool
) -> Iterator[Callable[[], Path]]:
    """Yield functions that return a tarball, in the order to try."""
    yield partial(_of_debian, base)
    for release in sorted(known.works, key=releases.point, reverse=True):
        if _tarball(release).is_file():
            yield partial(_tarball, release)
    yield partial(_download, base, known, fetch=fetch)


def _of_debian(base: str) -> Path:
    path = Path(DEBIAN_TARBALL.format(base=base))
    if path.is_file():
        return path
    raise PageferryError(
        "kernel source not found",
        value=path,
        hint=f"apt-get install linux-source-{base}",
    )


def _tarball(release: str) -> Path:
    return paths.cache_dir() / "kernel" / "tarballs" / f"linux-{release}.tar.xz"


def _download(base: str, known: releases.Releases, *, fetch: bool) -> Path:
    release = known.to_download()
    if release is None:
        raise PageferryError("there is no release to download", value=base)
    if not fetch:
        raise PageferryError(
            "a build would download the kernel source",
            value=releases.tarball_url(release),
        )
    releases.download(release, known.sha256[release], _tarball(release))
    return _tarball(release)


class _UnfitError(PageferryError):
    """The hooks do not apply to a release."""

    def __init__(
        self, source: Source, version: str, why: hooks.HookRejectedError
    ) -> None:
        super().__init__(
            why.what,
            value=why.value,
            reason=f"{why.reason}; {source.path} is Linux {version}",
            hint=why.hint,
            detail=why.detail,
            code=why.code,
        )
        self.version = version


def _look_into(
    linux: Path,
    source: Source,
    *,
    vanilla: bool,
    check: bool = True,
    known: releases.Releases = releases.NONE,
) -> Origin:
    """Read the release of a source, and check whether the hooks apply."""
    sample = take_sample(source, hooks.all_touched(linux / "hooks" / source.base))
    if vanilla and (not check or sample.version in known.works):
        return Origin(source, sample.version, hooks.NO_CHANGES)
    changes = hooks.read_changes(linux, source.base, sample.version)
    try:
        sample.check(changes)
    except hooks.HookRejectedError as error:
        raise _UnfitError(source, sample.version, error) from error
    return Origin(source, sample.version, hooks.NO_CHANGES if vanilla else changes)


def _keep(origin: Origin) -> None:
    """Keep Debian's tarball: the hooks may not fit Debian's next one."""
    target = _tarball(origin.version)
    if target.exists():
        return
    scratch = target.with_suffix(f".{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            # The package manager replaces its file, so a hard link keeps the old one.
            os.link(origin.source.path, scratch)
        except OSError:
            shutil.copyfile(origin.source.path, scratch)
        scratch.replace(target)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        what = "cannot keep a copy of the kernel source"
        raise from_os_error(error, what, ExitCode.NOT_STARTED) from error


def _nothing_fits(
    tried: list[PageferryError], known: releases.Releases
) -> PageferryError:
    """Combine the errors of all sources; the first one leads."""
    first, *others = tried
    said = [first.reason, *(error.line() for error in others)]
    if len(others) == 1:
        said.insert(1, "no release that works is in the cache")
    advice = f"name a tarball or a tree with --source; known to work: {known.list()}"
    return PageferryError(
        first.what,
        value=first.value,
        reason="; ".join(part for part in said if part),
        hint=advice if isinstance(first, _UnfitError) else f"{first.hint}, or {advice}",
        detail=first.detail,
        code=ExitCode.NOT_STARTED,
    )
