# SPDX-License-Identifier: GPL-2.0-only
"""The exit codes, and the one exception that ends a command."""

from __future__ import annotations

import errno
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Exit codes; docs/reference/commands.md explains them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNSUPPORTED = 3
    SKIPPED = 4
    NOT_STARTED = 5
    TIMEOUT = 124
    INTERRUPTED = 130


class PageferryError(Exception):
    """A failure that the user can act on.

    what:   the step that failed, in lower case
    value:  the path or the value that the step worked on
    reason: the cause, if it is known
    hint:   the next command to type, or the setting to change
    detail: lines to print before the error, such as the end of a log
    """

    def __init__(
        self,
        what: str,
        *,
        value: str | Path | None = None,
        reason: str | None = None,
        hint: str | None = None,
        detail: str | None = None,
        code: ExitCode = ExitCode.FAILED,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.value = None if value is None else str(value)
        self.reason = reason
        self.hint = hint
        self.detail = detail
        self.code = code

    def line(self) -> str:
        """Everything but the hint and the detail, on one line."""
        text = self.what
        if self.value is not None:
            text += f": {self.value}"
        if self.reason is not None:
            text += f": {self.reason}"
        return text

    def __str__(self) -> str:
        return self.line() if self.hint is None else f"{self.line()} ({self.hint})"

    def as_json(self) -> dict[str, dict[str, str | int]]:
        """Give the document that --json prints when a command fails."""
        fields = {
            "what": self.what,
            "value": self.value,
            "reason": self.reason,
            "hint": self.hint,
            "detail": self.detail,
        }
        error: dict[str, str | int] = {
            key: text for key, text in fields.items() if text is not None
        }
        error["exit_code"] = int(self.code)
        return {"error": error}


def usage_error(
    what: str, value: str | Path | None = None, hint: str | None = None
) -> PageferryError:
    """Make the error for an invalid argument."""
    return PageferryError(what, value=value, hint=hint, code=ExitCode.USAGE)


def unsupported(
    what: str,
    value: str | Path | None = None,
    reason: str | None = None,
    hint: str | None = None,
) -> PageferryError:
    """Make the error for a kernel or a machine that lacks a feature."""
    return PageferryError(
        what, value=value, reason=reason, hint=hint, code=ExitCode.UNSUPPORTED
    )


_OS_HINTS = {
    errno.ENOSPC: "free some space there, or set XDG_CACHE_HOME to a larger disk",
    errno.EDQUOT: "free some space there, or set XDG_CACHE_HOME to a larger disk",
    errno.EROFS: "set XDG_CACHE_HOME to a directory that can be written",
    errno.EACCES: "check its owner and mode, or run as root",
    errno.EPERM: "run as root",
}


def from_os_error(error: OSError, what: str, code: ExitCode) -> PageferryError:
    """Turn a failed system call into an error with its file, reason and a hint."""
    number = error.errno or 0
    return PageferryError(
        what,
        value=error.filename,
        reason=error.strerror or str(error),
        hint=_OS_HINTS.get(number),
        code=code,
    )
