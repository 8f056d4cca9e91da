"""What the idle device waits for: each kind of evidence by construction, and every nanosecond by brute force."""

from __future__ import annotations

import random

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.device.blame import HostThreads
from npuperf.device.dependencies import KINDS, Namer, find_dependencies
from npuperf.device.host_events import Nesting
from npuperf.device.order import NONE, Order, Placed, host_chain, ordered_after
from npuperf.device.partition import Launches, lay_out
from npuperf.model.host import HostOps, Spans
from npuperf.model.labels import Labels
from npuperf.model.tasks import NO_TIME, Tasks, Work

US = 1_000
LIMITS = load_thresholds()


class T(Struct, frozen=True):
    """A task; ``launch``: its launch call, from and to, on ``thread``."""

    start: int
    end: int
    stream: int = 2
    name: str = "Add"
    work: Work = Work.COMPUTE
    launch: tuple[int, int] | None = None
    thread: int = 11


class H(Struct, frozen=True):
    """A host event."""

    name: str
    start: int
    end: int
    thread: int = 10


def wait(start, end, stream=2, name="EVENT_WAIT"):
    return T(start, end, stream, name, Work.CONTROL)


class Run(Struct, frozen=True):
    """A made-up device with its host; the main thread is 10, kernels are launched on 11."""

    tasks: list[T]
    host: tuple[H, ...] = ()
    latency: int = 0
    skew: int = 0

    def columns(self):
        tasks = sorted(self.tasks, key=lambda t: (t.start, t.end))
        return Tasks.build(
            np.array([t.start for t in tasks], np.int64),
            np.array([t.end for t in tasks], np.int64),
            np.array([t.work for t in tasks], np.uint8),
            stream=np.array([t.stream for t in tasks], np.int64),
            name=Labels.of([t.name for t in tasks]),
            launch_start=np.array([t.launch[0] if t.launch else NO_TIME for t in tasks], np.int64),
            launch_end=np.array([t.launch[1] if t.launch else NO_TIME for t in tasks], np.int64),
            launch_thread=np.array([t.thread if t.launch else -1 for t in tasks], np.int64),
        )

    def nesting(self):
        host = sorted(self.host, key=lambda h: (h.thread, h.start, -h.end))
        columns = [np.array([getattr(h, f) for h in host], np.int64) for f in ("start", "end", "thread")]
        return Nesting.build(Spans(*columns, Labels.of([h.name for h in host])))

    def found(self, limits=LIMITS):
        tasks, nesting = self.columns(), self.nesting()
        end = np.where(tasks.launched, tasks.launch_end - self.skew, NO_TIME)
        launches = Launches(end, self.latency, 1, self.skew, 0)
        timeline = lay_out(tasks, launches)
        threads = HostThreads(tasks.launch_thread, np.full(len(tasks), -1), 10)
        waits = find_dependencies(tasks, launches, timeline.idle, threads, nesting, limits)
        return tasks, nesting, timeline, waits

    def lines(self):
        tasks, nesting, timeline, waits = self.found()
        lines = Namer(tasks, tasks.name, HostOps(), nesting).sums(waits, 12)
        assert sum(line.ns for line in lines) == timeline.whole().dependency_wait_ns
        return {(d.kind, d.name): (d.ns, d.certain, d.stream, d.meanwhile) for d in lines}


def before(*, end=100 * US, stream=2, **more):
    """The task that the gap comes after."""
    return T(0, end, stream, "First", launch=(-50 * US, -45 * US), **more)


def after(start, *, dur=50 * US, stream=2, launch=(20 * US, 25 * US), **more):
    """The task that begins late, launched long before."""
    return T(start, start + dur, stream, "Late", launch=launch, **more)


def test_a_task_of_another_stream_that_just_ended_is_what_was_waited_for():
    run = Run([before(stream=3), after(107 * US)])
    assert run.lines() == {("stream", "First"): (7 * US, False, 3, None)}


def test_an_event_in_front_of_the_task_makes_that_certain():
    run = Run([before(stream=3), wait(30 * US, 101 * US), after(107 * US)])
    assert run.lines() == {("stream", "First"): (7 * US, True, 3, None)}


