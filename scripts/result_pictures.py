# SPDX-License-Identifier: GPL-2.0-only
"""Write docs/results/pictures/, the charts of `pageferry report` as files.

A test compares the files with this output, so the pictures cannot fall behind:
    PY=$(python3 scripts/bootstrap.py python)
    PYTHONPATH=src $PY scripts/result_pictures.py
"""

from __future__ import annotations

from pathlib import Path

from pageferry.commands.report import read
from pageferry.report import charts, page, svg

RESULTS = Path(__file__).resolve().parents[1] / "docs/results"
PICTURES = RESULTS / "pictures"

# The charts that docs/results/README.md shows of each result.
SHOWN: dict[str, tuple[str, ...]] = {
    "compaction-dma": ("cpu-time",),
    "copy-granite-rapids": (
        "throughput-over-folio-cold",
        "throughput-over-folio-read",
    ),
    "cost-6.12": ("phases",),
    "cost-7.3": ("phases",),
    "cost-all-sizes": ("instructions-over-folio",),
    "cost-dcbm": ("phases",),
    "demotion-calls": ("throughput",),
    "demotion-memory-high": ("throughput",),
    "demotion-memory-max": ("throughput",),
    "demotion-memory-reclaim": ("throughput",),
    "hugetlb-channels": ("throughput-over-channels",),
    "hugetlb-two-cpus": ("throughput",),
    "latency-overlap-counted": ("distribution-4KiB",),
    "latency-published-caps": ("first-over-cap-4KiB", "published-first-4KiB"),
    "move-pages-debian-13": ("throughput-over-folio", "beside"),
    "scale-movers": ("instructions-over-movers",),
    "scale-sizes": ("instructions-over-size",),
    "tiers-anon-2M": ("over-time-0", "over-time-1", "over-time-2"),
    "tiers-anon-4K": ("over-time-0", "over-time-1", "over-time-2"),
    "tiers-anon-64K": ("over-time-0", "over-time-1", "over-time-2"),
    "tiers-file-4K": ("over-time-0", "over-time-1", "over-time-2"),
}


def pictures() -> dict[str, str]:
    """Return the files by their names."""
    made: dict[str, str] = {}
    for stem, keys in SHOWN.items():
        one = read(RESULTS / f"{stem}.json")
        drawn = {chart.key: chart for chart in charts.charts(one.result, one.tables)}
        for key in keys:
            made[f"{stem}.{key}.svg"] = svg.standalone(drawn[key], page.CHARTS)
    return made


def main() -> None:
    """Write all files, and remove others."""
    made = pictures()
    PICTURES.mkdir(exist_ok=True)
    for path in PICTURES.iterdir():
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (PICTURES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
