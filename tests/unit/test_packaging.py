# SPDX-License-Identifier: GPL-2.0-only
"""The files that other programs read: units, Debian's files, manual pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pageferry
from helpers.sources import found
from pageferry import paths

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
UNITS = found(PACKAGING, "systemd/*.service")
BOOT = PACKAGING / "systemd/pageferry-boot"
DEFAULTS = [ROOT / "debian/pageferry.default", *found(PACKAGING, "examples/*.default")]


def complaints(unit: Path, text: str) -> str:
    """Return the errors that systemd finds in a unit, whose programs may be missing."""
    text = re.sub(r"(/usr/bin/pageferry|/usr/libexec/\S+)", "/bin/true", text)
    # systemd looks for the pages, too.
    unit.write_text(re.sub(r"(?m)^Documentation=.*\n", "", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    return said or ("" if done.returncode == 0 else f"exit code {done.returncode}")


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.name)
def test_systemd_understands_every_line_of_the_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    assert "=/usr/bin/pageferry " in text
    assert complaints(tmp_path / unit.name, text) == ""
    wrong = text.replace("ProtectSystem=", "ProtectSystems=")
    assert "ProtectSystems" in complaints(tmp_path / unit.name, wrong)


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.name)
def test_a_unit_names_a_page_that_exists(unit: Path) -> None:
    (name,) = re.findall(
        r"^Documentation=man:pageferry-(\S+)\(1\)$", unit.read_text(), re.M
    )
    assert f"pageferry {name.replace('-', ' ')}" in names_of_commands()


def test_damon_stops_after_the_service_of_the_tiers_was_killed() -> None:
    """The next start comes seconds later, or never."""
    text = (PACKAGING / "systemd/pageferry-tier.service").read_text()
    assert "\nExecStopPost=-/usr/bin/pageferry tier --stop\n" in text
    assert "\nRestart=on-failure\n" in text
    # The command finds the kdamonds in this directory.
    assert "\nRuntimeDirectoryPreserve=yes\n" in text


def settings_of(default: Path) -> dict[str, str]:
    """Read a file as systemd does, also the lines that are commented out."""
    lines = re.findall(r"^#?([A-Z]+)=(.*)$", default.read_text(), re.MULTILINE)
    return {name: value.strip('"') for name, value in lines}


@pytest.mark.parametrize("default", DEFAULTS, ids=lambda p: p.name)
def test_settings_are_applied_at_boot(default: Path, tmp_path: Path) -> None:
    files = tmp_path / "sys/kernel/mm/migrate_offload"
    (files / "engine_of").mkdir(parents=True)
    (tmp_path / "sys/module/dcbm").mkdir(parents=True)
    offloading = tmp_path / "sys/module/dcbm/offloading"
    offloading.write_text("0\n")
    for name in ("modprobe", "pageferry"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/log\n')
        (tmp_path / name).chmod(0o755)
    settings = settings_of(default)
    done = subprocess.run(
        [BOOT],
        env={
            **settings,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PAGEFERRY_SYSFS_ROOT": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    modules = [f"modprobe {name}" for name in settings["MODULES"].split()]
    last = f"pageferry engine set {settings['ENGINE']} --for {settings['REASONS']}"
    assert (tmp_path / "log").read_text().splitlines() == [*modules, last]
    assert offloading.read_text() == "1\n"
    # The write has made dcbm the engine of all reasons.
    assert (files / "engine").read_text() == "none\n"
    for setting in settings.get("SETTINGS", "").split():
        name, _, value = setting.partition("=")
        assert (files / name).read_text() == f"{value}\n"


def test_a_module_that_is_missing_fails_the_unit(tmp_path: Path) -> None:
    (tmp_path / "modprobe").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "modprobe").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MODULES": "mtcopy"}
    assert subprocess.run([BOOT], env=env, check=False).returncode == 1


def test_all_files_name_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first = (ROOT / "debian/changelog").read_text().partition("\n")[0]
    assert project["version"] == pageferry.__version__
    assert first.startswith(f"pageferry ({pageferry.__version__}) ")


def test_doctor_and_the_package_agree_on_what_a_build_needs() -> None:
    """The package suggests all packages that doctor asks for on x86-64."""
    listed = (
        (ROOT / "requirements/apt.txt").read_text().partition("# the same for arm64")
    )
    wanted = {line for line in listed[0].splitlines() if line and line[0] != "#"}
    control = (ROOT / "debian/control").read_text()
    suggested = set(re.findall(r"[a-z0-9.+-]{2,}", control.partition("Suggests:")[2]))
    # ccache and e2fsprogs: nothing fails without the first, and all systems have the
    # second. kmod is recommended.
    assert wanted - suggested <= {"ccache", "e2fsprogs", "kmod"}


@pytest.mark.parametrize("layout", ["checkout", "package", "venv"])
def test_our_files_are_found(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, data = {
        "checkout": ("src/pageferry", ""),
        "package": ("usr/lib/python3/dist-packages/pageferry", "usr/share/pageferry"),
        "venv": ("lib/python3.13/site-packages/pageferry", "share/pageferry"),
    }[layout]
    (tmp_path / data / "linux/configs").mkdir(parents=True)
    monkeypatch.setattr(paths, "__file__", str(tmp_path / module / "paths.py"))
    monkeypatch.delenv("PAGEFERRY_ROOT", raising=False)
    assert paths.repo_root() == tmp_path / data


def names_of_commands() -> list[str]:
    """List all commands, each with all its words. A test keeps that page current."""
    page = (ROOT / "docs/reference/commands.md").read_text()
    return re.findall(r"^## (pageferry .+)$", page, re.MULTILINE)


def run_script(name: str, target: Path) -> dict[str, str]:
    """Run a script that writes files into a directory; returns their content."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / name, target],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_text() for path in target.iterdir()}


def test_each_command_has_a_manual_page(tmp_path: Path) -> None:
    pages = run_script("man_pages.py", tmp_path)
    names = [name.replace(" ", "-") for name in names_of_commands()]
    assert set(pages) == {"pageferry.1", *(f"{name}.1" for name in names)}
    overview = pages["pageferry.1"].replace("\\-", "-")
    for name in names:
        assert f".BR {name} (1)" in overview
    for heading in ("EXIT STATUS", "EXAMPLES", "FILES", "SEE ALSO"):
        assert f".SH {heading}\n" in pages["pageferry.1"]
    for name, text in pages.items():
        assert re.search(r"(?m)^\.SH NAME\n\S+ \\- \S", text), name
        assert ".SH COMMENTS" not in text and "examples:" not in text, name


def test_groff_finds_no_mistake_in_a_page(tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    run_script("man_pages.py", tmp_path)
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-Tutf8", *sorted(tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("pageferry kernel ", ["build", "bases", "series", "package"]),
        ("pageferry kern", ["kernel "]),
        ("pageferry kernel build --arch ", ["x86_64", "arm64"]),
        ("pageferry engine set --f", ["--for "]),
        ("pageferry vm run -- ", []),
    ],
)
def test_bash_completes(line: str, answers: list[str], tmp_path: Path) -> None:
    files = run_script("completions.py", tmp_path / "completions")
    assert set(files) == {"pageferry", "_pageferry", "pageferry.fish"}
    tool = tmp_path / "pageferry"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m pageferry "$@"\n')
    tool.chmod(0o755)
    script = f"""
        source {tmp_path}/completions/pageferry
        COMP_LINE="$1" COMP_POINT=${{#1}} COMP_TYPE=9
        _python_argcomplete {tool}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script, "bash", line],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == (answers or [""])
