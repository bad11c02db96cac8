# SPDX-License-Identifier: GPL-2.0-only
"""Add "dma-coherent" to controllers in QEMU's device tree.

QEMU has no caches, so all of its devices are coherent. Its device trees mark only
some. For the others Linux cleans and invalidates every cache line of a transfer, which
takes as many instructions as a copy.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from pageferry import paths, proc
from pageferry.errors import ExitCode, PageferryError

_MAGIC = 0xD00DFEED
_BEGIN, _END, _PROPERTY, _NOP, _LAST = 1, 2, 3, 4, 9
_HEADER = struct.Struct(">10I")
_COHERENT = b"dma-coherent\0"


def of_machine(argv: Sequence[str], machine: str, compatible: str) -> Path:
    """Dump a machine's device tree, and return a file with the changed tree.

    argv: QEMU's arguments for processors and memory.
    """
    place = paths.make_cache_dir("vm", "devicetrees")
    with tempfile.TemporaryDirectory(dir=place) as name:
        raw = Path(name, "raw.dtb")
        given = [argv[0], "-machine", f"{machine},dumpdtb={raw}", *argv[1:]]
        done = proc.capture([*given, "-display", "none"])
        if not raw.is_file():
            raise PageferryError(
                "QEMU did not give its device tree",
                value=machine,
                detail=done.stderr,
                code=ExitCode.NOT_STARTED,
            )
        made = Path(name, "made.dtb")
        made.write_bytes(make_coherent(raw.read_bytes(), compatible))
        key = sha256(made.read_bytes()).hexdigest()[:16]
        return made.replace(place / f"{machine}-{key}.dtb")


def make_coherent(tree: bytes, compatible: str) -> bytes:
    """Mark the devices of one kind; drop memory nodes, because QEMU adds them."""
    header = _HEADER.unpack_from(tree)
    if header[0] != _MAGIC:
        raise ValueError("not a device tree")
    _, _, struct_at, strings_at, reserved_at, _, _, _, strings_size, _ = header
    strings = tree[strings_at : strings_at + strings_size]
    added = struct.pack(">III", _PROPERTY, 0, len(strings))
    body, depth, skipping = b"", 0, 0
    for token, name, whole in _tokens(tree, struct_at, strings):
        depth += (token == _BEGIN) - (token == _END)
        if token == _BEGIN and name.partition("@")[0] == "memory":
            skipping = skipping or depth
        if not skipping:
            body += whole
            found = whole[12:].rstrip(b"\0").split(b"\0")
            if name == "compatible" and compatible.encode() in found:
                body += added
        elif depth < skipping:
            skipping = 0
    # Two zeros end the list of reserved memory.
    end = reserved_at
    while tree[end : end + 16] != b"\0" * 16:
        end += 16
    reserved = tree[reserved_at : end + 16]
    strings += _COHERENT
    at = _HEADER.size, _HEADER.size + len(reserved)
    total = at[1] + len(body) + len(strings)
    made = _HEADER.pack(
        *(_MAGIC, total, at[1], at[1] + len(body), at[0]),
        *(*header[5:8], len(strings), len(body)),
    )
    return made + reserved + body + strings


def _tokens(tree: bytes, at: int, strings: bytes) -> Iterator[tuple[int, str, bytes]]:
    """Yield each token of the tree with its name and its bytes."""
    token = 0
    while token != _LAST:
        (token,) = struct.unpack_from(">I", tree, at)
        size, name = 4, b""
        if token == _BEGIN:
            name = tree[at + 4 : tree.index(b"\0", at + 4)]
            size += len(name) + 1
        elif token == _PROPERTY:
            length, offset = struct.unpack_from(">II", tree, at + 4)
            name = strings[offset : strings.index(b"\0", offset)]
            size += 8 + length
        elif token not in (_END, _NOP, _LAST):
            raise ValueError("not a device tree")
        size += -size % 4
        yield token, name.decode(), tree[at : at + size]
        at += size
