# SPDX-License-Identifier: GPL-2.0-only
"""Build a kernel, unless it is up to date."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from pageferry import output, paths, proc
from pageferry.errors import ExitCode, PageferryError, from_os_error
from pageferry.kernel import bases, config, origin, source, tree
from pageferry.kernel.arch import X86_64, Architecture
from pageferry.kernel.hooks import Changes

# Increment when the build steps change, so that old builds count as stale.
_RECIPE = "1"
_STAMP = ".pageferry-build.json"
# Estimated lines of make's output for a full build, for the progress display.
_STEPS_GUESS = 1900
_STEP = re.compile(rb"  [A-Z]{2,10} ")
_TOOLS = (
    ("make", "build-essential"),
    # kbuild compiles programs for the host, so cross builds need these, too.
    ("gcc", "build-essential"),
    ("ld", "build-essential"),
    ("bc", "bc"),
    ("bison", "bison"),
    ("flex", "flex"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("patch", "build-essential"),
    ("depmod", "kmod"),
)
# Inherited variables that would change or break the build.
_UNWANTED_ENV = re.compile(
    r"MAKE\w*|MFLAGS|ARCH|CROSS_COMPILE|LOCALVERSION|K(BUILD|CONFIG)_\w+|"
    r"(K|H|HOST|LD)?(C|AS|LD|A)FLAGS\w*|LLVM\w*|CC|LD|O|V|W|C|M"
)


@dataclass(frozen=True)
class BuildRequest:
    """The parameters of a build."""

    base: str = bases.DEFAULT
    vanilla: bool = False
    configs: tuple[str, ...] = (config.DEFAULT,)
    source: Path | None = None
    arch: Architecture = X86_64
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel that was built, and can boot."""

    image: Path
    build_dir: Path
    modules: Path
    release: str
    base: str
    vanilla: bool
    configs: tuple[str, ...]
    cached: bool
    arch: Architecture = X86_64
    # When the image was written; 0 if this tool did not build it.
    written_ns: int = 0

    def require_unchanged(self) -> None:
        """Fail if the image was built again since: a result is about one kernel."""
        if not self.written_ns:
            return
        try:
            now_ns = self.image.stat().st_mtime_ns
        except OSError:
            now_ns = 0
        if now_ns != self.written_ns:
            raise PageferryError(
                "the kernel was built again during the benchmark",
                value=self.image,
                hint="run the benchmark again when the build has ended",
            )

    def as_json(self) -> dict[str, object]:
        """Return the document of `kernel build --json`."""
        return {
            "image": str(self.image),
            "build_dir": str(self.build_dir),
            "release": self.release,
            "base": self.base,
            "vanilla": self.vanilla,
            "modules": str(self.modules),
            "configs": list(self.configs),
            "cached": self.cached,
            "arch": self.arch.name,
        }


@dataclass(frozen=True)
class Plan:
    """All inputs of a build, read once, so that later edits do not matter."""

    request: BuildRequest
    source: source.Source
    changes: Changes
    configs: tuple[str, ...]
    values: dict[str, str]
    key: str

    @property
    def tree_path(self) -> Path:
        """Return the path of the source tree."""
        return tree.tree_path(self.source, self.request.vanilla)

    @property
    def build_dir(self) -> Path:
        """Return the build directory.

        It is a direct child of the tree, so that kbuild uses relative paths and
        ccache shares objects between trees.
        """
        arch = self.request.arch
        prefix = "" if arch is X86_64 else f"{arch.name}-"
        return self.tree_path / f"build-{prefix}{'.'.join(self.configs)}"

    @property
    def image(self) -> Path:
        """Return the path of the boot image."""
        return self.build_dir / self.request.arch.image

    @property
    def log(self) -> Path:
        """Return the path of make's log."""
        name = f"{self.tree_path.name}-{self.build_dir.name}.log"
        return paths.cache_dir() / "kernel" / "logs" / name


def plan_build(request: BuildRequest, *, fetch: bool = False) -> Plan:
    """Read all inputs of a build; with `fetch`, download a missing source."""
    linux = paths.repo_root() / "linux"
    fragments = config.Fragments(linux / "configs", request.arch, request.base)
    names = config.canonical(request.configs, fragments)
    compiler = check_tools(request.arch)
    vanilla = request.vanilla
    found = origin.choose(
        linux, request.base, request.source, vanilla=vanilla, fetch=fetch
    )
    version = {} if vanilla else {"LOCALVERSION": '"-pageferry"'}
    values = config.merge(names, fragments, vanilla=vanilla, extra=version)
    changes = found.changes
    parts = [_RECIPE, found.source.identity, changes.digest(), config.render(values)]
    key = hashlib.sha256("\0".join([*parts, compiler]).encode()).hexdigest()
    return Plan(request, found.source, changes, names, values, key)


