"""A browser for tests of pages, where the machine has one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Longer than a browser takes for anything, on any machine, ms.
PATIENCE = 180_000


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a browser; without one the test is skipped and says so."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install '.[dev]')")
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"needs a browser: none of {', '.join(_NAMES)}")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=PATIENCE)
        try:
            yield opened
        finally:
            opened.close()


def open_page(browser: Any, file: Path, **context: Any) -> tuple[Any, list[str]]:
    """Open a file and wait for its scripts; return the page, and what the console complains of, then and later."""
    page = browser.new_context(**context).new_page()
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request", lambda asked: complaints.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None
    )
    page.goto(file.as_uri())
    if context.get("java_script_enabled", True):
        page.wait_for_function("'ready' in document.documentElement.dataset")
    return page, complaints
