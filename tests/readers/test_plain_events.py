"""What the compiled reader takes is what the decoder makes of the same bytes, on every input; the rest it leaves."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from build import K, events
from hypothesis import example, given, settings
from hypothesis import strategies as st
from odd_traces import ANYTHING, ARGUMENTS, USUAL, mutated, odd_trace
from test_damage import mutate
from ways import decoded_only, told

from npuperf.readers import pieces, plain_events
from npuperf.readers.cells import nanoseconds
from npuperf.readers.pieces import Event, decoded
from npuperf.readers.plain_events import PlainEvents, PlainReader, Words, durations
from npuperf.readers.trace import SLICE_TEXTS

SOURCE = Path(plain_events.__file__).with_name("plain_events.c")
COMPILER = shlex.split(os.environ.get("CC", "cc"))
DRIVER = Path(__file__).with_name("plain_driver.c")
ROOT = Path(__file__).resolve().parents[2]
REAL = ROOT.parent / "shared" / "data"
PACKED = sorted((REAL / "hta").glob("*.json.gz"))
TRACES = sorted(path for place in (ROOT / "samples", REAL) for path in place.rglob("*trace*.json"))
ODD = [
    '"ts": 1700000000000000.123', '"ts": null', '"ts": "12"', '"ts": "x"', '"dur": "1.5"', '"dur": 1e999',
    '"dur": NaN', '"dur": -3', '"dur": true', '"pid": "Spans"', '"pid": 1.5', '"pid": true',
    '"pid": 99999999999999999999', '"tid": "7"', '"tid": null', '"tid": 140000000000000', '"id": 1.5',
    '"id": "x"', '"id": 340282366920938463463374607431768211456', '"name": null', '"name": ""',
    '"name": "a\\u0062}, {"', '"name": "\\ud800"', '"cat": 5', '"cat": null', '"ph": "C"', '"ph": 1',
    '"args": []', '"args": null', '"args": {"connection_id": "7", "Task Type": 5}',
    '"args": {"connection_id": 1.0, "list": [{"a": 1}, {"b": 2}]}',
]  # fmt: skip
KERNELS = [K(i * 10_000, 2_500 + i, f"k{i % 7}", launch=i * 10_000 - 5_000) for i in range(12)]
MADE = [json.dumps(e) for e in events(KERNELS, {11: (0, 10**6)})]

if not plain_events.compiled_source() and shutil.which(COMPILER[0]) is None:
    pytest.skip("needs a C compiler", allow_module_level=True)


class Counted:
    """How many events the compiled reader read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.events = 0
        self._read = PlainReader.read
        patch.setattr(PlainReader, "read", lambda reader, text, any_times: self.read(reader, text, any_times))

    def read(self, reader: PlainReader, text: bytes, any_times: bool) -> PlainEvents | None:
        found = self._read(reader, text, any_times)
        self.events += 0 if found is None else found.events
        return found