def build_kernel(request: BuildRequest) -> BuiltKernel:
    """Return the kernel, and build it first if any input has changed."""
    plan = plan_build(request, fetch=True)
    known = _read_stamp(plan)
    if known is not None:
        return known
    try:
        with tree.locked(plan.tree_path) as lock:
            # Another process may have built it while this one waited for the lock.
            return _read_stamp(plan) or _build(plan, lock)
    except OSError as error:
        what = "cannot build the kernel"
        raise from_os_error(error, what, ExitCode.NOT_STARTED) from error


def check_tools(arch: Architecture) -> str:
    """Check for the build tools; returns the versions of compiler and linker."""
    wanted = dict((*_TOOLS, *arch.compilers)).items()
    missing = [(t, p) for t, p in wanted if shutil.which(t, path=_path()) is None]
    headers = {"libelf.h": "libelf-dev"}
    if Path("/etc/debian_version").exists():
        missing += [
            (header, package)
            for header, package in headers.items()
            if not Path("/usr/include", header).exists()
        ]
    if missing:
        packages = sorted({package for _, package in missing})
        raise PageferryError(
            "the kernel cannot be built here",
            value=None if arch is X86_64 else arch.name,
            reason=f"missing: {', '.join(tool for tool, _ in missing)}",
            hint=f"apt-get install {' '.join(packages)}",
            code=ExitCode.UNSUPPORTED,
        )
    said = [proc.capture([tool, "--version"]).stdout for tool, _ in arch.compilers]
    return "\n".join(text.partition("\n")[0] for text in said)


def _path() -> str:
    return paths.venv_path()


def environment(plan: Plan) -> dict[str, str]:
    """Return the environment of make, for reproducible builds."""
    env = {k: v for k, v in os.environ.items() if not _UNWANTED_ENV.fullmatch(k)}
    env.update(
        PATH=_path(),
        LC_ALL="C",
        KBUILD_BUILD_TIMESTAMP="Thu Jan  1 00:00:00 UTC 1970",
        KBUILD_BUILD_USER="pageferry",
        KBUILD_BUILD_HOST="pageferry",
        KBUILD_BUILD_VERSION="1",
        # Objects contain neither times nor absolute paths. Without this setting,
        # ccache would not cache after kbuild has just written a header.
        CCACHE_NOHASHDIR="1",
        CCACHE_SLOPPINESS="time_macros,include_file_mtime,include_file_ctime",
    )
    if any(name.startswith("debug-") for name in plan.configs):
        # No other kernel has the same objects, so ccache need not run the
        # preprocessor to find one. Depend mode saves a tenth of the build time.
        env["CCACHE_DEPEND"] = "1"
    return env


def make_command(plan: Plan, *, ccache: bool = True) -> list[str]:
    """Return the common part of all make command lines."""
    arch = plan.request.arch
    argv = ["make", "-C", str(plan.tree_path), f"O={plan.build_dir}"]
    argv += [f"ARCH={arch.make}", "LOCALVERSION="]
    argv += [f"CROSS_COMPILE={arch.cross}"] if arch.cross else []
    if ccache and shutil.which("ccache", path=_path()) is not None:
        argv += [f"CC=ccache {arch.cross}gcc", "HOSTCC=ccache gcc"]
    return argv


def describe(plan: Plan) -> list[str]:
    """List the steps of a build, for --dry-run."""
    if _read_stamp(plan) is not None:
        return [f"nothing to do: {plan.image} is up to date"]
    return [
        *describe_tree(plan),
        f"merge configs {', '.join(plan.configs)}",
        shlex.join([*make_command(plan), *_targets(plan)]),
    ]


def describe_tree(plan: Plan) -> list[str]:
    """List the steps that make the source tree."""
    lines = []
    if not plan.tree_path.exists():
        lines.append(f"unpack {plan.source.path} as {plan.tree_path}")
    lines += [f"apply {hook.path}" for hook in plan.changes.hooks]
    return lines + [f"add {name}" for name in sorted(plan.changes.tree)]


def _targets(plan: Plan) -> list[str]:
    return [f"-j{plan.request.jobs}", plan.request.arch.target, "modules"]


