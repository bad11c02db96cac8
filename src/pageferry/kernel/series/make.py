# SPDX-License-Identifier: GPL-2.0-only
"""Write a series: commit each patch, check it, build it, and format mails."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pageferry import output, paths, proc
from pageferry.errors import ExitCode, PageferryError, from_os_error, usage_error
from pageferry.kernel import bases, build, origin, tree
from pageferry.kernel.hooks import WantedFile
from pageferry.kernel.samples import Sample, take_sample
from pageferry.kernel.series import spec, states, steps
from pageferry.kernel.series.repo import Author, Repo, author, clean_environment

# The sender signs off, and adds new files to MAINTAINERS. The line of a Kconfig that
# names its own file is right. The tree has no history, so checkpatch finds no commit.
_IGNORED = (
    "MISSING_SIGN_OFF",
    "NO_AUTHOR_SIGN_OFF",
    "FILE_PATH_CHANGES",
    "EMBEDDED_FILENAME",
    "UNKNOWN_COMMIT_ID",
)


@dataclass(frozen=True)
class SeriesRequest:
    """The parameters of `kernel series`."""

    name: str
    base: str
    output: Path
    source: Path | None = None
    build: bool = True
    jobs: int = field(default_factory=lambda: build.BuildRequest().jobs)


@dataclass(frozen=True)
class WrittenSeries:
    """A series that was written."""

    name: str
    base: str
    release: str
    output: Path
    mails: tuple[str, ...]
    built: bool

    def as_json(self) -> dict[str, object]:
        """Return the document of `kernel series --json`."""
        return {
            "series": self.name,
            "base": self.base,
            "release": self.release,
            "output": str(self.output),
            "mails": list(self.mails),
            "built": self.built,
        }


@dataclass(frozen=True)
class _Work:
    """All that is known before the first commit.

    before: the files that the series finds: those that earlier series have changed
    after:  the files after each of its patches
    """

    series: spec.Series
    patches: list[spec.Patch]
    origin: origin.Origin
    plan: build.Plan | None
    sample: Sample
    before: states.Files
    after: list[states.Files]
    who: Author

    @property
    def touched(self) -> set[str]:
        """List the files that the whole series changes."""
        return {name for files in self.after for name in files}

    def pristine(self) -> states.Files:
        """Return the base release's version of these files."""
        found: states.Files = {}
        for name in self.touched:
            path = self.sample.path / name
            if path.is_file():
                mode = bool(path.stat().st_mode & 0o100)
                found[name] = WantedFile(path.read_bytes(), mode)
        return found


def write_series(request: SeriesRequest) -> WrittenSeries:
    """Write a series to a new directory; a failure leaves no directory."""
    target = _checked_output(request.output)
    work = _prepare(request)
    steps.check_space(work.origin.source, builds=request.build)
    try:
        with _beside(target) as scratch:
            mails = _write(work, scratch)
            scratch.joinpath("mails").rename(target)
    except OSError as error:
        what = "cannot write the series"
        raise from_os_error(error, what, ExitCode.NOT_STARTED) from error
    return WrittenSeries(
        request.name,
        request.base,
        work.origin.version,
        target,
        tuple(str(target / mail.name) for mail in mails),
        request.build,
    )