@pytest.mark.parametrize(("work", "kind"), [(Work.OTHER, "copy"), (Work.COMMUNICATION, "communication")])
def test_copies_and_collectives_are_named_as_such(work, kind):
    run = Run([before(stream=3, work=work), after(107 * US)])
    assert run.lines() == {(kind, "First"): (7 * US, False, 3, None)}


def test_a_copy_that_a_collective_is_made_of_is_the_collective():
    whole = T(0, 100 * US - 300, -1, "hcom_allReduce_", Work.COMMUNICATION, (-50 * US, -45 * US))
    part = T(90 * US, 100 * US, 4, "SDMA", Work.OTHER)
    run = Run([whole, part, after(107 * US)])
    assert run.lines() == {("communication", "hcom_allReduce_"): (7 * US, False, None, None)}


def test_a_task_of_another_stream_that_ended_long_before_explains_nothing():
    run = Run([before(stream=3), after(100 * US + LIMITS.wait_after_ns + 1)])
    assert run.lines() == {("unrecorded", "nothing recorded"): (LIMITS.wait_after_ns + 1, False, None, None)}


def test_a_task_launched_after_this_one_is_not_what_it_waited_for():
    later = T(0, 100 * US, 3, "First", launch=(30 * US, 35 * US))
    run = Run([T(-10 * US, 0, 4, "Start"), later, after(107 * US)])
    assert run.lines() == {("unrecorded", "nothing recorded"): (7 * US, False, None, None)}


def test_the_wait_for_an_event_counts_while_it_lasts():
    run = Run(
        [before(), wait(120 * US, 180 * US), T(178 * US, 179 * US, 5, "EVENT_RECORD", Work.CONTROL), after(400 * US)]
    )
    assert run.lines() == {
        ("event", "EVENT_WAIT"): (60 * US, True, 5, None),
        ("unrecorded", "nothing recorded"): (240 * US, False, 2, None),
    }


def test_a_record_on_the_stream_itself_is_not_what_ended_its_wait():
    record = T(178 * US, 179 * US, 2, "EVENT_RECORD", Work.CONTROL)
    lines = Run([before(), wait(120 * US, 180 * US), record, after(400 * US)]).lines()
    assert lines["event", "EVENT_WAIT"] == (60 * US, True, None, None)


def test_waits_of_other_streams_say_nothing():
    run = Run([before(), wait(120 * US, 180 * US, stream=7), after(400 * US)])
    assert run.lines() == {("unrecorded", "nothing recorded"): (300 * US, False, 2, None)}


def test_a_collective_waits_on_the_stream_of_its_first_part():
    late = T(400 * US, 500 * US, -1, "hcom_allReduce_", Work.COMMUNICATION, (20 * US, 25 * US))
    part = T(400 * US, 410 * US, 4, "SDMA", Work.OTHER)
    run = Run([before(), wait(50 * US, 380 * US, stream=4, name="Notify Wait"), late, part])
    assert run.lines() == {
        ("event", "Notify Wait"): (280 * US, True, None, None),
        ("unrecorded", "nothing recorded"): (20 * US, False, None, None),
    }


def test_a_task_soon_after_its_launch_was_on_its_way():
    run = Run([before(), after(130 * US, launch=(105 * US, 110 * US))], latency=2 * US)
    assert run.lines() == {("launch", "Late"): (18 * US, False, None, None)}


def test_the_next_task_of_a_stream_follows_after_a_moment():
    run = Run([before(), after(101 * US)])
    assert run.lines() == {("switch", "Late"): (1 * US, True, None, None)}


def test_a_blocking_copy_of_the_host_that_ends_as_the_task_begins_held_it_up():
    """463 ms, the host in a copy, a kernel launched but not begun."""
    copy = H("AscendCL@aclrtMemcpy", 90 * US, 463_103 * US)
    run = Run([before(), after(463_100 * US)], (copy,))
    assert run.lines() == {("copy", "AscendCL@aclrtMemcpy"): (463_000 * US, False, None, None)}


