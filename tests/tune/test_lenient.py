"""Damaged files: only what is whole is kept, and no success is made of it."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from aoe_results import BARE, GROUPED, LISTED, SUBGRAPHS, read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from npuperf.base.errors import InputError
from npuperf.tune.results import Object, parse, read_results


def test_the_manual_s_own_mistakes(tmp_path: Path) -> None:
    """Its samples lack a comma, the outer brace, and have dots for what was left out."""
    text = json.dumps(SUBGRAPHS)
    no_comma = text.replace('], "update_repo_subgraphs"', '] "update_repo_subgraphs"')
    assert no_comma != text
    found = read(tmp_path, no_comma)
    assert len(found.entries) == 3 and found.recovered and found.status == "incomplete"
    assert "a missing comma at row 1" in str(found.warnings[0])
    no_brace = read(tmp_path, text[1:])
    assert len(no_brace.entries) == 3 and no_brace.recovered
    dots = read(tmp_path, text[:-1] + ', "report_2": [ ....... ] }')
    assert len(dots.entries) == 3 and dots.recovered


FRACTIONS = json.loads(json.dumps(LISTED).replace(": 32,", ": 58.781,").replace(": 44}", ": 44.25}"))
WITH_A_LIST = json.loads(json.dumps(GROUPED).replace('["conv2d"]', '["conv2d", "relu"]'))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("content", [LISTED, FRACTIONS, WITH_A_LIST, BARE, SUBGRAPHS])
def test_every_truncation_keeps_what_is_whole(tmp_path: Path, content: Any, indent: int | None) -> None:
    """Cut at every place: no error but a clear one, every value that of the whole file or not given, no success."""
    text = json.dumps(content, indent=indent)
    whole = read(tmp_path, content)
    twins: dict[tuple[object, ...], dict[str, object]] = {}
    for number, entry in enumerate(whole.entries):
        twins[number, entry.kind] = asdict(entry)
    seen = 0
    for end in range(len(text) - 1):
        if end and text[end - 1 : end + 1].isspace():
            continue  # among blanks, as before them
        try:
            found = read(tmp_path, text[:end])
        except InputError as error:
            assert "empty" in str(error) or "no tuning report" in str(error)
            continue
        assert found.recovered and found.status in ("incomplete", "nothing_to_tune", "failed"), end
        assert found.summary in (None, whole.summary), end
        assert found.tuning_time_s in (None, whole.tuning_time_s), end
        for number, entry in enumerate(found.entries):
            twin = twins[number, entry.kind]
            wrong = {k: v for k, v in asdict(entry).items() if v not in (None, (), twin[k]) and (k, v) not in NOT_GIVEN}
            assert not wrong, (end, wrong, twin)
        assert len(found.entries) >= seen
        seen = len(found.entries)
    assert seen == len(whole.entries)


#: How an entry says that it has no name, and that it is not known whether it is new.
NOT_GIVEN = {("name", "?"), ("change", "unknown")}


@pytest.mark.parametrize("damage", ["SoftmaxV2 once was here, or so", '"Soft\x00\x01max', '"SoftmaxV2'])
def test_one_damaged_row_is_one_line(tmp_path: Path, damage: str) -> None:
    """And no other row is lost to it: a text ends in its row."""
    text = json.dumps(LISTED, indent=1)
    assert text.count('"op_type": "SoftmaxV2"') == 1
    found = read(tmp_path, text.replace('"op_type": "SoftmaxV2"', '"op_type": ' + damage))
    assert [(e.name, e.after_us) for e in found.entries] == [("net/softmax", 32), ("net/dense", 10), ("net/dense", 8)]
    row = text[: text.index('"SoftmaxV2"')].count("\n") + 1
    (told,) = map(str, found.warnings)
    assert f"something that is not a value at row {row}," in told


def test_files_from_editors_and_crashes(tmp_path: Path) -> None:
    text = json.dumps(LISTED)
    assert len(read(tmp_path, "\ufeff" + text.replace(", ", ",\r\n")).entries) == 3
    two = read(tmp_path, text + "\n" + text)
    assert len(two.entries) == 6 and two.recovered
    assert any("2 documents in one file" in str(w) for w in two.warnings)
    for content, words in (("", "empty"), ("  \n", "empty"), ("[]", "no tuning report"), ("hello", "no tuning report")):
        with pytest.raises(InputError, match=words):
            read(tmp_path, content)
    (tmp_path / "binary.json").write_bytes(b"\x00\xff\xfe" * 50)
    with pytest.raises(InputError, match="no tuning report"):
        read_results([tmp_path / "binary.json"])


def test_nothing_is_guessed() -> None:
    """A number at the very end may be half of one."""
    (document,) = parse('{"a": 1, "b": 26.8').documents
    assert isinstance(document, Object) and document.members == [("a", 1)]
    assert parse('{"a": 1}').faults == []
    for half in (
        '{"a": 1, "b": 58.',
        '{"a": 1, "b": 58.7e',
        '{"a": 1, "b": 58.}',
        '{"a": 1, "b": nul',
        '{"a": 1, "b": -',
    ):
        (document,) = parse(half).documents
        assert document.members == [("a", 1)], half


def test_what_no_measurement_is(tmp_path: Path) -> None:
    """Infinite and undefined times are none; what is nested too deeply is refused, many faults are counted."""
    text = re.sub(r": 32\b", ": NaN", json.dumps(LISTED), count=1)
    assert "NaN" in text
    found = read(tmp_path, text)
    assert found.entries and all(e.after_us is None or e.after_us > 0 for e in found.entries)
    for deep in ("[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000):
        with pytest.raises(InputError):
            read(tmp_path, deep)
    parsed = parse("[" + "\n".join(map(str, range(20_000))) + "]")
    assert parsed.documents == [[*range(20_000)]] and len(parsed.faults) == 51


@given(st.integers(0, 2**32 - 1), st.sampled_from([LISTED, GROUPED]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_no_success(tmp_path: Path, seed: int, whole: Any) -> None:
    """Bytes cut out, doubled or changed: an error or a document, and no success that the whole file does not have."""
    source = random.Random(seed)
    data = bytearray(json.dumps(whole).encode())
    for _ in range(source.randint(1, 4)):
        at, kind = source.randrange(len(data)), source.randrange(3)
        if kind == 0:
            del data[at : at + source.randint(1, 40)]
        elif kind == 1:
            data[at:at] = data[at : at + source.randint(1, 40)]
        else:
            data[at] = source.randrange(256)
    file = tmp_path / "aoe_result_opat_1_pid1.json"
    file.write_bytes(bytes(data))
    try:
        found = read_results([file])
    except InputError:
        return
    if found.status == "successful":
        assert not found.recovered
        assert b"success" in bytes(data)
