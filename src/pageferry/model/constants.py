# SPDX-License-Identifier: GPL-2.0-only
"""The constants of a machine, and where on it a channel sits."""

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
    """All that the simulation knows. Times in picoseconds: some are below 1 ns."""

    # CPU, for each folio: unmap it (with its share of the flush), tell the
    # engine about it, and all else (isolate, remap, free) by size.
    unmap_ps: int
    describe_ps: int
    move_4k_ps: int
    move_2m_ps: int
    # CPU, for each batch: flush and hand over to the engine; after the last move.
    setup_ps: int
    finish_ps: int
    # The copy of a folio by the CPU.
    copy_4k_ps: int
    copy_2m_ps: int
    # A transfer costs a channel this much before its bytes flow.
    descriptor_ps: int
    channel_bytes_per_s: int
    # Channels of one controller share its rate, all controllers the memory's.
    channels_per_controller: int
    controller_bytes_per_s: int
    memory_bytes_per_s: int

    def move_ns(self, folio_bytes: int) -> float:
        """Time of the CPU to isolate, remap and free one folio."""
        ps = self.move_4k_ps if folio_bytes == SMALL else self.move_2m_ps
        return ps / _PS

    def copy_ns(self, folio_bytes: int) -> float:
        """Time of the CPU to copy one folio."""
        ps = self.copy_4k_ps if folio_bytes == SMALL else self.copy_2m_ps
        return ps / _PS

    @property
    def unmap_ns(self) -> float:
        """Time of the CPU to unmap one folio."""
        return self.unmap_ps / _PS

    @property
    def describe_ns(self) -> float:
        """Time of the CPU to tell an engine about one folio."""
        return self.describe_ps / _PS

    @property
    def setup_ns(self) -> float:
        """Time of the CPU to flush and to hand a batch over."""
        return self.setup_ps / _PS

    @property
    def finish_ns(self) -> float:
        """Time of the CPU after the last move of a batch."""
        return self.finish_ps / _PS

    def alone_bytes_per_ns(self, transfer_bytes: int) -> float:
        """Rate of a channel that nobody disturbs, with transfers of this size."""
        flow_ns = transfer_bytes * 1e9 / self.channel_bytes_per_s
        return transfer_bytes / (self.descriptor_ps / _PS + flow_ns)

    def as_json(self) -> dict[str, int]:
        """Give the constants, as --constants reads them."""
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
    hint = "start from what `pageferry model --json` prints as constants"
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
            raise usage_error(f"not a sensible number: {name}", path, hint)
    return Machine(**document)