def test_a_copy_that_waits_for_the_task_does_not_hold_it_up():
    copy = H("AscendCL@aclrtMemcpy", 30 * US, 460 * US)
    run = Run([before(), after(400 * US)], (copy,))
    nothing = ("unrecorded", "nothing recorded")
    assert run.lines() == {nothing: (300 * US, False, 2, "AscendCL@aclrtMemcpy")}


def test_a_copy_that_waits_for_a_short_task_does_not_hold_it_up():
    copy = H("cudaMemcpy", 30 * US, 402 * US)
    run = Run([before(), after(400 * US, dur=1 * US)], (copy,))
    assert run.lines() == {("unrecorded", "nothing recorded"): (300 * US, False, 2, "cudaMemcpy")}


def test_a_copy_that_begins_after_the_launch_holds_the_task_up_from_then_on():
    copy = H("AscendCL@aclrtMemcpy", 130 * US, 403 * US)
    run = Run([before(), after(400 * US)], (copy,))
    assert run.lines() == {
        ("copy", "AscendCL@aclrtMemcpy"): (270 * US, False, None, None),
        ("unrecorded", "nothing recorded"): (30 * US, False, 2, None),
    }


def test_waiting_for_the_device_is_no_cause():
    sync = H("AscendCL@aclrtSynchronizeStreamWithTimeout", 30 * US, 403 * US)
    run = Run([before(), after(400 * US)], (sync,))
    nothing = ("unrecorded", "nothing recorded")
    assert run.lines() == {nothing: (300 * US, False, 2, "AscendCL@aclrtSynchronizeStreamWithTimeout")}


def test_a_wait_of_the_host_that_is_over_before_is_not_named():
    sync = H("AscendCL@aclrtSynchronizeStream", 30 * US, 370 * US)
    run = Run([before(), after(400 * US)], (sync,))
    assert run.lines() == {("unrecorded", "nothing recorded"): (300 * US, False, 2, None)}


def test_the_blocking_copy_that_launched_a_copy_prepares_it():
    copy = H("AscendCL@aclrtMemcpy", 15 * US, 900 * US, thread=11)
    late = replace(after(400 * US, launch=(20 * US, 20 * US)), work=Work.OTHER)
    run = Run([before(), late], (copy,))
    assert run.lines() == {("copy", "AscendCL@aclrtMemcpy"): (300 * US, False, None, None)}


def test_memory_that_is_given_back_may_hold_the_device_up():
    run = Run([before(), after(400 * US)], (H("cudaFree", 90 * US, 398 * US),))
    assert run.lines() == {("host_call", "cudaFree"): (300 * US, False, None, None)}


def test_operators_of_the_host_that_run_meanwhile_explain_nothing():
    run = Run([before(), after(400 * US)], (H("aten::conv2d", 90 * US, 400 * US),))
    assert run.lines() == {("unrecorded", "nothing recorded"): (300 * US, False, 2, None)}


def test_a_call_may_still_be_launching_where_the_end_of_the_launch_is_not_recorded():
    call = H("Dequeue@HcclAllreduce", 10 * US, 250 * US, thread=11)
    run = Run([before(), after(400 * US, launch=(20 * US, 20 * US))], (call,))
    assert run.lines() == {
        ("host_call", "Dequeue@HcclAllreduce"): (150 * US, False, None, None),
        ("unrecorded", "nothing recorded"): (150 * US, False, 2, None),
    }


def test_a_call_that_launched_the_next_task_has_launched_this_one():
    call = H("Dequeue@Conv2D", 10 * US, 250 * US, thread=11)
    following = T(500 * US, 550 * US, launch=(130 * US, 130 * US))
    run = Run([before(), after(400 * US, launch=(20 * US, 20 * US)), following], (call,))
    assert run.lines()[("host_call", "Dequeue@Conv2D")] == (30 * US, False, None, None)


def test_host_times_are_moved_onto_the_clock_of_the_device():
    copy = H("AscendCL@aclrtMemcpy", 1_090 * US, 1_403 * US)
    run = Run([before(), after(400 * US, launch=(1_020 * US, 1_025 * US))], (copy,), skew=1_000 * US)
    assert run.lines() == {("copy", "AscendCL@aclrtMemcpy"): (300 * US, False, None, None)}


