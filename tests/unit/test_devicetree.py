# SPDX-License-Identifier: GPL-2.0-only
"""Adds a word to a device tree."""

from __future__ import annotations

import struct

import pytest

from pageferry.vm import devicetree

KIND = "maker,copier-1.0"
STRINGS = b"compatible\0reg\0"


def begin(name: str) -> bytes:
    text = name.encode() + b"\0"
    return struct.pack(">I", 1) + text + b"\0" * (-len(text) % 4)


def prop(name: str, value: bytes) -> bytes:
    head = struct.pack(">III", 3, len(value), STRINGS.index(name.encode()))
    return head + value + b"\0" * (-len(value) % 4)


END = struct.pack(">I", 2)


def tree(*nodes: bytes) -> bytes:
    """Build a tree: header, reserved memory, structure, strings."""
    body = begin("") + b"".join(nodes) + END + struct.pack(">I", 9)
    reserved = struct.pack(">4Q", 0x1000, 0x2000, 0, 0)
    at = 40 + len(reserved)
    header = struct.pack(
        ">10I",
        *(0xD00DFEED, at + len(body) + len(STRINGS), at, at + len(body), 40),
        *(17, 16, 0, len(STRINGS), len(body)),
    )
    return header + reserved + body + STRINGS


def copier(name: str, more: bytes = b"") -> bytes:
    kinds = b"maker,copier-2.0\0" + KIND.encode() + b"\0"
    return begin(name) + prop("compatible", kinds) + more + END


def test_devices_of_the_kind_become_coherent_and_memory_goes() -> None:
    other = begin("uart@2") + prop("compatible", b"maker,copier-1.00\0") + END
    memory = begin("memory@0") + begin("inner") + END + prop("reg", b"\0" * 8) + END
    made = devicetree.make_coherent(
        tree(copier("dma@1"), memory, other, copier("dma@3")), KIND
    )
    word = struct.pack(">III", 3, 0, len(STRINGS))
    wanted = tree(copier("dma@1", word), other, copier("dma@3", word))
    # The same with one more string and the resulting sizes.
    assert made.endswith(b"reg\0dma-coherent\0")
    assert made[40:-13] == wanted[40:]
    sizes = struct.unpack(">10I", made[:40])
    assert sizes[1] == len(made) and sizes[8] == len(STRINGS) + 13
    # The tree parses, and a second word fits as well.
    again = devicetree.make_coherent(made, "maker,none")
    assert again[40:-13] == made[40:]


def test_what_is_not_a_tree_is_refused() -> None:
    with pytest.raises(ValueError, match="device tree"):
        devicetree.make_coherent(b"\0" * 64, KIND)
