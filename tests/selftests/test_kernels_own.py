# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own selftests pass as they do on the stock kernel.

These are the base release's tests of migration, huge pages, compaction, memory
hot-unplug and DAMON. They run on the base release, on ours, and on ours with engines
that copy all they can.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers import guests
from pageferry import paths, proc
from pageferry.kernel import bases, origin, tree
from pageferry.kernel.build import BuiltKernel
from pageferry.kernel.tree import locked
from pageferry.vm.run import VmRequest, run_vm

pytestmark = pytest.mark.selftests

_LIBS = ("-lrt", "-lpthread", "-lm", "-lnuma")
_COMMON = ("vm_util.c", "thp_settings.c")
_MORE = {"uffd-unit-tests": ("uffd-common.c",)}
# Seconds for each test under emulation.
_EACH_S = 120
# A program of mm/ and its arguments.
_MM = (
    *("hugepage-mmap", "hugepage-shm", "hugepage-mremap", "hugepage-vmemmap"),
    *("map_hugetlb", "hugetlb-madvise", "hugetlb_fault_after_madv"),
    "hugetlb_madv_vs_map",
    *("ksm_tests -N -m 1", "ksm_tests -N -m 0", "ksm_functional_tests"),
    *("mremap_test", "mremap_dontunmap", "mlock2-tests", "map_populate"),
    *("madv_populate", "compaction_test", "migration", "split_huge_page_test"),
    *("uffd-unit-tests -f minor", "uffd-unit-tests -f move"),
)
# A test that sometimes fails on the stock kernel, too, is repeated at most this often.
# This one missed the merge of two pages in 15 of 40 runs.
_TRIES_FOR = {"ksm_tests -N -m 1": 20}
# The number of huge pages, and tests that need another number.
_PAGES = 128
_PAGES_FOR = {
    "hugetlb_fault_after_madv": 1,
    "hugetlb_madv_vs_map": 1,
    "hugetlb-soft-offline": 8,
}
# Tests that would take minutes, and their reduced settings.
_LESS = {
    "mm/hugetlb_fault_after_madv.c": [("int max = 10000;", "int max = 200;")],
    # It skips everything unless it has as many threads as CPUs.
    "mm/migration.c": [
        ("#define RUNTIME\t\t(20)", "#define RUNTIME\t\t(4)"),
        ("numa_num_task_cpus() - 1", "2"),
    ],
    # The test writes 4 MiB byte by byte for each order.
    "mm/split_huge_page_test.c": [
        ("for (i = 8; i >= 0; i--)", "for (i = 8; i >= 8; i--)"),
        ("ksft_set_plan(3+9);", "ksft_set_plan(3+1);"),
    ],
    # One pass, not three.
    "damon/sysfs.sh": [
        (
            '\tensure_write_succ  "$kdamonds_dir/nr_kdamonds" "2" "valid input"\n'
            '\ttest_kdamond "$kdamonds_dir/0"\n\ttest_kdamond "$kdamonds_dir/1"\n',
            "",
        )
    ],
}
_DAMON = ("access_memory", "access_memory_even")
# A script, relative to tools/testing/selftests.
_SCRIPTS = (
    *("damon/sysfs.sh", "damon/sysfs_update_removed_scheme_dir.sh"),
    *("damon/damos_apply_interval.py", "damon/damos_quota.py"),
    *("damon/damos_quota_goal.py", "damon/damos_tried_regions.py"),
    "memory-hotplug/mem-on-off-test.sh",
)
# Run this last: memory with a poisoned page cannot come back online.
_POISONS = ("hugetlb-soft-offline",)
_PROGRAMS = (*_MM, *_POISONS)
_NAMES = (*_MM, *_SCRIPTS, *_POISONS)
_STEP, _ENDED = "=== step ", "=== ended "
_COPIED = "bytes copied"
_TIMED_OUT = 124
_OK = re.compile(r"\s*ok \d+ (?:- )?(?P<name>[^#]*[^#\s])\s*(?P<directive>#.*)?$")
_OFFLOAD = "/sys/kernel/mm/migrate_offload"
_DEBUG = "/sys/kernel/debug/migrate_offload"
# How an engine is made to copy whatever it may.
_ENGINES = {
    "none": "",
    "mtcopy": f"""
        modprobe mtcopy min_thread_bytes=4096 || exit 1
        echo 1 >{_DEBUG}/engine_always || exit 1
        echo mtcopy >{_OFFLOAD}/engine || exit 1""",
    "dcbm": f"""
        modprobe dmasim channels=2 && modprobe dcbm || exit 1
        echo 1 >{_DEBUG}/engine_always || exit 1
        echo 1 >/sys/module/dcbm/offloading || exit 1""",
}


@dataclass(frozen=True)
class _Told:
    """The output of one test."""

    code: int
    passed: frozenset[str]
    text: str


def _own_tests() -> Path:
    """List the selftests of the base release."""
    linux = paths.repo_root() / "linux"
    found = origin.choose(linux, bases.DEFAULT, None, vanilla=True, fetch=False)
    where = tree.tree_path(found.source, vanilla=True)
    return where / "tools/testing/selftests"


