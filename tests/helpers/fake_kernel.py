# SPDX-License-Identifier: GPL-2.0-only
"""A kernel source that builds in a moment, to test builds."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

# Copies the fragment to .config, and fakes all other steps. The file `behave` in the
# source selects a behaviour: `slow` sleeps, `fail` fails.
MAKEFILE = r"""VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = 9
EXTRAVERSION =
allnoconfig:
	grep -v REFUSED $(KCONFIG_ALLCONFIG) >$(KCONFIG_CONFIG)
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
) -> Path:
    """Write the source tarball."""
    makefile = MAKEFILE.replace("SUBLEVEL = 9", f"SUBLEVEL = {sublevel}")
    files = {
        "Makefile": makefile.encode(),
        "mm/migrate.c": text.encode(),
        "behave": behave.encode(),
        "padding": b"\0" * padding,
    }
    with tarfile.open(path, "w:xz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"linux-source-6.12/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def make_checkout(path: Path, *, hook: str = HOOK) -> Path:
    """Write the files of a checkout that the tool reads."""
    (path / "linux/configs").mkdir(parents=True)
    (path / "linux/configs/vm.config").write_text("CONFIG_A=y\n")
    (path / "linux/configs/more.config").write_text("CONFIG_C=y\n")
    (path / "linux/configs/debug-all.config").write_text("CONFIG_D=y\n")
    (path / "linux/configs/arm64").mkdir()
    (path / "linux/configs/arm64/vm.config").write_text("CONFIG_B=y\n")
    (path / "linux/configs/bad.config").write_text("CONFIG_REFUSED=y\n")
    (path / "linux/tree/mm").mkdir(parents=True)
    (path / "linux/tree/mm/new.c").write_text("new\n")
    (path / "linux/hooks/6.12").mkdir(parents=True)
    (path / "linux/hooks/6.12/0001-change.patch").write_text(hook)
    return path
