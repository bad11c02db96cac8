# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's plan of windows, compiled as a program for this machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pageferry import proc

_TOP = Path(__file__).parents[2]
_CORE = _TOP / "linux/tree/mm/migrate_offload"
_HERE = Path(__file__).with_name("plan")
_NR_ENGINES = 20_000


def _compile(scratch: Path, source: Path) -> Path:
    """Compile the plan with its test; kernel.h stands for headers of the kernel."""
    for name in re.findall(r"<(linux/\S+)>", source.read_text() + "<linux/types.h>"):
        header = scratch / name
        header.parent.mkdir(exist_ok=True)
        header.touch()
    program = scratch / "plan_test"
    made = proc.capture(
        [
            *("cc", "-Wall", "-Wextra", "-Wno-sign-compare", "-Werror", "-O1"),
            *("-fsanitize=undefined,address", "-fno-sanitize-recover=all"),
            *(f"-I{scratch}", f"-I{_CORE}", f"-I{_HERE}", "-include", "kernel.h"),
            *("-o", str(program), str(_HERE / "plan_test.c"), str(source)),
        ]
    )
    assert made.returncode == 0, made.stderr
    return program


def _run(program: Path) -> str:
    return proc.capture([str(program), "1", str(_NR_ENGINES)]).stdout.strip()


def test_windows_obey_the_limit_with_any_engine(tmp_path: Path) -> None:
    assert _run(_compile(tmp_path, _CORE / "plan.c")) == "passed"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("LIMIT_PERCENT 90", "LIMIT_PERCENT 150"),
        ("LIMIT_PERCENT 90", "LIMIT_PERCENT 30"),
        ("2 * nr), 2 * nr);", "2 * nr), 8 * nr);"),
        ("return max(late_ns, backlog_ns - plan->early_ns);", "return late_ns;"),
    ],
)
def test_a_wrong_plan_is_noticed(tmp_path: Path, right: str, wrong: str) -> None:
    text = (_CORE / "plan.c").read_text()
    assert text.count(right) == 1
    source = tmp_path / "plan.c"
    source.write_text(text.replace(right, wrong))
    assert re.match(r"\d+: ", _run(_compile(tmp_path, source)))
