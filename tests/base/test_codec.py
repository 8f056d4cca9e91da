"""What is packed comes back as it was: every type, every bit, and what was one object is one."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from build import H, K, ascend_pt
from conversion import to_db
from hypothesis import given
from hypothesis import strategies as st
from inputs import KERNELS, database, op_summary

from npuperf.base.codec import pack, unpack
from npuperf.base.messages import Message, Quantity, Series, ns, plain, say, say_n, series, share
from npuperf.model.document import Document
from npuperf.model.labels import Labels
from npuperf.model.result import Result
from npuperf.model.tasks import NO_TIME
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def back(value: object) -> Any:
    """The value after its way to the disk and back."""
    return unpack([memoryview(bytes(piece)) for piece in pack(value)])


def assert_same(a: Any, b: Any, where: str = "") -> None:
    """Compare types and bits of everything that either has."""
    assert type(a) is type(b), where
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        assert a.tobytes() == b.tobytes(), where
    elif isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b), where
    elif isinstance(a, Message):
        for name in ("id", "plural", "n", "_parameters"):
            assert_same(getattr(a, name), getattr(b, name), f"{where}.{name}")
    elif is_dataclass(a):
        for field in fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}")
    elif isinstance(a, msgspec.Struct):
        for name in a.__struct_fields__:
            assert_same(getattr(a, name), getattr(b, name), f"{where}.{name}")
    elif isinstance(a, dict):
        assert_same(list(a.items()), list(b.items()), where)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{i}]")
    else:
        assert a == b, where


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, 1, -1, 1.0, -0.0, math.inf, math.nan, (1 << 63) - 1, -(1 << 63), "", "é\0\n", [], (), {},
        [1, [2.0, (3, [])]], (1, (2,)), {"a": (1, 2), 3: [None], None: {}}, {1: "int", "1": "text"}, [True, 1, 1.0],
        tuple(map(str, range(1000))), ("",) * 300, (*map(str, range(300)), 5), list(map(str, range(1000))),
        say("{a} {b}", a=ns(5, 7.5), b=None), say_n("one", "{n} of {x}", 3, x=series([1, "b", say("c")])),
        Quantity(math.nan, "share"), Series((Quantity(1, "ns", 2),), "–"), [say("x"), {"k": say("y", n=1)}],
    ],
)  # fmt: skip
def test_values(value: object) -> None:
    assert_same(back(value), value)


SCALARS = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | st.text()
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.integers(-9, 9) | st.text(), inner),
)


@given(ANYTHING)
def test_values_of_any_shape(value: object) -> None:
    assert_same(back(value), value)


@pytest.mark.parametrize("dtype", ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])
@pytest.mark.parametrize("length", [0, 1, 2, 33, 5000])
def test_columns_of_every_kind_keep_every_bit(dtype: str, length: int) -> None:
    rng = np.random.default_rng(7)
    kind = np.dtype(dtype)
    flags = rng.integers(0, 2, length).astype(np.bool_)
    column = flags if dtype == "bool" else np.frombuffer(rng.bytes(length * kind.itemsize), kind)  # also not-a-numbers
    assert_same(back((column, column[::2], column[::-1])), (column, column[::2], column[::-1]))


@pytest.mark.parametrize(
    "column",
    [
        [NO_TIME, 0, (1 << 63) - 1],
        [-1] * 1000,
        [NO_TIME] * 1000,
        [(1 << 63) - 1, NO_TIME] * 500,
        range(10**18, 10**18 + 9),
    ],
)
def test_times_at_the_ends_of_what_there_is(column: list[int]) -> None:
    assert back(np.array(column, np.int64)).tolist() == list(column)


def test_columns_are_owned_and_can_be_written_as_after_reading() -> None:
    column = back(np.arange(3))
    column[0] = 9
    assert column.tolist() == [9, 1, 2]
    assert column.base is None


def test_what_was_one_object_is_one() -> None:
    labels = Labels.of(["a", None, "b"])
    first, second, other, codes = back((labels, labels, Labels.of(["a", None, "b"]), labels.codes))
    assert first is second
    assert first is not other
    assert first.codes is codes


@dataclass(frozen=True)
class Foreign:
    """A dataclass of somebody else."""

    value: int = 1


class Number(int):
    """A number that is more than a number."""


@pytest.mark.parametrize(
    "value",
    [
        Foreign(), Number(1), {1, 2}, frozenset(), b"bytes", Path("x"), datetime(2025, 1, 1), 1 << 64, "\ud800",
        np.float64(1), np.int64(1), np.zeros((2, 2)), np.array(5), np.array(["a"]), np.array([object()]),
        np.arange(3, dtype=">i8"), np.array(["2025"], "M8[ns]"), np.zeros(2, np.complex64), print, int, say,
    ],
)  # fmt: skip
def test_what_cannot_come_back_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        pack([value])


@pytest.mark.parametrize(
    "name", ["os:system", "builtins:eval", "npuperf.base.files:os", "npuperf.base.files:shown", "npuperf:x"]
)
def test_no_name_makes_anything_but_values(name: str) -> None:
    tree = msgspec.msgpack.encode([[[name, "command"]], [3, 0, "true"]])
    with pytest.raises((TypeError, AttributeError)):
        unpack([memoryview(tree)])


def test_a_type_with_other_fields_is_refused() -> None:
    tree = msgspec.msgpack.encode([[["npuperf.model.labels:Labels", "codes"]], [3, 0, None]])
    with pytest.raises(TypeError):
        unpack([memoryview(tree)])


def recording_of(path: Path) -> object:
    found = open_recording(path, keep=True)
    return found.map(lambda reading: (reading.log, reading.profiles))


@pytest.mark.parametrize("sample", sorted(p.name for p in SAMPLES.glob("[!.]*")))
def test_readings_of_every_sample(sample: str) -> None:
    read = recording_of(SAMPLES / sample)
    assert_same(back(read), read)


@pytest.mark.parametrize("sample", sorted(p.name for p in SAMPLES.glob("*_ascend_pt")))
def test_readings_of_databases(sample: str, tmp_path: Path) -> None:
    to_db(SAMPLES / sample, tmp_path / "db_ascend_pt")
    read = recording_of(tmp_path)
    assert_same(back(read), read)


MADE_UP: list[Callable[[Path], Path]] = [
    lambda folder: op_summary(folder / "op_summary_20250101120000.csv", KERNELS),
    lambda folder: op_summary(folder / "op_summary_20250101120000.csv", KERNELS[:1]),
    lambda folder: ascend_pt(folder, [K(0, 10, launch=-5)], host=[H("aten::add", -20, 30, python=True)]),
    lambda folder: database(folder / "msprof_20250101120000.db", KERNELS, "blockDim") or folder,
]


@pytest.mark.parametrize("make", MADE_UP)
def test_readings_of_made_up_profiles(make: Callable[[Path], Path], tmp_path: Path) -> None:
    read = recording_of(make(tmp_path))
    assert_same(back(read), read)


def test_the_log_of_a_reading() -> None:
    log = ReadLog(kineto=True, events=5)
    log.use("a", "b")
    log.lose("a", 3, say("why"))
    log.warn(say_n("{n} row", "{n} rows", 2))
    log.missing.append(say("{what}: {consequence}", what="x", consequence=say("y")))
    assert_same(back(log), log)


def test_results_of_every_kind(everything: dict[str, Document]) -> None:
    results = [document for document in everything.values() if isinstance(document, Result)]
    assert len(results) > 3
    for result in results:
        assert_same(back(result), result)


def test_a_message_has_its_words_numbers_and_units_in_json() -> None:
    lost = say_n("{n} row", "{n} rows of {file}", 2, file="a.csv", part=share(0.1, 0.2))
    whole = say("{what}: {times}", what=lost, times=series([ns(5), None, "x"], by="; "))
    inner = {"n": {"value": 2, "unit": "count"}, "file": "a.csv", "part": {"low": 0.1, "high": 0.2, "unit": "share"}}
    assert plain(whole) == {
        "id": "{what}: {times}",
        "parameters": {
            "what": {"id": "{n} row", "parameters": inner, "plural": "{n} rows of {file}", "n": 2},
            "times": [{"value": 5, "unit": "ns"}, None, "x"],
        },
        "by": {"times": "; "},
    }