SMALL = replace(LIMITS, gap_ns=3, wait_after_ns=6, launch_jitter_ns=9)
NAMES = ("AscendCL@aclrtMemcpy", "cudaFree", "aten::mm", "AscendCL@aclrtSynchronizeDevice", "Dequeue@Add", "my range")


def invented(dice):
    """A small random device: three streams, a collective, waits, records, and host events on two threads."""
    tasks = []
    for stream in (1, 2, 3):
        at = dice.randint(0, 10)
        for _ in range(dice.randint(2, 8)):
            kind = dice.random()
            length = dice.randint(1, 12)
            if kind < 0.2:
                tasks.append(wait(at, at + dice.randint(0, 20), stream))
                at = tasks[-1].end
            elif kind < 0.3:
                tasks.append(T(at, at, stream, "EVENT_RECORD", Work.CONTROL))
            else:
                begun = at - dice.randint(-4, 40)
                call = (begun, begun + dice.choice((0, 0, 2)))
                work = dice.choice((Work.COMPUTE, Work.COMPUTE, Work.OTHER))
                tasks.append(
                    T(at, at + length, stream, dice.choice("abc"), work, call if dice.random() < 0.9 else None)
                )
                at += length
            at += dice.choice((0, 1, 2, 3, 4, 6, 7, 15, 40))
    if dice.random() < 0.4:
        at = dice.randint(0, 100)
        tasks.append(T(at, at + 9, -1, "hcom_x", Work.COMMUNICATION, (at - 30, at - 25)))
    host = []
    for thread in (10, 11):
        at = dice.randint(-30, 0)
        while at < 150:
            end = at + dice.randint(1, 60)
            host.append(H(dice.choice(NAMES), at, end, thread))
            if end - at > 4:
                host.append(H(dice.choice(NAMES), at + 1, end - 1, thread))
            at = end + dice.randint(0, 20)
    return Run(tasks, tuple(host), latency=2, skew=dice.choice((0, 0, 5)))


