"""Links from code lines to files: only to the one that has the line and the function, and nothing in them bites."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sample_documents import result

from npuperf.show.formats import View, render
from npuperf.show.terminal import CodeFinder, address, linked

_LINK = re.compile("\x1b]8;;([^\x1b]*)\x1b\\\\([^\x1b]*)\x1b]8;;\x1b\\\\")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are searched for as long as that takes, whoever else wants the processor."""
    monkeypatch.setattr("npuperf.show.terminal._SECONDS", 600)


def program(path: Path, **functions: int) -> Path:
    """Write a program of 99 lines that has functions in some of them."""
    lines = ["pass"] * 99
    for name, number in functions.items():
        lines[number - 1] = f"def {name}(): pass"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), "utf-8")
    return path


def links(shown: str, *folders: Path) -> list[tuple[str, int, str]]:
    """Return what a screen is linked to: the path, the line, and the text that is the link."""
    said = linked(shown, CodeFinder(folders))
    assert _LINK.sub(r"\2", said) == shown  # nothing but links came in
    found = []
    for url, text in _LINK.findall(said):
        parts = urlsplit(url)
        assert parts.scheme == "file" and url.isascii() and url.isprintable()
        found.append((unquote(parts.path), int(parts.fragment), text))
    return found


def test_the_file_with_that_line_and_function_is_linked(tmp_path: Path) -> None:
    code = program(tmp_path / "src" / "net" / "model.py", forward=41)
    for shown in ("a model.py:41 forward, b", "net/model.py:41 forward", "net/model.py:41 forw…", "net/model.py:41"):
        ((path, line, text),) = links(shown, tmp_path)
        assert (path, line) == (str(code), 41) and text.removeprefix("net/") == "model.py:41"
    assert links(f"in {code}(41): forward", Path("/")) == [(str(code), 41, f"{code}(41):")]


def test_the_text_of_a_link_is_the_line(tmp_path: Path) -> None:
    code = program(tmp_path / "model.py", forward=41)
    assert links("at model.py:41 forward!", tmp_path) == [(str(code), 41, "model.py:41")]
    assert links("\x1b[33mmodel.py:7\x1b[0m 12", tmp_path) == [(str(code), 7, "model.py:7")]


@pytest.mark.parametrize(
    "shown",
    [
        "model.py:100 forward",  # it has no such line
        "model.py:0",
        "model.py:41 backward",  # nor such a function
        "model.py:41 for",
        "model.py:4…",  # it may be any line
        "model.py",
        "other.py:41 forward",
        "../model.py:41 backward",
        "site-packages/model.py:1",
    ],
)
def test_what_is_not_there_is_not_linked(shown: str, tmp_path: Path) -> None:
    program(tmp_path / "model.py", forward=41)
    assert links(shown, tmp_path) == []


def test_of_two_files_alike_neither_is_linked(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        program(tmp_path / folder / "model.py", forward=41)
    assert links("model.py:41 forward", tmp_path) == []
    assert links("one/model.py:41 forward", tmp_path) != []
    program(tmp_path / "other" / "model.py", backward=41)
    assert [path for path, _, _ in links("model.py:41 forward", tmp_path)] == [str(tmp_path / "one" / "model.py")]


def test_code_of_others_is_passed_over(tmp_path: Path) -> None:
    for folder in (".venv", "node_modules", "a_ascend_pt", "a/b/c/d"):
        program(tmp_path / folder / "model.py", forward=41)
    assert links("model.py:41 forward", tmp_path) == []


@pytest.mark.parametrize("name", ["a\x1b]0;t\x07", "a b#c?d%41", "文", "a\u202eb", "a\n", "a\udcff"])
def test_no_path_ends_a_link_or_begins_a_command(name: str, tmp_path: Path) -> None:
    code = program(tmp_path / name / "model.py", forward=41)
    url = address(code, 41)
    assert url.isascii() and url.isprintable() and " " not in url
    parts = urlsplit(url)
    assert unquote(parts.path, errors="surrogateescape") == str(code) and parts.fragment == "41"


def test_vs_code_is_given_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM_PROGRAM", "vscode")
    assert address(Path("/a/b.py"), 3) == "file:///a/b.py#3"
    monkeypatch.setenv("TERM_PROGRAM", "other")
    assert re.fullmatch("file://[^/]+/a/b.py#3", address(Path("/a/b.py"), 3))


@pytest.mark.parametrize("colour", [False, True])
def test_links_are_where_they_are_asked_for_and_change_nothing_else(colour: bool, tmp_path: Path) -> None:
    program(tmp_path / "model.py", mlp=90)
    code = tmp_path / "model.py"
    code.write_text(code.read_text("utf-8") + "\n" * 60, "utf-8")
    plain = render(result(), "text", View(width=80, colour=colour))
    with_links = render(result(), "text", View(width=80, colour=colour, links=(tmp_path,)))
    assert "\x1b]8" not in plain and _LINK.sub(r"\2", with_links) == plain
    found = {(unquote(urlsplit(url).path), text) for url, text in _LINK.findall(with_links)}
    assert found == {(str(code), "model.py:131")}
    for form in ("markdown", "csv", "json"):
        assert "\x1b" not in render(result(), form, View(links=(tmp_path,), colour=True))
