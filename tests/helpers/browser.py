# SPDX-License-Identifier: GPL-2.0-only
"""Debian's Chromium without a window, and what a page did in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

DESKTOP: ViewportSize = {"width": 1100, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
# The narrowest width that WCAG 2 asks for: reflow, 1.4.10.
NARROW: ViewportSize = {"width": 320, "height": 640}
# The width of A4 with margins, at 96 pixels for each inch.
PAPER: ViewportSize = {"width": 718, "height": 1000}


@dataclass
class Seen:
    """All that a page should not do."""

    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Debian's Chromium. A download of another one would not be Debian's."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("chromium is missing; try: apt-get install chromium", pytrace=False)
    # Chromium has no sandbox for root, and containers have a small /dev/shm.
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=program, args=[*root, "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


def watch(page: Page) -> Seen:
    """Note messages, errors and requests of all that the page loads from now on."""
    seen = Seen()
    page.on("console", lambda message: seen.console.append(message.text))
    page.on("pageerror", lambda error: seen.console.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    return seen


def axe(page: Page) -> list[str]:
    """Return axe's complaints about accessibility, one line for each element."""
    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:120]}"
        for rule in found
        for node in rule["nodes"]
    ]


# Returns the contrast of each text and mark of a chart to the paper, as WCAG 2 defines.
CONTRAST = """() => {
  const light = color => {
    const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const to = color => {
    const one = light(color);
    return (Math.max(one, paper) + 0.05) / (Math.min(one, paper) + 0.05);
  };
  const all = (select, name) => [...document.querySelectorAll(select)]
    .map(one => to(getComputedStyle(one)[name]));
  return { texts: all('.figure text', 'fill'), marks: [
    ...all('.figure .line, .figure .dot, .figure .range:not(.under)', 'stroke'),
    ...all('.figure .fill', 'fill')] };
}"""

# Returns texts of charts that leave their chart, or cover another text.
CROWDED = """() => {
  const bad = [];
  for (const chart of document.querySelectorAll('.figure')) {
    const paper = chart.getBoundingClientRect();
    const boxes = [...chart.querySelectorAll('text')]
      .map(one => [one.textContent, one.getBoundingClientRect()]);
    boxes.forEach(([text, box], at) => {
      if (box.left < paper.left - 1 || box.right > paper.right + 1
          || box.top < paper.top - 1 || box.bottom > paper.bottom + 1)
        bad.push(`outside: ${text}`);
      for (const [other, its] of boxes.slice(at + 1))
        if (box.left + 1 < its.right && its.left + 1 < box.right
            && box.top + 2 < its.bottom && its.top + 2 < box.bottom)
          bad.push(`overlap: ${text} / ${other}`);
    });
  }
  return bad;
}"""

# Returns how the focused element looks, or null at the end of the page.
FOCUSED = """() => {
  const one = document.activeElement;
  if (one === document.body) return null;
  const style = getComputedStyle(one);
  return { tag: one.tagName, outline: style.outlineStyle,
           width: parseFloat(style.outlineWidth) };
}"""
