# SPDX-License-Identifier: GPL-2.0-only
"""The choice of a kernel source, and the error if none fits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from helpers.fake_kernel import (
    HOOK,
    TEXT,
    add_base,
    describe_base,
    make_checkout,
    make_tarball,
)
from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel import bases, origin, samples

UNFIT = "eins\nzwei\ndrei\n"


class Place:
    """A checkout, a source installed by Debian's package, a cache, and a mirror."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.linux = make_checkout(top / "checkout") / "linux"
        self.debian = top / "linux-source-6.12.tar.xz"
        self.cache = top / "cache" / "pageferry" / "kernel" / "tarballs"
        self.cache.mkdir(parents=True)
        self.mirror = top / "mirror"
        (self.mirror / "v6.x").mkdir(parents=True)
        monkeypatch.setenv("XDG_CACHE_HOME", str(top / "cache"))
        monkeypatch.setenv("PAGEFERRY_KERNEL_MIRROR", self.mirror.as_uri())
        monkeypatch.setattr(bases, "DEBIAN_SOURCES", top)
        self.known("6.12.7", "6.12.8", "6.12.9", sha256={})

    def known(
        self, *works: str, sha256: dict[str, str], suites: Sequence[str] = ()
    ) -> None:
        folder = self.linux / "hooks/6.12"
        describe_base(folder, works=works, sha256=sha256, suites=suites)

    def installed(self, sublevel: int, text: str = TEXT) -> None:
        make_tarball(self.debian, sublevel=sublevel, text=text)

    def in_cache(self, sublevel: int) -> Path:
        path = self.cache / f"linux-6.12.{sublevel}.tar.xz"
        return make_tarball(path, sublevel=sublevel)

    def on_mirror(self, sublevel: int) -> str:
        path = self.mirror / "v6.x" / f"linux-6.12.{sublevel}.tar.xz"
        make_tarball(path, sublevel=sublevel)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def choose(
        self, path: Path | None = None, *, vanilla: bool = False, fetch: bool = True
    ) -> origin.Origin:
        return origin.choose(self.linux, "6.12", path, vanilla=vanilla, fetch=fetch)

    def refuses(self, *, fetch: bool = True) -> PageferryError:
        with pytest.raises(PageferryError) as caught:
            self.choose(fetch=fetch)
        assert caught.value.code == ExitCode.NOT_STARTED
        return caught.value


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place without any source yet."""
    return Place(tmp_path, monkeypatch)


def test_what_was_asked_for_is_taken_whatever_else_there_is(
    place: Place, tmp_path: Path
) -> None:
    place.installed(9)
    place.in_cache(8)
    asked = make_tarball(tmp_path / "asked.tar.xz", sublevel=30)
    found = place.choose(asked)
    assert (found.source.path, found.version) == (asked, "6.12.30")
    assert len(found.changes.hooks) == 1


def test_what_was_asked_for_is_not_replaced_if_the_hooks_do_not_fit(
    place: Place, tmp_path: Path
) -> None:
    place.installed(9)
    asked = make_tarball(tmp_path / "asked.tar.xz", sublevel=30, text=UNFIT)
    with pytest.raises(PageferryError, match=r"asked\.tar\.xz is Linux 6\.12\.30"):
        place.choose(asked)
    assert place.choose(asked, vanilla=True).source.path == asked


def test_the_package_is_next_and_is_kept(place: Place) -> None:
    place.installed(9)
    place.in_cache(8)
    found = place.choose()
    assert (found.source.path, found.version) == (place.debian, "6.12.9")
    kept = place.cache / "linux-6.12.9.tar.xz"
    assert kept.read_bytes() == place.debian.read_bytes()


def test_a_newer_package_is_taken_if_the_hooks_fit(place: Place) -> None:
    place.installed(10)
    assert place.choose().version == "6.12.10"


def test_without_a_build_nothing_is_kept(place: Place) -> None:
    place.installed(9)
    place.choose(fetch=False)
    assert list(place.cache.iterdir()) == []


@pytest.mark.parametrize("vanilla", [False, True])
def test_an_update_that_does_not_fit_leaves_the_newest_that_works(
    place: Place, vanilla: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stock kernel is compared with ours, so it has the same release."""
    place.installed(10, UNFIT)
    place.in_cache(7)
    best = place.in_cache(8)
    place.in_cache(11)
    found = place.choose(vanilla=vanilla)
    assert (found.source.path, found.version) == (best, "6.12.8")
    assert len(found.changes.hooks) == (0 if vanilla else 1)
    said = capsys.readouterr().err
    assert "6.12.10" in said and str(best) in said and "mm/migrate.c" in said