class Oracle:
    """What the rules say, nanosecond by nanosecond, in plain words instead of columns."""

    def __init__(self, run):
        self.run = run
        self.tasks = sorted(run.tasks, key=lambda t: (t.start, t.end))
        self.active = [t for t in self.tasks if t.work != Work.CONTROL]

    def kind_at(self, time):
        """What the device waits for in [time, time + 1); None where it waits for no dependency."""
        if any(t.start <= time < t.end for t in self.active):
            return None
        ended = [t.end for t in self.active if t.end <= time]
        coming = [t for t in self.active if t.start > time]
        if not ended or not coming:
            return None
        begin, end = max(ended), min(t.start for t in coming)
        enders = [t for t in coming if t.start == end]
        task = min(enders, key=lambda t: t.launch[1] if t.launch else 10**9)
        if task.launch is None:
            return None
        launched = task.launch[1] - self.run.skew
        if time < min(max(launched, begin) + self.run.latency, end):
            return None
        return self.device_kind(task, begin, end, launched, time) or self.host_kind(task, begin, end, launched, time)

    def device_kind(self, task, begin, end, launched, time):
        mine = [t for t in self.active if t.stream == task.stream and self.tasks.index(t) < self.tasks.index(task)]
        last = max(mine, key=self.tasks.index, default=None)
        stream = task.stream
        if stream < 0:
            stream = next((t.stream for t in self.tasks if t.start == task.start and t.stream >= 0), stream)
        waits = [t for t in self.tasks if "WAIT" in t.name and t.stream == stream]
        behind = any((last is None or w.start >= last.start) and w.start <= end for w in waits)
        soon = end - launched <= self.run.latency + SMALL.launch_jitter_ns
        others = [t for t in self.active if t.end == begin and t.stream != task.stream]
        if others and launched <= begin and (last is None or last.end < begin) and end - begin <= SMALL.wait_after_ns:
            other = min(others, key=lambda t: t.start)
            if other.work == Work.OTHER:  # a part of the collective, if any: all of this lies within a microsecond
                other = next((t for t in self.active if t.work == Work.COMMUNICATION), other)
            known = other.launch[1] - self.run.skew if other.launch else None
            if (known is None or known <= launched) and (not soon or behind):
                return {Work.OTHER: "copy", Work.COMMUNICATION: "communication"}.get(other.work, "stream")
        for w in waits:
            if w.start <= time < w.end:
                return "event"
        if last is not None and last.end == begin and launched <= begin and end - begin <= SMALL.gap_ns:
            return "switch"
        return "launch" if soon else None

    def free_part(self, task, begin, end, launched, time):
        """The stretch around ``time`` in which only the host may tell."""
        ready = min(max(launched, begin) + self.run.latency, end)
        first, last = time, time + 1
        while first > ready and self.device_kind(task, begin, end, launched, first - 1) is None:
            first -= 1
        while last < end and self.device_kind(task, begin, end, launched, last) is None:
            last += 1
        return first, last

    def host_kind(self, task, begin, end, launched, time):
        first, last = self.free_part(task, begin, end, launched, time)
        skew, near = self.run.skew, SMALL.wait_after_ns
        for thread in (task.thread, 10):
            call = self.innermost(thread, max(first, last - near) + skew, ("AscendCL@aclrtMemcpy", "cudaFree"))
            if call is None:
                continue
            since = max(first, call.start - skew)
            returned = last - since > near and abs(call.end - task.start - skew) <= near and call.end < task.end + skew
            own = task.work == Work.OTHER and thread == task.thread and call.start <= task.launch[0] <= call.end
            if returned or (own and call.end >= task.start + skew):
                if time >= since:
                    return "copy" if "Memcpy" in call.name else "host_call"
                break
        if task.launch[0] == task.launch[1]:
            busy = tuple(n for n in NAMES if n != "my range")
            call = self.innermost(task.thread, task.launch[0], (*busy, "my range"), leaf_ranges=True)
            after = [t.launch[0] for t in self.tasks if t.launch and t.launch[0] > task.launch[0]]
            if call and time < min([call.end, *after]) - skew:
                return "host_call"
        return "unrecorded"

    def innermost(self, thread, time, names, *, leaf_ranges=False):
        around = [h for h in self.run.host if h.thread == thread and h.start <= time < h.end and h.name in names]
        if leaf_ranges:  # a range without anything inside counts as work of its own
            around = [h for h in around if h.name != "my range" or not self.holds_any(h)]
        return max(around, key=lambda h: (h.start, -h.end), default=None)

    def holds_any(self, outer):
        return any(
            h.thread == outer.thread and h is not outer and outer.start <= h.start and h.end <= outer.end
            for h in self.run.host
        )


