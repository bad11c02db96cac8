# SPDX-License-Identifier: GPL-2.0-only
"""Pages of `pageferry report` in a browser, as people with all kinds of devices see them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from helpers import browser
from helpers.browser import DESKTOP, NARROW, PHONE
from helpers.golden_files import UPDATE
from pageferry.commands.report import read
from pageferry.report import page as html

Scheme = Literal["light", "dark"]
ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "docs/results").glob("*.json"))
PICTURES = ROOT / "docs/how-to/pictures"
NAMES = [*(path.stem for path in FILES), "compared"]
# Pages of a benchmark have the same parts, and axe takes a second for each.
EACH_KIND = sorted({name.partition("-")[0]: name for name in NAMES}.values())
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each result, and one that compares two."""
    folder = tmp_path_factory.mktemp("pages")
    texts = {path.stem: html.render([read(path)]) for path in FILES}
    before, after = (
        f"docs/results/demotion-memory-{how}.json" for how in ("max", "high")
    )
    texts["compared"] = html.render([], (read(ROOT / before), read(ROOT / after)))
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.fixture
def tab(started: Browser) -> Iterator[Page]:
    with started.new_context(viewport=DESKTOP) as context:
        yield context.new_page()


def overflow(tab: Page) -> int:
    """Return by how many pixels the page is wider than the screen."""
    found: int = tab.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_quiet_and_has_contrast(
    tab: Page, pages: dict[str, Path], name: str
) -> None:
    seen = browser.watch(tab)
    for scheme in SCHEMES:
        tab.emulate_media(color_scheme=scheme)
        tab.goto(pages[name].as_uri())
        found = tab.evaluate(browser.CONTRAST)
        assert min(found["texts"], default=21) >= 4.5, scheme
        assert min(found["marks"], default=21) >= 3, scheme
    assert seen.console == []
    assert seen.requests == [pages[name].as_uri()] * len(SCHEMES)


@pytest.mark.parametrize("name", EACH_KIND)
def test_axe_finds_nothing(tab: Page, pages: dict[str, Path], name: str) -> None:
    for scheme in SCHEMES:
        tab.emulate_media(color_scheme=scheme)
        tab.goto(pages[name].as_uri())
        assert browser.axe(tab) == [], scheme


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_its_screen_and_paper(
    tab: Page, pages: dict[str, Path], name: str
) -> None:
    tab.goto(pages[name].as_uri())
    for size in (DESKTOP, PHONE, NARROW):
        tab.set_viewport_size(size)
        assert overflow(tab) <= 0, size
        assert tab.evaluate(browser.CROWDED) == [], size
    tab.emulate_media(media="print")
    tab.set_viewport_size(browser.PAPER)
    assert overflow(tab) <= 0


def test_letters_of_charts_are_large_enough_on_a_phone(
    tab: Page, pages: dict[str, Path]
) -> None:
    tab.set_viewport_size(PHONE)
    tab.goto(pages["move-pages-debian-13"].as_uri())
    heights = tab.evaluate(
        "[...document.querySelectorAll('.figure text')]"
        ".map(one => one.getBoundingClientRect().height)"
    )
    assert min(heights) >= 10


def test_the_keyboard_reaches_everything(tab: Page, pages: dict[str, Path]) -> None:
    tab.set_viewport_size(PHONE)
    tab.goto(pages["latency-published-caps"].as_uri())
    reached = []
    while True:
        tab.keyboard.press("Tab")
        found = tab.evaluate(browser.FOCUSED)
        if found is None:
            break
        assert found["outline"] == "solid" and found["width"] >= 2, found
        reached.append(found["tag"])
        assert len(reached) < 100
    # The table, the text, the published table, and the link to the data.
    assert reached == ["DIV", "PRE", "SUMMARY", "A"]


def test_keys_scroll_and_unfold(tab: Page, pages: dict[str, Path]) -> None:
    tab.set_viewport_size(PHONE)
    tab.goto(pages["latency-published-caps"].as_uri())
    text = tab.locator("pre")
    text.focus()
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function("document.querySelector('pre').scrollLeft > 0")
    table = tab.locator("details table")
    assert not table.is_visible()
    tab.locator("summary").focus()
    tab.keyboard.press("Enter")
    assert table.is_visible()
    # The table is as wide as it has to be, and scrolls on its own.
    assert overflow(tab) <= 0


def test_screen_readers_hear_charts_and_tables(
    tab: Page, pages: dict[str, Path]
) -> None:
    tab.goto(pages["move-pages-debian-13"].as_uri())
    names = [one.get_attribute("aria-label") for one in tab.get_by_role("img").all()]
    assert len(names) == 2
    assert names[0] is not None
    assert names[0].startswith("Throughput over folio size. Lines of: stock; cpu;")
    assert tab.get_by_role("rowheader", name="2 MiB, mtcopy, 2 threads").is_visible()


def test_the_checks_notice_bad_pages(tab: Page, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<html><body style='background: #ffffff'><p style='color: #cccccc'>pale</p>"
        "<img src='http://127.0.0.1:9/outside.png'><script>throw 1</script>"
        "<div style='width: 3000px'>wide</div>"
        "<svg class='figure' width='99' height='30'>"
        "<text y='20' fill='#dddddd'>one text</text><text y='22'>another</text></svg>"
    )
    seen = browser.watch(tab)
    tab.goto(bad.as_uri())
    assert any("outside.png" in url for url in seen.requests)
    assert seen.console
    rules = {line.partition(":")[0] for line in browser.axe(tab)}
    assert {"color-contrast", "image-alt", "html-has-lang"} <= rules
    assert overflow(tab) > 0
    assert any("overlap" in line for line in tab.evaluate(browser.CROWDED))
    assert min(tab.evaluate(browser.CONTRAST)["texts"]) < 2


@pytest.mark.parametrize(
    ("name", "scheme", "size"),
    [("report-light", "light", DESKTOP), ("report-phone-dark", "dark", PHONE)],
)
def test_pictures_in_the_docs_can_be_taken(
    tab: Page,
    pages: dict[str, Path],
    tmp_path: Path,
    name: str,
    scheme: Scheme,
    size: ViewportSize,
) -> None:
    """Take the pictures; PAGEFERRY_UPDATE_GOLDEN=1 keeps them. Fonts differ elsewhere."""
    folder = PICTURES if os.environ.get(UPDATE) == "1" else tmp_path
    folder.mkdir(exist_ok=True)
    tab.set_viewport_size(size)
    tab.emulate_media(color_scheme=scheme)
    tab.goto(pages["move-pages-debian-13"].as_uri())
    taken = folder / f"{name}.png"
    tab.screenshot(path=taken)
    # A page without charts takes less than half of this.
    assert 20_000 < taken.stat().st_size < 150_000
