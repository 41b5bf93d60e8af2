"""The page of `Program.to_html` in a real browser: `make test-browser`."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax

import jaxide
from jaxide._export.html import text as page_of

HOSTILE = "</script><img src=x onerror=document.title='hacked'>"


class Opened:
    """A page from a file, with what it complained of."""

    def __init__(self, browser: Any, path: pathlib.Path, **options: Any):
        # Whatever it asks of a network fails.
        options = {"viewport": {"width": 1300, "height": 800}, **options}
        self.page = browser.new_page(offline=True, **options)
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
    shown = program()
    first, *rest = shown._read_model()
    models = [dataclasses.replace(first, live=[128, 4096, 512]), *rest]
    path.write_text(page_of(models, shown.cost(), shown.liveness()))
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


# ---- narrow windows, costs and memory ------------------------------------------------------------

WIDTHS = (375, 800, 1400)
VIEWS = ("equations", "cost", "memory")


def model() -> jaxide.Program:
    """A program with scopes, long names, many results and deep nesting."""

    def layer(w: Array, x: Array) -> Array:
        with jax.named_scope("dense"):
            x = jnp.sin(x @ w["kernel"]) + w["bias"]
        with jax.named_scope(HOSTILE):
            return jax.nn.softmax(x)

    def function(params: Any, x: Array) -> Any:
        def loss(params: Any) -> Array:
            y = x
            for number, w in enumerate(params):
                with jax.named_scope(f"model/a_scope_with_a_long_name_{number}"):
                    y = jax.checkpoint(layer)(w, y)
            return (y - 1.0).sum()

        value, grads = jax.value_and_grad(loss)(params)
        updated = jax.jit(lambda p, g: jax.tree.map(lambda a, b: a - 0.1 * b, p, g))(params, grads)
        return updated, value, lax.scan(lambda c, _: (jax.nn.relu(c), None), x, None, 3)[0]

    params = [{"kernel": jnp.ones((16, 16)), "bias": jnp.ones(16)} for _ in range(4)]
    return jaxide.trace(function)(params, jnp.ones((8, 16)))


def sized(width: int) -> dict[str, Any]:
    return {"viewport": {"width": width, "height": 760}}


@pytest.fixture(scope="module")
def model_page(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("page") / "model.html"
    model().to_html(path)
    return path


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_window_does_not_scroll_sideways(
    browser: Any, model_page: pathlib.Path, width: int, scheme: str
) -> None:
    opened = Opened(browser, model_page, color_scheme=scheme, **sized(width))
    page = opened.page
    for view in VIEWS:
        page.click(f"#tab-{view}")
        assert page.locator(f"#{view}").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Nor does anything but the boxes that are meant to.
        assert (
            page.evaluate(
                """[...document.querySelectorAll('.report, header, .bar')]
            .filter((e) => e.scrollWidth > e.clientWidth + 1).length"""
            )
            == 0
        )
    assert opened.complaints == []
    page.close()


# Scrolls to a row, and says of each primitive in sight whether nothing clips it.
PRIMITIVES = """(top) => new Promise((done) => {
  const isWhole = (element) => {
    const own = element.getBoundingClientRect();
    for (let at = element.parentElement; at.id !== "sheet"; at = at.parentElement) {
      if (getComputedStyle(at).overflowX === "visible") continue;
      const box = at.getBoundingClientRect();
      if (own.left < box.left - 0.5 || own.right > box.right + 0.5) return false;
    }
    return own.width > 0 && element.scrollWidth <= element.clientWidth + 1;
  };
  document.getElementById("scroll").scrollTop = top;
  const found = () => [...document.querySelectorAll("#rows .primitive")];
  const answer = () => done(found().map((e) => [e.textContent, isWhole(e)]));
  requestAnimationFrame(() => requestAnimationFrame(answer));
})"""


@pytest.mark.parametrize("width", WIDTHS)
def test_primitives_are_never_clipped(browser: Any, model_page: pathlib.Path, width: int) -> None:
    opened = Opened(browser, model_page, **sized(width))
    page = opened.page
    page.click("#expand")
    seen: dict[str, bool] = {}
    for top in range(0, 22 * opened.count(), 250):
        for primitive, is_whole in page.evaluate(PRIMITIVES, top):
            seen[primitive] = seen.get(primitive, True) and is_whole
    assert all(seen.values()), seen
    assert {"custom_jvp_call", "dot_general", "scan", "sin"} <= seen.keys()
    if width == 375:
        # Numbers are reached by scrolling the list sideways.
        scroll = page.locator("#scroll")
        assert scroll.evaluate("(e) => e.scrollWidth > e.clientWidth")
        scroll.evaluate("(e) => { e.scrollLeft = 10000; }")
        box = page.locator("#head .number").last.bounding_box()
        assert box["x"] + box["width"] <= 375
    page.close()


def column(opened: Opened, table: str, number: int) -> list[str]:
    return opened.page.locator(f"{table} tbody tr td:nth-child({number})").all_text_contents()


def test_tables_sort(browser: Any, model_page: pathlib.Path) -> None:
    opened = Opened(browser, model_page)
    page = opened.page
    page.click("#tab-cost")
    report = model().cost()
    assert column(opened, "#by-primitive", 1) == list(report.by_primitive)[:30]
    assert column(opened, "#by-scope", 1)[0] == "model"
    counts = {share.name: share.parameters for share in report.by_scope}
    assert counts["model"] == 4 * (16 * 16 + 16)
    assert column(opened, "#by-scope", 7)[0] == f"{counts['model']:,}"
    heads = page.locator("#by-primitive th")
    assert heads.nth(1).get_attribute("aria-sort") == "descending"
    heads.first.locator("button").click()
    names = column(opened, "#by-primitive", 1)
    assert names == sorted(names) and len(names) > 3
    assert heads.first.get_attribute("aria-sort") == "ascending"
    assert heads.nth(1).get_attribute("aria-sort") == "none"
    page.keyboard.press("Enter")
    assert column(opened, "#by-primitive", 1) == names[::-1]
    assert heads.first.get_attribute("aria-sort") == "descending"
    page.fill("#cost-filter", "reduce_")
    assert all("reduce_" in name for name in column(opened, "#by-primitive", 1))
    page.locator("#by-primitive .link").first.click()
    assert page.locator("#equations").is_visible()
    assert page.text_content("#count").startswith("1 of ")
    assert opened.complaints == []
    page.close()


def test_the_flame_graph_zooms(browser: Any, model_page: pathlib.Path) -> None:
    opened = Opened(browser, model_page)
    page = opened.page
    page.click("#tab-cost")
    flame = page.locator("#cost-flame")
    whole = flame.bounding_box()["width"]
    dense = flame.locator(".box", has_text="dense").first
    before = dense.bounding_box()["width"]
    assert before < whole / 2
    dense.hover()
    assert "dense" in page.text_content("#cost-note") and "%" in page.text_content("#cost-note")
    dense.click()
    zoomed = flame.locator(".box", has_text="dense").first
    assert zoomed.bounding_box()["width"] > whole - 3
    assert "parameters" in zoomed.get_attribute("title")
    assert zoomed.evaluate("(e) => e === document.activeElement")
    page.keyboard.press("Escape")
    assert flame.locator(".box", has_text="dense").first.bounding_box()["width"] == before
    # By keyboard: down to the scopes, along, into one of them.
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "model"
    page.keyboard.press("ArrowDown")
    first = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.textContent")
    assert first != second and "a_scope_with" in second
    page.keyboard.press("Enter")
    focused = page.locator(":focus")
    assert focused.bounding_box()["width"] > whole - 3
    assert focused.get_attribute("aria-selected") == "true"
    page.get_by_role("button", name="Bytes", exact=True).click()
    assert "read and written" in page.text_content("#cost-note")
    page.get_by_role("button", name="Lines", exact=True).click()
    assert flame.locator(".box", has_text="test_page.py").count() >= 1
    page.fill("#cost-filter", "layer")
    assert flame.locator(".found").count() == 1
    assert opened.complaints == []
    page.close()


def test_what_is_alive_at_the_peak(browser: Any, model_page: pathlib.Path) -> None:
    opened = Opened(browser, model_page)
    page = opened.page
    page.click("#tab-memory")
    report = model().liveness()
    assert f"in {len(report.alive)} values" in page.text_content("#peak")
    types = column(opened, "#alive", 3)
    assert types == [value.aval for value in report.alive][: len(types)]
    flame = page.locator("#memory-flame")
    assert {"results", "inputs"} <= set(flame.locator(".box").all_text_contents())
    page.fill("#memory-filter", "kernel")
    assert all("kernel" in name for name in column(opened, "#alive", 1))
    page.fill("#memory-filter", "")
    page.locator("#alive .link").first.click()
    assert page.locator("#rows .row.chosen .primitive").count() == 1
    page.click("#tab-memory")
    page.locator("#peak .link").click()
    assert report.peak_at.primitive in opened.chosen()
    assert opened.complaints == []
    page.close()


def test_views_are_chosen_by_keyboard(opened: Opened) -> None:
    page = opened.page
    page.focus("#tab-equations")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-cost"
    assert page.get_attribute("#tab-cost", "aria-selected") == "true"
    assert not page.locator("#equations").is_visible()
    assert HOSTILE.strip("<>").split("/")[-1] in page.text_content("#by-scope")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("#equations").is_visible()


def luminance(color: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    channels = [int(number) / 255 for number in re.findall(r"\d+", color)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# The colours of texts, and those of what is behind them.
COLORS = """[...document.querySelectorAll('*')]
.filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
.filter((e) => e.checkVisibility())
.map((e) => {
  let at = e;
  while (getComputedStyle(at).backgroundColor === 'rgba(0, 0, 0, 0)') at = at.parentElement;
  const back = getComputedStyle(at).backgroundColor;
  return [getComputedStyle(e).color, back, e.outerHTML.slice(0, 99)];
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(browser: Any, model_page: pathlib.Path, scheme: str) -> None:
    opened = Opened(browser, model_page, color_scheme=scheme)
    page = opened.page
    for view in VIEWS:
        page.click(f"#tab-{view}")
        found = page.evaluate(COLORS)
        assert len(found) > 30
        for text, back, what in found:
            one, other = sorted((luminance(text), luminance(back)))
            assert (other + 0.05) / (one + 0.05) >= 4.5, (view, what, text, back)
            assert (other == luminance(back)) == (scheme == "light") or "aria-pressed" in what
    page.close()


def test_a_program_of_nothing(browser: Any, tmp_path: pathlib.Path) -> None:
    jaxide.trace(lambda: ())().to_html(tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    for view in VIEWS:
        opened.page.click(f"#tab-{view}")
    assert opened.page.text_content("#peak") == "0 B in 0 values"
    assert "none" in opened.page.text_content("#by-line")
    assert opened.complaints == []
