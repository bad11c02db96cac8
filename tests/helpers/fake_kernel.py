# SPDX-License-Identifier: GPL-2.0-only
"""A kernel source that builds in a moment, to test builds."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Copies the fragment to .config, and fakes all other steps. The file `behave` in the
# source selects a behaviour: `slow` sleeps, `fail` fails.
MAKEFILE = r"""VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = 9
EXTRAVERSION =
RELEASE = 6.12.9+pageferry
allnoconfig:
	grep -v REFUSED $(KCONFIG_ALLCONFIG) >$(KCONFIG_CONFIG)
olddefconfig:
	sed -i /REFUSED/d $(O)/.config
localmodconfig:
	sed -i /NOT_LOADED/d $(O)/.config
bindeb-pkg:
	@if grep -q fail behave; then echo "x.c:1: error: no such thing"; exit 1; fi
	@for name in linux-image-$(RELEASE) linux-headers-$(RELEASE) linux-libc-dev; do \
		cp $(O)/.config $${name}_$(KDEB_PKGVERSION)_amd64.deb; done
	@if [ -z "$$DEB_BUILD_PROFILES" ]; then \
		touch linux-image-$(RELEASE)-dbg_$(KDEB_PKGVERSION)_amd64.deb; fi
	@touch linux-upstream_$(KDEB_PKGVERSION)_amd64.changes
bzImage:
	@if grep -q fail behave; then echo "x.c:1: error: no such thing"; exit 1; fi
	@if grep -q slow behave; then echo $$$$ >$(O)/sleeping; sleep 300; fi
	@echo "  CC      x.o"
	@mkdir -p $(O)/arch/x86/boot $(O)/include/config
	@cat mm/migrate.c >$(O)/arch/x86/boot/bzImage
	@echo 6.12.9-pageferry >$(O)/include/config/kernel.release
Image:
	@mkdir -p $(O)/arch/$(ARCH)/boot $(O)/include/config
	@echo $(CROSS_COMPILE) $(CC) >$(O)/arch/$(ARCH)/boot/Image
	@echo 6.12.9-pageferry >$(O)/include/config/kernel.release
modules:
	@true
modules_install:
	@mkdir -p $(INSTALL_MOD_PATH)/lib/modules/6.12.9-pageferry
"""
TEXT = "one\ntwo\nthree\n"
HOOK = """\
Subject: mm: shout

Say why.

--- a/mm/migrate.c
+++ b/mm/migrate.c
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
"""


def make_tarball(
    path: Path,
    *,
    behave: str = "well",
    padding: int = 0,
    sublevel: int = 9,
    text: str = TEXT,
    base: str = "6.12",
) -> Path:
    """Write the source tarball."""
    version, _, patchlevel = base.partition(".")
    makefile = (
        MAKEFILE.replace("SUBLEVEL = 9", f"SUBLEVEL = {sublevel}")
        .replace("VERSION = 6", f"VERSION = {version}", 1)
        .replace("PATCHLEVEL = 12", f"PATCHLEVEL = {patchlevel}")
        .replace("6.12.9-", f"{base}.{sublevel}-")
    )
    files = {
        "Makefile": makefile.encode(),
        "mm/migrate.c": text.encode(),
        "behave": behave.encode(),
        "padding": b"\0" * padding,
    }
    with tarfile.open(path, "w:xz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"linux-source-{base}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def make_checkout(path: Path, *, hook: str = HOOK) -> Path:
    """Write the files of a checkout that the tool reads."""
    (path / "linux/configs").mkdir(parents=True)
    (path / "linux/configs/vm.config").write_text("CONFIG_A=y\n")
    (path / "linux/configs/more.config").write_text("CONFIG_C=y\n")
    (path / "linux/configs/debug-all.config").write_text("CONFIG_D=y\n")
    (path / "linux/configs/distribution.config").write_text(
        "CONFIG_E=y\nCONFIG_MIGRATE_DCBM=m\n"
    )
    (path / "linux/configs/arm64").mkdir()
    (path / "linux/configs/arm64/vm.config").write_text("CONFIG_B=y\n")
    (path / "linux/configs/bad.config").write_text("CONFIG_REFUSED=y\n")
    (path / "linux/tree/mm").mkdir(parents=True)
    (path / "linux/tree/mm/new.c").write_text("new\n")
    add_base(path / "linux", "6.12", hook)
    return path


def add_base(linux: Path, name: str, hook: str) -> None:
    """Write a base with one hook, and a package that Debian's archive lacks."""
    folder = linux / "hooks" / name
    folder.mkdir(parents=True)
    (folder / "0001-change.patch").write_text(hook)
    describe_base(folder)


def describe_base(
    folder: Path,
    *,
    works: Sequence[str] = (),
    sha256: Mapping[str, str] | None = None,
    suites: Sequence[str] = (),
    has: Mapping[str, str] | None = None,
) -> None:
    """Write the description of a base."""
    lines = [
        f'package = "linux-source-{folder.name}"',
        f"suites = {list(suites)}",
        f'oldest = "{folder.name}.1"',
        f"works = {list(works)}",
        *(
            "[sha256]",
            *(f'"{name}" = "{text}"' for name, text in (sha256 or {}).items()),
        ),
        *("[has]", *(f'"{name}" = "{text}"' for name, text in (has or {}).items())),
    ]
    (folder / "base.toml").write_text("\n".join(lines))