def test_a_damaged_tarball_in_the_cache_is_passed_over(place: Place) -> None:
    place.installed(10, UNFIT)
    place.in_cache(8).write_bytes(b"damaged")
    place.in_cache(7)
    assert place.choose().version == "6.12.7"


def test_at_last_a_release_is_downloaded_once(place: Place) -> None:
    place.installed(10, UNFIT)
    place.known("6.12.7", "6.12.8", sha256={"6.12.7": place.on_mirror(7)})
    found = place.choose()
    assert (found.source.path.parent, found.version) == (place.cache, "6.12.7")
    next(place.mirror.rglob("*.tar.xz")).unlink()
    assert place.choose() == found


def test_a_download_needs_no_package(place: Place) -> None:
    place.known("6.12.7", sha256={"6.12.7": place.on_mirror(7)})
    assert place.choose().version == "6.12.7"


def test_a_dry_run_downloads_nothing(place: Place) -> None:
    place.known("6.12.7", sha256={"6.12.7": place.on_mirror(7)})
    error = place.refuses(fetch=False)
    assert "a build would download" in (error.reason or "")
    assert list(place.cache.iterdir()) == []


class FakeArchive:
    """Debian's archive, which counts its downloads, or cannot be reached."""

    offers: ClassVar[list[str]] = []
    asked: ClassVar[list[str]] = []
    text = TEXT

    def __init__(self, package: str, suites: Sequence[str]) -> None:
        assert (package, suites) == ("linux-source-6.12", ("stable",))
        self.asked.append("update")
        if not self.offers:
            raise PageferryError("cannot download from Debian's archive")

    def offered(self) -> list[str]:
        return self.offers

    def download(self, version: str, target: Path) -> None:
        self.asked.append(version)
        sublevel = int(version.partition("-")[0].split(".")[2])
        make_tarball(target, sublevel=sublevel, text=self.text)


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> type[FakeArchive]:
    """An archive that cannot be reached yet."""
    monkeypatch.setattr(FakeArchive, "offers", [])
    monkeypatch.setattr(FakeArchive, "asked", [])
    monkeypatch.setattr(FakeArchive, "text", TEXT)
    monkeypatch.setattr(origin, "Archive", FakeArchive)
    return FakeArchive


@pytest.mark.parametrize(
    ("offers", "taken"),
    [
        (["6.12.7-1", "6.12.11-1", "6.12.8-1~deb12u1"], "6.12.8-1~deb12u1"),
        (["6.12.9-1", "6.12.11-2", "6.12.10-1"], "6.12.11-2"),
    ],
)
def test_the_archive_has_a_release_that_works_or_a_new_one(
    place: Place, archive: type[FakeArchive], offers: list[str], taken: str
) -> None:
    place.known("6.12.7", "6.12.8", sha256={}, suites=["stable"])
    archive.offers += offers
    found = place.choose()
    assert found.version == taken.partition("-")[0]
    assert found.source.path.parent == place.cache
    # It stays when Debian removes it.
    archive.offers.clear()
    assert place.choose() == found == place.choose(fetch=False)
    assert archive.asked == ["update", taken]


def test_kernel_org_has_it_if_the_archive_does_not(
    place: Place, archive: type[FakeArchive]
) -> None:
    place.known("6.12.7", sha256={"6.12.7": place.on_mirror(7)}, suites=["stable"])
    assert place.choose().version == "6.12.7"
    assert archive.asked == ["update"]


def test_a_release_of_the_archive_that_does_not_fit_is_passed_over(
    place: Place, archive: type[FakeArchive], capsys: pytest.CaptureFixture[str]
) -> None:
    place.known("6.12.7", sha256={"6.12.7": place.on_mirror(7)}, suites=["stable"])
    archive.offers += ["6.12.11-1"]
    archive.text = UNFIT
    assert place.choose().version == "6.12.7"
    assert "6.12.11" in capsys.readouterr().err
    assert place.choose().version == "6.12.7"
    assert archive.asked == ["update", "6.12.11-1"]


def test_a_dry_run_does_not_ask_the_archive(
    place: Place, archive: type[FakeArchive]
) -> None:
    place.known(sha256={}, suites=["stable"])
    error = place.refuses(fetch=False)
    assert "a build would ask Debian's archive" in (error.reason or "")
    assert archive.asked == []


