"""Heat maps in a real browser: what is drawn, what a cell says, keys, layers, and where a click leads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npuperf.base.messages import say
from npuperf.show.html import CHART_WORDS
from npuperf.show.language import speaking, text
from npuperf.show.matrix import Matrix, layer

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium to show pages in")

FOLDER = Path(__file__).resolve().parents[2] / "npuperf" / "show" / "assets"
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><style>{css} body {{ margin: 0; }}</style>
<canvas data-matrix="0"></canvas><script>"use strict"; {js}
window.went = [];
document.addEventListener("npuperf:go", (event) => window.went.push(event.detail));
window.picture = matrixStart(document.querySelector("canvas"), {matrix}, {words});
</script></html>"""


def matrix(rows: int = 3, columns: int = 4, **more: Any) -> Matrix:
    """Row · 10 + column in the first layer, of which (0, 0) is nothing and the last cell is not known."""
    values: list[list[float | None]] = [[float(10 * r + c) for c in range(columns)] for r in range(rows)]
    values[-1][-1] = None
    rates: list[list[float | None]] = [[1.0] * columns for _ in range(rows)]
    names = [str(r) for r in range(rows)], [str(c) for c in range(columns)]
    layers = (layer(say("step time"), "ns", values, *names), layer(say("speed"), "gb_s", rates, *names))
    found = tuple(one for one in layers if one is not None)
    return Matrix(
        say("ranks and steps"), say("rank"), say("step"), tuple(names[0]), tuple(names[1]), found, **more
    )  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """A function that shows a matrix; nothing may be said on the console by the end."""
    pages, said = [], []

    def show(drawn: Matrix, width: int = 700, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        pages.append(page)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        with speaking("en"):
            words = {name: text(message) for name, message in CHART_WORDS.items()}
            packed = json.dumps(drawn.packed()).replace("<", "\\u003c")
        css = "".join((FOLDER / name).read_text("utf-8") for name in ("palette.css", "charts.css"))
        js = "".join((FOLDER / name).read_text("utf-8") for name in ("basics.js", "matrix.js"))
        page.set_content(PAGE.format(css=css, js=js, matrix=packed, words=json.dumps(words)))
        return page

    yield show
    for page in pages:
        page.close()
    assert [one for one in said if "willReadFrequently" not in one] == []  # which is about how these tests look


def colour(page: Any, row: int, column: int) -> list[int]:
    """The colour at the middle of a cell, a little beside what may be struck through it."""
    found: list[int] = page.evaluate(
        """([row, column]) => { const p = window.picture; const [x, y] = p.corner(row, column);
        return [...p.canvas.getContext("2d").getImageData(x + p.wide / 4, y + p.high / 4, 1, 1).data].slice(0, 3); }""",
        [row, column],
    )
    return found


def middle(page: Any, row: int, column: int) -> tuple[float, float]:
    x, y = page.evaluate(
        """([row, column]) => { const p = window.picture; const [x, y] = p.corner(row, column);
        const at = p.canvas.getBoundingClientRect();
        return [at.left + (x + p.wide / 2) / p.ratio, at.top + (y + p.high / 2) / p.ratio]; }""",
        [row, column],
    )
    return x, y


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_more_is_further_from_the_paper(opened: Any, scheme: str) -> None:
    """Nothing and not known have colours of their own."""
    page = opened(matrix(), scheme=scheme)
    paper, nothing = colour(page, 2, 3), colour(page, 0, 0)
    least, some, most = colour(page, 0, 1), colour(page, 1, 1), colour(page, 2, 2)
    apart = [abs(sum(one) - sum(paper)) for one in (nothing, least, some, most)]
    assert apart == sorted(apart) and len(set(apart)) == 4


def test_pointing_says_what_a_cell_is(opened: Any) -> None:
    page = opened(matrix())
    page.mouse.move(*middle(page, 1, 2))
    assert page.inner_text(".matrix-tip") == "rank 1, step 2: 12 ns"
    page.mouse.move(*middle(page, 2, 3))
    assert page.inner_text(".matrix-tip") == "rank 2, step 3: not known"
    page.mouse.move(1, 1)
    assert not page.is_visible(".matrix-tip")


def test_keys_go_from_cell_to_cell_and_say_it(opened: Any) -> None:
    page = opened(matrix())
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "End", "ArrowRight", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
        said.append(page.inner_text(".matrix-said"))
    where = ["rank 0, step 0: 0 ns", "rank 0, step 1: 1 ns", "rank 1, step 1: 11 ns", "rank 1, step 3: 13 ns"]
    assert said == [*where, where[-1], "rank 0, step 3: 3 ns", "rank 0, step 3: 3 ns"]
    assert page.get_attribute(".matrix-said", "role") == "status"
    label = page.get_attribute("canvas", "aria-label")
    assert "least 1 ns (0, 1), most 22 ns (2, 2)" in label and "arrow keys" in label


def test_layers_are_chosen(opened: Any) -> None:
    page = opened(matrix())
    before = colour(page, 0, 1)
    page.mouse.click(*middle(page, 0, 1))
    page.get_by_label("speed").check()
    assert page.inner_text(".matrix-said") == "rank 0, step 1: 1 GB/s"
    assert colour(page, 0, 1) != before
    assert colour(page, 0, 1) == colour(page, 1, 1)  # all speeds are one
    assert page.inner_text(".matrix-scale") == "alike: none is farther than 1.0 % from the middle"
    assert page.locator(".matrix-scale").inner_text().count("not known") == 0


def test_a_click_leads_to_the_timeline(opened: Any) -> None:
    page = opened(matrix(places=((5, "2:100:300"),)))
    page.mouse.click(*middle(page, 1, 1))
    page.mouse.click(*middle(page, 1, 2))
    assert page.evaluate("window.went") == [{"picture": 2, "start": 100, "end": 300}]
    page.focus("canvas")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    assert len(page.evaluate("window.went")) == 2


def test_marked_cells_say_so(opened: Any) -> None:
    page = opened(matrix(marked=(6,), marks=say("slow link")))
    page.mouse.move(*middle(page, 1, 2))
    assert page.inner_text(".matrix-tip") == "rank 1, step 2: 12 ns (slow link)"
    assert "slow link" in page.inner_text(".matrix-scale")


@pytest.mark.parametrize("width", [400, 2560])
def test_a_thousand_rows_fit_and_are_about_right(opened: Any, width: int) -> None:
    """Cells of one pixel at least; a value is told to a two hundredth of the scale, and its ends exactly."""
    page = opened(matrix(1024, 60), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.picture.high >= 1 && window.picture.wide >= 1")
    page.focus("canvas")
    for key in ("ArrowDown", "PageDown"):
        page.keyboard.press(key)
    said = page.inner_text(".matrix-said")
    assert said.startswith("rank 10, step 0: about ")
    value, unit = said.rsplit(" ", 2)[1:]
    assert unit == "ns" and float(value) == pytest.approx(100, abs=10_289 / 253)


def test_names_are_text(opened: Any) -> None:
    hostile = "<img src=x onerror=alert(1)>{other}"
    one = layer(say("{n}", n=hostile), "ns", [[7]], (hostile,), ("0",))
    assert one is not None
    named = Matrix(say("{n}", n=hostile), say("rank"), say("step"), (hostile,), ("0",), (one,))
    page = opened(named)
    page.focus("canvas")
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".matrix-said") == f"rank {hostile}, step 0: 7 ns"
    assert page.locator("img").count() == 0


def test_the_theme_of_the_page_is_followed(opened: Any) -> None:
    page = opened(matrix())
    before = colour(page, 2, 2)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function(
        """(before) => { const p = window.picture; const [x, y] = p.corner(2, 2);
        return p.canvas.getContext("2d").getImageData(x + p.wide / 4, y + p.high / 4, 1, 1).data[0] !== before; }""",
        arg=before[0],
    )