@pytest.mark.parametrize("seed", range(60))
def test_every_nanosecond_has_the_kind_that_the_rules_give_it(seed):
    run = invented(random.Random(seed))
    tasks, nesting, timeline, waits = run.found(SMALL)
    first, last = timeline.span
    told = [None] * (last - first)
    for start, end, kind in zip(waits.start.tolist(), waits.end.tolist(), waits.kind.tolist(), strict=True):
        for time in range(start, end):
            assert told[time - first] is None
            told[time - first] = KINDS[kind]
    oracle = Oracle(run)
    assert told == [oracle.kind_at(time) for time in range(first, last)]
    window = (first + 7, (first + last) // 2)
    lines = Namer(tasks, tasks.name, HostOps(), nesting).sums(waits.within(*window), 3)
    by_kind = {kind: sum(d.ns for d in lines if d.kind == kind) for kind in KINDS}
    inside = told[7 : window[1] - first]
    assert by_kind == {kind: inside.count(kind) for kind in KINDS}


def test_the_random_devices_show_every_kind():
    runs = (invented(random.Random(seed)).found(SMALL)[3] for seed in range(60))
    assert {KINDS[k] for waits in runs for k in waits.kind.tolist()} == set(KINDS)


# -- Who waits for whom in the replay, asked of every task and every launch by itself.


@pytest.mark.parametrize("seed", range(30))
def test_waits_for_events_and_collectives_are_ordered_after_what_was_before(seed):
    rng = random.Random(seed)
    made, clock = [], dict.fromkeys((2, 3, 4), 0)
    for _ in range(rng.randrange(2, 10)):
        stream = rng.choice(list(clock))
        start = clock[stream] + rng.randrange(1, 6)
        kind = rng.choice([Work.COMPUTE, Work.COMPUTE, Work.COMMUNICATION, Work.CONTROL])
        clock[stream] = start + rng.randrange(1, 6)
        made.append(T(start, clock[stream], stream, "EVENT_WAIT" if kind == Work.CONTROL else "x", kind))
    made.append(T(max(clock.values()), max(clock.values()) + 1, 2))
    tasks = Run(made).columns()
    rows = [i for i in range(len(tasks)) if tasks.work[i] != Work.CONTROL]
    zero = tasks.start[rows[0]]
    position = rng.sample(range(len(rows)), len(rows))
    columns = (tasks.start[rows] - zero, tasks.end[rows] - zero, tasks.stream[rows], np.array(position))
    start, end, stream, _ = (column.tolist() for column in columns)
    expected = [NONE] * len(rows)
    waits = [(int(t.start) - int(zero), int(t.stream)) for t in made if t.work == Work.CONTROL]
    for i in range(len(rows)):
        mine = [j for j in range(i) if stream[j] == stream[i]]
        ended = [(end[j], j) for j in range(len(rows)) if end[j] <= start[i]]
        since = start[mine[-1]] if mine else -1_000
        if ended and any(s == stream[i] and since <= at <= start[i] for at, s in waits):
            last = max(ended)[1]
            if stream[last] != stream[i] and position[last] < position[i]:
                expected[i] = last
    before = {}
    for i, row in enumerate(rows):
        if tasks.work[row] == Work.COMMUNICATION:
            compute = [j for j, r in enumerate(rows) if tasks.work[r] == Work.COMPUTE and position[j] < position[i]]
            if compute:
                before[i] = max(compute, key=position.__getitem__)
    if all(end[j] <= start[i] for i, j in before.items()):
        for i, j in before.items():
            expected[i] = j
    assert ordered_after(tasks, np.array(rows), Placed.of(*columns)).tolist() == expected


@pytest.mark.parametrize("seed", range(40))
def test_a_thread_that_was_idle_goes_on_with_what_another_has_launched(seed):
    """Idle is one of which nothing, or only what surrounds work, is recorded when the other's launch was done."""
    rng = random.Random(seed)
    count, skew = rng.randrange(1, 14), rng.randrange(3)
    begin = sorted(rng.randrange(60) for _ in range(count))
    thread = [rng.choice([10, 11, 12, -1]) for _ in range(count)]
    sync = [rng.choice([NONE, NONE, 0, 1]) for _ in range(count)]
    done = [b + (rng.randrange(8) if s != NONE else 0) for b, s in zip(begin, sync, strict=True)]
    host = [H(rng.choice(["aten::add", "ProfilerStep#3"]), at, at + rng.randrange(1, 9), on)
            for on in (10, 11, 12) for at in range(0, 60, 10) if rng.random() < 0.6]  # fmt: skip
    nesting = Run([T(0, 1)], tuple(host)).nesting()
    led = np.array([False, True])
    order = Order(*(np.array(c, np.int64) for c in ([NONE] * count, sync, begin, done, thread)))
    chain = host_chain(order, nesting, skew, led)
    rows = {t: i for i, t in enumerate(sorted(set(thread)))}
    hosts = [i for i in range(count) if thread[i] >= 0]
    for i in range(count):
        own, since = thread[i], begin[i]
        if i in hosts:
            earlier = [j for j in hosts if j < i]
            mine = [j for j in earlier if thread[j] == thread[i]]
            source = mine[-1] if mine else None
            last = max(earlier, key=lambda j: (done[j], j), default=None)
            if last is not None and thread[last] != own and done[last] <= begin[i]:
                now = done[last] + skew - 1
                busy = any(h.name == "aten::add" and h.thread == own and h.start <= now < h.end for h in host)
                handed = not mine or done[last] >= done[source]
                if handed and (not busy or (sync[i] != NONE and led[sync[i]])):
                    source, own = last, thread[last]
            since = min(begin[i], begin[hosts[0]] if source is None else done[source])
        assert (chain.own[i], chain.pred[i]) == (rows[thread[i]], rows[own]), i
        assert (chain.since[i], chain.host_ns[i]) == (since, begin[i] - since), i
