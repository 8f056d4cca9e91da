"""Nested host events and the blame of waits, against a search over every nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuperf.host.blame import HostThreads, blame, blame_waits, event_causes
from npuperf.host.causes import BUSY, CAUSES, cause_of
from npuperf.host.nesting import NONE, Nesting
from npuperf.model.host import Spans
from npuperf.model.labels import Labels
from npuperf.timeline.partition import Gaps

NAMES = (
    "aten::add", "Node@launch", "AscendCL@aclnnAdd", "AscendCL@aclrtSynchronizeStream", "ProfilerStep#3",
    "train.py(7): step", "my range", "AscendCL@Add_Tiling", "enumerate(DataLoader)#x.__next__",
)  # fmt: skip

Event = tuple[int, int, int, str]  # thread, start, end, name

events_strategy = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 40), st.sampled_from(NAMES)), max_size=25
).map(lambda rows: sorted(((t, a, a + n, name) for t, a, n, name in rows), key=lambda e: (e[0], e[1], -e[2])))


def nesting(events: list[Event]) -> Nesting:
    thread, start, end = (np.array([e[i] for e in events], np.int64) for i in range(3))
    return Nesting.build(Spans(start, end, thread, Labels.of([e[3] for e in events])))


def slow_inner(events: list[Event], thread: int, time: int) -> int:
    """The latest-started event around a time."""
    around = [i for i, (t, a, b, _) in enumerate(events) if t == thread and a <= time < b]
    return around[-1] if around else NONE


@given(events_strategy)
def test_the_innermost_event_at_any_time(events: list[Event]) -> None:
    built = nesting(events)
    times = np.arange(-2, 105)
    for thread in (0, 1, 2, 9):
        found = built.at(np.full(len(times), thread), times).tolist()
        assert found == [slow_inner(events, thread, t) for t in times.tolist()]


@given(events_strategy, st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 100), st.integers(0, 60)), max_size=6))
def test_pieces_cover_intervals_once(events: list[Event], wanted: list[tuple[int, int, int]]) -> None:
    thread, start, length = (np.array([w[i] for w in wanted], np.int64) for i in range(3))
    pieces = nesting(events).pieces(thread, start, start + length)
    covered: dict[tuple[int, int], int] = {}
    for owner, a, b, event in zip(*(x.tolist() for x in (pieces.owner, pieces.start, pieces.end, pieces.event)),
                                  strict=True):  # fmt: skip
        for t in range(a, b):
            assert (owner, t) not in covered
            covered[owner, t] = event
    assert covered == {
        (i, t): slow_inner(events, w[0], t) for i, w in enumerate(wanted) for t in range(w[1], w[1] + w[2])
    }


def slow_around(events: list[Event], i: int) -> list[int]:
    """The events around one, from the inside out: each time the latest earlier one beyond its middle."""
    chain = [i]
    while True:
        thread, a, b, _ = events[chain[-1]]
        middle = a + (b - a) // 2
        outer = [j for j in range(chain[-1]) if events[j][0] == thread and events[j][2] >= middle and events[j][2] > a]
        if not outer:
            return chain
        chain.append(outer[-1])


def is_busy(events: list[Event], i: int) -> bool:
    """Whether an event, or one around it, is work of the thread itself."""
    outer = {j for i in range(len(events)) for j in slow_around(events, i)[1:2]}
    return any(cause_of(events[j][3]) in BUSY or (events[j][3] == "my range" and j not in outer)
               for j in slow_around(events, i))  # fmt: skip


@given(events_strategy, st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), st.integers(0, 60))
def test_idle_threads_pass_the_blame_on(events: list[Event], chain: tuple[int, int, int], begin: int) -> None:
    interval = (np.array([begin]), np.array([begin + 30]))
    pieces = blame(tuple(np.array([t]) for t in chain), *interval, nesting(events))
    found = {t: e for a, b, e in zip(pieces.start.tolist(), pieces.end.tolist(), pieces.event.tolist(), strict=True)
             for t in range(a, b)}  # fmt: skip
    for t in range(begin, begin + 30):
        for thread in chain[:2]:
            expected = slow_inner(events, thread, t)
            if expected != NONE and is_busy(events, expected):
                break
        else:
            expected = slow_inner(events, chain[2], t)
        assert found[t] == expected


@given(events_strategy)
def test_what_runs_inside_a_wait_is_part_of_it(events: list[Event]) -> None:
    built = nesting(events)
    codes = event_causes(np.arange(len(events)), built).tolist()
    for i, code in enumerate(codes):
        around = [cause_of(events[j][3]) for j in slow_around(events, i)]
        spreading = [c for c in around if c in ("sync", "data_loading", "compile", "gc", "communication")]
        if spreading:
            assert CAUSES[code] == spreading[0]


@given(events_strategy, st.lists(st.tuples(st.integers(0, 90), st.integers(1, 20), st.integers(0, 20)), max_size=4))
def test_blame_adds_up_to_the_waits(events: list[Event], waits: list[tuple[int, int, int]]) -> None:
    start, idle, wait = (np.array([w[i] for w in waits], np.int64) for i in range(3))
    end = start + idle
    submitted = np.minimum(start + wait, end)
    tasks = np.arange(len(waits))
    gaps = Gaps(start, submitted, end, end, tasks, np.ones(len(waits), np.bool_))
    threads = HostThreads(np.zeros(len(waits), np.int64), np.full(len(waits), -1), 1)
    blamed = blame_waits(gaps, threads, nesting(events), 3)
    assert int((blamed.end - blamed.start).sum()) == int((submitted - start).sum())


def test_names_tell_causes() -> None:
    known = {
        "aten::item": "sync",
        "AscendCL@aclrtSynchronizeStreamWithTimeout": "sync",
        "AscendCL@aclrtSynchronizeDevice": "sync",
        "cudaDeviceSynchronize": "sync",
        "AscendCL@aclrtMemcpy": "sync",
        "AscendCL@aclrtMemcpyAsync": "memory",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": "data_loading",
        "AscendCL@opCompile": "compile",
        "AscendCL@aclopCompileAndExecute": "execute",
        "AscendCL@aclnnAddGetWorkspaceSize": "tiling",
        "AscendCL@TransData_Tiling": "tiling",
        "AscendCL@aclnnAdd": "execute",
        "Node@launch": "launch",
        "Runtime@KernelLaunch": "launch",
        "cudaLaunchKernel": "launch",
        "Enqueue@aclnnAdd": "queue",
        "Dequeue@aclnnAdd": "queue",
        "hcom_allReduce_": "communication",
        "HcclAllreduce": "communication",
        "c10d::allreduce_": "communication",
        "autograd::engine::evaluate_function: MmBackward0": "autograd",
        "Optimizer.step#SGD.step": "optimizer",
        "aten::add": "torch_op",
        "npu::npu_fusion_attention": "torch_op",
        "train.py(41): forward": "python",
        "nn.Module: Linear_0": "python",
        "ProfilerStep#12": "step",
        "my phase": "range",
        "Python GC": "gc",
        "site-packages/torch_npu/profiler/profiler.py(339): step": "profiler",
        "site-packages/npuperf/agent/session.py(130): _tick": "profiler",
        "site-packages/npuperf/agent/sources.py(94): call": "python",
    }
    assert {name: cause_of(name) for name in known} == known


def test_what_a_profiler_does_is_the_profiler_s() -> None:
    """Everything inside of its step(), to any depth, and nothing beside it."""
    events = [
        (0, 0, 100, "train.py(3): main"),
        (0, 10, 40, "npuperf/agent/sources.py(94): call"),
        (0, 12, 30, "aten::add"),
        (0, 31, 39, "npuperf/agent/session.py(130): _tick"),
        (0, 32, 38, "torch/_ops.py(1): __call__"),
        (0, 33, 37, "aten::empty"),
        (0, 50, 60, "torch/_ops.py(1): __call__"),
    ]
    causes = [CAUSES[c] for c in nesting(events).causes]
    assert causes == ["python", "python", "torch_op", "profiler", "profiler", "profiler", "python"]
