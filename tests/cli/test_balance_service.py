# SPDX-License-Identifier: GPL-2.0-only
"""The balancer as its unit starts it: no checkout, no compiler, no home directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.fake_process import add_node
from pageferry.sysfs.files import Files

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
source = "recorded"
record = "load.csv"
[[process]]
name = "merci"
"""
COMMAND = ("balance", "--config", "balance.toml")


class Service:
    """An installed tool, without the files of a checkout."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.root = top / "root"
        shutil.copytree(
            ROOT / "src/pageferry",
            top / "site/pageferry",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        for node in (0, 1):
            add_node(Files(root=self.root), node)
        (top / "load.csv").write_text("time_s,demand\n0,108e9\n")
        # ProtectHome=yes hides home directories. As root we cannot make one that is
        # not writable, so this one is a file.
        (top / "home").write_text("")
        self.configure('[bandwidth]\n"0" = 72.0\n"1" = 26.0\n')

    def configure(self, more: str) -> None:
        """Write the configuration."""
        (self.top / "balance.toml").write_text(CONFIG + more)

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Start the service."""
        return subprocess.Popen(
            [sys.executable, "-m", "pageferry", *COMMAND, *more],
            cwd=self.top,
            env={
                "PATH": "/nonexistent",
                "HOME": str(self.top / "home"),
                "XDG_CACHE_HOME": str(self.top / "cache"),
                "PYTHONPATH": str(self.top / "site"),
                "PAGEFERRY_SYSFS_ROOT": str(self.root),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A machine with two nodes, and the installed tool."""
    return Service(tmp_path)


def test_it_starts_without_a_checkout_and_a_compiler(service: Service) -> None:
    out, err = service.start("--for", "200ms").communicate(timeout=60)
    assert out == ""
    assert "bandwidth by configuration: node 0 72.00 GB/s, node 1 26.00 GB/s" in err
    assert "none of the processes is running" in err
    assert "stopped: memory stays where it is" in err


def test_without_any_bandwidth_it_says_what_to_write(service: Service) -> None:
    service.configure("")
    with service.start("--for", "200ms") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "the bandwidth of the nodes is unknown" in err
    assert "try: pageferry balance --measure" in err


def test_a_second_service_ends_and_names_the_first(service: Service) -> None:
    with service.start() as first:
        assert first.stderr is not None
        while "takes care of" not in (line := first.stderr.readline()):
            assert line, "the first service has ended"
        with service.start("--for", "200ms") as second:
            _, err = second.communicate(timeout=60)
        assert second.returncode == 1
        assert f"process {first.pid} holds the lock" in err
        assert "try: systemctl stop pageferry-balance" in err
        os.kill(first.pid, signal.SIGKILL)
    # The kernel releases the lock of a killed process.
    _, err = service.start("--for", "200ms").communicate(timeout=60)
    assert "stopped: memory stays" in err