def _read_stamp(plan: Plan) -> BuiltKernel | None:
    try:
        stamp = json.loads((plan.build_dir / _STAMP).read_text())
        if stamp["key"] != plan.key or not plan.image.is_file():
            return None
        return _built(plan, str(stamp["release"]), cached=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _built(plan: Plan, release: str, *, cached: bool) -> BuiltKernel:
    return BuiltKernel(
        image=plan.image,
        build_dir=plan.build_dir,
        modules=plan.build_dir / "modroot" / "lib" / "modules" / release,
        release=release,
        base=plan.request.base,
        vanilla=plan.request.vanilla,
        configs=plan.configs,
        cached=cached,
        arch=plan.request.arch,
        written_ns=plan.image.stat().st_mtime_ns,
    )


def _build(plan: Plan, lock: int) -> BuiltKernel:
    started = time.monotonic()
    prepared = tree.prepare(plan.source, plan.request.vanilla)
    changed = tree.sync(prepared, plan.changes)
    build_dir = plan.build_dir
    _begin(plan)
    (build_dir / _STAMP).unlink(missing_ok=True)
    plan.log.parent.mkdir(parents=True, exist_ok=True)
    flavour = "vanilla" if plan.request.vanilla else "patched"
    output.talk(
        f"building Linux {prepared.version} ({plan.request.arch.name}, {flavour}, "
        f"{', '.join(plan.configs)}, {changed} files changed), log in {plan.log}"
    )
    with plan.log.open("wb") as log:
        _configure(plan, log.fileno())
        fresh = not plan.image.exists()
        title = f"building {prepared.version} {'+'.join(plan.configs)}"
        progress = output.Progress(title, _STEPS_GUESS if fresh else None)
        make = make_command(plan)
        run_make(plan, [*make, *_targets(plan)], log.fileno(), lock, progress)
        staged = build_dir / "modroot"
        shutil.rmtree(staged, ignore_errors=True)
        install = [f"INSTALL_MOD_PATH={staged}", "modules_install"]
        run_make(plan, [*make, *install], log.fileno(), lock, progress)
        progress.finish()
    release = (build_dir / "include/config/kernel.release").read_text().strip()
    built = _built(plan, release, cached=False)
    scratch = build_dir / f"{_STAMP}.new"
    scratch.write_text(json.dumps({"key": plan.key, "release": release}))
    scratch.replace(build_dir / _STAMP)
    output.talk(f"built {release} in {output.duration(time.monotonic() - started)}")
    return built


def _begin(plan: Plan) -> None:
    """Make the build directory, from a copy of the default build if possible.

    make then compiles only the files that the other fragments change. For small
    fragments that takes a minute.
    """
    if plan.build_dir.exists():
        return
    usual = dataclasses.replace(plan, configs=(config.DEFAULT,)).build_dir
    differs = any(name.startswith("debug-") for name in plan.configs)
    if differs or usual == plan.build_dir or not (usual / _STAMP).is_file():
        plan.build_dir.mkdir()
        return
    # Copy under another name first, so that an existing directory is complete.
    partial = plan.build_dir.with_name(f"{plan.build_dir.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _copy_build(usual, partial, plan.build_dir)
        partial.rename(plan.build_dir)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _copy_build(old: Path, partial: Path, new: Path) -> None:
    """Copy a build, with the file times that make compares."""
    left = shutil.ignore_patterns(_STAMP, "modroot")
    shutil.copytree(old, partial, symlinks=True, ignore=left)
    # objtool's .cmd files contain its build path. A rebuild of objtool would cause
    # a rebuild of all objects.
    for note in (partial / "tools").rglob(".*.cmd"):
        note.write_text(note.read_text().replace(f"{old}/", f"{new}/"))


def _configure(plan: Plan, log: int) -> None:
    """Write .config if it has changed; a newer file would make kbuild check all."""
    fragment = plan.build_dir / ".pageferry-fragment"
    fragment.write_text(config.render(plan.values))
    scratch = plan.build_dir / ".pageferry-config"
    scratch.unlink(missing_ok=True)
    argv = [*make_command(plan), f"KCONFIG_CONFIG={scratch}", "allnoconfig"]
    env = {**environment(plan), "KCONFIG_ALLCONFIG": str(fragment)}
    with proc.group(argv, env=env, stdout=log, stderr=log) as process:
        code = process.wait()
    if code != 0:
        raise make_failed(plan, code)
    result = scratch.read_text()
    config.check(plan.values, result)
    current = plan.build_dir / ".config"
    if current.exists() and current.read_text() == result:
        scratch.unlink()
    else:
        scratch.replace(current)


def run_make(
    plan: Plan,
    argv: list[str],
    log: int,
    lock: int,
    progress: output.Progress,
    env: dict[str, str] | None = None,
) -> None:
    """Run make, write its output to the log, and count its steps."""
    env = environment(plan) if env is None else env
    # make inherits the lock, and holds it if it outlives this process.
    with proc.group(argv, env=env, pass_fds=(lock,)) as process:
        assert process.stdout is not None
        for line in process.stdout:
            os.write(log, line)
            if _STEP.match(line):
                progress.advance()
        code = process.wait()
    if code != 0:
        progress.finish()
        raise make_failed(plan, code)


_TELLING = re.compile(r"error:|Error \d|undefined reference|No space left|\*\*\*")


def make_failed(plan: Plan, code: int) -> PageferryError:
    """Make the error for a failed build, with the telling lines of its log."""
    last = proc.tail(plan.log, 400).splitlines()
    telling = [line for line in last if _TELLING.search(line)][:10]
    full = any("No space left" in line for line in last)
    shown = [*telling, "...", *last[-15:]] if telling else last[-25:]
    return PageferryError(
        "the kernel build failed",
        value=plan.log,
        reason="no space left on the disk" if full else f"make ended with {code}",
        detail="\n".join(shown),
        hint="free 2 GiB there, or set XDG_CACHE_HOME to a larger disk"
        if full
        else f"less {plan.log}",
        code=ExitCode.NOT_STARTED,
    )
