# SPDX-License-Identifier: GPL-2.0-only
"""Compiling the directories that we touch, with configurations that nobody boots.

All kernels of an architecture share one build directory, so that kbuild's own
programs are built once.  A warning is an error.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from helpers.sources import LINUX, ours
from pageferry import paths, proc
from pageferry.kernel import bases, config, tree
from pageferry.kernel.arch import ARM64, X86_64, Architecture
from pageferry.kernel.build import BuildRequest, Plan, make_command, plan_build

I386 = dataclasses.replace(X86_64, name="i386", make="i386")
# Directories with files of ours that are compiled.
TOUCHED = ("mm", "kernel/sched", "drivers/migrate_offload", "drivers/dma/dmasim")
_FRAGMENTS = LINUX / "configs"
_ALWAYS = {
    "WERROR": "y",
    # Debug information would double the time.
    "DEBUG_INFO_NONE": "y",
    # Without these two options none of our code is compiled.
    "MIGRATION": "y",
    "MIGRATION_COPY_OFFLOAD": "y",
    # Options that those depend on.
    "EXPERT": "y",
    "SYSFS": "y",
    "KMSAN": "n",
    # Without this option, most of our code would be off, too.
    "MODULES": "y",
    "DEBUG_KERNEL": "y",
    "DEBUG_FS": "y",
    "DMADEVICES": "y",
}
# A function's name follows its type, or begins a line.
_FUNCTION = re.compile(r"^(?:[A-Za-z_][\w \t*]*[ \t*])?(\w+)\(", re.MULTILINE)
# gcc calls these for 64-bit divisions on 32 bits. A kernel lacks them.
_DIVISIONS = {"__udivdi3", "__divdi3", "__umoddi3", "__moddi3"}
_SYMBOL = re.compile(r"^[0-9a-f]* *([A-Za-z]) (\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Build:
    """A configuration: all that our kernels for tests have, but for `values`.

    small: begins with nothing instead, and links the kernel
    seed:  chooses at random what `values` does not name
    base:  the Linux that it compiles
    """

    arch: Architecture = X86_64
    values: Mapping[str, str] = field(default_factory=dict)
    small: bool = False
    seed: int | None = None
    base: str = bases.DEFAULT

    def wanted(self) -> dict[str, str]:
        """Return the options that .config must have."""
        return {**_ALWAYS, **self.values}

    def start(self) -> dict[str, str]:
        """Return the input for Kconfig, which may drop options outside wanted()."""
        if self.small or self.seed is not None:
            return self.wanted()
        usual = config.Fragments(_FRAGMENTS, base=self.base)
        merged = config.merge(("vm", "test"), usual, vanilla=False, extra={})
        if self.arch is ARM64:
            arm64 = config.Fragments(_FRAGMENTS, ARM64, self.base)
            merged |= config.merge(("vm",), arm64, vanilla=False, extra={})
        return merged | self.wanted()


@contextmanager
def touched_tree(arch: Architecture, base: str) -> Iterator[Plan]:
    """Hold a tree with all our files; the lock excludes other processes."""
    request = BuildRequest(base, arch=ARM64 if arch is ARM64 else X86_64)
    plan = plan_build(request, fetch=True)
    request = dataclasses.replace(plan.request, arch=arch)
    plan = dataclasses.replace(plan, request=request, configs=("check",))
    with tree.locked(plan.tree_path):
        prepared = tree.prepare(plan.source, vanilla=False)
        tree.sync(prepared, plan.changes)
        plan.build_dir.mkdir(exist_ok=True)
        yield plan


def problems(build: Build) -> str:
    """Configure and compile; returns a description of all errors, or nothing."""
    with touched_tree(build.arch, build.base) as plan:
        refused = _configure(plan, build)
        if refused:
            return refused
        targets = ["vmlinux"] if build.small else [f"{name}/" for name in TOUCHED]
        _forget_lists(plan)
        made = _make(plan, "-k", f"-j{plan.request.jobs}", *targets)
        if made:
            return made
        # A linked kernel has no undefined symbols.
        return "" if build.small else _undefined(plan)


def _make(plan: Plan, *targets: str, **more: str) -> str:
    """Run make; returns its errors, or nothing."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "KCONFIG_", "KBUILD_"))
    }
    env |= {"PATH": paths.venv_path(), "LC_ALL": "C", "CCACHE_NOHASHDIR": "1"}
    # As in pageferry.kernel.build: a compiler cache would hardly have any object.
    env |= {
        "CCACHE_DEPEND": "1",
        "CCACHE_SLOPPINESS": "time_macros,include_file_mtime,include_file_ctime",
    }
    # Linux warns by #warning of options that use much memory together.
    argv = [*make_command(plan), "KCFLAGS=-Wno-cpp", *targets]
    done = proc.capture(argv, env={**env, **more})
    if done.returncode == 0 and "warning:" not in done.stderr:
        return ""
    return f"make {' '.join(targets)}: {done.returncode}\n{done.stderr}"


def _configure(plan: Plan, build: Build) -> str:
    """Write .config; returns the options that Kconfig dropped."""
    fragment = plan.build_dir / ".pageferry-fragment"
    fragment.write_text(config.render(build.start()))
    more = {"KCONFIG_ALLCONFIG": str(fragment)}
    if build.seed is not None:
        more["KCONFIG_SEED"] = str(build.seed)
    target = "allnoconfig" if build.seed is None else "randconfig"
    # Kconfig warns of conflicts in its random choices.
    _make(plan, target, **more)
    got = config.parse((plan.build_dir / ".config").read_text(), ".config")
    return ", ".join(
        f"CONFIG_{name}={value} (is {got.get(name, 'n')})"
        for name, value in build.wanted().items()
        if got.get(name, "n") != value
    )


def _forget_lists(plan: Plan) -> None:
    """Remove module lists of an earlier configuration:

    make skips folders that are off.
    """
    for name in TOUCHED:
        for made in ("built-in.a", "modules.order"):
            (plan.build_dir / name / made).unlink(missing_ok=True)


def _undefined(plan: Plan) -> str:
    """List undefined symbols, of our code and of divisions."""
    objects = []
    for name in TOUCHED:
        below = plan.build_dir / name
        if not (below / "built-in.a").exists():
            continue
        objects.append(below / "built-in.a")
        order = (below / "modules.order").read_text().split()
        objects += [plan.build_dir / module for module in order]
    assert objects, f"make left nothing in {plan.build_dir}"
    found = _SYMBOL.findall(proc.capture(["nm", *objects]).stdout)
    undefined = {name for kind, name in found if kind == "U"}
    defined = {name for kind, name in found if kind not in "Uw"}
    missing = (undefined - defined) & (our_functions() | _DIVISIONS)
    return f"nothing defines {', '.join(sorted(missing))}" if missing else ""


def our_functions() -> set[str]:
    """List the functions that our files define or declare."""
    return {
        name
        for path in ours("**/*.c", "**/*.h").values()
        if "tools" not in path.parts
        for name in _FUNCTION.findall(path.read_text())
    }