def test_another_content_is_refused(place: Place) -> None:
    place.on_mirror(7)
    place.known("6.12.7", sha256={"6.12.7": "0" * 64})
    error = place.refuses()
    assert "SHA-256" in (error.reason or "") and "0" * 64 in (error.reason or "")
    assert list(place.cache.iterdir()) == []


@pytest.mark.parametrize("mirror", ["http://127.0.0.1:9", "http://no.invalid"])
def test_one_error_says_all_that_was_tried(
    place: Place, monkeypatch: pytest.MonkeyPatch, mirror: str
) -> None:
    monkeypatch.setenv("PAGEFERRY_KERNEL_MIRROR", mirror)
    place.installed(10, UNFIT)
    place.known("6.12.7", "6.12.8", sha256={"6.12.7": "0" * 64})
    error = place.refuses()
    assert (error.value or "").endswith("hooks/6.12/0001-change.patch")
    reason = error.reason or ""
    assert "rejected in mm/migrate.c" in reason
    assert f"{place.debian} is Linux 6.12.10" in reason
    assert "no release of Linux 6.12 is in the cache" in reason
    assert f"{mirror}/v6.x/linux-6.12.7.tar.xz" in reason
    assert "no connection" in reason
    assert "6.12.7, 6.12.8" in (error.hint or "") and "--source" in (error.hint or "")
    assert "-two" in (error.detail or "")


def test_a_missing_package_is_named(place: Place) -> None:
    error = place.refuses()
    assert error.value == str(place.debian)
    assert "apt-get install linux-source-6.12" in (error.hint or "")
    assert "6.12.9" in (error.hint or "")


@pytest.mark.parametrize("kept", [None, 8])
def test_a_hook_that_was_broken_is_not_hidden_by_another_release(
    place: Place, kept: int | None
) -> None:
    place.installed(9)
    if kept is not None:
        place.in_cache(kept)
    hook = place.linux / "hooks/6.12/0001-change.patch"
    hook.write_text(HOOK.replace("-two", "-zwei"))
    error = place.refuses()
    assert error.value == str(hook) and "6.12.9" in (error.reason or "")
    assert "download" not in (error.reason or "")
    # Without hooks, none can fail.
    assert place.choose(vanilla=True).version == "6.12.9"


def test_an_unknown_base_is_refused(place: Place) -> None:
    add_base(place.linux, "6.9", HOOK)
    with pytest.raises(PageferryError, match="unknown base") as caught:
        origin.choose(place.linux, "5.4", None, vanilla=False, fetch=True)
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.hint == "there is: 6.9, 6.12"


def test_a_look_into_a_source_is_remembered(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.installed(9)
    first = place.choose()

    def fail(*_: object) -> None:
        raise AssertionError("it is known already")

    with monkeypatch.context() as patched:
        patched.setattr(samples, "extract_some", fail)
        patched.setattr(samples, "wanted_files", fail)
        assert place.choose() == first
    # Not for other hooks, nor for another source.
    hook = place.linux / "hooks/6.12/0001-change.patch"
    hook.write_text(HOOK.replace("-two", "-zwei"))
    place.refuses()
    hook.write_text(HOOK.replace("a/mm", "a/lib").replace("b/mm", "b/lib"))
    place.refuses()
    hook.write_text(HOOK)
    place.installed(10, UNFIT)
    place.refuses()


def test_a_sample_gets_the_files_that_hooks_touch_by_now(place: Place) -> None:
    place.installed(9)
    place.choose()
    hook = place.linux / "hooks/6.12/0002-next.patch"
    hook.write_text("Why.\n--- a/behave\n+++ b/behave\n@@ -1 +1 @@\n-x\n+y\n")
    # The source exists, and is rejected.
    assert "rejected in behave" in (place.refuses().reason or "")


def test_a_source_tree_is_looked_into_as_well(place: Place, tmp_path: Path) -> None:
    tree = tmp_path / "linux"
    (tree / "mm").mkdir(parents=True)
    (tree / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 3\n")
    (tree / "mm/migrate.c").write_text(UNFIT)
    with pytest.raises(PageferryError, match=r"is Linux 6\.12\.3"):
        place.choose(tree)
    (tree / "mm/migrate.c").write_text(TEXT)
    assert place.choose(tree).version == "6.12.3"


def test_a_damaged_description_is_named(place: Place) -> None:
    listing = place.linux / "hooks/6.12/base.toml"
    listing.write_text("works = [")
    assert place.refuses().value == str(listing)
