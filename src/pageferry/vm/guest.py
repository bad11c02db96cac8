# SPDX-License-Identifier: GPL-2.0-only
"""The guest's init, and the script that it starts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pageferry.errors import PageferryError, usage_error

INIT = Path(__file__).parent / "guest-init.sh"
# The guest writes "started SECONDS" and "ended CODE" to this port; qemu.sh writes
# "killed SIGNAL".
STATE_PORT = "state"
PORTS = ("stderr", STATE_PORT)
STARTED = "started"
ENDED = "ended"
KILLED = "killed"
# virtme-ng's name for the port of the command's stdout.
STDOUT_PORT = "virtme.stdout"
KERNEL_WORDS = ("loglevel=7", "printk.devkmsg=on", "nokaslr")
# The guest mounts other file systems over these directories.
_HIDDEN = ("/run", "/dev", "/proc", "/sys")
# Linux adds the memory of DIMMs before it reads the HMAT, and then without a tier of its
# own. A rule of udev brings it online elsewhere.
_ONLINE = """\
[ -z "$pageferry_online" ] || for file in /sys/devices/system/memory/memory*/state; do
    read -r state <"$file"; [ "$state" != offline ] || echo online_movable >"$file"
done"""
_PASSED_ON = ("HOME", "LANG", "PATH", "PYTHONPATH", "TERM", "XDG_CACHE_HOME")


def is_hidden(path: Path) -> bool:
    """Say whether another file system hides a host directory in the guest."""
    return any(path == Path(top) or Path(top) in path.parents for top in _HIDDEN)


def module_files(modules: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of modules, each after its dependencies."""
    try:
        text = (modules / "modules.dep").read_text()
    except OSError as error:
        raise PageferryError(
            "no modules for this kernel",
            value=modules,
            reason=error.strerror,
            hint="build one with pageferry kernel build",
        ) from error
    needs: dict[str, list[str]] = {}
    for line in text.splitlines():
        file, _, rest = line.partition(":")
        needs[file] = rest.split()
    by_name = {_module_name(file): file for file in needs}
    ordered: list[Path] = []
    for name in names:
        file = by_name.get(name.replace("-", "_"), "")
        if not file:
            known = ", ".join(sorted(by_name)) or "none"
            raise usage_error("unknown module", name, f"this kernel has: {known}")
        # depmod lists direct dependencies first and the deepest one last.
        for needed in [*reversed(needs[file]), file]:
            if modules / needed not in ordered:
                ordered.append(modules / needed)
    return ordered


def _module_name(file: str) -> str:
    return Path(file).name.partition(".ko")[0].replace("-", "_")


def run_script(
    command: Sequence[str],
    *,
    cwd: Path,
    modules: Path | None,
    insert: Sequence[Path],
    environment: Mapping[str, str],
) -> str:
    """Return the script that prepares the guest and runs the command."""
    variables = {k: v for k in _PASSED_ON if (v := os.environ.get(k)) is not None}
    if modules is not None:
        # modules is DIR/lib/modules/RELEASE; modprobe -d takes DIR.
        variables["MODPROBE_OPTIONS"] = f"-d {modules.parents[2]}"
    variables.update(environment)
    lines = [f"export {name}={shlex.quote(v)}" for name, v in variables.items()]
    lines.append(_ONLINE)
    lines += [f"insmod {shlex.quote(str(file))} || exit 1" for file in insert]
    lines.append(f"cd {shlex.quote(str(cwd))} || exit 1")
    # A mark in the log. <0> makes it appear with any console log level.
    lines.append("echo '<0>pageferry: command starts' >/dev/kmsg")
    lines.append("read -r now _ </proc/uptime")
    lines.append(f'echo "{STARTED} $now" >/dev/virtio-ports/pageferry.{STATE_PORT}')
    lines.append(f"exec {shlex.join(command)}")
    return "\n".join(lines) + "\n"
