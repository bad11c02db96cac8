# SPDX-License-Identifier: GPL-2.0-only
"""The configuration of a distribution's kernel, and the cost of a build with it."""

from __future__ import annotations

import gzip
import lzma
import os
from dataclasses import dataclass
from pathlib import Path

from pageferry.errors import ExitCode, PageferryError, from_os_error, unsupported
from pageferry.kernel import config

DEBIAN = "debian"
RUNNING = "running"
FRAGMENT = "distribution"
LOCALVERSION = "+pageferry"
# Debian's package linux-config-6.12 has one file for each flavour.
_DEBIAN_FILE = Path("usr/src/linux-config-{base}/config.amd64_none_amd64.xz")
# Files with these keys exist only where the distribution builds its kernels. Kconfig's
# defaults take no key from a file, and make a new one for modules.
_KEYS = ("MODULE_SIG_KEY", "SYSTEM_TRUSTED_KEYS", "SYSTEM_REVOCATION_KEYS")
# The first two always exist. Linux 7.3 adds the third, for move_pages(2).
_NEEDED = ("NUMA", "MIGRATION")
_NEEDED_IF_KNOWN = ("NUMA_MIGRATION",)
# CPU seconds and bytes for each enabled symbol. With vm.config an object takes 0.3 CPU
# seconds. A distribution has about four objects for each symbol. Debug information
# doubles the time, and takes most of the disk.
_CPU_S = 1.2
_BYTES = 500 << 10
_CPU_S_DEBUG = 3.0
_BYTES_DEBUG = 3 << 20
# An unpacked and patched source.
_TREE_BYTES = 2 << 30


@dataclass(frozen=True)
class Configuration:
    """The values of a .config, and the file that they come from."""

    values: dict[str, str]
    path: Path

    def has(self, name: str) -> bool:
        """Say whether a symbol is built in."""
        return self.values.get(name) == "y"


@dataclass(frozen=True)
class Cost:
    """A rough forecast of a build."""

    cpu_s: float
    disk_bytes: int

    def seconds(self, jobs: int) -> tuple[float, float]:
        """Return the shortest and the longest time to expect."""
        return self.cpu_s / jobs / 2, self.cpu_s / jobs * 2


def enabled(values: dict[str, str]) -> int:
    """Count the symbols that compile something, or change what is compiled."""
    return sum(value in ("y", "m") for value in values.values())


def forecast(wanted: Configuration, *, local: bool) -> Cost:
    """Forecast the cost of a build.

    On Debian's configuration, localmodconfig leaves a quarter of the symbols.
    """
    debug = wanted.has("DEBUG_INFO")
    symbols = enabled(wanted.values)
    if local:
        symbols = symbols * 3 // 10
    cpu_s, size = (_CPU_S_DEBUG, _BYTES_DEBUG) if debug else (_CPU_S, _BYTES)
    return Cost(symbols * cpu_s, _TREE_BYTES + symbols * size)


def read(chosen: str, base: str, root: Path = Path("/")) -> Configuration:
    """Read the configuration that --config-from names."""
    path = _find(chosen, base, root)
    try:
        text = _read_text(path)
    except (OSError, EOFError, lzma.LZMAError) as error:
        what = "cannot read the kernel's configuration"
        if isinstance(error, OSError) and error.strerror:
            raise from_os_error(error, what, ExitCode.USAGE) from error
        raise PageferryError(
            what, value=path, reason=str(error), code=ExitCode.USAGE
        ) from error
    values = config.parse(text, str(path))
    for name in _KEYS:
        values.pop(name, None)
    found = Configuration(values, path)
    _require(found)
    return found


def _find(chosen: str, base: str, root: Path) -> Path:
    if chosen == DEBIAN:
        path = root / str(_DEBIAN_FILE).format(base=base)
        if not path.is_file():
            raise unsupported(
                "Debian's configuration was not found",
                path,
                hint=f"apt-get install linux-config-{base}, or --config-from running",
            )
        return path
    if chosen == RUNNING:
        places = [root / "proc/config.gz", root / f"boot/config-{os.uname().release}"]
        for path in places:
            if path.is_file():
                return path
        raise unsupported(
            "the running kernel does not tell its configuration",
            " and ".join(map(str, places)),
            "neither file exists",
            "--config-from debian, or --config-from FILE",
        )
    return Path(chosen).expanduser()


def _read_text(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".xz":
        content = lzma.decompress(content)
    return content.decode(errors="replace")


def _require(found: Configuration) -> None:
    """Reject a configuration in which no page can change its node."""
    lacks = [name for name in _NEEDED if not found.has(name)]
    lacks += [n for n in _NEEDED_IF_KNOWN if found.values.get(n, "y") != "y"]
    if lacks:
        missing = " and ".join(f"CONFIG_{name}=y" for name in lacks)
        raise unsupported(
            "this configuration cannot migrate pages",
            found.path,
            f"it lacks {missing}",
            "use the configuration of a kernel with NUMA: --config-from debian",
        )
