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
from pageferry.kernel import bases, hooks
from pageferry.kernel.bases import Base
from pageferry.kernel.debian import Archive
from pageferry.kernel.samples import take_sample
from pageferry.kernel.source import Source, locate
from pageferry.kernel.tree import locked


@dataclass(frozen=True)
class Origin:
    """A source, its release, and our changes to it."""

    source: Source
    version: str
    changes: hooks.Changes


def choose(
    linux: Path, name: str, path: Path | None, *, vanilla: bool, fetch: bool
) -> Origin:
    """Find a source of a base that the hooks apply to.

    A vanilla kernel uses the same source, because benchmarks compare the two. With
    `fetch`, this may download a tarball, and keeps a copy of Debian's.
    """
    base = bases.read(linux, name)
    if path is not None:
        source = locate(name, path)
        return _look_into(linux, source, base, vanilla=vanilla, check=not vanilla)
    tried: list[PageferryError] = []
    for get in _places(base, fetch=fetch):
        try:
            found = _look_into(linux, locate(name, get()), base, vanilla=vanilla)
        except PageferryError as error:
            if isinstance(error, _UnfitError) and error.version in base.works:
                # This release is known to work, so a hook has changed.
                raise
            tried.append(error)
            continue
        unfit = [error.line() for error in tried if isinstance(error, _UnfitError)]
        if unfit:
            output.warn(f"{unfit[0]}; taking {found.source.path}")
        elif fetch:
            _keep(found)
        return found
    raise _nothing_fits(tried, base)


def at_hand(base: Base) -> Path | None:
    """Return the tarball that a build tries first, unless it has to download one."""
    if base.installed.is_file():
        return base.installed
    return next(iter(_kept(base)), None)


def _places(base: Base, *, fetch: bool) -> Iterator[Callable[[], Path]]:
    """Yield functions that return a tarball, in the order to try."""
    yield partial(_installed, base)
    kept = _kept(base)
    for path in kept:
        yield partial(Path, path)
    if not kept:
        yield partial(_nothing_kept, base)
    yield partial(_of_debian, base, fetch=fetch)
    yield partial(_of_kernel_org, base, fetch=fetch)


def _installed(base: Base) -> Path:
    if base.installed.is_file():
        return base.installed
    raise PageferryError(
        "kernel source not found",
        value=base.installed,
        hint=f"apt-get install {base.package}",
    )


def _tarball(release: str) -> Path:
    return paths.cache_dir() / "kernel" / "tarballs" / f"linux-{release}.tar.xz"


def _kept(base: Base) -> list[Path]:
    """List the tarballs in the cache: first those that work, and new ones first."""

    def rank(path: Path) -> tuple[bool, int]:
        release = path.name.removeprefix("linux-").removesuffix(".tar.xz")
        return release in base.works, bases.point(release)

    pattern = _tarball(f"{base.name}.*")
    found = pattern.parent.glob(pattern.name)
    return sorted(found, key=rank, reverse=True)


def _nothing_kept(base: Base) -> Path:
    raise PageferryError(f"no release of Linux {base.name} is in the cache")


def _of_debian(base: Base, *, fetch: bool) -> Path:
    """Download from Debian's archive: best a release that works, or the newest."""
    absent = PageferryError("Debian's archive has no such package", value=base.package)
    if not base.suites:
        raise absent
    if not fetch:
        raise PageferryError("a build would ask Debian's archive", value=base.package)
    with locked(_tarball(base.name)):
        archive = Archive(base.package, base.suites)
        offered = {version.partition("-")[0]: version for version in archive.offered()}
        if not offered:
            raise absent
        release = max(offered, key=lambda name: (name in base.works, bases.point(name)))
        target = _tarball(release)
        if not target.exists():
            archive.download(offered[release], target)
        return target


def _of_kernel_org(base: Base, *, fetch: bool) -> Path:
    release = base.to_download()
    if release is None:
        raise PageferryError("no SHA-256 of a release on kernel.org is known")
    if not fetch:
        raise PageferryError(
            "a build would download the kernel source",
            value=bases.tarball_url(release),
        )
    bases.download(release, base.sha256[release], _tarball(release))
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
    linux: Path, source: Source, base: Base, *, vanilla: bool, check: bool = True
) -> Origin:
    """Read the release of a source, and check whether the hooks apply."""
    sample = take_sample(source, hooks.all_touched(linux / "hooks" / base.name))
    if vanilla and (not check or sample.version in base.works):
        return Origin(source, sample.version, hooks.NO_CHANGES)
    changes = hooks.read_changes(linux, base.name, sample.version)
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


def _nothing_fits(tried: list[PageferryError], base: Base) -> PageferryError:
    """Combine the errors of all sources; the first one leads."""
    first, *others = tried
    said = [first.reason, *(error.line() for error in others)]
    advice = f"name a tarball or a tree with --source; known to work: {base.known()}"
    return PageferryError(
        first.what,
        value=first.value,
        reason="; ".join(part for part in said if part),
        hint=advice if isinstance(first, _UnfitError) else f"{first.hint}, or {advice}",
        detail=first.detail,
        code=ExitCode.NOT_STARTED,
    )
