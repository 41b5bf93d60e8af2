"""The page of a run (`RunReport.to_html`) in a real browser: `make test-browser`."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from test_page import HOSTILE

import jaxide


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The page of a run with a hostile name, several threads and functions of jax's own."""

    def hostile(x: Any) -> Any:
        return jnp.sin(x) * 43

    hostile.__name__ = hostile.__qualname__ = HOSTILE
    with jaxide.accelerated():
        for size in (3, 4):
            jax.jit(hostile)(jnp.arange(float(size)))
        thread = threading.Thread(target=lambda: jax.jit(lambda x: x * 47)(jnp.zeros(5)))
        thread.start()
        thread.join()
        file = tmp_path_factory.mktemp("run") / "run.html"
        jaxide.report_run(file)
    return file


def opened(browser: Any, path: pathlib.Path, **options: Any) -> tuple[Any, list[str]]:
    page = browser.new_page(offline=True, **options)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    return page, complaints


@pytest.mark.parametrize("width", [375, 800, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits(browser: Any, path: pathlib.Path, width: int, scheme: str) -> None:
    """No width makes it scroll sideways, and it complains of nothing."""
    viewport = {"width": width, "height": 800}
    page, complaints = opened(browser, path, viewport=viewport, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("figure.lane").count() == 2
    assert page.title() != "hacked" and not complaints
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != colour
    page.close()


def test_tables_are_sorted(browser: Any, path: pathlib.Path) -> None:
    page, complaints = opened(browser, path)
    table = page.locator("table").first

    def column(number: int) -> list[str]:
        return table.locator(f"tbody td:nth-child({number})").all_text_contents()

    traced = list(map(int, column(3)))
    assert len(set(traced)) > 1
    head = table.locator("th button", has_text="traced")
    head.click()
    assert list(map(int, column(3))) == sorted(traced, reverse=True)
    head.click()
    assert list(map(int, column(3))) == sorted(traced)
    table.locator("th button", has_text="function").click()
    assert sorted(column(1), key=str.casefold)[0] in column(1)[:3]
    assert not complaints
    page.close()


def test_functions_of_jax_are_hidden(browser: Any, path: pathlib.Path) -> None:
    page, complaints = opened(browser, path)
    rows = page.locator("table").first.locator("tbody tr")
    before = sum(row.is_visible() for row in rows.all())
    page.check("#own input")
    names = [row.locator("td").first.text_content() for row in rows.all() if row.is_visible()]
    assert 0 < len(names) < before and HOSTILE in names
    page.uncheck("#own input")
    assert sum(row.is_visible() for row in rows.all()) == before and not complaints
    page.close()


def test_it_is_complete_without_scripts(browser: Any, path: pathlib.Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert HOSTILE in page.locator("table").first.text_content()
    assert not page.locator("#theme").is_visible() and not page.locator("#own").is_visible()
    context.close()
