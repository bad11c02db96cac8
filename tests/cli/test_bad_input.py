# SPDX-License-Identifier: GPL-2.0-only
"""Bad input gets one clear line, the right exit code, and JSON on request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, Tool

OFFLOAD = "sys/kernel/mm/migrate_offload"


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["frobnicate"], "frobnicate"),
        (["kernel"], "VERB"),
        (["kernel", "build", "--base", "9.9"], "9.9"),
        (["kernel", "build", "--config", "nope"], "nope"),
        (["kernel", "build", "--jobs", "0"], "0"),
        (["kernel", "build", "--jobs", "many"], "many"),
        (["kernel", "build", "--source", "/no/such/file"], "/no/such/file"),
        (["kernel", "build", "--", "true"], "--"),
        (["vm", "run", "--topology", "nope", "--", "true"], "nope"),
        (["vm", "run"], "no command"),
        (["vm", "run", "--"], "no command"),
        (["vm", "run", "--timeout", "soon", "--", "true"], "soon"),
        (["vm", "run", "--kernel", "/no/image", "--", "true"], "/no/image"),
        (["vm", "run", "--rw", "/no/dir", "--", "true"], "/no/dir"),
        (["vm", "run", "--allow-klog", "(", "--", "true"], "regular expression"),
        (["interleave", "start", "--pid", "1"], "--weights"),
        (["interleave", "start", "--pid", "0", "--weights", "0=1"], "0"),
        (["interleave", "start", "--pid", "me", "--weights", "0=1"], "me"),
        (["interleave", "start", "--pid", "1", "--weights", "0=0"], "all weights"),
        (["interleave", "start", "--pid", "1", "--weights", "all"], "all"),
        (["interleave", "start", "--pid", "4194304", "--weights", "0=1"], "process"),
        (["interleave", "status", "--pid", "4194304"], "4194304"),
        (["interleave", "stop", "--pid", "4194304"], "4194304"),
        (["move", "--from", "0", "--to", "1"], "--pid"),
        (["move", "--pid", "1"], "--from"),
        (["move", "--pid", "1", "--from", "0", "--to", "0"], "--to"),
        (["move", "--offline-check", "x"], "x"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_errors(tool: Tool, argv: list[str], word: str) -> None:
    error = tool.fails(2, *argv)
    assert word in f"{error['what']} {error.get('value', '')}"


@pytest.mark.parametrize("verb", ["status", "off", "engine list", "engine set cpu"])
def test_a_kernel_without_our_files_is_named(tool: Tool, verb: str) -> None:
    error = tool.fails(3, *verb.split(), PAGEFERRY_SYSFS_ROOT=str(tool.home))
    assert "CONFIG_MIGRATION_COPY_OFFLOAD" in error["reason"]
    assert "pageferry vm run" in error["hint"]


def fake_kernel_files(root: Path) -> Path:
    settings = {
        "engine": "none",
        "available_engines": "none cpu mtcopy",
        "engine_of/compaction": "default",
        "engine_of/damon": "default",
        "max_unmapped_us": "0",
    }
    (root / OFFLOAD / "engine_of").mkdir(parents=True)
    for name, value in settings.items():
        (root / OFFLOAD / name).write_text(value + "\n")
    return root


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["engine", "set", "warp"], "warp"),
        (["engine", "set", "cpu", "--for", "damon,boredom"], "boredom"),
    ],
)
def test_unknown_engines_and_reasons(tool: Tool, argv: list[str], value: str) -> None:
    root = fake_kernel_files(tool.home)
    error = tool.fails(2, *argv, PAGEFERRY_SYSFS_ROOT=str(root))
    assert error["value"] == value
    assert (root / OFFLOAD / "engine").read_text() == "none\n"


def test_setting_and_turning_off(tool: Tool) -> None:
    root = fake_kernel_files(tool.home)
    variable = {"PAGEFERRY_SYSFS_ROOT": str(root)}
    dry = tool.run("engine", "set", "mtcopy", "--dry-run", **variable)
    assert dry.stdout == f"mtcopy > {root / OFFLOAD / 'engine'}\n"
    assert (root / OFFLOAD / "engine").read_text() == "none\n"
    assert tool.run("engine", "set", "mtcopy", **variable).returncode == 0
    assert (root / OFFLOAD / "engine").read_text() == "mtcopy\n"
    done = tool.run("engine", "set", "cpu", "--for", "damon", **variable)
    assert done.returncode == 0
    assert (root / OFFLOAD / "engine_of/damon").read_text() == "cpu\n"
    assert (root / OFFLOAD / "engine_of/compaction").read_text() == "default\n"
    assert "engine    mtcopy" in tool.run("status", **variable).stdout
    assert tool.run("off", **variable).returncode == 0
    assert (root / OFFLOAD / "engine").read_text() == "none\n"


def test_without_qemu_the_package_is_named(tool: Tool) -> None:
    image = tool.home / "bzImage"
    image.write_bytes(b"")
    argv = ["vm", "run", "--accel", "tcg", "--kernel", str(image), "--", "true"]
    error = tool.fails(3, *argv, PATH="/nonexistent")
    assert "qemu-system-x86" in error["hint"]


def test_without_a_compiler_the_packages_are_named(tool: Tool) -> None:
    error = tool.fails(3, "kernel", "build", PATH="/nonexistent")
    assert "build-essential" in error["hint"]


def test_without_a_network_the_setup_says_so(tool: Tool) -> None:
    offline = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
    }
    environment = tool.full_environment(offline)
    environment.pop("PIP_FIND_LINKS", None)
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/bootstrap.py", "launch", "--version"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert "check the network" in done.stderr
    assert done.stdout == ""


def test_lists_are_answers(tool: Tool) -> None:
    assert "two-node" in tool.run("vm", "run", "--topology", "list").stdout
    assert "debug-kasan" in tool.run("kernel", "build", "--config", "list").stdout


def test_a_reader_that_goes_away_is_no_traceback(tool: Tool) -> None:
    with tool.start("vm", "run", "--topology", "list") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert "Traceback" not in said
