# SPDX-License-Identifier: GPL-2.0-only
"""Debian packages of a kernel with the configuration of a distribution."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pageferry import __version__, output, paths, proc
from pageferry.errors import ExitCode, PageferryError, from_os_error, unsupported
from pageferry.kernel import bases, build, config, distribution, origin, tree
from pageferry.units import GIB, format_size

# kbuild calls dpkg-buildpackage, which calls debhelper.
_TOOLS = (
    ("dpkg-buildpackage", "dpkg-dev"),
    ("dh_prep", "debhelper"),
    ("rsync", "rsync"),
)
# Programs that kbuild calls if a symbol is set.
_TOOLS_OF = (
    ("DEBUG_INFO_BTF", "pahole", "dwarves"),
    ("KERNEL_ZSTD", "zstd", "zstd"),
    ("MODULE_COMPRESS_ZSTD", "zstd", "zstd"),
)
_NO_SYMBOLS = "pkg.linux-upstream.nokerneldbg"
# Lines of make's output for each enabled symbol, for the progress display.
_STEPS_PER_SYMBOL = 4
# A build that exists needs room for new objects and packages only.
_PART_OF_A_REBUILD = 4


@dataclass(frozen=True)
class PackageRequest:
    """The options of `kernel package`."""

    base: str = "6.12"
    source: Path | None = None
    config_from: str = distribution.DEBIAN
    local_modules: bool = False
    debug_symbols: bool = False
    revision: int = 1
    target: Path = Path()
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class Plan:
    """All inputs of the packages."""

    request: PackageRequest
    kernel: build.Plan
    configuration: distribution.Configuration
    # Values that Kconfig has to grant, on top of the configuration.
    wanted: dict[str, str]
    # The release of the source, such as 6.12.117.
    source_version: str

    @property
    def release(self) -> str:
        """Return what `uname -r` will say."""
        return f"{self.source_version}{distribution.LOCALVERSION}"

    @property
    def version(self) -> str:
        """Return the packages' version, which dpkg sorts after the distribution's."""
        return f"{self.release}{__version__}-{self.request.revision}"

    @property
    def cost(self) -> distribution.Cost:
        """Forecast time and disk."""
        merged = dataclasses.replace(
            self.configuration, values=self.configuration.values | self.wanted
        )
        return distribution.forecast(merged, local=self.request.local_modules)

    def make(self, *targets: str) -> list[str]:
        """Return a command line of make.

        Without ccache: objects with debug information would push all others out.
        """
        return [*build.make_command(self.kernel, ccache=False), *targets]

    def package_command(self) -> list[str]:
        """Return the command that builds the packages."""
        version = f"KDEB_PKGVERSION={self.version}"
        return self.make(f"-j{self.request.jobs}", version, "bindeb-pkg")


def plan_package(request: PackageRequest, *, fetch: bool = False) -> Plan:
    """Read all inputs; with `fetch`, download a missing source."""
    linux = paths.repo_root() / "linux"
    # An unknown base has no configuration either, and this error names the bases.
    bases.read(linux, request.base)
    found = distribution.read(request.config_from, request.base)
    fragments = config.Fragments(linux / "configs", base=request.base)
    wanted = config.merge(
        [distribution.FRAGMENT],
        fragments,
        vanilla=False,
        extra=_debug_values(request, found),
    )
    kernel = build.BuildRequest(
        base=request.base,
        configs=(distribution.FRAGMENT,),
        source=request.source,
        jobs=request.jobs,
    )
    build.check_tools(kernel.arch)
    _check_tools(found.values | wanted)
    place = origin.choose(
        linux, request.base, request.source, vanilla=False, fetch=fetch
    )
    # A build with few modules has a directory of its own.
    names = (distribution.FRAGMENT, *(("local",) if request.local_modules else ()))
    plan = build.Plan(kernel, place.source, place.changes, names, wanted, key="")
    return Plan(request, plan, found, wanted, place.version)


def _debug_values(
    request: PackageRequest, found: distribution.Configuration
) -> dict[str, str]:
    """Return the values for debug information, which BTF needs without packages, too."""
    if found.has("DEBUG_INFO") and not request.debug_symbols:
        if found.has("DEBUG_INFO_BTF"):
            return {}
        return {"DEBUG_INFO_NONE": "y"}
    if request.debug_symbols and not found.has("DEBUG_INFO"):
        values = {"DEBUG_INFO_NONE": "n", "DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT": "y"}
        return {**values, "DEBUG_INFO": "y"}
    return {}


def _check_tools(values: dict[str, str]) -> None:
    wanted = dict(_TOOLS)
    wanted |= {tool: package for s, tool, package in _TOOLS_OF if values.get(s) == "y"}
    path = paths.venv_path()
    missing = [tool for tool in wanted if shutil.which(tool, path=path) is None]
    if missing:
        packages = sorted({wanted[tool] for tool in missing})
        raise unsupported(
            "kernel packages cannot be built here",
            reason=f"missing: {', '.join(missing)}",
            hint=f"apt-get install {' '.join(packages)}",
        )


def describe(plan: Plan) -> list[str]:
    """List the steps, for --dry-run."""
    request = plan.request
    lines = [_forecast_text(plan), *build.describe_tree(plan.kernel)]
    lines.append(f"configuration {plan.configuration.path}")
    if request.local_modules:
        lines.append(shlex.join(plan.make("localmodconfig")))
    lines.append(f"merge config {distribution.FRAGMENT}")
    lines.append(shlex.join(plan.make("olddefconfig")))
    lines.append(shlex.join(plan.package_command()))
    lines += [
        f"put {name}_{plan.version}_*.deb into {request.target.resolve()}"
        for name in _package_names(plan)
    ]
    return lines


def _package_names(plan: Plan) -> list[str]:
    names = [f"linux-image-{plan.release}", f"linux-headers-{plan.release}"]
    if plan.request.debug_symbols:
        names.append(f"linux-image-{plan.release}-dbg")
    return names


def _forecast_text(plan: Plan) -> str:
    cost = plan.cost
    shortest, longest = cost.seconds(plan.request.jobs)
    # A forecast to the minute would promise too much.
    few, many = (
        output.duration(-(-seconds // 600) * 600).removesuffix(" 00 s")
        for seconds in (shortest, longest)
    )
    return (
        f"Linux {plan.release} with {plan.configuration.path}: may take {few} to {many}"
        f" with {plan.request.jobs} jobs, and {_whole_gib(cost.disk_bytes)} of disk in"
        f" {paths.cache_dir()}"
    )


def _whole_gib(size_bytes: int) -> str:
    return format_size(-(-size_bytes // GIB) * GIB)


def build_packages(request: PackageRequest) -> tuple[Plan, list[Path]]:
    """Build the packages; returns their files."""
    plan = plan_package(request, fetch=True)
    output.talk(_forecast_text(plan))
    _check_space(plan)
    try:
        request.target.mkdir(parents=True, exist_ok=True)
        with tree.locked(plan.kernel.tree_path) as lock:
            return plan, _build(plan, lock)
    except OSError as error:
        what = "cannot build the kernel packages"
        raise from_os_error(error, what, ExitCode.NOT_STARTED) from error


def _check_space(plan: Plan) -> None:
    cache = paths.cache_dir()
    above = next(p for p in (cache, *cache.parents) if p.exists())
    needed = plan.cost.disk_bytes
    if plan.kernel.build_dir.exists():
        needed //= _PART_OF_A_REBUILD
    free = shutil.disk_usage(above).free
    if free < needed:
        smaller = "" if plan.request.local_modules else ", or add --localmodconfig"
        raise PageferryError(
            "too little space for this kernel",
            value=cache,
            reason=f"{format_size(free)} free, {_whole_gib(needed)} needed",
            hint=f"free some space, or set XDG_CACHE_HOME to a larger disk{smaller}",
            code=ExitCode.NOT_STARTED,
        )


def _build(plan: Plan, lock: int) -> list[Path]:
    started = time.monotonic()
    prepared = tree.prepare(plan.kernel.source, vanilla=False)
    tree.sync(prepared, plan.kernel.changes)
    plan.kernel.build_dir.mkdir(exist_ok=True)
    plan.kernel.log.parent.mkdir(parents=True, exist_ok=True)
    output.talk(f"building, log in {plan.kernel.log}")
    with plan.kernel.log.open("wb") as log:
        values = configure(plan, log.fileno())
        symbols = distribution.enabled(values)
        fresh = not plan.kernel.image.exists()
        title = f"building {plan.release}"
        progress = output.Progress(
            title, symbols * _STEPS_PER_SYMBOL if fresh else None
        )
        with _only_ours(plan):
            argv, env = plan.package_command(), _environment(plan)
            build.run_make(plan.kernel, argv, log.fileno(), lock, progress, env)
            progress.finish()
            files = _collect(plan)
    output.talk(
        f"built {plan.release} in {output.duration(time.monotonic() - started)}"
    )
    return files


def _environment(plan: Plan) -> dict[str, str]:
    env = build.environment(plan.kernel)
    # An administrator wants to see the day of the build in `uname -v`.
    env.pop("KBUILD_BUILD_TIMESTAMP", None)
    env.pop("KBUILD_BUILD_VERSION", None)
    env["KDEB_CHANGELOG_DIST"] = "unstable"
    env["DEB_BUILD_PROFILES"] = "" if plan.request.debug_symbols else _NO_SYMBOLS
    return env


def configure(plan: Plan, log: int) -> dict[str, str]:
    """Write .config: the distribution's, fewer modules if wanted, then the fragment.

    Returns all values.
    """
    current = plan.kernel.build_dir / ".config"
    current.write_text(config.render(plan.configuration.values))
    _make_config(plan, "olddefconfig", log)
    if plan.request.local_modules:
        _make_config(plan, "localmodconfig", log)
    # Modules of ours are not loaded yet, so the fragment comes last.
    values = config.parse(current.read_text(), str(current)) | plan.wanted
    current.write_text(config.render(values))
    _make_config(plan, "olddefconfig", log)
    result = current.read_text()
    got = config.parse(result, str(current))
    left_out = [
        n for n, v in plan.wanted.items() if v == "m" and got.get(n, "n") == "n"
    ]
    for name in left_out:
        output.warn(
            f"this configuration leaves out CONFIG_{name}: it lacks what it needs"
        )
    granted = {n: v for n, v in plan.wanted.items() if n not in left_out}
    config.check(granted, result)
    return got


def _make_config(plan: Plan, target: str, log: int) -> None:
    env = _environment(plan)
    with proc.group(plan.make(target), env=env, stdout=log, stderr=log) as process:
        code = process.wait()
    if code != 0:
        raise build.make_failed(plan.kernel, code)


@contextmanager
def _only_ours(plan: Plan) -> Iterator[None]:
    """Remove kbuild's other results, from before and from this build.

    kbuild puts all packages beside the build directory. A package of the C library's
    headers is among them, and would replace the distribution's.
    """
    _remove_results(plan)
    try:
        yield
    finally:
        _remove_results(plan)


def _remove_results(plan: Plan) -> None:
    for pattern in ("*.deb", "*.changes", "*.buildinfo"):
        for path in plan.kernel.tree_path.glob(pattern):
            path.unlink()


def _collect(plan: Plan) -> list[Path]:
    """Move the packages to the directory that the user wants."""
    files = []
    for name in _package_names(plan):
        for path in plan.kernel.tree_path.glob(f"{name}_{plan.version}_*.deb"):
            target = plan.request.target.resolve() / path.name
            shutil.move(path, target)
            files.append(target)
    if len(files) != len(_package_names(plan)):
        raise PageferryError(
            "kbuild did not make all packages",
            value=plan.kernel.log,
            reason=f"made: {', '.join(f.name for f in files) or 'none'}",
            code=ExitCode.NOT_STARTED,
        )
    return files
