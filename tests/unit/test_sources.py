# SPDX-License-Identifier: GPL-2.0-only
"""A check must fail if its files have moved, and not pass without reading any."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers import builds, sources
from pageferry.kernel import bases


def test_a_pattern_without_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.c").touch()
    (tmp_path / "b.h").mkdir()
    assert sources.found(tmp_path, "*.c") == [tmp_path / "a.c"]
    with pytest.raises(LookupError, match=r"matches \*\.h"):
        sources.found(tmp_path, "*.c", "*.h")


def test_files_that_others_include_have_no_object() -> None:
    names = ["mm/a/b.h", "mm/a/b.c", "mm/a/tests/b_kunit.c", "tools/testing/c.c"]
    assert sources.compiled(names) == ["mm/a/b.c"]


def test_a_file_that_sparse_did_not_read_is_named() -> None:
    log = "  CC      mm/b.o\n  CHECK   ../mm/a.c\n  CHECK   kernel/sched/c.c\n"
    names = ["mm/a.c", "mm/b.c", "kernel/sched/c.c"]
    assert sources.unchecked(log, names) == ["mm/b.c"]


def test_every_directory_of_ours_is_compiled() -> None:
    """Compile checks name directories, which must hold all files of ours."""
    assert sources.outside(["mm/a.c", "mmu/a.c"], ["mm"]) == ["mmu/a.c"]
    for base in bases.names(sources.LINUX):
        names = sources.compiled(sources.ours("**/*.c", base=base))
        assert sources.outside(names, builds.TOUCHED) == []


def test_files_of_linux_include_one_header_of_the_core() -> None:
    """Without its stubs, a kernel without the batch copy would not compile."""
    added = re.compile(r'^\+#include "(migrate_(?:offload|run)\b[^"]*)"', re.MULTILINE)
    included = [
        name
        for hook in sources.found(sources.LINUX / "hooks", "**/*.patch")
        for name in added.findall(hook.read_text())
    ]
    assert set(included) == {"migrate_offload/hooks.h"}


def test_the_options_of_the_unit_tests_exist() -> None:
    folder = sources.TREE / "mm" / "migrate_offload"
    text = (folder / ".kunitconfig").read_text()
    wanted = re.findall(r"^CONFIG_(MIGRAT\w+)=y$", text, re.MULTILINE)
    kconfigs = sources.found(sources.TREE, "mm/**/Kconfig")
    known = "".join(path.read_text() for path in kconfigs)
    assert "MIGRATION_COPY_OFFLOAD_KUNIT_TEST" in wanted
    assert [name for name in wanted if f"config {name}\n" not in known] == []


def test_files_of_ours_that_a_text_names_exist() -> None:
    """Comments, pages and kernel-doc lines name the present path of a file."""
    root = sources.LINUX.parent
    named = re.compile(
        r"(?<![\w])((?:mm/migrate_\w+|drivers/migrate_offload|drivers/dma/dmasim)"
        r"(?:/\w+)*\.[ch])\b"
    )
    texts = [
        *sources.found(root, "*.md", "docs/**/*.md", "linux/hooks/**/*.patch"),
        *sources.found(sources.TREE, "**/*.c", "**/*.h", "**/*.rst"),
    ]
    names = {name for path in texts for name in named.findall(path.read_text())}
    assert len(names) > 20
    assert [name for name in sorted(names) if not (sources.TREE / name).exists()] == []


def test_kernel_pages_of_ours_that_a_text_names_exist() -> None:
    """Links to a page that moved or was divided lead nowhere."""
    named = re.compile(r"Documentation/[\w/-]*(?:migrat|dmasim|dcbm)[\w-]*(?:\.rst)?")
    texts = [
        *sources.found(sources.LINUX / "hooks", "**/*.patch"),
        *(path for path in sources.found(sources.TREE, "**/*") if path.is_file()),
    ]
    names = {
        name
        for path in texts
        for name in named.findall(path.read_text())
        if name != "Documentation/mm/page_migration.rst"
    }
    assert len(names) > 8
    assert [name for name in sorted(names) if not (sources.TREE / name).exists()] == []
