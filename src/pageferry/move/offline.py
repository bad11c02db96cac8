# SPDX-License-Identifier: GPL-2.0-only
"""Names what keeps a block of memory from going offline.

offline_pages() of Linux refuses a block with a hole or with pages that it cannot move.
has_unmovable_pages() decides about the pages before anything moves.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pageferry import output
from pageferry.errors import PageferryError, unsupported, usage_error
from pageferry.interleave.memory import open_pages, read_values
from pageferry.move import scan
from pageferry.move.holders import read_holders
from pageferry.sysfs import pagebits, processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.sysfs.pagebits import PAGE
from pageferry.units import format_size

_MEMORY = "/sys/devices/system/memory"
_NODES = "/sys/devices/system/node"

_RESERVED = "reserved since boot, by the firmware or the kernel"
_HOLE = "a hole without memory"
_SLAB = "kernel objects (slab)"
_TABLES = "page tables"
_OTHER = "kernel or driver memory, or free pages in a list of a CPU"
_ZONES = "the block belongs to several zones or nodes"
_NO_ROOM = "no room for its pages on other nodes"
_SECRET = "secret memory"
_MOVABLE_ZONE = "Movable"
HINT = "movable_node or memhp_default_state=online_movable keeps kernel memory out"


@dataclass
class Verdict:
    """One block, its pages, and what keeps it online."""

    name: str
    node: str
    state: str
    zone: str
    size_pages: int
    free_pages: int = 0
    movable_pages: int = 0
    hugetlb_pages: int = 0
    # Pages by the text that explains them.
    blockers: Counter[str] = field(default_factory=Counter)


def blocks(files: Files, text: str) -> list[str]:
    """List the blocks of a node, or the one that has this name."""
    if not files.exists(f"{_MEMORY}/block_size_bytes"):
        raise unsupported(
            "this machine takes no memory offline",
            files.path(_MEMORY),
            "the kernel lacks CONFIG_MEMORY_HOTPLUG, or this container has no /sys",
            "grep MEMORY_HOTREMOVE /boot/config-$(uname -r)",
        )
    if re.fullmatch(r"memory\d+", text, re.ASCII):
        if not files.exists(f"{_MEMORY}/{text}/state"):
            raise usage_error("no such memory block", text, f"ls {files.path(_MEMORY)}")
        return [text]
    node = text.removeprefix("node")
    if not (node.isascii() and node.isdigit()):
        raise usage_error("not a node or a memory block", text, "write 1, or memory42")
    names = [
        name
        for name in files.names(f"{_NODES}/node{int(node)}")
        if re.fullmatch(r"memory\d+", name)
    ]
    if not names:
        raise usage_error(
            "this node has no memory block", text, f"ls {files.path(_NODES)}"
        )
    return sorted(names, key=lambda name: int(name[6:]))


def check(files: Files, names: Sequence[str]) -> list[Verdict]:
    """Look at the pages of some blocks."""
    pages = int(files.read(f"{_MEMORY}/block_size_bytes"), 16) // PAGE
    try:
        handle = os.open(files.path("/proc/kpageflags"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PageferryError(
            "cannot see what is in a memory block",
            value=files.path("/proc/kpageflags"),
            reason=error.strerror,
            hint="run it as root",
        ) from error
    found: list[Verdict] = []
    starts: dict[int, Verdict] = {}
    try:
        for name in names:
            verdict = _empty(files, name, pages)
            found.append(verdict)
            if verdict.state != "online":
                continue
            first = int(files.read(f"{_MEMORY}/{name}/phys_index"), 16) * pages
            starts[first // pages] = verdict
            _sort(verdict, _by_head(read_values(handle, first, pages)))
    finally:
        os.close(handle)
    _name_holders(files, starts, pages)
    _check_room(files, found)
    return found


def _empty(files: Files, name: str, pages: int) -> Verdict:
    base = f"{_MEMORY}/{name}"
    nodes = [n for n in files.names(base) if re.fullmatch(r"node\d+", n)]
    verdict = Verdict(
        name=name,
        node=",".join(node[4:] for node in nodes),
        state=files.read_or(f"{base}/state", "online"),
        zone=files.read_or(f"{base}/valid_zones", "").partition(" ")[0],
        size_pages=pages,
    )
    if verdict.zone == "none" and verdict.state == "online":
        verdict.blockers[_ZONES] += 0
    return verdict


def _by_head(values: Sequence[int]) -> Counter[int]:
    """Count flags, with those of the head for each page of a large folio.

    On old kernels, such as 6.1, the other pages lack flags of the folio, LRU among them.
    A folio that begins in the block before keeps the flags of its pages.
    """
    found: Counter[int] = Counter()
    head = 0
    for flag in values:
        if not flag & pagebits.TAIL:
            head = flag
        found[head if head & pagebits.HEAD else flag] += 1
    return found


def _sort(verdict: Verdict, flags: Counter[int]) -> None:
    """Sort the pages of a block by their flags."""
    for flag, pages in flags.items():
        if flag & pagebits.FREE:
            verdict.free_pages += pages
        elif flag & pagebits.HUGETLB:
            verdict.hugetlb_pages += pages
        elif flag & pagebits.RESERVED:
            verdict.blockers[_RESERVED] += pages
        elif flag & pagebits.NO_PAGE:
            verdict.blockers[_HOLE] += pages
        elif flag & (pagebits.LRU | pagebits.POISONED | pagebits.OFFLINE):
            verdict.movable_pages += pages
        elif verdict.zone == _MOVABLE_ZONE:
            # The zone has only pages that move, some of them of drivers.
            verdict.movable_pages += pages
        elif flag & pagebits.SLAB:
            verdict.blockers[_SLAB] += pages
        elif flag & pagebits.PAGE_TABLE:
            verdict.blockers[_TABLES] += pages
        else:
            verdict.blockers[_OTHER] += pages


def _name_holders(files: Files, starts: dict[int, Verdict], pages: int) -> None:
    """Find registered buffers of io_uring and secret memory in the blocks."""
    for process in processes.everybody(files):
        if process.ended or process.kernel_thread or not starts:
            continue
        who = f"process {process.pid} ({output.printable(process.name)})"
        ranges = [
            (start, end, f"pinned by io_uring of {who}")
            for start, end, _ in read_holders(files, process.pid).ranges
        ]
        try:
            maps = files.path(f"/proc/{process.pid}/maps").read_bytes()
        except OSError:
            maps = b""
        ranges += [
            (area.start, area.end, f"{_SECRET} of {who}")
            for area in scan.parse_areas(maps)
            if area.secret
        ]
        if ranges:
            _count(files, process.pid, ranges, starts, pages)


def _count(
    files: Files,
    pid: int,
    ranges: Sequence[tuple[int, int, str]],
    starts: dict[int, Verdict],
    pages: int,
) -> None:
    try:
        handle = open_pages(files, f"/proc/{pid}/pagemap", pid)
    except PageferryError:
        return
    try:
        for start, end, text in ranges:
            for entry in read_values(handle, start // PAGE, (end - start) // PAGE):
                pfn = entry & pagebits.PFN
                if entry & pagebits.PRESENT and pfn and pfn // pages in starts:
                    starts[pfn // pages].blockers[text] += 1
    finally:
        os.close(handle)


def _check_room(files: Files, found: Sequence[Verdict]) -> None:
    """Compare the pages that have to move with the memory of other nodes."""
    nodes = {node for verdict in found for node in verdict.node.split(",") if node}
    others = [
        node.number
        for node in read_nodes(files)
        if node.total_bytes and str(node.number) not in nodes
    ]
    room = 0
    for number in others:
        memory = files.read_or(f"{_NODES}/node{number}/meminfo", "")
        for key in ("MemFree", "Active(file)", "Inactive(file)"):
            match = re.search(rf"{re.escape(key)}:\s*(\d+) kB", memory)
            room += int(match[1]) * 1024 // PAGE if match else 0
    # Without another node, the pages go to other blocks of the same one.
    if not others:
        return
    for verdict in found:
        need = verdict.movable_pages + verdict.hugetlb_pages
        room -= need
        if need and room < 0:
            verdict.blockers[_NO_ROOM] += need


def document(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """Write the document of --json."""
    return {
        "page_bytes": PAGE,
        "blocks": [
            {
                "name": verdict.name,
                "node": verdict.node,
                "state": verdict.state,
                "zone": verdict.zone,
                "size_pages": verdict.size_pages,
                "free_pages": verdict.free_pages,
                "movable_pages": verdict.movable_pages,
                "hugetlb_pages": verdict.hugetlb_pages,
                "blockers": [
                    {"text": text, "pages": pages}
                    for text, pages in verdict.blockers.most_common()
                ],
            }
            for verdict in verdicts
        ],
        "kept_blocks": sum(bool(verdict.blockers) for verdict in verdicts),
    }


def text(verdicts: Sequence[Verdict]) -> str:
    """Write the verdicts for people."""
    online = [verdict for verdict in verdicts if verdict.state == "online"]
    kept = [verdict for verdict in online if verdict.blockers]
    size = format_size(verdicts[0].size_pages * PAGE)
    lines = [
        f"{len(online)} of {len(verdicts)} blocks of {size} are online;"
        f" something keeps {len(kept)} of them"
    ]
    for verdict in kept:
        pages = verdict.movable_pages + verdict.hugetlb_pages
        lines.append(
            f"{verdict.name}: node {verdict.node}, zone {verdict.zone},"
            f" {verdict.free_pages:,} pages free, {pages:,} can move"
        )
        lines += [
            f"  {pages:>9,}  {text}" if pages else f"             {text}"
            for text, pages in verdict.blockers.most_common()
        ]
    free = [verdict for verdict in online if not verdict.blockers]
    if free:
        rows = [
            [
                verdict.name,
                verdict.zone,
                f"{verdict.free_pages:,}",
                f"{verdict.movable_pages + verdict.hugetlb_pages:,}",
            ]
            for verdict in free
        ]
        header = ("nothing found in", "zone", "free pages", "pages to move")
        lines += ["", output.table(header, rows)]
        lines += ["", f"next: echo offline > {_MEMORY}/{free[0].name}/state"]
    if any(_OTHER in verdict.blockers or _SLAB in verdict.blockers for verdict in kept):
        lines += ["", f"at the next boot: {HINT}"]
    lines += [
        "",
        "not visible: pins by RDMA, VFIO and drivers; the command finds the buffers of"
        " io_uring and secret memory",
    ]
    return "\n".join(lines)
