# SPDX-License-Identifier: GPL-2.0-only
"""Kernel modules: which exist, and modprobe."""

from __future__ import annotations

from dataclasses import dataclass, field

from pageferry import paths, proc
from pageferry.errors import ExitCode, PageferryError
from pageferry.sysfs.files import Files

LOADED = "loaded"
AVAILABLE = "not loaded"
MISSING = "not in this kernel"


@dataclass
class Modules:
    """The modules of the running kernel."""

    files: Files
    # Commands of a dry run, in order.
    commands: list[str] = field(default_factory=list)

    def state(self, name: str) -> str:
        """Say whether a module is loaded, or can be."""
        if self.files.exists(f"/sys/module/{name}"):
            return LOADED
        release = self.files.read_or("/proc/sys/kernel/osrelease", "")
        folder = f"/lib/modules/{release}"
        for listing in ("modules.dep", "modules.builtin"):
            for line in self.files.read_or(f"{folder}/{listing}", "").splitlines():
                file = line.partition(":")[0].rpartition("/")[2]
                if file.partition(".")[0].replace("-", "_") == name:
                    return AVAILABLE if listing == "modules.dep" else LOADED
        return MISSING

    def load(self, name: str) -> None:
        """Load a module, or raise an error that names the package or the option."""
        self._modprobe(name, "cannot load the kernel module", f"modinfo {name}")

    def unload(self, name: str) -> None:
        """Unload a module."""
        self._modprobe(
            name, "cannot unload the kernel module", f"lsmod | grep {name}", "-r"
        )

    def _modprobe(self, name: str, what: str, hint: str, *options: str) -> None:
        words = ["modprobe", *options, name]
        self.commands.append(" ".join(words))
        if self.files.dry_run:
            return
        words[0] = proc.find_tool("modprobe", "kmod", paths.venv_path())
        done = proc.capture(words)
        if done.returncode == 0:
            return
        reason = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        missing = "not found" in reason
        raise PageferryError(
            what,
            value=name,
            reason=reason or f"modprobe ended with {done.returncode}",
            hint="pageferry doctor" if missing else hint,
            code=ExitCode.UNSUPPORTED if missing else ExitCode.FAILED,
        )
