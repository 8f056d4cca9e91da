"""Values that are not handed to typer's converter: the same as those that are, and the same words for wrong ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main

from npuperf.cli import app
from npuperf.cli.command_line import _Converter

TAKEN: dict[str, list[list[str]]] = {
    "analyze": [
        [],
        ["somewhere"],
        ["a folder/with 'quotes' and ümläuts"],
        ["--top", "3", "--step", "0012"],
        ["--top", "1_000"],
        ["--top", " 7 "],
        ["--step", "-4"],
        ["--step", "12345678901"],
        ["--what-if", "host*0.5", "--what-if", "", "--full"],
        ["--before", ".", "--plog", "/", "-o", "no/such/file", "--force"],
        ["--soc", "not text \udcff"],
        ["--what-if", "\udcff"],
        ["--before", "\udcff"],
        ["--cores", "", "--soc", "Ascend910B1", "--format", "json", "--debug"],
    ],
    "tune": [
        [],
        ["--diff", "a", "b", "--timeout", "0.5"],
        ["--timeout", "3", "--parallel", "32", "--top", "1"],
        ["--aoe-arg=--x", "--mode", "op", "--", "python", "train.py"],
    ],
    "profile": [
        [],
        ["--wait", "2", "-m", "package.train", "--lr", "0.1"],
        ["--no-aicpu", "--gc-threshold", "1e1", "t.py"],
    ],
}
REFUSED: dict[str, list[list[str]]] = {
    "analyze": [
        ["--top", "0"],
        ["--top", "three"],
        ["--top", "1.5"],
        ["--top", ""],
        ["--top", "٣x"],
        ["--workers", "-1"],
        ["--step", "9" * 5000],
    ],
    "tune": [["--parallel", "33"], ["--timeout", "-1"], ["--device", "x"]],
    "profile": [["--wait", "0", "train.py"], ["--gc-threshold", "soon", "train.py"]],
}


def lines(cases: dict[str, list[list[str]]]) -> list[tuple[str, list[str]]]:
    return [(verb, line) for verb, lines in cases.items() for line in lines]


def read(verb: str, line: list[str]) -> Any:
    """The parameters that a command is called with, or what is said instead."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("npuperf", [verb])
    try:
        return group.commands[verb].make_context(verb, [*line], parent=context).params
    except Exception as error:
        return getattr(error, "exit_code", None)


@pytest.mark.parametrize(("verb", "line"), lines(TAKEN))
def test_it_is_as_typer_has_it(verb: str, line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    spared = read(verb, line)
    monkeypatch.setattr("npuperf.cli.command_line.spare", lambda parameters: parameters)
    plain = read(verb, line)
    assert spared == plain and isinstance(plain, dict)
    assert {k: type(v) for k, v in spared.items()} == {k: type(v) for k, v in plain.items()}
    assert [list(map(type, v)) for v in spared.values() if isinstance(v, list | tuple)] == [
        list(map(type, v)) for v in plain.values() if isinstance(v, list | tuple)
    ]


@pytest.mark.parametrize(("verb", "line"), lines(REFUSED))
def test_what_typer_refuses_is_refused(verb: str, line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(verb, line) == 2
    monkeypatch.setattr("npuperf.cli.command_line.spare", lambda parameters: parameters)
    assert read(verb, line) == 2


def test_an_unreadable_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By typer; whoever runs the tests may be allowed to read everything."""
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    spared = read("analyze", [str(tmp_path)])
    monkeypatch.setattr("npuperf.cli.command_line.spare", lambda parameters: parameters)
    assert spared == read("analyze", [str(tmp_path)]) == 2


def test_a_path_needs_no_converter(tmp_path: Path) -> None:
    """Whether there is something, or not yet."""
    param = SimpleNamespace(type_descriptor=SimpleNamespace(annotation=Path))
    for path in (tmp_path, tmp_path / "not-yet"):
        assert _Converter(lambda: pytest.fail("made")).coerce(str(path), param, None) == path
