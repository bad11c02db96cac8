# SPDX-License-Identifier: GPL-2.0-only
"""The answers of a check, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from pageferry import output
from pageferry.units import format_rate, format_size

UNKNOWN = "not known"


@dataclass(frozen=True)
class Finding:
    """The answer to one question."""

    question: str
    answer: str
    detail: str = ""
    # The engine must not be used.
    failed: bool = False


@dataclass(frozen=True)
class Trust:
    """The present trust of dcbm in the driver of one device."""

    device: str
    driver: str
    # dcbm believes the success that the driver reports.
    believes_errors: bool
    # dcbm assumes that terminating stops the device; None: its channels differ.
    assumes_stop: bool | None


@dataclass
class Report:
    """All answers, and the measured rates in bytes per second."""

    channels: list[str] = field(default_factory=list)
    drivers: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    trust: list[Trust] = field(default_factory=list)
    cpu_rate: float | None = None
    # By number of channels.
    rates: dict[int, float] = field(default_factory=dict)
    # By channel, while all copy.
    together: dict[str, float] = field(default_factory=dict)
    # By folio size, with one channel.
    pieces: dict[int, float] = field(default_factory=dict)
    best_channels: int | None = None
    best_piece_bytes: int | None = None

    @property
    def ok(self) -> bool:
        """Say whether nothing speaks against the engine."""
        return not any(finding.failed for finding in self.findings)

    def as_json(self) -> dict[str, object]:
        """Return the document for --json."""
        return {
            "ok": self.ok,
            "engine": "dcbm",
            "drivers": self.drivers,
            "trust": [asdict(trust) for trust in self.trust],
            "channels": self.channels,
            "findings": [
                {
                    "question": finding.question,
                    "answer": finding.answer,
                    "detail": finding.detail,
                    "failed": finding.failed,
                }
                for finding in self.findings
            ],
            "cpu_bytes_per_s": _whole(self.cpu_rate),
            "rates": [
                {"channels": count, "bytes_per_s": round(rate)}
                for count, rate in self.rates.items()
            ],
            "channel_rates": [
                {"channel": name, "bytes_per_s": round(rate)}
                for name, rate in self.together.items()
            ],
            "piece_rates": [
                {"folio_bytes": size, "bytes_per_s": round(rate)}
                for size, rate in self.pieces.items()
            ],
            "best_channels": self.best_channels,
            "best_piece_bytes": self.best_piece_bytes,
        }

    def text(self) -> str:
        """Lay out the tables."""
        rows = [[f.question, f.answer, f.detail] for f in self.findings]
        tables = [output.table(["question", "answer", "detail"], rows)]
        rates = [["CPU", format_rate(self.cpu_rate)]] if self.cpu_rate else []
        rates += [[str(n), format_rate(rate)] for n, rate in self.rates.items()]
        for header, lines in (
            (["channels", "rate of migration"], rates),
            (
                ["channel, of all", "share"],
                [[name, format_rate(rate)] for name, rate in self.together.items()],
            ),
            (
                ["folio, one channel", "rate of the channel"],
                [[format_size(s), format_rate(r)] for s, r in self.pieces.items()],
            ),
        ):
            if lines:
                tables.append(output.table(header, lines))
        return "\n\n".join(tables)

    def next_command(self) -> str:
        """Name the next command."""
        if not self.ok:
            return "do not use this engine: pageferry off, then report the table above"
        return f"pageferry engine set dcbm --channels {self.best_channels}"


def _whole(rate: float | None) -> int | None:
    return None if rate is None else round(rate)
