"""The page of `Program.to_html` in a real browser: `make test-browser`.

Chromium is the one at `$CHROMIUM`, the one of the system, or Playwright's own.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax

import jaxide
from jaxide._export.html import text as page_of

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

HOSTILE = "</script><img src=x onerror=document.title='hacked'>"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_api.sync_playwright() as playwright:
        try:
            # Chromium has no sandbox for root.
            options = ["--no-sandbox"] if os.geteuid() == 0 else []
            opened = playwright.chromium.launch(executable_path=found, args=options)
        except sync_api.Error as error:
            pytest.skip(f"no browser can be started, set CHROMIUM: {error.message.splitlines()[0]}")
        yield opened
        opened.close()


class Opened:
    """A page from a file, with what it complained of."""

    def __init__(self, browser: Any, path: pathlib.Path, **options: Any):
        # Whatever it asks of a network fails.
        self.page = browser.new_page(
            offline=True, viewport={"width": 1300, "height": 800}, **options
        )
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#rows .row")

    def rows(self) -> list[str]:
        return self.page.locator("#rows .row .text").all_text_contents()

    def count(self) -> int:
        return int(self.page.get_attribute("#scroll", "aria-rowcount"))

    def chosen(self) -> str:
        return self.page.locator("#rows .row.chosen .text").text_content()

    def search(self, query: str) -> str:
        self.page.fill("#search", query)
        self.page.wait_for_timeout(300)
        return self.page.text_content("#count")


def program() -> jaxide.Program:
    def body(c: Array, _: None) -> tuple[Array, Array]:
        return jnp.where(c > 0, jnp.sin(c), c), c.sum()

    def function(x: Array) -> Any:
        with jax.named_scope(HOSTILE):
            y, sums = lax.scan(body, x, None, length=3)
        return y @ y.T, sums

    function.__qualname__ = function.__name__ = HOSTILE
    return jaxide.trace(function)(jnp.ones((4, 8)))


@pytest.fixture
def opened(browser: Any, tmp_path: pathlib.Path) -> Iterator[Opened]:
    program().to_html(tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    yield opened
    assert opened.complaints == []
    assert opened.page.title() == HOSTILE
    assert opened.page.locator("img").count() == 0
    opened.page.close()


def test_rows_open_by_mouse_and_keyboard(opened: Opened) -> None:
    page, before = opened.page, opened.count()
    assert HOSTILE in page.text_content("#title")
    page.locator("#rows .row", has_text="scan").first.locator(".toggle").click()
    assert opened.count() > before
    assert any("sin" in row for row in opened.rows())
    page.keyboard.press("ArrowLeft")
    assert opened.count() == before
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert "lambda" in opened.chosen()
    page.keyboard.press("End")
    assert opened.chosen().strip().startswith("in (")
    page.click("#collapse")
    assert opened.count() == before


def test_search_reveals_and_marks(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    assert opened.search("select_n") == "1 of 1"
    assert "select_n" in opened.chosen()
    assert page.locator("mark").all_text_contents() == ["select_n"]
    assert opened.search("f32").startswith("1 of ")
    page.keyboard.press("Enter")
    assert page.text_content("#count").startswith("2 of ")
    page.keyboard.press("Shift+Enter")
    assert page.text_content("#count").startswith("1 of ")
    assert opened.search("nowhere") == "no match"
    page.keyboard.press("Escape")
    assert page.locator("mark").count() == 0


def test_details_and_uses(opened: Opened) -> None:
    page = opened.page
    page.locator("#rows .row", has_text="dot_general").first.click()
    details = page.text_content("#details")
    for expected in ("dimension_numbers", "flops", "256", "test_page.py"):
        assert expected in details, expected
    page.locator("#rows .row.chosen .variable").last.click()
    assert page.locator(".same").count() >= 2


def test_plot(browser: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.html"
    first, *rest = program()._read_model()
    path.write_text(page_of([dataclasses.replace(first, live=[128, 4096, 512]), *rest]))
    opened = Opened(browser, path)
    page = opened.page
    assert "at most 4.00 KiB" in page.text_content("#plot-title")
    box = page.locator("#chart").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    assert page.text_content("#plot-note") == "equation 1, transpose: 4.00 KiB"
    page.mouse.click(box["x"] + box["width"] - 5, box["y"] + 20)
    assert "dot_general" in opened.chosen()
    assert opened.complaints == []


def test_plot_of_a_program_within(opened: Opened) -> None:
    page = opened.page
    outer = page.text_content("#plot-title")
    assert opened.search("select_n") == "1 of 1"
    inner = page.text_content("#plot-title")
    assert inner != outer and "beside those of what runs it" in inner
    assert "live bytes within" in page.text_content("#details")
    page.locator("#rows .row", has_text="dot_general").last.click()
    assert page.text_content("#plot-title") == outer


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_themes(browser: Any, tmp_path: pathlib.Path, scheme: str) -> None:
    program().to_html(tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html", color_scheme=scheme)
    background = "getComputedStyle(document.body).backgroundColor"
    before = opened.page.evaluate(background)
    assert (before == "rgb(255, 255, 255)") == (scheme == "light")
    opened.page.click("#theme")
    after = opened.page.evaluate(background)
    assert (after == "rgb(255, 255, 255)") == (scheme == "dark")


def test_a_large_program_stays_usable(browser: Any, tmp_path: pathlib.Path) -> None:
    def function(x: Array) -> Array:
        for _ in range(50_000):
            x = lax.sin(lax.mul(x, x))
        return x

    jaxide.trace(function)(jnp.ones(8)).to_html(tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    assert opened.count() == 100_002
    # Only what is in sight is in the document.
    assert opened.page.locator("#rows .row").count() < 100
    opened.page.focus("#scroll")
    opened.page.keyboard.press("End")
    assert opened.chosen().strip().startswith("in (")
    assert opened.search("sin jaxpr") == "no match"
    # Names of variables are searched too.
    assert opened.search("sin").startswith("1 of 50,0")
    assert opened.complaints == []
