# SPDX-License-Identifier: GPL-2.0-only
"""Two bases in one checkout, with fake kernels that build in a moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.fake_kernel import HOOK, add_base, describe_base, make_tarball

from .conftest import Tool

NEXT = """\
Subject: mm: whisper

Say why.

--- a/mm/migrate.c
+++ b/mm/migrate.c
@@ -1,3 +1,3 @@
 one
 two
-three
+(three)
"""


@pytest.fixture
def two(fake: Tool) -> Tool:
    """The tool with the bases 6.12 and 7.3."""
    linux = fake.home / "checkout/linux"
    add_base(linux, "7.3", HOOK)
    (linux / "hooks/7.3/0002-next.patch").write_text(NEXT.replace(" two", " TWO"))
    (linux / "hooks/6.12/0003-old.patch").write_text(NEXT)
    (linux / "hooks/6.12/0001-change.patch").unlink()
    (linux / "only/6.12/mm").mkdir(parents=True)
    (linux / "only/6.12/mm/old.c").write_text("old\n")
    (linux / "configs/7.3").mkdir()
    (linux / "configs/7.3/vm.config").write_text("CONFIG_B=y\n")
    has = {"0003-old": "it always did"}
    describe_base(linux / "hooks/7.3", works=["7.3.9"], suites=["new"], has=has)
    return fake


def build(tool: Tool, base: str, source: Path) -> dict[str, object]:
    done = tool.run("kernel", "build", "--base", base, "--source", source, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_each_base_has_a_build_of_its_own(two: Tool, tmp_path: Path) -> None:
    made = {}
    for base in ("6.12", "7.3"):
        source = make_tarball(tmp_path / f"{base}.tar.xz", base=base)
        first = build(two, base, source)
        assert build(two, base, source) == {**first, "cached": True}
        assert (first["base"], first["release"]) == (base, f"{base}.9-pageferry")
        made[base] = Path(str(first["build_dir"]))
        assert made[base].parent.name.startswith(f"{base}-")
    old, new = made.values()
    assert (old.parent / "mm/migrate.c").read_text() == "one\ntwo\n(three)\n"
    assert (new.parent / "mm/migrate.c").read_text() == "one\nTWO\n(three)\n"
    assert (old.parent / "mm/old.c").exists() and (new.parent / "mm/new.c").exists()
    assert not (new.parent / "mm/old.c").exists()
    assert "CONFIG_B" not in (old / ".config").read_text()
    assert "CONFIG_A=y\nCONFIG_B=y" in (new / ".config").read_text()


def test_a_source_of_another_base(two: Tool, tmp_path: Path) -> None:
    source = make_tarball(tmp_path / "linux.tar.xz")
    error = two.fails(5, "kernel", "build", "--base", "7.3", "--source", source)
    assert error["what"] == "this is not the source of Linux 7.3"
    assert (error["value"], error["reason"]) == (str(source), "it is 6.12.9")
    assert "--base" in error["hint"]


def test_hooks_that_do_not_apply_concern_their_base_alone(
    two: Tool, tmp_path: Path
) -> None:
    hook = two.home / "checkout/linux/hooks/7.3/0002-next.patch"
    hook.write_text(NEXT)
    new = make_tarball(tmp_path / "new.tar.xz", base="7.3")
    error = two.fails(5, "kernel", "build", "--base", "7.3", "--source", new)
    assert error["value"] == str(hook)
    assert "mm/migrate.c" in error["reason"] and "is Linux 7.3.9" in error["reason"]
    build(two, "6.12", make_tarball(tmp_path / "old.tar.xz"))


@pytest.mark.parametrize(
    "argv",
    [
        "kernel build --dry-run",
        "kernel package --dry-run",
        "vm run -- true",
        "demo --dry-run",
        "bench move-pages --vm --dry-run",
        "bench cost --dry-run",
        "fault-campaign --dry-run",
    ],
)
def test_every_command_with_a_kernel_takes_a_base(two: Tool, argv: str) -> None:
    words = argv.split()
    cut = words.index("--") if "--" in words else len(words)
    words[cut:cut] = ["--base", "9.9"]
    error = two.fails(2, *words)
    assert (error["what"], error["value"]) == ("unknown base", "9.9")
    assert error["hint"] == "there is: 6.12, 7.3"


def test_the_variable_chooses_the_default(two: Tool, tmp_path: Path) -> None:
    source = make_tarball(tmp_path / "new.tar.xz", base="7.3")
    argv = ("kernel", "build", "--source", source, "--json")
    done = two.run(*argv, PAGEFERRY_BASE="7.3")
    assert json.loads(done.stdout)["base"] == "7.3"


def test_the_bases_are_compared(two: Tool) -> None:
    done = two.run("kernel", "bases")
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout
        == """\
base         releases  known to work  Debian's package
6.12  6.12.1 or later  none           linux-source-6.12 (no suite)
 7.3   7.3.1 or later  7.3.9          linux-source-7.3 (new)

hook  6.12  7.3     feature
0001  -     hook    mm: shout
0002  -     hook    mm: whisper
0003  hook  itself  mm: whisper

Linux 7.3 by itself:
  0003  it always did
"""
    )
    document = json.loads(two.run("kernel", "bases", "--json").stdout)
    old, new = document["bases"]
    assert (old["name"], old["default"], new["name"]) == ("6.12", True, "7.3")
    assert old["hooks"] == {"0003-old": "mm: whisper"}
    assert new["works"] == ["7.3.9"] and new["has"] == {"0003-old": "it always did"}


def test_a_damaged_description_is_one_line(two: Tool) -> None:
    path = two.home / "checkout/linux/hooks/7.3/base.toml"
    path.write_text("works = [")
    error = two.fails(5, "kernel", "bases")
    assert error["value"] == str(path)


def test_doctor_lists_the_sources(two: Tool) -> None:
    (two.home / "checkout/requirements").mkdir()
    (two.home / "checkout/requirements/apt.txt").touch()
    (two.cache / "kernel/tarballs").mkdir(parents=True)
    kept = make_tarball(two.cache / "kernel/tarballs/linux-7.3.9.tar.xz", base="7.3")
    checks = json.loads(two.run("doctor", "--json").stdout)["checks"]
    found = {check["name"]: check for check in checks}
    assert found["Linux 7.3"]["ok"] and found["Linux 7.3"]["detail"] == str(kept)
    assert "Linux 6.12" in found
