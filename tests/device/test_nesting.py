"""Nested host events, and the blame of waits, against a search over every nanosecond."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuperf.device import host_events
from npuperf.device.blame import Blamed, HostThreads, IdleAfter, blame_intervals, blame_waits, event_causes
from npuperf.device.host_events import BUSY, CAUSES, CODE, NONE, NOTHING, Nesting, cause_of, inherited
from npuperf.device.partition import Gaps
from npuperf.device.syncs import Syncs
from npuperf.model.host import Spans
from npuperf.model.labels import Labels

NAMES = (
    "aten::add", "Node@launch", "AscendCL@aclnnAdd", "AscendCL@aclrtSynchronizeStream", "ProfilerStep#3",
    "train.py(7): step", "my range", "AscendCL@Add_Tiling", "enumerate(DataLoader)#x.__next__",
    "compile_inner (dynamo_timed)", "GC",
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


@given(events_strategy)
def test_segments_begin_wherever_an_event_of_their_thread_begins_or_ends(events: list[Event]) -> None:
    built = nesting(events)
    for thread, own in built.segments:
        times = built.time[own].tolist()
        assert times == sorted({time for t, *borders, _ in events for time in borders if t == thread})
        assert built.inner[own].tolist() == [slow_inner(events, thread, time) for time in times]
    assert [thread for thread, _ in built.segments] == sorted({thread for thread, *_ in events})


def slow_parent(events: list[Event], i: int) -> int:
    """The latest earlier event of the thread that reaches beyond the middle of one."""
    thread, start, end, _ = events[i]
    least = start + max((end - start) // 2, 1)
    return max((j for j in range(i) if events[j][0] == thread and events[j][2] >= least), default=NONE)


@pytest.mark.parametrize("rounds", [0, 1, 3])
@given(events=events_strategy)
def test_a_parent_reaches_beyond_the_middle(rounds: int, events: list[Event]) -> None:
    """However often siblings are stepped over before pointers double their reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_events, "_ROUNDS", rounds)
        assert nesting(events).parent.tolist() == [slow_parent(events, i) for i in range(len(events))]


def test_many_open_events_end_in_the_order_of_their_ends() -> None:
    count = 1000  # each begins before the one before it ends, and ends after it: all are open at once
    ends = np.random.default_rng(5).permutation(count) + 2 * count
    built = nesting([(0, i, int(end), "aten::add") for i, end in enumerate(ends)])
    assert built.time.tolist() == [*range(count), *range(2 * count, 3 * count)]


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from((0, 3, NOTHING))), max_size=30))
def test_what_an_event_says_holds_for_all_in_it_that_say_nothing(rows: list[tuple[int, int]]) -> None:
    parent = [max(NONE, i - 1 - back) for i, (back, _) in enumerate(rows)]
    expected: list[int] = []
    for at, (_, own) in zip(parent, rows, strict=True):
        expected.append(own if own != NOTHING or at == NONE else expected[at])
    own = np.array([said for _, said in rows], np.uint8)
    assert inherited(np.array(parent, np.int32), own).tolist() == expected


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
    pieces = blame_intervals(tuple(np.array([t]) for t in chain), *interval, nesting(events))
    found = {t: e for a, b, e in zip(pieces.start.tolist(), pieces.end.tolist(), pieces.event.tolist(), strict=True)
             for t in range(a, b)}  # fmt: skip
    for t in range(begin, begin + 30):
        for thread in chain[:2]:
            expected = slow_inner(events, thread, t)
            if expected != NONE and is_busy(events, expected):
                break
        else:
            expected = slow_inner(events, chain[2], t)
        if expected != NONE:  # a step by itself tells nothing: what is around it does
            around = slow_around(events, expected)
            expected = next((j for j in around if not events[j][3].startswith("ProfilerStep")), expected)
        assert found[t] == expected


DECIDED = {"launch": "launch", "execute": "execute", "tiling": "tiling", "sync": "sync"}


def slow_blame(events: list[Event], i: int) -> str:
    """What an event is blamed on, one rule of docs/phases.md after the other, from the inside out."""
    around = [(events[j][3], cause_of(events[j][3])) for j in slow_around(events, i)]
    for whole in ("compile", "gc"):
        if any(cause == whole for _, cause in around):
            return whole
    if any("Synchronize" in name for name, _ in around):
        return "sync"
    own = around[0][1]
    if own in DECIDED:
        return own
    parts = [cause for _, cause in around if cause in ("data_loading", "communication")]
    return parts[0] if parts else {"step": "unrecorded"}.get(own, own)