def _compile(where: Path, output: Path, *argv: str) -> None:
    """Compile a program in its own folder."""
    command = ["gcc", "-O2", "-w", "-D_GNU_SOURCE", "-U_FORTIFY_SOURCE", *argv]
    done = proc.capture([*command, "-o", str(output), *_LIBS], cwd=where)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def _less(own: Path, output: Path, name: str) -> Path:
    """Return a file unchanged, or a copy with less work."""
    if name not in _LESS:
        return own / name
    text = (own / name).read_text()
    for was, now in _LESS[name]:
        assert was in text, f"{name} has no {was!r}"
        text = text.replace(was, now)
    copy = output / name.split("/")[1]
    copy.write_text(text)
    return copy


def _build(kernel: BuiltKernel) -> Path:
    """Compile the tests with their kernel's headers; returns their folder."""
    base = kernel.build_dir.parent
    output = paths.make_cache_dir("own-selftests")
    where = base / "tools/testing/selftests"
    headers = [f"-I{output}", "-isystem", f"{output}/usr/include"]
    tools = [f"-I{base}", f"-I{base}/tools/include/uapi"]
    with locked(output):
        done = proc.capture(["make", "-s", "-C", base, f"O={output}", "headers"])
        assert done.returncode == 0, done.stderr
        # Replaces a check for a library that this machine lacks.
        (output / "local_config.h").write_text("")
        for name in sorted({command.split()[0] for command in _PROGRAMS}):
            text = str(_less(where, output, f"mm/{name}.c"))
            parts = [f"-I{where}/mm", *tools, text, *_COMMON, *_MORE.get(name, ())]
            _compile(where / "mm", output / name, *headers, *parts)
        # Its scripts look for programs in their own folder.
        shutil.copytree(where / "damon", output / "damon", dirs_exist_ok=True)
        _less(where, output / "damon", "damon/sysfs.sh")
        for name in _DAMON:
            _compile(where / "damon", output / "damon" / name, f"{name}.c")
    return output


def _script(programs: Path, own: Path, engine: str) -> str:
    lines = [f"cd {programs}", _ENGINES[engine]]
    for name in _NAMES:
        command = f"./{name}"
        if name in _SCRIPTS:
            folder, file = name.split("/")
            where = programs if folder == "damon" else own
            command = f"sh -c 'cd {where}/{folder} && exec ./{file}'"
        lines += [
            f'echo; echo "{_STEP}{name}"',
            f"echo {_PAGES_FOR.get(name, _PAGES)} >/proc/sys/vm/nr_hugepages",
            "begin=$SECONDS",
            f"for try in {{1..{_TRIES_FOR.get(name, 1)}}}; do",
            f"timeout {_EACH_S} {command} 2>&1 </dev/null; code=$?",
            "[ $code -ne 0 ] || break; done",
            f'echo; echo "{_ENDED}$code after $((SECONDS - begin)) s"',
        ]
    if engine != "none":
        lines += [
            f'echo; echo "{_STEP}{_COPIED}"',
            f"cat {_OFFLOAD}/stats/reasons/*/engine_bytes",
            f'echo; echo "{_ENDED}0"',
        ]
    return "\n".join(lines)


def _told(text: str) -> dict[str, _Told]:
    found = {}
    for part in text.split(f"\n{_STEP}")[1:]:
        name, _, rest = part.partition("\n")
        said, _, code = rest.rpartition(_ENDED)
        matches = [match for line in said.splitlines() if (match := _OK.match(line))]
        passed = frozenset(
            match["name"]
            for match in matches
            if "SKIP" not in (match["directive"] or "").upper()
        )
        found[name] = _Told(int(code.split()[0]), passed, said)
    return found


def _run(kernel: BuiltKernel, programs: Path, engine: str) -> Mapping[str, _Told]:
    outcome = run_vm(
        VmRequest(
            command=("/bin/bash", "-c", _script(programs, _own_tests(), engine)),
            image=kernel.image,
            modules=kernel.modules,
            topology="two-node",
            timeout_s=3600,
            # The test of memory hot-unplug takes the first block that it finds.
            allow_klog=("page dumped because: unmovable page",),
        )
    )
    guests.is_well(outcome)
    return _told(outcome.stdout)


@pytest.fixture(scope="module")
def stock(kernel_vanilla: BuiltKernel) -> tuple[Path, Mapping[str, _Told]]:
    """The results on the base release, and the tests' folder."""
    programs = _build(kernel_vanilla)
    return programs, _run(kernel_vanilla, programs, "none")


@pytest.fixture(scope="module", params=_ENGINES)
def ours(
    request: pytest.FixtureRequest,
    kernel_vm: BuiltKernel,
    stock: tuple[Path, Mapping[str, _Told]],
) -> Mapping[str, _Told]:
    """The results on our kernel."""
    engine: str = request.param
    told = _run(kernel_vm, stock[0], engine)
    if engine != "none":
        # A pass proves something only if the engine copied.
        copied = [int(line) for line in told[_COPIED].text.split()]
        assert sum(copied) > 0, copied
    return told


@pytest.mark.parametrize("name", _NAMES)
def test_ours_passes_what_stock_does(
    stock: tuple[Path, Mapping[str, _Told]], ours: Mapping[str, _Told], name: str
) -> None:
    theirs, now = stock[1][name], ours[name]
    # The test then proves nothing: reduce its work.
    assert theirs.code != _TIMED_OUT, theirs.text
    assert theirs.passed <= now.passed, now.text
    assert theirs.code or not now.code, now.text
    if theirs.code:
        pytest.skip(f"ends with {theirs.code} on the stock kernel, too")
