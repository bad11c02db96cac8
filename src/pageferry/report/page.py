# SPDX-License-Identifier: GPL-2.0-only
"""Results as one HTML page, without scripts and without references to other files.

Charts are SVG. Screen readers get the same figures from tables.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from pageferry.report import charts, difference, svg, verdict
from pageferry.report.axes import scaled
from pageferry.report.difference import FIGURES, Difference, Figure, label
from pageferry.report.tables import machine_line
from pageferry.report.theirs import Table
from pageferry.results.schema import Result, encode

CHARTS = (Path(__file__).parent / "charts.css").read_text(encoding="utf-8")
STYLE = CHARTS + (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Shown:
    """A result, its file, its tables as `bench` prints them, and tables of others."""

    name: str
    result: Result
    text: str
    tables: Sequence[Table] = ()


def render(shown: Sequence[Shown], pair: tuple[Shown, Shown] | None = None) -> str:
    """Write the page; `pair` are two results to compare."""
    every = [*shown, *(pair or ())]
    title = "pageferry: " + ", ".join(one.name for one in every)
    root = ET.Element("html", lang="en")
    head = _add(root, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    view = {"name": "viewport", "content": "width=device-width, initial-scale=1"}
    ET.SubElement(head, "meta", view)
    _add(head, "title", title)
    _add(head, "style", STYLE)
    main = _add(_add(root, "body"), "main")
    _add(main, "h1", "Page migration" if pair is None else "Two results compared")
    if pair is not None:
        _compared(main, *pair)
    for one in every:
        _result(main, one)
    return f"<!doctype html>\n{ET.tostring(root, encoding='unicode', method='html')}\n"


def _add(
    parent: ET.Element, tag: str, text: str | None = None, **attributes: str
) -> ET.Element:
    made = ET.SubElement(parent, tag, attributes)
    made.text = text
    return made


def _result(main: ET.Element, one: Shown) -> None:
    section = _add(main, "section")
    _add(section, "h2", one.name)
    result = one.result
    _add(section, "p", verdict.sentence(result)).set("class", "verdict")
    for text in verdict.warnings(result):
        line = _add(section, "p")
        line.set("class", "warning")
        _add(line, "strong", "Warning: ").tail = text
    drawn = _add(section, "div")
    drawn.set("class", "charts")
    drawn.extend(svg.render(chart) for chart in charts.charts(result, one.tables))
    _figures(section, one)
    _add(section, "h3", "All figures")
    pre = _add(section, "pre", one.text, tabindex="0", role="region")
    pre.set("aria-label", f"figures of {one.name}")
    for check in result.checks or []:
        held = "holds" if check.ok else "does not hold"
        text = f"{check.name} {held}: {check.measured:.3g}, wanted {check.wanted}"
        _add(section, "p", f"{text}. {check.detail}")
    _published(section, result)
    _facts(section, result)
    _data(section, one)


def _figures(section: ET.Element, one: Shown) -> None:
    """Add a table with the figures that charts show."""
    rows = one.result.rows
    shown = [figure for figure in FIGURES if any(map(figure.read, rows))]
    if not shown:
        return
    head = ["row", *map(_title, shown)]
    body = _table(section, f"Medians and ranges of {one.name}", head, "plain")
    for row in rows:
        line = _add(body, "tr")
        _add(line, "th", label(row), scope="row")
        for figure in shown:
            found = figure.read(row)
            _add(
                line,
                "td",
                "" if found is None else svg.said(scaled(found, figure.scale)),
            )


def _title(figure: Figure) -> str:
    unit = f", {figure.unit}" if figure.unit else ""
    better = "more" if figure.more_is_better else "less"
    return f"{figure.name}{unit} ({better} is better)"


def _table(
    parent: ET.Element, caption: str, head: Sequence[str], kind: str
) -> ET.Element:
    """Add a table, and return its body."""
    frame = _add(parent, "div", tabindex="0", role="region")
    frame.set("class", "frame")
    frame.set("aria-label", caption)
    table = _add(frame, "table")
    table.set("class", kind)
    _add(table, "caption", caption)
    line = _add(_add(table, "thead"), "tr")
    for name in head:
        _add(line, "th" if name else "td", name, **({"scope": "col"} if name else {}))
    return _add(table, "tbody")


def _published(section: ET.Element, result: Result) -> None:
    """Add figures of others, with their source, for readers who open them."""
    for table in result.published or []:
        rows = table.get("rows")
        if not isinstance(rows, list) or not rows or not isinstance(rows[0], Mapping):
            continue
        columns = [str(name) for name in rows[0]]
        about = table.get("provenance") or table.get("name") or "source unknown"
        caption = f"Published by others, on their machines: {about}"
        folded = _add(section, "details")
        _add(folded, "summary", caption)
        body = _table(folded, caption, columns, "plain")
        for row in rows:
            line = _add(body, "tr")
            for name in columns:
                _add(line, "td", str(row.get(name, "")))


def _facts(section: ET.Element, result: Result) -> None:
    machine, kernel = result.machine, result.kernel
    facts = {
        "Command": " ".join(result.command),
        "Measured": result.created,
        "Machine": machine_line(result),
        "Kernel": kernel.version or kernel.release,
        "Host": machine.host_cpu_model,
        "Host kernel": machine.host_kernel,
        "Settings": ", ".join(
            f"{k}={v}" for k, v in result.settings.items() if v is not None
        ),
        "pageferry": result.pageferry_version,
    }
    _add(section, "h3", "Machine and settings")
    listing = _add(section, "dl")
    for name, text in facts.items():
        if text:
            _add(listing, "dt", name)
            _add(listing, "dd", text)


def _data(section: ET.Element, one: Shown) -> None:
    """Add the result file itself."""
    data = base64.b64encode(encode(one.result).encode()).decode()
    line = _add(section, "p")
    link = _add(line, "a", f"Save {one.name} (JSON)", download=one.name)
    link.set("href", f"data:application/json;base64,{data}")


def _compared(main: ET.Element, before: Shown, after: Shown) -> None:
    compared = difference.compare(before.result, after.result)
    found = compared.found
    section = _add(main, "section")
    _add(section, "h2", f"From {before.name} to {after.name}")
    _add(section, "p", summary(found)).set("class", "verdict")
    if before.result.machine != after.result.machine:
        line = _add(section, "p")
        line.set("class", "warning")
        text = "the machines differ, so rates do not compare."
        _add(line, "strong", "Warning: ").tail = text
    for one, rows in (
        (before, compared.only_before),
        (after, compared.only_after),
    ):
        if rows:
            _add(section, "p", f"Only {one.name} has: {'; '.join(rows)}.")
    if not found:
        return
    head = ["row", "figure", "before", "after", "change", "verdict"]
    body = _table(section, "Medians and ranges", head, "plain")
    for shown in found:
        line = _add(body, "tr")
        _add(line, "th", shown.row, scope="row")
        unit = f", {shown.figure.unit}" if shown.figure.unit else ""
        change = "" if shown.change is None else f"{shown.change * 100:+.1f}%"
        cells = (
            f"{shown.figure.name}{unit}",
            svg.said(scaled(shown.before, shown.figure.scale)),
            svg.said(scaled(shown.after, shown.figure.scale)),
            change,
            shown.verdict,
        )
        for text in cells:
            _add(line, "td", text)


def summary(found: Sequence[Difference]) -> str:
    """Say how many differences exceed their spread."""
    if not found:
        return "The results have no row in common."
    better = sum(one.verdict == "better" for one in found)
    worse = sum(one.verdict == "worse" for one in found)
    return (
        f"Of {len(found)} figures {better} are better and {worse} are worse. "
        f"The other {len(found) - better - worse} are equal, or differ by noise."
    )
