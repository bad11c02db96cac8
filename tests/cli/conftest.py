# SPDX-License-Identifier: GPL-2.0-only
"""The tool as a program, with its own cache and checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_kernel import make_checkout

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Tool:
    """Runs pageferry in a subprocess."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        """The folder where the tool keeps its files."""
        return self.home / "cache" / "pageferry"

    def full_environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Give the environment of the subprocess."""
        ours = {
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "PYTHONPATH": str(ROOT / "src"),
            "PAGEFERRY_BASE": "",
        }
        return {**os.environ, **ours, **self.environment, **extra}

    def start(self, *argv: str | Path, **extra: str) -> subprocess.Popen[str]:
        """Start the tool and return at once."""
        return subprocess.Popen(
            [sys.executable, "-m", "pageferry", *map(str, argv)],
            env=self.full_environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *argv: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run the tool to its end."""
        with self.start(*argv, **extra) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def fails(self, code: int, *argv: str | Path, **extra: str) -> dict[str, Any]:
        """Run the tool with --json, check the exit code, and return the error."""
        words = list(argv)
        cut = words.index("--") if "--" in words else len(words)
        done = self.run(*words[:cut], "--json", *words[cut:], **extra)
        assert done.returncode == code, done.stderr
        document = json.loads(done.stdout)
        assert isinstance(document, dict)
        error = document["error"]
        assert error["exit_code"] == code
        # People get the same text on stderr, on one line and without a traceback.
        assert "Traceback" not in done.stderr
        assert f"pageferry: {error['what']}" in done.stderr
        assert isinstance(error, dict)
        return error


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """The tool in this checkout."""
    return Tool(tmp_path)


@pytest.fixture
def fake(tmp_path: Path) -> Tool:
    """The tool in a checkout with a fake kernel, which builds in a moment."""
    checkout = make_checkout(tmp_path / "checkout")
    return Tool(tmp_path, {"PAGEFERRY_ROOT": str(checkout)})