@given(events_strategy)
def test_time_is_blamed_on_the_innermost_event_that_says_what_happens(events: list[Event]) -> None:
    built = nesting(events)
    holds = {j for i in range(len(events)) for j in slow_around(events, i)[1:2]}
    codes = event_causes(np.arange(len(events)), built).tolist()
    for i, code in enumerate(codes):
        expected = slow_blame(events, i)
        if expected == "range" and i not in holds:
            expected = "torch_op"  # a range has something in it
        assert CAUSES[code] == expected


def blamed(*names: str) -> str:
    """What the innermost of events in each other is blamed on, the outermost given first."""
    rows = [(0, n, 1000 - n, name) for n, name in enumerate(names)]
    return CAUSES[event_causes(np.array([len(names) - 1]), nesting(rows))[0]]


GENERATED = "/tmp/torchinductor_root/xx/cabc.py(12): call"


@pytest.mark.parametrize(
    ("names", "cause", "once"),
    [
        ((GENERATED,), "python", "compile"),
        ((GENERATED, "aten::mm"), "torch_op", "compile"),
        ((GENERATED, "aten::mm", "cudaLaunchKernel"), "launch", "compile"),
        (("Torch-Compiled Region: 0/0", "aten::mm"), "torch_op", "torch_op"),
        (("TorchDynamo Cache Lookup",), "torch_op", "compile"),
        (("torch/_inductor/output_code.py(7): __call__", "Node@launch"), "launch", "compile"),
        (("torch/_dynamo/eval_frame.py(7): _fn", "aten::mm"), "torch_op", "compile"),
        (("my_dataloader/model.py(3): forward", "aten::mm"), "torch_op", "data_loading"),
        (("prefetch.py(3): step", "Node@launch"), "launch", "data_loading"),
        (("garbage/train.py(9): step", "aten::mm"), "torch_op", "gc"),
        (("nccl_utils.py(4): helper", "aten::mm"), "torch_op", "communication"),
        (("hccl_tools/x.py(4): helper",), "python", "communication"),
        (("jit_compile_test.py(5): step", "aten::mm"), "torch_op", "compile"),
        (("CudaSynchronize.py(5): step", "aten::mm"), "torch_op", "sync"),
        (("Tiling.py(5): step", "aten::mm"), "torch_op", "torch_op"),
        (("compile_and_run", "jit_compile warm-up", "aten::mm"), "torch_op", "compile"),
        (("nccl warm-up", "GC phase", "prefetch next", "aten::mm"), "torch_op", "gc"),
        # What really tells.
        (("torch/_dynamo/convert_frame.py(5): _compile", "aten::mm", "cudaLaunchKernel"), "compile", "launch"),
        (("compile_inner (dynamo_timed)", "cudaDeviceSynchronize"), "compile", "sync"),
        (("torch/_inductor/compile_fx.py(9): compile_fx", "torch/fx/graph.py(3): x"), "compile", "compile"),
        (("torch/utils/data/dataloader.py(625): __next__", "data.py(3): __getitem__"), "data_loading", "data_loading"),
        (("enumerate(DataLoader)#X.__next__", "aten::stack"), "data_loading", "data_loading"),
        (("enumerate(DataLoader)#X.__next__", "aten::to", "cudaLaunchKernel"), "launch", "data_loading"),
        (("step.py(3): step", "<built-in function collect>"), "gc", "python"),
        (("GC", "aten::mm", "Node@launch"), "gc", "gc"),
        (("HcclAllreduce", "AscendCL@hcom_allReduce_", "Node@launch"), "launch", "communication"),
        (("c10d::allreduce_", "aten::view"), "communication", "communication"),
        (("aten::equal", "aten::eq", "Node@launch"), "launch", "sync"),
        (("AscendCL@aclrtSynchronizeStream", "Runtime@StreamSynchronize", "Runtime@Poll"), "sync", "sync"),
        (("Dequeue@Conv2D", "AscendCL@aclopCompileAndExecute"), "aclop", "execute"),
        (("AscendCL@aclopCompileAndExecute", "AscendCL@opCompile"), "compile", "compile"),
        (("AscendCL@aclopCompileAndExecute", "Node@launch"), "launch", "launch"),
    ],
)  # fmt: skip
def test_a_cause_is_what_happens_not_what_a_name_resembles(names: tuple[str, ...], cause: str, once: str) -> None:
    """``once``: what was said when names were searched for words."""
    assert once in CAUSES
    assert blamed(*names) == cause


