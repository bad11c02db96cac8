# SPDX-License-Identifier: GPL-2.0-only
"""A writer of cpio archives ("newc"): the same input gives the same bytes.

Writing the archive here needs no root for its device node. The archive contains no
times or inode numbers of the host.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field

_BLOCK = 512
_TRAILER = "TRAILER!!!"


@dataclass
class Archive:
    """Collects entries; bytes() returns the archive."""

    _parts: list[bytes] = field(default_factory=list)
    _inode: int = 1

    def directory(self, name: str) -> None:
        """Add a directory."""
        self._add(name, stat.S_IFDIR | 0o755)

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Add a regular file."""
        self._add(name, stat.S_IFREG | mode, content)

    def symbolic_link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, name: str, major: int, minor: int) -> None:
        """Add a character device node."""
        self._add(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def _add(
        self,
        name: str,
        mode: int,
        content: bytes = b"",
        device: tuple[int, int] = (0, 0),
    ) -> None:
        encoded = name.encode() + b"\0"
        # ino mode uid gid nlink mtime size devmajor devminor rdevmajor
        # rdevminor namesize check
        numbers = [self._inode, mode, 0, 0, 1, 0, len(content), 0, 0]
        numbers += [*device, len(encoded), 0]
        header = b"070701" + b"".join(b"%08X" % number for number in numbers)
        self._parts.append(_pad(header + encoded, 4) + _pad(content, 4))
        self._inode += 1

    def bytes(self) -> bytes:
        """Return the whole archive."""
        end = Archive()
        end._add(_TRAILER, 0)
        return _pad(b"".join([*self._parts, *end._parts]), _BLOCK)


def _pad(data: bytes, unit: int) -> bytes:
    return data + b"\0" * (-len(data) % unit)
