"""What is asked of pages and traces in an attack would tell what it is to tell."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from attempts import run
from looks import wrong_files, wrong_page, wrong_trace

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "micro_batch_ascend_pt"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("looks") / "pages"
    folder.mkdir()
    there = {"--html": "page.html", "--trace": "overlay.json", "--trace-full": "full.json.gz"}
    options = [word for option, name in there.items() for word in (option, str(folder / name))]
    assert run(["analyze", str(SAMPLE), *options]).code == 0
    return folder


def test_sound_files_are_fine(written: Path) -> None:
    assert len([*written.iterdir()]) == 3
    assert wrong_files(written, 0) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda page: page.replace("</main>", "<img src=x></main>"), "PAGE with <img>"),
        (lambda page: page.replace("<main ", "<main onclick=alert(1) "), "PAGE with <main onclick>"),
        (lambda page: page.replace("</main>", "<a href='http://x'>x</a></main>"), "PAGE with a way out: http://x"),
        (lambda page: page.replace("</main>", "<!-- x --></main>"), "PAGE with a comment"),
        (lambda page: page.replace("</main>", "<rect width=nan /></main>"), "PAGE with width=nan"),
        (lambda page: page.replace("</main>", "<p id=report></main>"), "PAGE with an id twice"),
        (lambda page: page.replace("</main>", "<script>x</script></main>"), "PAGE with 2 scripts"),
        (lambda page: page.replace('"use strict"', '"use sloppy"'), "PAGE with a script or style that its policy"),
        (lambda page: page.replace("</main>", "\x1b</main>"), "CONTROL PAGE U+001B"),
        (lambda page: page[:-100], "PAGE half-written"),
        (lambda page: page.replace("</main>", "x" * 2_000_000), "PAGE of 2"),
        (lambda page: page.replace('npuperf-data">H4sI', 'npuperf-data">AAAA'), "PAGE with data that cannot"),
    ],
)
def test_a_wrong_page_is_told(written: Path, tmp_path: Path, change: Callable[[str], str], words: str) -> None:
    sound = (written / "page.html").read_text("utf-8")
    changed = change(sound)
    assert changed != sound
    path = tmp_path / "page.html"
    path.write_text(changed, "utf-8")
    assert str(wrong_page(path)).startswith(words)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-100],
        lambda text: text.replace('"dur":', '"dur":NaN,"d":', 1),
        lambda text: text.replace('"ph":"X"', '"ph":"B"', 1),
        lambda text: text.replace("thread_name", "thread_title", 1),
        lambda text: text.replace('"dur":', '"dur":1234'),
    ],
)
@pytest.mark.parametrize("name", ["overlay.json", "full.json.gz"])
def test_a_wrong_trace_is_told(written: Path, tmp_path: Path, name: str, change: Callable[[str], str]) -> None:
    data = (written / name).read_bytes()
    sound = (gzip.decompress(data) if name.endswith("gz") else data).decode()
    changed = change(sound)
    assert changed != sound
    path = tmp_path / name
    path.write_bytes(gzip.compress(changed.encode()) if name.endswith("gz") else changed.encode())
    assert str(wrong_trace(path, overlay="overlay" in name)).startswith(f"TRACE {name}")


def test_what_is_left_behind_is_told(tmp_path: Path) -> None:
    (tmp_path / "tmp1234").touch()
    assert wrong_files(tmp_path, 0) == "LEFT BEHIND tmp1234"
    (tmp_path / "tmp1234").rename(tmp_path / "page.html")
    assert wrong_files(tmp_path, 5) == "WRITTEN page.html with 5"
