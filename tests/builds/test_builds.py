# SPDX-License-Identifier: GPL-2.0-only
"""Our files compile without a warning, whatever options a kernel has."""

from __future__ import annotations

import pytest

from helpers import builds
from helpers.builds import I386, Build
from helpers.sources import LINUX
from pageferry.kernel import bases
from pageferry.kernel.arch import ARM64, X86_64

_MODULES = ("MIGRATE_MTCOPY", "MIGRATE_DCBM", "MIGRATE_DMASIM")
_TESTS = ("MIGRATE_DCBM_KUNIT_TEST",)
_NO_THP = {"TRANSPARENT_HUGEPAGE": "n"}
_NO_NUMA = {"NUMA": "n"}
_RT = {"PREEMPT_RT": "y", "PREEMPT_VOLUNTARY": "n"}
_NEXT = bases.names(LINUX)[-1]

QUICK = {"next": Build(base=_NEXT)}
SLOW = {
    # One CPU, one node, and a minimum of memory management: this links the whole
    # kernel.
    "small": Build(
        small=True, values={"64BIT": "y", "COMPACTION": "y", "MIGRATE_MTCOPY": "y"}
    ),
    "no-numa": Build(values=_NO_NUMA),
    "32-bit": Build(arch=I386, values={"64BIT": "n"}),
    "no-thp": Build(values=_NO_THP),
    "no-compaction": Build(values={**_NO_THP, "COMPACTION": "n"}),
    "no-memcg": Build(values={"MEMCG": "n"}),
    "one-cpu": Build(values={"SMP": "n"}),
    "no-hugetlb": Build(values={"HUGETLBFS": "n"}),
    "no-runs": Build(values={"MIGRATE_BATCH_PTES": "n"}),
    "nothing-of-ours": Build(values={"MIGRATION_COPY_OFFLOAD": "n"}),
    "no-migration": Build(
        values={
            **_NO_THP,
            **_NO_NUMA,
            "COMPACTION": "n",
            "MIGRATION": "n",
            "MIGRATION_COPY_OFFLOAD": "n",
        }
    ),
    "preempt_rt": Build(values=_RT),
    "32-bit-preempt_rt": Build(arch=I386, values={"64BIT": "n", **_RT}),
    "arm64-64k-pages": Build(
        arch=ARM64, values={"ARM64_64K_PAGES": "y", "ARM64_4K_PAGES": "n"}
    ),
    "arm64-16k-pages-mte": Build(
        arch=ARM64, values={"ARM64_16K_PAGES": "y", "ARM64_4K_PAGES": "n"}
    ),
    "built-in": Build(values=dict.fromkeys((*_MODULES, *_TESTS), "y")),
    "modules": Build(values=dict.fromkeys((*_MODULES, *_TESTS), "m")),
    "next-no-thp": Build(base=_NEXT, values=_NO_THP),
    "next-no-numa": Build(base=_NEXT, values=_NO_NUMA),
    "next-no-memcg": Build(base=_NEXT, values={"MEMCG": "n"}),
    "next-no-page-mapcount": Build(base=_NEXT, values={"NO_PAGE_MAPCOUNT": "y"}),
    "next-nothing-of-ours": Build(base=_NEXT, values={"MIGRATION_COPY_OFFLOAD": "n"}),
    "next-preempt_rt": Build(base=_NEXT, values={"PREEMPT_RT": "y"}),
    "next-32-bit": Build(arch=I386, base=_NEXT, values={"64BIT": "n"}),
    "next-arm64": Build(arch=ARM64, base=_NEXT),
}
# For a release, the choice of randconfig depends on the seed alone.
SEEDS = range(20261101, 20261121)


def _compiles(build: Build) -> None:
    found = builds.problems(build)
    if found:
        pytest.fail(found, pytrace=False)


@pytest.mark.parametrize("name", QUICK)
def test_it_compiles(name: str) -> None:
    _compiles(QUICK[name])


@pytest.mark.builds
@pytest.mark.parametrize("name", SLOW)
def test_it_compiles_too(name: str) -> None:
    _compiles(SLOW[name])


@pytest.mark.builds
@pytest.mark.parametrize("seed", SEEDS)
def test_it_compiles_at_random(seed: int) -> None:
    # Every fourth has 32 bits. Migration needs NUMA or COMPACTION.
    arch, bits = (I386, "n") if seed % 4 == 0 else (X86_64, "y")
    needed = ("SMP", "NUMA") if seed % 4 == 1 else ("COMPACTION",)
    values = {"64BIT": bits, **dict.fromkeys(needed, "y")}
    # Linux 6.12 itself warns of a mutex that is unused without SYSCTL.
    values["UCLAMP_TASK"] = "n"
    _compiles(Build(arch=arch, values=values, seed=seed))
