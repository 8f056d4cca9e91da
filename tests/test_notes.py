"""Small notes in JSON and YAML: one bad value costs that value, and what is none is refused in a clear line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npuperf.base import notes
from npuperf.base.errors import InputError
from npuperf.base.notes import read_note, read_object, read_yaml


def note(folder: Path, content: bytes | str) -> Path:
    path = folder / "note"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "9" * 5000, "-" + "9" * 21])
def test_a_number_that_is_none_costs_itself(tmp_path: Path, value: str) -> None:
    assert read_note(note(tmp_path, f'{{"a": {value}, "b": 18446744073709551615}}')) == {"a": None, "b": 2**64 - 1}


def test_marks_and_damaged_characters_cost_themselves(tmp_path: Path) -> None:
    path = note(tmp_path, b'\xef\xbb\xbf{"a": "\xff\\ud800x", "b": "\\ud83d\\ude00", "c": ["\\uDFFF"]}')
    assert read_note(path) == {"a": "\ufffd\ufffdx", "b": "\U0001f600", "c": ["\ufffd"]}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[1]", "not a JSON object"),
        ("", "Expecting value"),
        ('{"a": 1', "Expecting"),
    ],
)
def test_what_is_no_note_is_said(tmp_path: Path, content: str, why: str) -> None:
    path = note(tmp_path, content)
    with pytest.raises(InputError, match=why) as caught:
        read_note(path)
    assert str(path) in str(caught.value)
    assert read_object(path) == {}


def test_a_note_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = note(tmp_path, json.dumps({"a": "x" * 1000}))
    monkeypatch.setattr(notes, "_MOST_JSON", path.stat().st_size)
    assert read_note(path) == {"a": "x" * 1000}
    monkeypatch.setattr(notes, "_MOST_JSON", path.stat().st_size - 1)
    with pytest.raises(InputError, match="larger than"):
        read_note(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a: 1\nb: !!int x\n", "row 2: 'x': invalid literal"),
        ("a: 2024-13-45\n", "row 1: '2024-13-45': month must be in 1..12"),
        ("a: !!timestamp x\n", "row 1: 'x': "),
        ("a: !!bool x\n", "row 1: 'x': "),
        ("a: !!int ''\n", "row 1: '': "),
        ("a: " + "9" * 5000, "row 1: '9{60}…': Exceeds the limit"),
        ("a: !!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
        ("? [a]\n: b\n", "unhashable"),
        ("a: &x 1\nb: *x\n", r"row 2: \*x: aliases are not taken\n  next: write the value out"),
        ("a: 1\nc: 1\na: 2\n", "row 3: 'a': given twice"),
        ("x:\n- b: 1\n  b: 1\n", "row 3: 'b': given twice"),
        ("a:\n" + "[" * 100, "row 2: nested too deeply"),
        ("a:\n" + "[" * 60_000, "cannot be read as YAML"),
        ("- a\n", "not a mapping"),
        ("", "not a mapping"),
        ("a: \x07\n", "cannot be read as YAML"),
        (b"a: \xff\n", "cannot be read as YAML"),
        ("a: [1\n", "cannot be read as YAML"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_row(tmp_path: Path, content: bytes | str, why: str) -> None:
    path = note(tmp_path, content)
    with pytest.raises(InputError, match=why) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value)


def test_laughs_are_refused_before_they_are_counted(tmp_path: Path) -> None:
    laughs = "a0: &a0 [ha, ha]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    with pytest.raises(InputError, match=r"row 2: .*aliases"):
        read_yaml(note(tmp_path, laughs))


def test_plain_yaml_is_read(tmp_path: Path) -> None:
    text = "\ufeffdescription: >\n  some\n  words\nanalyze: {top: 3, full: true}\nrules: [a, b]\n? !!str 1\n: 2.5\n"
    wanted = {"description": "some words\n", "analyze": {"top": 3, "full": True}, "rules": ["a", "b"], "1": 2.5}
    assert read_yaml(note(tmp_path, text)) == wanted
