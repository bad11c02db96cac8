# SPDX-License-Identifier: GPL-2.0-only
"""The programs and devices that pin pages of a process, as far as /proc tells.

The kernel does not show the holders of a page. The fdinfo file of an io_uring lists its
registered buffers, so their pages have a certain holder. For RDMA, VFIO and pipes only
the open files are visible, so these are suspects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE

# Linux 7.3 shows a slot without a buffer.
_BUFFER = re.compile(r"\s*\d+: (?:<none>|0x([0-9a-f]+)/(\d+))\s*", re.ASCII)
# The beginning of a link in /proc/PID/fd, and the reason for a pin.
_SUSPECTS = (
    ("/dev/infiniband/uverbs", "RDMA: its memory regions pin pages"),
    ("/dev/vfio/", "VFIO: its DMA mappings pin pages"),
    ("anon_inode:[vfio", "VFIO: its DMA mappings pin pages"),
    ("/dev/iommu", "iommufd: its DMA mappings pin pages"),
    ("anon_inode:[io_uring]", "io_uring: a running direct read or write pins pages"),
    ("pipe:", "pipes: vmsplice(2) pins the pages in a pipe"),
)
_RING = "anon_inode:[io_uring]"


@dataclass
class Holders:
    """Pinned ranges of addresses with their holders, and suspects with their files."""

    ranges: list[tuple[int, int, str]] = field(default_factory=list)
    suspects: dict[str, int] = field(default_factory=dict)
    # VmPin of /proc/PID/status; None if the kernel does not show it.
    pinned_bytes: int | None = None
    # Another user's files are not visible.
    sees_files: bool = True

    def of(self, address: int, pages: int) -> str | None:
        """Name the holder of a page or folio at an address, if it is certain."""
        end = address + pages * PAGE
        for start, stop, name in self.ranges:
            if start < end and address < stop:
                return name
        return None


def parse_buffers(text: str) -> list[tuple[int, int]]:
    """Parse the registered buffers in fdinfo of an io_uring, as start and end."""
    found = []
    _, _, after = text.partition("UserBufs:")
    for line in after.splitlines()[1:]:
        match = _BUFFER.fullmatch(line)
        if match is None:
            break
        start, size = int(match[1] or "0", 16), int(match[2] or "0")
        if start and size:
            # A pin holds whole pages.
            found.append((start // PAGE * PAGE, -(-(start + size) // PAGE) * PAGE))
    return found


def read_holders(files: Files, pid: int) -> Holders:
    """Read the files of a process."""
    found = Holders()
    status = files.read_or(f"/proc/{pid}/status", "")
    match = re.search(r"^VmPin:\s*(\d+) kB", status, re.MULTILINE)
    if match is not None:
        found.pinned_bytes = int(match[1]) * 1024
    directory = files.path(f"/proc/{pid}/fd")
    try:
        entries = sorted(directory.iterdir(), key=lambda path: path.name)
    except OSError:
        found.sees_files = False
        return found
    for entry in entries:
        try:
            link = str(entry.readlink())
        except OSError:
            continue
        for start, text in _SUSPECTS:
            if link.startswith(start):
                found.suspects[text] = found.suspects.get(text, 0) + 1
                break
        if link == _RING:
            text = files.read_or(f"/proc/{pid}/fdinfo/{entry.name}", "")
            name = f"io_uring, registered buffers of file descriptor {entry.name}"
            found.ranges += [(a, b, name) for a, b in parse_buffers(text)]
    return found
