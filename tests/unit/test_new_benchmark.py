# SPDX-License-Identifier: GPL-2.0-only
"""Adds the benchmark that CONTRIBUTING.md shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pageferry.bench
from helpers.bench_data import result
from pageferry.bench import build, spec
from pageferry.bench.job import Job
from pageferry.bench.lines import Environment, Failure, Line, parse_line
from pageferry.cli import main
from pageferry.results.schema import Kernel, Machine, decode

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Comments, and lines about other files.
NO_CODE = ("#", "/*", "*", "//", '"""', "from ", "import ")


def shown(language: str) -> str:
    """Return the page's only block in that language."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    return str(block)


@pytest.fixture
def mbind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> spec.Benchmark:
    """The benchmark of the page."""
    folder = tmp_path / "mbind"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "spec.py").write_text(shown("python"))
    places = [*pageferry.bench.__path__, str(tmp_path)]
    monkeypatch.setattr(pageferry.bench, "__path__", places)
    monkeypatch.setattr(spec, "NAMES", (*spec.NAMES, "mbind"))
    for name in ("pageferry.bench.mbind", "pageferry.bench.mbind.spec"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return spec.load("mbind")


def test_sixty_lines_are_enough() -> None:
    lines = [line.strip() for line in (shown("c") + shown("python")).splitlines()]
    code = [line for line in lines if line and not line.startswith(NO_CODE)]
    assert 30 < len(code) <= 60


def test_the_program_takes_what_it_is_told(
    mbind: spec.Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["bench", "mbind", "--vm", "--total", "64G"]) == 3
    shutil.copytree(ROOT / "bench", tmp_path / "bench")
    # Programs share assembly with the kernel.
    (tmp_path / "linux").symlink_to(ROOT / "linux")
    (tmp_path / "bench" / "mbind.c").write_text(shown("c"))
    monkeypatch.setenv("PAGEFERRY_ROOT", str(tmp_path))
    program = build.build() / "mbind"
    words = ["--from=1023", "--sizes=4096,2097152", "--variants=stock,cpu"]
    words += ["--total-bytes=67108864", "--rounds=5", "--max-unmapped-us=0"]
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, check=False
    )
    # No machine has this node.
    assert done.returncode == 3, done.stderr
    assert isinstance(parse_line(done.stdout, *mbind.lines), Failure)
    told = subprocess.run([program, "--help"], capture_output=True, text=True)
    assert all(word.partition("=")[0] in told.stdout for word in words)


def test_the_tool_does_the_rest(
    mbind: spec.Benchmark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (kind,) = mbind.lines

    def measure(*_: object) -> tuple[list[Line], Kernel, Machine]:
        lines: list[Line] = [Environment(bench="mbind", release="6.12", version="")]
        for number in range(3):
            for engine, elapsed_ns in (("stock", 4_000_000), ("cpu", 2_000_000)):
                fields = {"type": "mbind", "engine": engine, "threads": 1}
                fields |= {"round": number, "verified": True, "folio_bytes": 4096}
                fields |= {"moved_bytes": 1 << 26, "elapsed_ns": elapsed_ns}
                line = parse_line(json.dumps(fields), kind)
                assert line is not None
                lines.append(line)
        return lines, result([]).kernel, result([]).machine

    monkeypatch.setattr(Job, "measure", measure)
    argv = ["bench", "mbind", "--vm", "--engines", "cpu", "--rounds", "2"]
    assert main([*argv, "--layouts", "3", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "boot topology two-node, 3 times in turn" in said
    assert "in it: mbind --from=0 --to=1 --sizes=4096,2097152" in said
    path = tmp_path / "result.json"
    assert main([*argv, "--output", str(path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"4 KiB +cpu +33.55 +33.55..33.55 +2.00x", said)
    assert "65,536 pages moved, every page on its node, every byte verified" in said
    assert [row.ratio_to_stock for row in decode(path.read_bytes()).rows] == [1, 2]
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][1]["bench"] == "mbind"
    assert main([*argv, "--engines", "warp", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["value"] == "warp"