def test_a_value_of_the_host_is_no_wait() -> None:
    """Two .item(): the first waits for the device, the second finds its tensor on the host (once: sync)."""
    events = [
        (0, 0, 50, "aten::item"),
        (0, 1, 49, "aten::_local_scalar_dense"),
        (0, 2, 40, "AscendCL@aclrtSynchronizeStream"),
        (0, 60, 70, "aten::item"),
        (0, 61, 69, "aten::_local_scalar_dense"),
    ]
    codes = event_causes(np.arange(5), nesting(events)).tolist()
    assert [CAUSES[c] for c in codes] == ["sync", "sync", "sync", "torch_op", "torch_op"]
    # Where no call of the runtime is recorded, only the operators can tell.
    without = nesting([e for e in events if "Sync" not in e[3]])
    assert {CAUSES[c] for c in event_causes(np.arange(4), without).tolist()} == {"sync"}


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
        "AscendCL@aclopCompileAndExecute": "aclop",
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
        "site-packages/npuperf/record/agent/session.py(130): _tick": "profiler",
        "site-packages/npuperf/agent/sources.py(94): call": "python",
    }
    assert {name: cause_of(name) for name in known} == known


def test_operators_of_the_task_queue_are_no_ranges() -> None:
    """torch_npu's operators have no "::"; that the consumer takes one of the name tells them from the user's ranges."""
    events = [
        (0, 0, 40, "Conv2D"),
        (0, 5, 20, "Enqueue"),
        (0, 50, 90, "Conv2D of mine"),
        (0, 55, 70, "Enqueue"),
        (1, 8, 30, "Dequeue@Conv2D"),
    ]
    causes = [CAUSES[c] for c in nesting(events).causes]
    assert causes == ["torch_op", "queue", "range", "queue", "queue"]
    alone = [CAUSES[c] for c in nesting(events[:4]).causes]
    assert alone == ["range", "queue", "range", "queue"]


def test_what_a_profiler_does_is_the_profiler_s() -> None:
    """Everything inside of its step(), to any depth, and nothing beside it."""
    events = [
        (0, 0, 100, "train.py(3): main"),
        (0, 10, 40, "npuperf/record/agent/sources.py(94): call"),
        (0, 12, 30, "aten::add"),
        (0, 31, 39, "npuperf/record/agent/session.py(130): _tick"),
        (0, 32, 38, "torch/_ops.py(1): __call__"),
        (0, 33, 37, "aten::empty"),
        (0, 50, 60, "torch/_ops.py(1): __call__"),
    ]
    causes = [CAUSES[c] for c in nesting(events).causes]
    assert causes == ["python", "python", "torch_op", "profiler", "profiler", "profiler", "python"]


# -- Idle time after waits of the host: summed over the gaps that began in them, against looking at each gap.


SKEW, PAUSE = 7, 4


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def test_idle_time_counts_to_the_last_wait_that_had_begun_without_pauses() -> None:
    rng = random.Random(5)
    for _ in range(200):
        edges = sorted(rng.sample(range(200), 24))
        gaps = [(a, b, rng.random() < 0.8) for a, b in zip(edges[::2], edges[1::2], strict=True)]
        calls = sorted((s, s + rng.randrange(30)) for s in (rng.randrange(SKEW, 200 + SKEW) for _ in range(6)))
        pauses = [(a, a + PAUSE) for a, b, _ in gaps if b - a > PAUSE and rng.random() < 0.3]
        chosen = sorted(rng.sample(range(6), rng.randrange(1, 6)))
        span = 20, 160
        expected = 0
        for start, end, known in gaps:
            begun = [calls[c] for c in chosen if calls[c][0] <= start + SKEW]
            if known and span[0] <= start < span[1] and begun and start + SKEW <= begun[-1][1]:
                expected += end - start - sum(b - a for a, b in pauses if a == start)
        start, end, known = (np.array(x) for x in zip(*gaps, strict=True))
        blamed = Blamed(
            ints(*(a for a, _ in pauses)), ints(*(b for _, b in pauses)), np.full(len(pauses), -1),
            np.full(len(pauses), CODE["range"], np.uint8),
        )  # fmt: skip
        idle = IdleAfter.of(
            Syncs(np.zeros(6, np.int64), ints(*(c[0] for c in calls)), ints(*(c[1] for c in calls)), np.arange(6)),
            Gaps(start, end, end, end, np.arange(len(start)), known),
            blamed, SKEW, span,
        )  # fmt: skip
        assert idle.total(ints(*chosen)) == expected
