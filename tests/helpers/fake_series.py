# SPDX-License-Identifier: GPL-2.0-only
"""A checkout with series, and a fake kernel whose directories build in a moment."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from helpers.fake_kernel import MAKEFILE

# Complains about lines with the word "ugly". Perl runs it, as the real one.
CHECKPATCH = r"""
my $bad = 0;
for my $file (grep { !/^--/ } @ARGV) {
    open(my $in, '<', $file) or die;
    while (<$in>) {
        next unless /^\+.*ugly/;
        print "$file:$.: WARNING:UGLY: it is ugly\n";
        $bad = 1;
    }
}
exit $bad;
"""
# Directories, as kbuild builds them. `make` fails if a line has the word "broken", and
# records the content of all files in the build directory.
MAKE_DIRECTORIES = r"""
.PHONY: mm/ drivers/new/
mm/ drivers/new/:
	@if grep -rq broken $@; then echo "x.c:1: error: no such thing"; exit 1; fi
	@if grep -rq slow $@; then echo $$$$ >$(O)/sleeping; sleep 300; fi
	@echo "  CC      $@x.o"
	@echo "$@" >>$(O)/built
"""
PRISTINE = {
    "Makefile": MAKEFILE + MAKE_DIRECTORIES,
    "behave": "well",
    "scripts/checkpatch.pl": CHECKPATCH,
    "mm/Makefile": "obj-y := migrate.o\n",
    "mm/migrate.c": "".join(f"line {n}\n" for n in range(1, 31)),
    "drivers/Makefile": "obj-y := old/\n",
}
# The second hook changes a line of the first, and adds another elsewhere.
HOOKS = {
    "0001-first": """\
Subject: mm: first

--- a/mm/migrate.c
+++ b/mm/migrate.c
@@ -3,2 +3,3 @@ static int early(void)
 line 3
+first early
 line 4
@@ -20,3 +21,3 @@ static int late(void)
 line 20
-line 21
+first late
 line 22
""",
    "0002-second": """\
Subject: mm: second

--- a/mm/migrate.c
+++ b/mm/migrate.c
@@ -9,3 +9,3 @@
 line 8
-line 9
+second middle
 line 10
@@ -21,3 +21,3 @@
 line 20
-first late
+second late
 line 22
--- a/drivers/Makefile
+++ b/drivers/Makefile
@@ -1 +1,2 @@
 obj-y := old/
+obj-y += new/
--- /dev/null
+++ b/mm/made.h
@@ -0,0 +1 @@
+made
""",
}
TREE = {
    "drivers/new/Makefile": "# head\n\nobj-y += one.o\n# two\nobj-y += two.o\n",
    "drivers/new/Kconfig": (
        "# head\n\nconfig ONE\n\tbool\n\n# about two\nconfig TWO\n\tbool\n"
    ),
    "drivers/new/one.c": "one\n",
    "drivers/new/two.c": "two\n",
}
EVERYTHING = """\
title = "all of it"
bases = ["6.12"]
needs = "It needs nothing."
cover = "It does everything."
everything = true

[[patch]]
subject = "mm: late changes first"
message = "Say why.\\n"
hooks = [
  { hook = "0001-first", file = "mm/migrate.c", hunks = ["late"] },
  { hook = "0002-second", file = "mm/migrate.c", hunks = [1] },
]

[[patch]]
subject = "drivers/new: begin"
message = "Say why."
hooks = [{ hook = "0002-second", file = "drivers/Makefile" }]
tree = ["drivers/new/one.c"]
lines = [
  { file = "drivers/new/Makefile", match = ["one.o"] },
  { file = "drivers/new/Kconfig", match = ["ONE"] },
]

[[patch]]
subject = "everything else"
message = "Say why."
rest = true
"""
OWN = """\
title = "a diff of its own"
bases = ["6.12"]
needs = "It needs nothing."
cover = "It has a diff of its own."

[[patch]]
subject = "mm: change a line"
message = "Say why."
diffs = ["0001-own.patch"]
files = ["mm/own.c"]
"""
LATER = """\
title = "a change on top"
bases = ["6.12"]
after = ["own"]
needs = "It needs the diff."
cover = "It comes later."

[[patch]]
subject = "mm: change another line"
message = "Say why."
hooks = [{ hook = "0001-first", hunks = [1] }]
"""
OWN_DIFF = """\
--- a/mm/migrate.c
+++ b/mm/migrate.c
@@ -1,2 +1,2 @@
-line 1
+own
 line 2
"""


def make_source(path: Path, *, sublevel: int = 9) -> Path:
    """Write the tarball of the fake kernel."""
    with tarfile.open(path, "w:xz") as archive:
        for name, text in PRISTINE.items():
            content = text.replace("SUBLEVEL = 9", f"SUBLEVEL = {sublevel}").encode()
            entry = tarfile.TarInfo(f"linux-source-6.12/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def add_series(linux: Path, *, with_base: bool = True) -> None:
    """Write hooks, new files and series into a checkout's directory linux."""
    for name, text in HOOKS.items():
        _put(linux / f"hooks/6.12/{name}.patch", text)
    for name, text in TREE.items():
        _put(linux / "tree" / name, text)
    _put(linux / "series/everything.toml", EVERYTHING)
    _put(linux / "series/own.toml", OWN)
    _put(linux / "series/later.toml", LATER)
    _put(linux / "series/own/6.12/0001-own.patch", OWN_DIFF)
    _put(linux / "series/own/tree/mm/own.c", "own\n")
    if with_base:
        _put(linux / "configs/vm.config", "CONFIG_A=y\n")


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
