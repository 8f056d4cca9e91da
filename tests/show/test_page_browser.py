"""The page in a browser: light and dark, tables, copying, without scripts, on paper; more in test_accepted_pages.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import browser, open_page
from test_whole_page import analyzed, picture

from npuperf.show.formats import View, render


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name in ("transformer_ascend_pt", "pipeline_job"):
        result = analyzed(name)
        drawn = picture(result.devices[0], {("operator", "Cumsum"): (7, 19)})
        made[name] = folder / f"{name}.html"
        made[name].write_text(render(result, "html", View(full=True, pictures=(drawn,))), "utf-8")
    return made


def test_the_button_turns_light_into_dark_and_back(opened: Any, pages: dict[str, Path]) -> None:
    page, _ = open_page(opened, pages["transformer_ascend_pt"], color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    dark = page.evaluate(paper)
    page.click("#theme")
    assert page.evaluate(paper) == light != dark
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(paper) == light  # what the reader said holds


def test_a_table_sorts_filters_and_opens(opened: Any, pages: dict[str, Path]) -> None:
    page, _ = open_page(opened, pages["transformer_ascend_pt"])
    operators = analyzed("transformer_ascend_pt").operators
    grid = page.locator("#operators .grid").first
    shown = grid.locator("tbody tr:visible")
    assert shown.count() == 10 < len(operators)

    def column(n: int) -> list[str]:
        return [cell.strip() for cell in grid.locator(f"tbody tr:visible > :nth-child({n})").all_text_contents()]

    headers = grid.locator("thead th").all_text_contents()
    most = headers.index("max (µs)") + 1
    grid.locator("thead button", has_text="max (µs)").press("Enter")
    slowest = sorted((o.max_ns for o in operators), reverse=True)
    assert [round(float(cell.replace(" ", "")) * 1000) for cell in column(most)] == slowest[:10]
    assert grid.locator("thead th").nth(most - 1).get_attribute("aria-sort") == "descending"
    assert "max" in page.locator("#live").inner_text()
    grid.locator("thead button", has_text="max (µs)").press("Enter")
    assert [round(float(cell.replace(" ", "")) * 1000) for cell in column(most)] == slowest[::-1][:10]
    grid.locator("thead button", has_text="type").click()
    assert column(1) == sorted((o.type for o in operators), key=str.lower)[:10]

    more = grid.locator(".more")
    assert more.inner_text() == f"show all {len(operators)} rows"
    more.click()
    assert shown.count() == len(operators) and more.get_attribute("aria-expanded") == "true"
    more.click()
    grid.locator("input").fill("matmul")
    wanted = [o.type for o in operators if "matmul" in o.type.lower()]
    assert sorted(column(1)) == sorted(wanted)
    assert f"{len(wanted)} of {len(operators)} rows" in grid.locator(".tools").inner_text()


def test_code_and_commands_are_copied(opened: Any, pages: dict[str, Path]) -> None:
    page, _ = open_page(opened, pages["pipeline_job"], permissions=["clipboard-read", "clipboard-write"])
    command = page.locator("#waiting .paste code").first.inner_text()
    assert command.startswith("npuperf analyze ") and command.endswith(" --rank 1")
    page.locator("#waiting .copy").first.click()
    page.wait_for_function("document.getElementById('live').textContent === 'copied'")
    assert page.evaluate("navigator.clipboard.readText()") == command


def test_copying_has_another_way(opened: Any, pages: dict[str, Path]) -> None:
    """Pages from files have no clipboard in some browsers."""
    page, _ = open_page(opened, pages["pipeline_job"])
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.locator("#waiting .copy").first.click()
    page.wait_for_function("document.getElementById('live').textContent !== ''")
    command = page.locator("#waiting .paste code").first.inner_text()
    assert page.evaluate("getSelection().toString()") == command


def test_without_scripts_everything_is_there_and_open(opened: Any, pages: dict[str, Path]) -> None:
    page, _ = open_page(opened, pages["transformer_ascend_pt"], java_script_enabled=False)
    rows = page.locator("#operators .grid").first.locator("tbody tr:visible")
    assert rows.count() == len(analyzed("transformer_ascend_pt").operators)
    assert page.get_by_text("the timeline needs scripts").is_visible()
    assert not page.locator("#theme").is_visible() and page.locator(".copy, .more").count() == 0


def test_paper_has_every_row_and_no_button(opened: Any, pages: dict[str, Path]) -> None:
    page, _ = open_page(opened, pages["transformer_ascend_pt"], viewport={"width": 1050, "height": 800})
    page.emulate_media(media="print", color_scheme="dark")
    rows = page.locator("#operators .grid").first.locator("tbody tr:visible")
    assert rows.count() == len(analyzed("transformer_ascend_pt").operators)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(":is(#theme, .copy, .go, .more, .tools, nav):visible").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1050


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_step_of_the_pipeline_fits_every_width(opened: Any, pages: dict[str, Path], scheme: str) -> None:
    """One of its two pictures is seen, within the screen; its letters stand within their blocks."""
    page, _ = open_page(opened, pages["pipeline_job"], color_scheme=scheme)
    for width in (1280, 800, 390):
        page.set_viewport_size({"width": width, "height": 800})
        (svg,) = [one for one in page.locator("#chart-pipeline-step svg.plot").all() if one.is_visible()]
        whole = svg.bounding_box()
        assert whole["x"] >= 0 and whole["x"] + whole["width"] <= width
        outside = svg.evaluate("""svg => {
            const boxes = [...svg.querySelectorAll("rect")].map((one) => one.getBoundingClientRect());
            return [...svg.querySelectorAll(".track-text")].filter((text) => {
                const at = text.getBoundingClientRect();
                return !boxes.some((box) => box.left <= at.left && at.right <= box.right && box.top < at.bottom);
            }).map((text) => text.textContent);
        }""")
        assert outside == []
        assert svg.locator(".track-text").count() >= 8  # of twelve blocks