def each_way_told(path: Path, size: int) -> tuple[list[Any], list[Any], int]:
    """What is told in pieces of ``size`` bytes, compiled and decoded, and how many events were read compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", size)
        counted = Counted(patch)
        compiled = told(path)
        decoded_only(patch)
        return compiled, told(path), counted.events


def same(path: Path, data: bytes | str, size: int) -> int:
    """Assert that both ways tell the same of some bytes; return how many events were read compiled."""
    path.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    compiled, otherwise, count = each_way_told(path, size)
    assert compiled == otherwise
    return count


def reader() -> PlainReader:
    words = {name: Words() for name in (*SLICE_TEXTS, "arrow")}
    made = plain_events.plain_reader(words, ["HostToDevice", "async_npu"])
    assert made is not None
    return made


# ---- it is there ----


def test_the_library_is_made_of_this_source() -> None:
    again = "run pip install -e . again: the compiled reader is another source's, or none"
    assert plain_events.compiled_source() == hashlib.sha256(SOURCE.read_bytes()).hexdigest(), again


def test_what_decodes_only_does_not_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_text(f"[{', '.join(MADE)}]")
    monkeypatch.setattr(pieces, "PIECE_BYTES", 500)
    counted = Counted(monkeypatch)
    told(path)
    assert counted.events == len(MADE) - 1  # the last one is followed by none
    decoded_only(monkeypatch)
    told(path)
    assert counted.events == len(MADE) - 1


@pytest.mark.parametrize("share", [0.0, 0.002, 0.01, 0.2, 0.5, 0.9, 0.999])
def test_a_library_that_is_cut_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """Loaded all the same it would kill the process."""
    data = plain_events.LIBRARY.read_bytes()
    assert not data.startswith(b"\x7fELF") or library_at(tmp_path / "whole.so", data, monkeypatch) is not None
    cut = data[: int(share * len(data))]
    assert library_at(tmp_path / "cut.so", cut, monkeypatch) is None


def test_a_library_of_something_else_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(plain_events.LIBRARY.read_bytes())
    other = bytes([*data[:18], 0xFF, 0xFF, *data[20:]])  # ELF: of another processor
    assert library_at(tmp_path / "other.so", other, monkeypatch) is None
    assert library_at(tmp_path / "text.so", b"no library at all " * 90, monkeypatch) is None
    assert (
        library_at(tmp_path / "renamed.so", bytes(data.replace(b"plain_read\0", b"plain_rEAd\0")), monkeypatch) is None
    )
    (tmp_path / "folder.so").mkdir()
    for path in (tmp_path / "folder.so", tmp_path / "absent.so"):
        monkeypatch.setattr(plain_events, "LIBRARY", path)
        assert plain_events._library.__wrapped__() is None


def test_a_library_with_another_idea_of_the_arrays_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain_events._library.__wrapped__() is not None
    monkeypatch.setattr(plain_events, "_FLOWS", plain_events._FLOWS[:-1])
    assert plain_events._library.__wrapped__() is None


def library_at(path: Path, data: bytes, patch: pytest.MonkeyPatch) -> Any:
    """What is loaded of these bytes."""
    path.write_bytes(data)
    patch.setattr(plain_events, "LIBRARY", path)
    return plain_events._library.__wrapped__()


# ---- recorded traces ----


@pytest.mark.parametrize("size", [3_000, 1 << 16])
@pytest.mark.parametrize("path", [*TRACES, *PACKED], ids=lambda path: f"{path.parent.parent.name}/{path.name}")
def test_recorded_traces_are_read_compiled(path: Path, size: int, tmp_path: Path) -> None:
    data = path.read_bytes()
    plain = gzip.decompress(data) if path.suffix == ".gz" else data
    made = json.loads(plain)
    made = made["traceEvents"] if isinstance(made, dict) else made
    size = max(size, len(plain) // 600)
    used = tmp_path / "trace.json"
    used.write_bytes(plain)
    compiled, otherwise, count = each_way_told(used, size)
    assert compiled == otherwise
    if len(plain) > 10 * size:
        assert count >= 0.9 * len(made)


# ---- by hand ----


def test_columns_of_a_piece_by_hand() -> None:
    first = (
        '{"ph": "X", "name": "MEMCPY_ASYNC", "pid": 1, "tid": 5000000000, "ts": "1736413971558972.9125", "dur": 0.0015,'
        ' "cat": "cpu_op", "args": {"connection_id": "7", "operation": "d2h", "size(B)": 64, "stream": 3, "Task Type": '
        '"AI_CORE"}}'
    )
    second = '{"ph":"X","name":"a","ts":"5.0005","dur":2.1500000000000004,'
    second += '"args":{"operation":"no copy","Call stack":"\\u0061"}}'
    third = (
        '{"ph":"X","name":"Notify_Wait","ts":"6","dur":1,"args":{"src rank":0,"dst rank":5,"size(Byte)":0}},'
        '{"ph":"X","name":"Memcpy","ts":"7","dur":1,"args":{"src rank":0,"dst rank":0,"size(Byte)":5000000000}},'
        '{"ph":"X","name":"Reduce_Inline","ts":"8","dur":1,"args":{"src rank":0,"dst rank":4294967295}},'
        '{"ph":"X","name":"hcom","ts":"9","dur":1,"args":{"count":4097000,"data_type":"FP32","size(Byte)":null}}'
    )
    wide = '{"ph":"s","cat":"async_npu","id":"40004631069296951295","pid":1,"tid":2,"ts":"3"}'
    small = '{"ph":"f","cat":"async_npu","id":5,"pid":-1,"tid":null,"ts":"4.0019"}'
    other = '{"ph":"f","cat":"nobody\'s","id":[],"pid":1,"tid":2,"ts":"3"}'.replace("[]", "6")
    meta = '{"ph":"M","name":"process_name","pid":1,"args":{"name":"é"}}'
    counter = '{"ph":"C","name":"HBM","ts":"3","args":{"x":1}}'
    clock = '{"ph":"C","name":"AI Core Freq","ts":"3","args":{"MHz":1650}}'
    head = ", ".join([first, second, third, wide, small, other, meta, counter, clock])
    found = reader().read(f' {head} ,\n{{"ph":"X","name":"cut'.encode(), False)
    assert found is not None
    assert (found.events, found.closed, found.cut) == (12, False, len(f" {head} ,\n".encode()))
    assert found.others == (meta.encode(), clock.encode())
    slices = {name: np.asarray(column).tolist() for name, column in found.slices.items()}
    none = [-1] * 4
    assert slices == {
        # .9125 µs are 912.5 ns: to the even one; and so are 5000.5
        "start": [1736413971558972912, 5000, 6000, 7000, 8000, 9000],
        "length": [2, 2150, 1000, 1000, 1000, 1000],  # 1.5 ns, to the even one
        "pid": [1, -1, *none], "tid": [5_000_000_000, -1, *none], "connection": [7, -1, *none],
        "moved": [64, -1, 0, 5_000_000_000, -1, -1],
        "partner": [-1, -1, 5, -1, -1, -1],  # of the rank itself, and of none, there is no other end
        "elements": [-1, -1, -1, -1, -1, 4_097_000],
        "correlation": [-1] * 6, "external": [-1] * 6,  # which only traces with numeric times are asked for
        "stream": [-1] * 6, "device": [-1] * 6, "name": [0, 1, 2, 3, 4, 5], "cat": [0, -1, *none],
        "task_type": [0, -1, *none], "stack": [-1, 0, *none], "operation": [0, -1, *none],
        "dtype": [-1, -1, -1, -1, -1, 0],
    }  # fmt: skip
    flows = dict(found.flows)
    ids = flows.pop("id")
    assert isinstance(ids, pa.Array) and ids.to_pylist() == ["40004631069296951295", "5"]
    assert {name: np.asarray(column).tolist() for name, column in flows.items()} == {
        "pid": [1, -1], "tid": [2, -1], "time": [3000, 4002], "start": [True, False], "arrow": [0, 0],
    }  # fmt: skip


def test_numeric_times_and_what_comes_with_them() -> None:
    text = b'{"ph":"X","name":"k","ts":17364139715589.7255,"dur":"1.25","args":{"stream":7,"correlation":"8"}},{}]'
    found = reader().read(text, True)
    assert found is not None
    assert (found.events, found.closed, found.cut) == (1, True, len(text) - 3)
    assert found.slices["start"].tolist() == [17_364_139_715_589_726]  # 725.5 ns, to the even one
    assert [found.slices[name].tolist() for name in ("length", "stream", "correlation")] == [[1250], [7], [8]]
    assert reader().read(text, False) is None


@pytest.mark.parametrize("text", ["", " ", "{", "{}", "{},", "[{}, {}", ', {"a": 1}, {', '{"a": 1} {"a": 1}', "]"])
def test_nothing_to_read(text: str) -> None:
    assert reader().read(text.encode(), False) is None


def test_what_a_refused_piece_said_is_forgotten(tmp_path: Path) -> None:
    """Its event may be damaged for the other decoder, and its name would be a name of nothing."""
    line = '{{"ph": "X", "name": "{}", "ts": "1.5", "dur": 1}}'.format
    one = reader()
    assert one.read(f'{line("lost")}, {{"ph": "\\ud800"}}, {{'.encode(), False) is None
    found = one.read(f"{line('kept')}, {{".encode(), False)
    assert found is not None
    assert found.slices["name"].tolist() == [0]
    strange = [line("a}, {b"), line("\\ud800"), *map(line, "abc"), *map(line, "abc")]
    same(tmp_path / "trace.json", f"[{', '.join(strange)}]", 150)


# ---- odd values ----


@pytest.mark.parametrize("odd", ODD)
def test_odd_events(tmp_path: Path, odd: str) -> None:
    key = odd.split(":")[0].strip('"')
    sliced = [i for i, text in enumerate(MADE) if '"ph": "X"' in text]
    for at in (0, sliced[0], sliced[6], len(MADE) - 2, len(MADE) - 1):
        event = {k: v for k, v in json.loads(MADE[at]).items() if k != key}
        for before in (event, {**event, key: 7}):  # twice: the last one counts
            text = json.dumps(before)[:-1] + f", {odd}}}"
            made = [*MADE[:at], text, *MADE[at + 1 :]]
            same(tmp_path / "trace.json", f"[{', '.join(made)}]", 900)


@pytest.mark.parametrize("field", [*USUAL, "args", "bp", *ARGUMENTS])
@pytest.mark.parametrize("numeric", [False, True], ids=["texts", "numbers"])
def test_any_value_in_any_field(tmp_path: Path, field: str, numeric: bool) -> None:
    """Each value in a slice, an arrow, a name and a counter of their own, between events that are sound.

    Whether times are texts or numbers makes no difference to what is in other fields: of those, each value is tried
    with one of them.
    """
    path = tmp_path / "trace.json"
    time = "15.25" if numeric else '"15.25"'
    plain = f'{{"ph": "X", "name": "a", "ts": {time}, "dur": 1.5, "args": {{"correlation": 1, "connection_id": 1}}}}'
    members = {
        "X": {"name": '"MEMCPY"', "ts": time, "dur": "2.5", "pid": "1", "tid": "2"},
        "f": {"name": '"a"', "cat": '"async_npu"', "ts": time, "id": "8", "pid": "1", "tid": "2"},
        "M": {"name": '"process_name"', "pid": "1"},
        "C": {"name": '"AI Core Freq"', "pid": "1", "ts": time},
    }
    arguments = {"X": "operation", "f": "x", "M": "name", "C": "MHz"}
    values = (*ANYTHING, *USUAL.get(field, ()), *ARGUMENTS.get(field, ()))
    if field not in ("ts", "dur"):
        values = values[numeric::2]
    taken = 0
    for value in values:
        made = [plain] * 3
        for kind, usual in members.items():
            inner = {arguments[kind]: '"5"'}
            event = {"ph": f'"{kind}"', **usual}
            if field in ARGUMENTS and (field not in USUAL or kind in "MC"):
                inner[field] = value
            else:
                event[field] = value
            args = "{" + ", ".join(f'"{k}": {v}' for k, v in inner.items()) + "}"
            event.setdefault("args", args)
            made += ["{" + ", ".join(f'"{k}": {v}' for k, v in event.items()) + "}", plain]
        taken += same(path, f"[{', '.join([*made, plain])}]", 120)
    assert taken > len(values) // 2


def test_times_of_all_lengths(tmp_path: Path) -> None:
    path, source = tmp_path / "trace.json", Random(5)
    tails = [
        "", *("5" * n for n in range(1, 10)), "0005", "0015", "00049999", "00050", "000500", "0005001", "9995",
        "999499",
    ]  # fmt: skip
    taken = 0
    for digits in range(1, 21):
        for tail in tails:
            whole = "".join(source.choice("123456789") for _ in range(digits))
            time = f"{whole}.{tail}" if tail else whole
            made = [f'{{"ph": "X", "name": "a", "ts": {t}, "dur": 1}}' for t in (f'"{time}"', f'"{time}"', '"1.5"')]
            taken += same(path, f"[{', '.join(made)}]", len(made[0]) + 20)
            made = [f'{{"ph": "X", "name": "a", "ts": {t}, "dur": {time}}}' for t in (1.5, time, time, 5.25)]
            taken += same(path, f"[{', '.join(made)}]", len(made[0]) + 20)
    assert taken > 2 * 15 * len(tails)


@pytest.mark.parametrize(
    ("time", "ns"),
    [
        ("3999999999999999.999", 3_999_999_999_999_999_999),
        ("4000000000000000.000", None),
        ("9223372036854775.807", None),
        ("9223372036854775.808", None),
        ("9999999999999999.999", None),
        ("18446744073709551617.500", None),  # more than 64 bits, of which those that there are would be 1
    ],
)
def test_times_that_are_too_late(time: str, ns: int | None) -> None:
    found = reader().read(f'{{"ph": "X", "ts": "{time}"}}, {{'.encode() + b" " * 40, False)
    assert (found and found.slices["start"].tolist()) == (None if ns is None else [ns])


@pytest.mark.parametrize("time", ["3999999999999999.999", "3999999999999999.9994", "3999999999999999.9995",
                                  "4000000000000000.000", "4000000000000000", "9223372036854775.807",
                                  "3" * 22])  # fmt: skip
@pytest.mark.parametrize("beside", ["", "1.5", "3999999999999999.998"])
def test_times_at_the_limit_are_alike_each_way(tmp_path: Path, time: str, beside: str) -> None:
    """The latest time is one ns less than 4e18, however many digits, and whatever is in the same piece."""
    own = Decimal(time) * 1000
    ns = int(own.to_integral_value()) if own < 4 * 10**18 else None
    events = [f'{{"name": "a", "ph": "X", "pid": 1, "tid": 1, "ts": "{t}", "dur": 1}}' for t in (time, beside) if t]
    same(tmp_path / "trace.json", f"[{', '.join(events)}]", 10_000)
    assert nanoseconds([time, beside or "1"]).tolist()[0] == (-1 if ns is None or ns >= 4 * 10**18 else ns)


@pytest.mark.parametrize("behind", ["", " " * 40], ids=["at the end", "before more"])
def test_what_looks_like_a_digit(behind: str) -> None:
    """Any character in a number, at any place in it."""
    others = [chr(code) for code in range(32, 127) if chr(code) not in '0123456789."\\-']
    for size in (1, 3, 8, 9, 16):
        usual = "1234567812345678"[:size]
        assert reader().read(f'{{"ph": "X", "pid": "{usual}", "ts": "{usual}.250"}}, {{{behind}'.encode(), False)
        for at, odd in ((at, odd) for at in range(size) for odd in others):
            made = f"{usual[:at]}{odd}{usual[at + 1 :]}"
            for member in (f'"pid": "{made}"', f'"ts": "{made}.250"'):
                assert reader().read(f'{{"ph": "X", {member}}}, {{{behind}'.encode(), False) is None


def _lengths(count: int) -> list[str]:
    source, made = Random(7), []
    for _ in range(count):
        digits, places = source.randrange(1, 20), source.randrange(0, 19)
        number = "".join(source.choice("0123456789") for _ in range(digits)).lstrip("0").rjust(places + 1, "0")
        made.append(f"{number[:-places]}.{number[-places:]}" if places else number)
        near = Fraction(source.randrange(10 ** source.randrange(1, 9)) * 2 + 1, 2000)  # half a ns, or all but
        made += [
            repr(float(near)),
            repr(float(np.nextafter(float(near), source.choice((0, 1e9))))),
            f"{float(near):.17f}",
        ]
    return [text for text in made if "e" not in text]


def test_durations_are_those_of_the_nearest_double() -> None:
    made = _lengths(4_000)
    expected = durations([float(text) for text in made]).tolist()
    assert expected == durations([e.dur for e in decoded(_listed(made), False)]).tolist()
    taken = 0
    for text, ns in zip(made, expected, strict=True):
        found = reader().read(f'{{"ph": "X", "dur": {text}}}, {{'.encode() + b" " * 40, False)
        if found is not None:
            taken += 1
            assert found.slices["length"].tolist() == [ns], text
    assert taken > len(made) / 3


def _listed(lengths: list[str]) -> bytes:
    return ("[" + ", ".join(f'{{"ph": "X", "dur": {text}}}' for text in lengths) + "]").encode()


def test_durations_with_noise_are_taken() -> None:
    """As a float64 is written that was summed: most recorded durations of some layers."""
    noisy = [
        "12.77012757357446", "2.1500000000000004", "37.589999999999996", "188.14802169799805",
        "0.30000000000000004",
    ]  # fmt: skip
    found = reader().read(_listed([*noisy, "1"])[1:], False)
    assert found is not None
    assert found.slices["length"].tolist() == [12_770, 2_150, 37_590, 188_148, 300]


# ---- odd texts ----


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "N/A", " nan ", '\\"a\\"', " a ", "\\u0041", "\\u4e2d\\n", "\\ud83d\\ude00", "\\ud83d", "\\ude00",
        "😀", "\\/", "\\q", "\\u00", "\\u00g0", "\x01", "\n", "\x7f", "\\u0000", "a}, {b", "}, {", "]", "[{", "\u2028",
        "x" * 5000, "\xa0a\xa0", "é" * 40, "\\",
    ],
)  # fmt: skip
def test_odd_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace.json"
    for template in (
        '{{"ph": "X", "name": "{}", "ts": "1.5", "dur": 1, "cat": "q"}}',
        '{{"ph": "X", "name": "b", "ts": "1.5", "dur": 1, "args": {{"Task Type": "{}", "Call stack": "{}"}}}}',
        '{{"ph": "M", "name": "process_name", "pid": 1, "args": {{"name": "{}"}}}}',
        '{{"ph": "X", "name": "b", "ts": "1.5", "dur": 1, "{}": 5}}',
        '{{"ph": "X", "name": "b", "ts": "1.5", "dur": 1, "args": {{"{}": 5}}}}',
    ):
        text = template.format(name, name)
        for made in ([text, *MADE[:20]], [*MADE[:20], text, *MADE[20:40]]):
            same(path, f"[{', '.join(made)}]", 700)


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\x80", b"\xc0\xaf"])
def test_what_is_no_text(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "trace.json"
    sound = f"[{', '.join(MADE)}]".encode()
    for old in (b'"k1"', b'"AI_VECTOR_CORE"', b'"Python"', b'"ph": "f"', b'"dur": 2.503'):
        assert old in sound
        same(path, sound.replace(old, old[:-1] + bad + old[-1:], 1), 700)


def test_characters_cut_by_a_piece(tmp_path: Path) -> None:
    made = [f'{{"ph": "X", "name": "{"中é😀" * (1 + i % 5)}", "ts": "{i}.5", "dur": 1}}' for i in range(20)]
    taken = {same(tmp_path / "trace.json", f"[{', '.join(made)}]", size) for size in range(100, 130)}
    assert taken == {len(made) - 1}


def test_a_hundred_thousand_names(tmp_path: Path) -> None:
    made = [f'{{"ph":"X","name":"n{i % 100_003 * 7919}","ts":"{i}.5","dur":1}}' for i in range(100_100)]
    assert same(tmp_path / "trace.json", f"[{','.join(made)}]", 1 << 20) > 90_000


# ---- odd structures ----


@pytest.mark.parametrize("depth", [1, 63, 64, 65, 300, 3000])
def test_deep_nesting(tmp_path: Path, depth: int) -> None:
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        inner = opened * depth + "1" + closed * depth
        odd = f'{{"ph": "X", "name": "a", "ts": "1.5", "dur": 1, "args": {{"x": {inner}}}}}'
        same(tmp_path / "trace.json", f"[{', '.join([*MADE[:9], odd, *MADE[9:]])}]", 700)


@pytest.mark.parametrize("blank", [" ", "\n", "\r\n", "\t", " " * 50, "\f", "\v", "\x00", "\xa0", ",", "/**/"])
def test_blanks_between_tokens(tmp_path: Path, blank: str) -> None:
    tokens = re.findall(r'"[^"]*"|\S', '{"ph": "X", "ts": "1.5", "args": {"a": [1]}}')
    plain = '{"ph": "X", "name": "a", "ts": "15.25", "dur": 1}'
    for at in range(len(tokens) + 1):
        odd = "".join([*tokens[:at], blank, *tokens[at:]])
        same(tmp_path / "trace.json", f"[{plain}, {plain},{odd},{plain}, {plain}]", 130)
    if blank.strip(" \t\r\n") == "":
        odd = blank.join(tokens)
        assert same(tmp_path / "trace.json", f"[{plain},{plain},{odd},{plain},{plain}]", len(odd) + 120) >= 3


@pytest.mark.parametrize(
    "behind",
    [
        "]", "] ", "]}", '], "a": 1}', '], "other": [{"a": 1}, {"b": 2}]}', '], "distributedInfo": {"rank": 3}}', "",
        ",", ", ", "]]", "] x", '], "traceEvents": [{"ph": "X"}, {"ph": "X"}]}', ', {"ph": "X"', ", {", ", 5]",
        ", null]", ", [{}, {}]]",
    ],
)  # fmt: skip
def test_things_behind_the_events(tmp_path: Path, behind: str) -> None:
    listed = ", ".join(MADE[:12])
    for size in (len(listed) // 3, len(listed) - 20, len(listed) + 3, len(listed) + 30):
        same(tmp_path / "trace.json", f'{{"traceEvents": [{listed}{behind}', size)


@pytest.mark.parametrize("numeric", [False, True], ids=["texts", "numbers"])
def test_events_that_hold_many_objects(tmp_path: Path, numeric: bool) -> None:
    """Where most of what looks like the end of an event is none."""
    made = []
    for i in range(40):
        inner = ", ".join('{"a": 1}' for _ in range(i % 25))
        time = f"{i}.25" if numeric and i > 20 else f'"{i}.25"'
        args = f'{{"correlation": {i}, "l": [{inner}]}}'
        made.append(f'{{"ph": "X", "name": "b", "ts": {time}, "dur": 1, "args": {args}}}')
    path = tmp_path / "trace.json"
    for size in (400, 700, *range(1_000, 1_400, 7), 3_000):
        same(path, f"[{', '.join(made)}]", size)
        if not numeric:
            (columns, *_, log), _, _ = each_way_told(path, size)
            assert (len(columns["start"]), log.lost, log.warnings) == (40, [], [])


# ---- keys as they stood before ----


#: Keys of which some begin like others, and such as are wanted in one place and not in another.
NEAR = ("p", "ph", "phx", "name", "name ", "nam", "ts", "tsu", "dur", "pid", "args", "connection_id", "Task Type")
SPACED = (": ", ":", " : ", ":\n\t", ":    ")


def shaped(rng: Random, at: int, numeric: bool) -> str:
    """An event with some of its keys, in some order, spaced in some way; each of them once."""
    time = f"{at}.250" if numeric else f'"{at}.250"'
    values = {"ph": '"X"', "name": f'"n{at}"', "ts": time, "dur": "1.500", "pid": str(at), "cat": '"c"'}
    inner = dict.fromkeys(rng.sample(NEAR, rng.randrange(4)), f'"{at}"')
    made = {"ph": values["ph"], **{key: values[key] for key in rng.sample(sorted(values), 4)}}
    made |= {key: str(at) for key in rng.sample(("p", "phx", "name ", "nam", "tsu", "x" * 40), rng.randrange(3))}
    made |= {"args": "{" + ",".join(f'"{key}"{rng.choice(SPACED)}{value}' for key, value in inner.items()) + "}"}
    keys = sorted(made) if at % 3 else rng.sample(sorted(made), len(made))
    return "{" + rng.choice((", ", ",")).join(f'"{key}"{rng.choice(SPACED)}{made[key]}' for key in keys) + "}"


@pytest.mark.parametrize("numeric", [False, True], ids=["texts", "numbers"])
def test_shapes_that_alternate(tmp_path: Path, numeric: bool) -> None:
    taken = 0
    for seed in range(40):
        rng = Random(seed)
        few = [shaped(rng, at, numeric) for at in range(rng.choice((2, 3, 30)))]
        made = [rng.choice(few) for _ in range(60)]
        taken += same(tmp_path / "trace.json", f"[{', '.join(made)}]", 900)
    assert taken > 40 * 40


def test_more_shapes_than_are_kept(tmp_path: Path) -> None:
    """Keys that differ in each event, in few steps and in many."""
    made = [f'{{"k{i}": 1, "ph": "X", "ts": "{i}.5", "dur": 1, "args": {{"stream": {i}}}}}' for i in range(300)]
    for i in range(3_000):
        odd = f'"a{i % 15}": 1, "b{i % 13}": 2, "c{i % 11}": 3, "connection_id": {i}'
        made.append(f'{{"ph": "X", "name": "n", "ts": "{i}.125", "dur": 1.25, "args": {{{odd}}}}}')
    made += MADE
    for size in (5_000, 50_000):
        assert same(tmp_path / "trace.json", f"[{', '.join(made)}]", size) > 0.9 * len(made)


def test_known_shapes_cut_anywhere() -> None:
    """Read again up to each byte: what is known already tells no more events than are there."""
    made = [MADE[i] for i in (0, 9, 10, 11, 12, 13, 14)]
    text = ", ".join(made).encode()
    starts = [text.index(event.encode()) for event in made]
    one = reader()
    assert one.read(text, False) is not None
    for size in range(1, len(text) + 1):
        followed = [start for start in starts if start < size]
        for found in (one.read(text[:size], False), reader().read(text[:size], False)):
            told_of = (0, 0) if found is None else (found.events, found.cut)
            assert told_of == (len(followed) - 1, followed[-1])


def test_a_known_key_twice() -> None:
    sound = '{"ph": "X", "name": "a", "ts": "1.500", "dur": 1.500, "args": {"connection_id": 7, "x": 1}}'
    end = ", " + sound + ", {"
    for twice in ('"ts": "1.500"', '"connection_id": 7', '"name": "a"', '"dur": 1.500'):
        odd = sound.replace(twice, f"{twice}, {twice}")
        assert reader().read(f"{sound}, {sound}{end}".encode(), False) is not None
        assert reader().read(f"{sound}, {odd}{end}".encode(), False) is None
    unwanted = sound.replace('"x": 1', '"x": 1, "x": 1')
    assert reader().read(f"{sound}, {unwanted}, {unwanted}{end}".encode(), False) is not None


# ---- damage ----


def test_cut_anywhere(tmp_path: Path) -> None:
    data = f"[{', '.join([*MADE[:2], *MADE[8:14]])}]".encode()
    for size in range(len(data)):
        same(tmp_path / "trace.json", data[:size], 300 if size % 2 else max(8, size - 9))


def test_damaged_traces(tmp_path: Path) -> None:
    plain = f"[{', '.join(MADE)}]".encode()
    taken = sum(same(tmp_path / "trace.json", mutate(Random(seed), plain), 300 + 40 * seed) for seed in range(80))
    assert taken > 80 * len(MADE) / 4


SIZES = st.sampled_from([8, 64, 200, 500, 1_000, 3_000])


@settings(max_examples=25)
@given(rng=st.randoms(use_true_random=False), size=SIZES, damaged=st.booleans())
@example(rng=random.Random(1), size=300, damaged=False)
def test_traces_of_odd_parts(tmp_path_factory: pytest.TempPathFactory, rng: Random, size: int, damaged: bool) -> None:
    data = odd_trace(rng)
    same(tmp_path_factory.getbasetemp() / "odd.json", mutated(rng, data) if damaged else data, size)


def test_odd_parts_at_random(tmp_path: Path) -> None:
    """The same without hypothesis, which likes small traces best."""
    taken = 0
    for seed in range(150):
        rng = Random(seed)
        data = odd_trace(rng)
        taken += same(
            tmp_path / "trace.json", mutated(rng, data) if seed % 3 == 0 else data, rng.choice((300, 1_000, 3_000))
        )
    assert taken > 75


# ---- memory ----


def hostile() -> list[bytes]:
    """Pieces that are odd, damaged or cut."""
    made = [f'{{"ph": "X", {odd}, "args": {{{odd}}}}}, {{'.encode() for odd in ODD]
    made += [f'{{"ph": "X", "name": {value}, "args": {{"name": {value}'.encode() for value in ANYTHING]
    made += [value.encode() for value in ANYTHING]
    sound = ", ".join(MADE[:14]).encode()
    made += [sound[:size] for size in range(len(sound))]
    made += [mutate(Random(seed), sound) for seed in range(200)]
    for seed in range(300):
        data = odd_trace(Random(seed)).lstrip(b"[ \t\r\n")
        made += [data, mutated(Random(seed), data)]
    return [*made, b"", b"{" * 200, b"[" * 200, b'{"name": ""}, {' * 5]


def test_no_byte_outside_is_touched(tmp_path: Path) -> None:
    driver, texts = tmp_path / "driver", tmp_path / "texts"
    sanitized = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = [
        *COMPILER, "-std=c11", "-O1", "-g", *sanitized, f"-I{SOURCE.parent}", str(DRIVER), "-lm", "-o",
        str(driver),
    ]  # fmt: skip
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"no sanitizers here: {built.stderr[-200:]}")
    made = hostile()
    texts.write_bytes(b"".join(b"%d\n%b" % (len(text), text) for text in made))
    ran = subprocess.run([str(driver), str(texts)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[:3000]
    assert ran.stdout.startswith(f"{len(made)} texts")


def test_the_decoder_takes_what_is_compared_with() -> None:
    """A sanity check of the other side: exact, typed, and complaining."""
    assert decoded(b'[{"ts": "5", "dur": 1e1}]', False) == [Event(ts="5", dur=10.0)]
    with pytest.raises(msgspec.ValidationError):
        decoded(b'[{"ts": 5}]', False)
