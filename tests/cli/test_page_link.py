"""Markdown leads to the page that is written beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_cli

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "transformer_ascend_pt"


def first_link(markdown: str) -> str:
    return next(line for line in markdown.splitlines() if line.startswith("[")).rpartition("(")[2].rstrip(")")


def test_markdown_on_the_screen_leads_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli(["analyze", str(SAMPLE), "--format", "markdown", "--html", "my (r): 1.html"])
    assert first_link(done.stdout) == "my%20%28r%29%3A%201.html"
    assert (tmp_path / "my (r): 1.html").is_file()


def test_the_link_is_seen_from_the_markdown(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    told, page = tmp_path / "a" / "m.md", tmp_path / "b" / "r.html"
    run_cli(["analyze", str(SAMPLE), "--format", "markdown", "-o", str(told), "--html", str(page)])
    assert (told.parent / first_link(told.read_text("utf-8"))).resolve() == page


def test_without_a_page_there_is_no_link() -> None:
    assert "](" not in run_cli(["analyze", str(SAMPLE), "--format", "markdown"]).stdout
