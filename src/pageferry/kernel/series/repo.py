# SPDX-License-Identifier: GPL-2.0-only
"""A scratch git repository, which ignores the user's configuration of git.

A setting such as format.signOff would otherwise sign patches off, which only their
sender may do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pageferry import proc
from pageferry.errors import ExitCode, PageferryError, unsupported
from pageferry.kernel.hooks import WantedFile

_IDENTITY = re.compile(r"(.+) <(.+)> \d+ [+-]\d+\s*")
_SETTINGS = {
    # The kernel's documentation asks for twelve digits.
    "core.abbrev": "12",
    "core.autocrlf": "false",
    "core.hooksPath": os.devnull,
    "init.defaultBranch": "series",
    "gc.auto": "0",
}
# As in the kernel's .gitattributes, so that hunks name their functions.
_ATTRIBUTES = "*.c diff=cpp\n*.h diff=cpp\n"


@dataclass(frozen=True)
class Author:
    """The author of the patches."""

    name: str
    email: str


def _git() -> str:
    return proc.find_tool("git", "git")


def clean_environment() -> dict[str, str]:
    """Return the environment without the variables that redirect git."""
    kept = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_CONFIG_GLOBAL")
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("GIT_") or key in kept
    }


def author(where: Path) -> Author:
    """Ask git who the user is; a guess from the name of the host does not count."""
    argv = [_git(), "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT"]
    done = proc.capture(argv, cwd=where, env=clean_environment())
    match = _IDENTITY.fullmatch(done.stdout)
    if done.returncode != 0 or match is None:
        raise unsupported(
            "git does not know the author of the patches",
            reason="user.name or user.email is not set",
            hint='git config --global user.name "Your Name"; '
            "git config --global user.email you@example.org",
        )
    return Author(match[1], match[2])


class Repo:
    """A repository that contains only the files of a series."""

    def __init__(self, path: Path, who: Author) -> None:
        self.path = path
        self.environment = {
            **clean_environment(),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": who.name,
            "GIT_AUTHOR_EMAIL": who.email,
            "GIT_COMMITTER_NAME": who.name,
            "GIT_COMMITTER_EMAIL": who.email,
            "LC_ALL": "C",
        }
        path.mkdir()
        self.git("init", "-q")
        (path / ".git/info").mkdir(exist_ok=True)
        (path / ".git/info/attributes").write_text(_ATTRIBUTES)
        for key, value in _SETTINGS.items():
            self.git("config", key, value)

    def git(self, *words: str | Path) -> str:
        """Run git, and return its output."""
        done = proc.capture([_git(), *words], cwd=self.path, env=self.environment)
        if done.returncode != 0:
            raise PageferryError(
                f"git {words[0]} failed",
                value=self.path,
                reason=(done.stderr.strip() or done.stdout.strip())[-300:] or None,
                code=ExitCode.NOT_STARTED,
            )
        return done.stdout

    def put(self, name: str, file: WantedFile) -> None:
        """Write a file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.executable else 0o644)

    def commit(self, message: str) -> None:
        """Commit all files, also those that .gitignore names."""
        self.git("add", "-f", "-A", ".")
        note = self.path / ".git" / "pageferry-message"
        note.write_text(message)
        self.git("commit", "-q", "--allow-empty", "--cleanup=verbatim", "-F", note)

    def tree(self) -> str:
        """Return the hash of all files."""
        return self.git("rev-parse", "HEAD^{tree}").strip()

    def format(self, title: str, cover: str, base: str, output: Path) -> list[Path]:
        """Write the commits since `base` as mails with a cover letter."""
        branch = self.git("symbolic-ref", "--short", "HEAD").strip()
        about = f"{title}\n\n{cover}"
        self.git("config", f"branch.{branch}.description", about)
        options = ["--cover-letter", "--cover-from-description=subject", "--stat=72"]
        self.git("format-patch", "-q", *options, "-o", output, f"{base}..HEAD")
        return sorted(output.glob("*.patch"))

    def am(self, mails: Sequence[Path]) -> None:
        """Apply mails."""
        self.git("am", "-q", *mails)