def _checked_output(path: Path) -> Path:
    path = path.expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise usage_error("--output is not a directory", path, "name a new directory")
    if path.exists() and any(path.iterdir()):
        raise usage_error("--output is not empty", path, "name a new directory")
    if not path.parent.is_dir():
        raise usage_error("--output is in no directory", path, f"mkdir {path.parent}")
    return path


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Make a directory on the same file system, and remove it at the end."""
    scratch = tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        yield Path(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _prepare(request: SeriesRequest) -> _Work:
    """Check all inputs, and compute the files after each patch."""
    linux = paths.repo_root() / "linux"
    series = spec.read(linux, request.name)
    bases.read(linux, request.base)
    patches = spec.for_base(series, request.base)
    who = author(linux)
    plan = None
    if request.build:
        wanted = build.BuildRequest(
            base=request.base, source=request.source, jobs=request.jobs
        )
        plan = build.plan_build(wanted, fetch=True)
        found = origin.Origin(plan.source, "", plan.changes)
    else:
        found = origin.choose(
            linux, request.base, request.source, vanilla=False, fetch=True
        )
    earlier = series.earlier_patches(request.base)
    names = states.touched([*earlier, *patches], request.base, found.changes)
    sample = take_sample(found.source, names)

    def pristine(name: str) -> Path | None:
        path = sample.path / name
        return path if path.is_file() else None

    made = states.states(
        series, [*earlier, *patches], request.base, found.changes, pristine
    )
    before = made[len(earlier) - 1] if earlier else {}
    after = made[len(earlier) :]
    found = origin.Origin(found.source, sample.version, found.changes)
    return _Work(series, patches, found, plan, sample, before, after, who)


def _write(work: _Work, scratch: Path) -> list[Path]:
    repo = _begun(work, scratch / "repo")
    for patch, files in zip(work.patches, work.after, strict=True):
        for name, file in files.items():
            repo.put(name, file)
        repo.commit(f"{patch.subject}\n\n{patch.message.strip()}\n")
    cover = f"{work.series.cover.strip()}\n\n{_requirements(work)}"
    mails = repo.format(
        work.series.title, cover, f"HEAD~{len(work.patches)}", scratch / "mails"
    )
    _check_am(work, repo, mails, scratch / "clean")
    source = work.origin.source
    with tree.locked(steps.tree_path(source)) as lock:
        prepared = steps.prepare(source)
        _checkpatch(prepared.path, work.series, mails[1:])
        if work.plan is not None:
            _build(work, work.plan, prepared, lock)
    return mails


def _begun(work: _Work, path: Path) -> Repo:
    """Make a repository with the files that the series finds."""
    repo = Repo(path, work.who)
    for name, file in (work.pristine() | work.before).items():
        repo.put(name, file)
    repo.commit(f"{_base(work)}\n")
    return repo


def _base(work: _Work) -> str:
    """Name what the series applies to."""
    earlier = [series.name for series in work.series.earlier]
    return ", then ".join([f"Linux {work.origin.version}", *earlier])


def _requirements(work: _Work) -> str:
    text = f"This series applies to Linux {work.origin.version}"
    if work.series.earlier:
        names = ", ".join(series.name for series in work.series.earlier)
        text += f" with pageferry's series {names}, in this order"
    lines = textwrap.wrap(f"{text}.", 72, break_on_hyphens=False)
    lines.append(work.series.needs.strip())
    return "\n".join(lines) + "\n"


def _check_am(work: _Work, repo: Repo, mails: Sequence[Path], path: Path) -> None:
    """Check that the mails, applied to a clean tree, give the same files."""
    clean = _begun(work, path)
    clean.am(mails[1:])
    if clean.tree() != repo.tree():
        raise PageferryError(
            "git am gives other files than the series",
            value=work.series.name,
            code=ExitCode.NOT_STARTED,
        )


def _checkpatch(root: Path, series: spec.Series, mails: Sequence[Path]) -> None:
    """Run the base's own checkpatch on each patch."""
    perl = proc.find_tool("perl", "perl")
    argv: list[str | Path] = [perl, root / "scripts" / "checkpatch.pl"]
    argv += [f"--root={root}", "--strict", "--terse", "--no-summary", "--show-types"]
    argv += [f"--ignore={','.join((*_IGNORED, *series.ignore))}", *mails]
    env = {**clean_environment(), "LC_ALL": "C"}
    done = proc.capture(argv, cwd=root, env=env)
    said = re.sub(rf"^{re.escape(str(mails[0].parent))}/", "", done.stdout, flags=re.M)
    if done.returncode != 0 or said.strip():
        raise PageferryError(
            "checkpatch.pl --strict has complaints",
            value=series.name,
            reason=f"{len(said.splitlines())} lines, shown above",
            detail=said.strip() or done.stderr,
        )
    output.talk(f"checkpatch.pl --strict: {len(mails)} patches without a complaint")


def _build(work: _Work, plan: build.Plan, prepared: tree.Tree, lock: int) -> None:
    builder = steps.Steps(plan, prepared, lock, work.pristine(), work.before)
    total = len(work.patches)
    for number, files in enumerate(work.after, start=1):
        title = f"building after patch {number} of {total}"
        output.talk(f"{title}: {work.patches[number - 1].subject}")
        builder.build(files, work.touched, title)
