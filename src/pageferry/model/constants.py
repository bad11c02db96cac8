# SPDX-License-Identifier: GPL-2.0-only
"""The constants of a machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pageferry.errors import ExitCode, from_os_error, usage_error
from pageferry.units import KIB, MIB

SMALL = 4 * KIB
LARGE = 2 * MIB
SIZES = (SMALL, LARGE)
_PS = 1000.0


@dataclass(frozen=True)
class Machine:
    """The inputs of a simulation. Times are in picoseconds: some are below 1 ns."""

    # CPU time for each folio: unmap it (with its share of the flush), describe it to
    # the engine. All other steps (isolate, remap, free) are the move, by size.
    unmap_ps: int
    describe_ps: int
    move_4k_ps: int
    move_2m_ps: int
    # CPU time for each batch: flush and submit; steps after the last move.
    setup_ps: int
    finish_ps: int
    # CPU time to copy a folio.
    copy_4k_ps: int
    copy_2m_ps: int
    # The time of a channel before the bytes of a transfer flow.
    descriptor_ps: int
    channel_bytes_per_s: int
    # Channels share the rate of their controller; controllers share the memory's rate.
    channels_per_controller: int
    controller_bytes_per_s: int
    memory_bytes_per_s: int

    def move_ns(self, folio_bytes: int) -> float:
        """CPU time to isolate, remap and free one folio."""
        ps = self.move_4k_ps if folio_bytes == SMALL else self.move_2m_ps
        return ps / _PS

    def copy_ns(self, folio_bytes: int) -> float:
        """CPU time to copy one folio."""
        ps = self.copy_4k_ps if folio_bytes == SMALL else self.copy_2m_ps
        return ps / _PS

    @property
    def unmap_ns(self) -> float:
        """CPU time to unmap one folio."""
        return self.unmap_ps / _PS

    @property
    def describe_ns(self) -> float:
        """CPU time to describe one folio to an engine."""
        return self.describe_ps / _PS

    @property
    def setup_ns(self) -> float:
        """CPU time to flush and submit a batch."""
        return self.setup_ps / _PS

    @property
    def finish_ns(self) -> float:
        """CPU time after the last move of a batch."""
        return self.finish_ps / _PS

    def alone_bytes_per_ns(self, transfer_bytes: int) -> float:
        """Rate of a channel without contention, with transfers of this size."""
        flow_ns = transfer_bytes * 1e9 / self.channel_bytes_per_s
        return transfer_bytes / (self.descriptor_ps / _PS + flow_ns)

    def as_json(self) -> dict[str, int]:
        """Return the constants in the format of --constants."""
        return asdict(self)


def load(path: Path) -> Machine:
    """Read the constants of another machine."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise from_os_error(
            error, "cannot read the constants", ExitCode.FAILED
        ) from error
    except ValueError as error:
        raise usage_error("constants are not JSON", path) from error
    hint = "start from the constants that `pageferry model --json` prints"
    if isinstance(document, dict) and isinstance(document.get("constants"), dict):
        document = document["constants"]
    names = {field.name for field in fields(Machine)}
    if not isinstance(document, dict) or set(document) != names:
        given = set(document) if isinstance(document, dict) else set()
        wrong = ", ".join(sorted(names ^ given)) or "no object"
        raise usage_error(f"constants missing or unknown: {wrong}", path, hint)
    for name, value in document.items():
        least = 0 if name.endswith("_ps") else 1
        if type(value) is not int or not least <= value < 1 << 63:
            raise usage_error(f"constant is out of range: {name}", path, hint)
    return Machine(**document)
