"""Parents and segments of host events: compiled code and numpy give the same, and what their definitions say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuperf.device import host_events
from npuperf.device.host_events import NONE, NOTHING, find_parents, find_segments, inherited
from npuperf.model.host import Spans
from npuperf.model.intervals import ThreadRows
from npuperf.model.labels import I32, I64, Labels

pytestmark = pytest.mark.skipif(not host_events.compiled_source(), reason="there is no compiler here")

Event = tuple[int, int, int]  # thread, start, end

TIMES = st.one_of(st.integers(0, 40), st.sampled_from((-(2**61), 2**61)))
EVENTS = st.lists(st.tuples(st.integers(-1, 2), TIMES, TIMES), max_size=30)


@contextmanager
def without_compiled() -> Iterator[None]:
    """As where there was no compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_events, "_library", lambda: None)
        yield


def spans(events: list[Event]) -> Spans:
    rows = sorted(events, key=lambda e: (e[0], e[1], -e[2]))
    thread, start, end = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    return Spans(start, end, thread, Labels.missing(len(rows)))


Found = tuple[I32, ThreadRows, I64, I32]


def found(events: Spans) -> Found:
    """Parents, and segments: where those of each thread are, their times, what is innermost."""
    threads = ThreadRows.of(events.thread)
    parent = find_parents(events, threads)
    return parent, *find_segments(events, parent, threads)


def columns(found: Found) -> list[I64 | I32]:
    parent, rows, time, inner = found
    return [parent, rows.thread, rows.first, rows.end, time, inner]


def test_the_library_is_made_of_this_source() -> None:
    source = Path(host_events.__file__).with_name("enclosing.c").read_bytes()
    assert host_events.compiled_source() == hashlib.sha256(source).hexdigest(), "run pip install -e . again"


@given(EVENTS)
def test_both_ways_find_the_same(events: list[Event]) -> None:
    table = spans(events)
    compiled = found(table)
    with without_compiled():
        plain = found(table)
    for one, other in zip(columns(compiled), columns(plain), strict=True):
        assert one.dtype == other.dtype and one.tolist() == other.tolist()


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 20)), max_size=25))
def test_segments_begin_wherever_an_event_of_their_thread_begins_or_ends(rows: list[tuple[int, int, int]]) -> None:
    table = spans([(thread, start, start + length) for thread, start, length in rows])
    _, segments, time, inner = found(table)
    starts, ends, threads = table.start.tolist(), table.end.tolist(), table.thread.tolist()
    for thread, own in segments:
        mine = [i for i, t in enumerate(threads) if t == thread]
        assert time[own].tolist() == sorted({starts[i] for i in mine} | {ends[i] for i in mine})
        for begin, event in zip(time[own].tolist(), inner[own].tolist(), strict=True):
            around = [i for i in mine if starts[i] <= begin < ends[i]]
            assert event == (around[-1] if around else NONE)
    assert [thread for thread, _ in segments] == sorted(set(threads))


def test_many_open_events_end_in_the_order_of_their_ends() -> None:
    count = 1000  # each begins before the one before it ends, and ends after it: all are open at once
    ends = np.random.default_rng(5).permutation(count) + 2 * count
    table = spans([(0, i, int(end)) for i, end in enumerate(ends)])
    assert found(table)[2].tolist() == [*range(count), *range(2 * count, 3 * count)]


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from((0, 3, NOTHING))), max_size=30))
def test_what_an_event_says_holds_for_all_in_it_that_say_nothing(rows: list[tuple[int, int]]) -> None:
    parent = np.array([max(NONE, i - 1 - back) for i, (back, _) in enumerate(rows)], np.int32)
    own = np.array([said for _, said in rows], np.uint8)
    expected = []
    for i in range(len(rows)):
        at = i
        while at != NONE and own[at] == NOTHING:
            at = int(parent[at])
        expected.append(NOTHING if at == NONE else int(own[at]))
    assert inherited(parent, own).tolist() == expected
    with without_compiled():
        assert inherited(parent, own).tolist() == expected
