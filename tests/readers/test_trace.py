"""Traces in every form and condition; expected values are written by hand."""

from __future__ import annotations

import gc
import gzip
import json
from pathlib import Path

import pytest
from build import K, events

from npuperf.base.errors import InputError
from npuperf.base.messages import say
from npuperf.readers import pieces
from npuperf.readers.log import ReadLog
from npuperf.readers.trace import no_gc, read_trace

pytestmark = pytest.mark.usefixtures("each_way")


def test_a_trace_cut_anywhere_keeps_its_whole_events(tmp_path: Path) -> None:
    kernels = [K(i * 10_000, 2_500, f"k{i}", launch=i * 10_000 - 5_000) for i in range(3)]
    whole = json.dumps(events(kernels)).encode()
    path = tmp_path / "trace_view.json"
    texts = [json.dumps(e).encode() for e in events(kernels)]
    ends = [whole.index(text) + len(text) for text in texts]
    checked = 0
    for cut in range(0, len(whole), 3):
        path.write_bytes(whole[:cut])
        log = ReadLog()
        try:
            trace = read_trace([path], log)
        except InputError:
            assert not any(end <= cut for end in ends)
            continue
        kept = len(trace.slices) + trace.flows.events
        whole_events = sum(1 for end, e in zip(ends, events(kernels), strict=True) if end <= cut and e["ph"] != "M")
        assert kept == whole_events
        assert log.lost or log.warnings
        checked += 1
    assert checked > 100


@pytest.mark.parametrize("piece", [64, 300, 1 << 20])
@pytest.mark.parametrize("form", ["list", "object", "spaced", "gzip"])
def test_traces_in_every_form_and_piece_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, form: str
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece)
    made = events([K(i * 10_000, 2_500, f"k}}, {{{i}", launch=i * 10_000 - 5_000) for i in range(40)], {11: (0, 10**6)})
    text = json.dumps(made, indent=2 if form == "spaced" else None)
    if form == "object":
        text = f'{{"schemaVersion": 1, "traceEvents": {text}, "traceName": "x]"}}'
    path = tmp_path / ("trace.json.gz" if form == "gzip" else "trace.json")
    path.write_bytes(gzip.compress(text.encode()) if form == "gzip" else text.encode())
    log = ReadLog()
    trace = read_trace([path], log)
    assert log.lost == []
    slices = [e for e in made if e["ph"] == "X"]
    assert log.events == len(slices)
    assert [trace.slices.name[i] for i in range(len(trace.slices))] == [e["name"] for e in slices]
    assert trace.slices.start.tolist() == [int(e["ts"].replace(".", "")) for e in slices]
    assert len(trace.flows.link("HostToDevice").from_tid) == 40


def test_numbers_as_times_stay_exact(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"baseTimeNanoseconds": 1700000000000000000, "traceEvents": ['
        '{"ph":"X","name":"a","cat":"kernel","pid":0,"tid":7,"ts":1234567.891,"dur":20.192,"args":{"stream":7}},'
        '{"ph":"X","name":"b","cat":"kernel","pid":0,"tid":7,"ts":2234567,"dur":1,"args":{"memory bandwidth":inf}},'
        '{"ph":"X","name":"c","cat":"kernel","pid":0,"tid":7,"ts":3234567,"dur":NaN}]}'
    )
    log = ReadLog()
    trace = read_trace([path], log)
    assert trace.slices.start.tolist() == [1700000001234567891, 1700000002234567000]
    assert (trace.slices.end - trace.slices.start).tolist() == [20192, 1000]
    assert [(x.rows, x.reason) for x in log.lost] == [(1, say("events without a readable time"))]


@pytest.mark.parametrize("name", ["\\ud800", "\\x", '", , "'])
@pytest.mark.parametrize("closed", [True, False])
def test_a_damaged_event_anywhere_takes_no_other_with_it(tmp_path: Path, name: str, closed: bool) -> None:
    """Near the end it may be the last one, which a killed exporter leaves; those behind it show that it is not."""
    texts = [json.dumps(e) for e in events([K(i * 10_000, 2_500, f"k{i}") for i in range(14)]) if e["ph"] == "X"]
    for at in range(len(texts) - 1):
        broken = texts[at].replace('"name": "', f'"name": "{name}')
        assert broken != texts[at]
        path = tmp_path / "trace.json"
        path.write_text(f"[{', '.join([*texts[:at], broken, *texts[at + 1 :]])}{']' if closed else ''}")
        log = ReadLog()
        trace = read_trace([path], log)
        assert (len(trace.slices), [loss.rows for loss in log.lost]) == (len(texts) - 1, [1]), at
        assert "damaged event" in str(log.lost[0].reason)


def test_the_garbage_collector_is_held_and_then_as_before() -> None:
    for was_on in (False, True):
        (gc.enable if was_on else gc.disable)()
        with pytest.raises(InputError), no_gc():
            assert not gc.isenabled()
            raise InputError(say("cut short"))
        assert gc.isenabled() == was_on
