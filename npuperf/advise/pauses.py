"""Pauses of the host: the device waits while the program does something else than launching, for long."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.advise.host_waits import HOST_CALLS
from npuperf.advise.moves import NO_PRIVATE_FORMATS, PRIVATE_FORMATS
from npuperf.advise.needs import (
    CALLS_AND_OPERATORS,
    COLLECTIONS,
    HOST_DOINGS,
    HOST_EVENTS,
    HOST_WAITS,
    ON_NPU,
    RUNTIME_CALLS,
    STEPS,
    TORCH_OPERATORS,
    Need,
    Option,
    Requirement,
    to_rule_out,
    where_host_bound,
)
from npuperf.advise.rule import Answer, Detected, Rule, at_most, notable_wait, rule
from npuperf.base.messages import Message, Quantity, chain, ns, say, say_n, series, share
from npuperf.device.blame import NOTHING, OTHERS, sum_blame
from npuperf.device.host_events import CODE, NONE
from npuperf.device.view import DeviceView
from npuperf.model.groups import distinct
from npuperf.model.host import Spans, is_frame, shorten
from npuperf.model.labels import I64, Labels
from npuperf.model.names import DEQUEUED
from npuperf.model.result import Blame
from npuperf.model.tasks import Work

# -- Work of the first calls of a process in the window: contexts, modules, binaries. A warm run has none of it.

_NAMED: Final = 3


#: No wait is so long, with nothing recorded, that one-time work may have been done in it.
_NO_PAUSE: Final = Need(
    say("no pause"),
    lambda view: float(not any(b.cause == "unrecorded" and b.ns >= view.thresholds.pause_ns * b.count
                               for b in view.report.blame)),
    HOST_EVENTS.supply,
    vital=False,
)  # fmt: skip


@rule(
    say("start-up work"),
    say(
        "runtimes make a context, and load the code of a kernel, in the first call that needs it; guides of profilers: "
        "record after warm-up"
    ),
    (*HOST_WAITS, *where_host_bound(RUNTIME_CALLS, _NO_PAUSE)),
    any_device=True,
    relieves="host",
)
def start_up(view: DeviceView) -> Answer:
    """Sum what the device waits while the host is in first calls that take much longer than later ones."""
    waited = view.blamed("start_up")
    if waited < notable_wait(view):
        return None
    nesting = view.study.nesting
    events = nesting.events
    blamed = view.study.blamed.within(*view.span)
    mine = blamed.cause == CODE["start_up"]
    length = (blamed.end - blamed.start)[mine]
    whole = nesting.outermost(blamed.event[mine].astype(np.int64), nesting.blamed == CODE["start_up"])
    codes = events.name.codes[whole]
    totals = np.bincount(codes, weights=length, minlength=len(events.name.names))
    order = [i for i in np.argsort(-totals, kind="stable").tolist() if totals[i] > 0]
    calls = [{"name": events.name.names[i], "ns": int(totals[i])} for i in order]
    span = view.partition.span_ns
    shown = series(say("{name} {time}", name=events.name.names[i], time=ns(float(totals[i]))) for i in order[:_NAMED])
    return Detected(
        title=say(
            "start-up work is in the window: for {share} of it the device waits for first calls ({calls}); without "
            "them {left} are left",
            share=share(waited / span),
            calls=shown,
            left=ns(span - waited),
        ),
        evidence={"host_wait_ns": waited, "calls": calls, "left_ns": span - waited},
        gain=(0, view.per_step(waited)),
        refute=say("the same calls take as long in a recording after ten steps"),
        next=say("record after warm-up: torch.profiler.profile(schedule=schedule(wait=5, warmup=5, active=2)), with "
                 "step() at the end of each step") if view.profile.kineto
        else say("record after warm-up: npuperf profile --wait 10 (its default)"),
    )  # fmt: skip


#: Names of causes in the evidence.
_NAMES = 3


@rule(
    say("pauses of the host"),
    say("launches of the timeline, and what the host did between them; npuperf's definition of a pause (pause_ns)"),
    HOST_WAITS,
    any_device=True,
    relieves="host",
)
def host_pauses(view: DeviceView) -> Answer:
    """Sum the pauses that the device waits for, and name what most of them is spent on."""
    found = view.paused
    length = found.end - found.start
    total = int(length.sum())
    if total < notable_wait(view):
        return None
    rows = sum_blame(found, view.profile.host, view.study.nesting, _NAMES)
    gaps = view.study.timeline.idle
    gap = np.searchsorted(gaps.start, found.start, side="right") - 1
    each = np.bincount(np.unique(gap, return_inverse=True)[1].reshape(-1), weights=length)
    replayed = at_most(view.predict("host:pause*0"))
    worst, part, longest = rows[0], share(total / view.partition.span_ns), ns(int(each.max()))
    if worst.name == NOTHING:
        title = say_n(
            "the host pauses once, for {longest} ({share} of span), and launches nothing; what it does is not recorded",
            "the host pauses {n} times ({share} of span, {longest} at most) and launches nothing; what it does is not "
            "recorded",
            len(each), share=part, longest=longest,
        )  # fmt: skip
    else:
        call: str | Message = worst.name
        if is_frame(worst.name):
            call = worst.where or shorten(worst.name)
        elif worst.where:
            call = say("{call} at {place}", call=worst.name, place=worst.where)
        title = say_n(
            "the host pauses once, for {longest} ({share} of span), and launches nothing: {call}",
            "the host pauses {n} times ({share} of span, {longest} at most) and launches nothing, mostly in {call}",
            len(each), share=part, longest=longest, call=call,
        )  # fmt: skip
    return Detected(
        title=title,
        evidence={
            "host_wait_ns": total,
            "pauses": len(each),
            "longest_ns": int(each.max()),
            "names": [{"cause": b.cause, "name": b.name, "ns": b.ns, "where": b.where} for b in rows[:_NAMES]],
        },
        gain=replayed and (0, min(replayed[1], view.per_step(total))),
        refute=say("the pauses are as they should be: the program has nothing to do, or must wait for something else"),
        next=_after_pauses(view, worst),
    )


#: What shows what goes on inside of a range, or where nothing is recorded.
_STACKS: Final = "npuperf profile --stack"
_STACKS_OF_TORCH: Final = "torch.profiler (with_stack=True)"


def _after_pauses(view: DeviceView, worst: Blame) -> Message:
    """Return the advice for what most of the pauses is spent in: who pauses there can tell what would shorten it."""
    again = None if view.profile.host.has_lines else _STACKS_OF_TORCH if view.profile.kineto else _STACKS
    if worst.name == NOTHING:
        idle = say("if the program waits for requests there, nothing is wrong: look at a time of full load")
        return chain(idle, say("else record with {again}, which shows what it does", again=again) if again else None)
    if worst.cause == "memory":
        return say(
            "record later steps: the first ones of a run take memory from the driver, later ones find it in the cache; "
            "if these calls recur there, tensors of ever new sizes fragment it"
        )
    if worst.cause == "compiled":
        first = say("record later steps: in its first calls, what torch.compile made loads and tries its kernels")
        shown = say("where later ones pause, too, {again} shows what it does", again=again) if again else None
        return chain(first, shown)
    if worst.cause == "profiler":
        return say("the profiler itself takes this time: judge steps in which it neither starts nor stops")
    elsewhere = say(
        "let another thread or process do it (checkpoints, logs, preparing data), or do it less often; faster launches "
        "do not shorten a pause"
    )
    if again is None or (worst.cause == "python" and worst.where):
        return elsewhere
    shown = say("record with {again}, which shows what goes on there", again=again)
    return chain(
        shown, say("work that no kernel waits for (checkpoints, logs, preparing data) can be another thread's")
    )


# -- Causes of waiting for the host: what the launching thread does meanwhile.


def _rule_of_cause(
    name: str,
    title: Message,
    source: Message,
    needs: tuple[Need, ...],
    cause: str,
    says: Callable[[Quantity, str], Message],
    refute: Message,
    next: Callable[[DeviceView], Message],
) -> Rule:
    """Make the rule about a cause that takes a notable part of the window.

    ``says`` gets the part of the span that is waited, and the call that takes longest.
    """

    def look(view: DeviceView) -> Answer:
        waited = view.blamed(cause)
        if waited < notable_wait(view):
            return None
        lines = [b for b in view.report.blame if b.cause == cause]
        longest, *_ = (b.name for b in lines if b.name != OTHERS)
        names = [{"name": b.name, "ns": b.ns, "count": b.count, "where": b.where} for b in lines[:3]]
        return Detected(
            title=says(share(waited / view.partition.span_ns), longest),
            evidence={"host_wait_ns": waited, "names": names},
            gain=view.predict(f"host:{cause}*0"),
            refute=refute,
            next=next(view),
        )

    return Rule(name, title, source, needs, look, any_device=True, relieves="host")


# -- Operators or graphs are compiled, or captured, while the device waits.

#: CANN's own compilations; all others are those of torch.compile.
_CANN: Final = re.compile(r"^(AscendCL|Node|Model|Runtime|GE)@")


def _later_steps(view: DeviceView) -> Message:
    """Tell what is compiled by where most of the wait is, as CANN and torch.compile are helped by different things."""
    lines = [b for b in view.report.blame if b.cause == "compile"]
    if 2 * sum(b.ns for b in lines if _CANN.match(b.name)) >= sum(b.ns for b in lines if b.name != "others"):
        return say(
            "record later steps; if these compile, too, call torch.npu.set_compile_mode(jit_compile=False) (the "
            "default from Atlas A2 on), or fix the shapes that change"
        )
    return say(
        "record later steps; if these compile, too, TORCH_LOGS=recompiles names the guard that fails: keep that value "
        "constant, or mark the dimension dynamic (torch._dynamo.mark_dynamic, torch.compile(dynamic=True))"
    )


captures = _rule_of_cause(
    "captures",
    say("graph captures"),
    say("calls that begin and end the capture of a stream, and what torch times of recording"),
    (*HOST_DOINGS, *where_host_bound(*to_rule_out(RUNTIME_CALLS))),
    "capture",
    lambda waited, call: say(
        "during {waited} of span the device waits for the host to capture graphs, longest in {call}",
        waited=waited,
        call=call,
    ),
    refute=say("later steps of the same run show no such event"),
    next=lambda _: say(
        "record later steps: a graph is captured once for every shape, and replayed from then on; if these capture, "
        "too, pad the sizes that change to a few, or leave what changes out of the graph"
    ),
)
compilation = _rule_of_cause(
    "compilation",
    say("compilation"),
    say("calls of the runtime that compile, what torch.compile times of itself, and its functions that compile"),
    CALLS_AND_OPERATORS,
    "compile",
    lambda waited, call: say(
        "during {waited} of span the device waits for the host to compile, longest in {call}", waited=waited, call=call
    ),
    refute=say("later steps of the same run show no such event"),
    next=_later_steps,
)


# -- Kernels launched through aclopCompileAndExecute: looked up, or compiled, while the program runs.

_ACLOP: Final = say(
    "calls of aclopCompileAndExecute in the timeline; torch_npu (op-plugin) takes it where jit_compile is on, an input "
    "has an internal format, convolutions may have one, or the operator has no aclnn interface"
)
_NN: Final = re.compile(r"^AscendCL@aclnn\w+$")
_PREPARES: Final = re.compile(r"GetWorkspaceSize$")
_CONVOLUTION: Final = re.compile(r"^(Depthwise)?Conv\d?D|^DepthwiseConv")
_SHOWN: Final = 3


class Calls(Struct, frozen=True):
    """Calls of aclopCompileAndExecute that lie in the window, or launched a task of it, ordered by start.

    ``dur``: ns; ``compile``: ns in opCompile inside, -1 where none is recorded; ``recurs``: 1 where an earlier call was
    for the same operator and input shapes, 0 where none was, -1 where shapes are not recorded.
    """

    type: Labels
    dur: I64
    compile: I64
    recurs: I64

    @classmethod
    def of(cls, view: DeviceView) -> Calls:
        """Find the calls of a device's profile, and what each launched."""
        nesting, tasks = view.study.nesting, view.profile.tasks
        events = nesting.events
        is_call = nesting.causes == CODE["aclop"]
        call = np.flatnonzero(is_call)
        call = call[np.argsort(events.start[call], kind="stable")]
        number = np.full(len(events), NONE)
        number[call] = np.arange(len(call))
        launched = np.flatnonzero(tasks.launched & (tasks.work == Work.COMPUTE)) if len(call) else call
        at = nesting.nearest(nesting.at(tasks.launch_thread[launched], tasks.launch_start[launched]), is_call)
        launched, owner = launched[at >= 0], number[at[at >= 0]]
        # A call is named after the operator that the task queue's consumer took, or after its longest task.
        longest = np.full(len(call), NONE)
        by_length = np.argsort(tasks.dur[launched], kind="stable")
        longest[owner[by_length]] = launched[by_length]
        named, shapes = view.study.types.take(longest), tasks.shapes.take(longest)
        found = [DEQUEUED.match(name) for name in events.name.names]
        queued = events.name.take(nesting.nearest(call, events.name.flag([m is not None for m in found])))
        names = tuple(m.group(1) if m else n for m, n in zip(found, queued.names, strict=True))
        compiling = np.flatnonzero(nesting.causes == CODE["compile"])
        around = nesting.nearest(compiling, is_call)
        compiling, around = compiling[around >= 0], around[around >= 0]
        compiled = np.full(len(call), -1, np.int64)
        compiled[number[around]] = 0
        np.add.at(compiled, number[around], (events.end - events.start)[compiling])
        _, first_of_kind = np.unique(
            named.codes.astype(np.int64) * (len(shapes.names) + 1) + shapes.codes, return_index=True
        )
        recurs = np.ones(len(call), np.int64)
        recurs[first_of_kind] = 0
        begin = events.start[call] - view.study.launches.skew
        first, end = view.span
        inside = (begin >= first) & (begin < end)
        inside[owner[(tasks.start[launched] >= first) & (tasks.start[launched] < end)]] = True
        return cls(
            Labels(queued.codes, names).fill(named).filter(inside),
            (events.end[call] - events.start[call])[inside],
            compiled[inside],
            np.where(named.known() & shapes.known(), recurs, -1)[inside],
        )


def aclnn_calls(events: Spans, enough: float) -> I64:
    """Return what each aclnn operator costs the host, ns: its call, and the one that prepared it.

    The task queue keeps their order, so that the first of a name was prepared first; of a name whose calls are not all
    there nobody knows which belong together. Where less than ``enough`` of the operators can be put together these
    few say nothing of the others: then it is the calls by themselves.
    """
    names, dur = events.name.names, events.end - events.start
    bases = {base: place for place, base in enumerate(dict.fromkeys(_PREPARES.sub("", n) for n in names))}
    base = np.array([bases[_PREPARES.sub("", n)] for n in names], np.int64)[events.name.codes]
    prepares = np.flatnonzero(events.name.flag([bool(_NN.match(n) and _PREPARES.search(n)) for n in names]))
    calls = np.flatnonzero(events.name.flag([bool(_NN.match(n) and not _PREPARES.search(n)) for n in names]))
    counts = [np.bincount(base[rows], minlength=len(bases)) for rows in (prepares, calls)]
    whole = counts[0] == counts[1]
    if int(counts[1][whole].sum()) < enough * len(calls):
        alone: I64 = dur[calls]
        return alone
    halves = (rows[whole[base[rows]]] for rows in (prepares, calls))
    first, second = (rows[np.lexsort((events.start[rows], base[rows]))] for rows in halves)
    together: I64 = dur[first] + dur[second]
    return together


@rule(
    say("operators compiled or looked up online"),
    _ACLOP,
    HOST_CALLS,
    relieves="host",
)
def online_compile(view: DeviceView) -> Answer:
    """Weigh the calls against what an aclnn call of the same profile costs."""
    calls = Calls.of(view)
    if not len(calls.dur):
        return None
    whole = aclnn_calls(view.profile.host.events, view.thresholds.enough_data)
    usual = int(np.median(whole)) if len(whole) else None
    total = int(calls.dur.sum())
    excess = int(np.maximum(calls.dur - (usual or 0), 0).sum())
    gain = at_most(view.predict(f"host:aclop*{1 - excess / max(total, 1):.6f}"))
    most = gain[1] if gain else 0
    if view.blamed("aclop") < view.thresholds.cause_share * view.partition.span_ns and (
        most < view.thresholds.lost_share * view.per_step(view.partition.span_ns)
    ):
        return None
    compiled = int(np.count_nonzero(calls.compile >= view.thresholds.compile_call_ns))
    codes = calls.type.codes + 1
    each, count = np.bincount(codes, weights=calls.dur), np.bincount(codes)
    types = (None, *calls.type.names)
    order = [i for i in np.argsort(-each, kind="stable").tolist() if count[i]]
    timed = bool((calls.compile >= 0).any())
    return Detected(
        title=_online_title(calls, usual, compiled, [(types[i] or "N/A", int(count[i])) for i in order[:_SHOWN]]),
        evidence={
            "calls": len(calls.dur),
            "host_ns": total,
            "host_wait_ns": view.blamed("aclop"),
            "aclnn_call_ns": usual,
            "compiled": compiled if timed else None,
            "longest_compile_ns": int(calls.compile.max()) if timed else None,
            "shapes_known": int((calls.recurs >= 0).sum()),
            "shapes_seen_before": int((calls.recurs == 1).sum()),
            "types": [{"type": types[i], "count": int(count[i]), "host_ns": int(each[i])} for i in order],
        },
        gain=gain,
        refute=say("most of each call remains where the same operator runs through aclnn"),
        next=_online_advice(view, calls, usual, compiled=compiled > 0),
    )


def _online_title(calls: Calls, usual: int | None, compiled: int, types: Sequence[tuple[str, int]]) -> Message:
    """Say how many calls there are, what they cost, and what the recording tells of compiling.

    That is opCompile's own time first, else whether shapes came before. One recording has few steps, so a shape that is
    new in it need not be new to the program.
    """
    each = ns(float(np.median(calls.dur)))
    what = say(
        "{count} operators are launched through aclopCompileAndExecute, which takes the host {each} in the median",
        count=len(calls.dur),
        each=each,
    )
    if usual is not None:
        what = say(
            "{count} operators are launched through aclopCompileAndExecute, which takes the host {each} in the median "
            "where an aclnn call takes {usual}",
            count=len(calls.dur),
            each=each,
            usual=ns(usual),
        )
    shown = series(say("{type} ×{count}", type=type, count=count) for type, count in types)
    if compiled:
        return say("{what}, {compiled} of them compile: {types}", what=what, compiled=compiled, types=shown)
    compiles, known = None, int((calls.recurs >= 0).sum())
    if (calls.compile >= 0).all():
        compiles = say(
            "none of them compiles here, opCompile takes {longest} at most", longest=ns(int(calls.compile.max()))
        )
    elif known:
        compiles = say("{again} of {known} have shapes that came before in the recording",
                       again=int((calls.recurs == 1).sum()), known=known)  # fmt: skip
    return chain(say("{what}: {types}", what=what, types=shown), compiles)


_WITHOUT_FORMATS: Final = say(
    "{advice}: as long as internal formats are allowed, convolutions and what gets their format do not run through "
    "aclnn; jit_compile seems to be off already, as other operators do", advice=NO_PRIVATE_FORMATS
)  # fmt: skip
_NO_INTERFACE: Final = say(
    "jit_compile seems to be off already, as other operators run through aclnn (it is not recorded); these have inputs "
    "of an internal format (torch.npu.config.allow_internal_format = False avoids them), or no aclnn interface in this "
    "version of torch_npu and CANN"
)


def _online_advice(view: DeviceView, calls: Calls, usual: int | None, *, compiled: bool) -> tuple[Option, ...]:
    """Whether jit_compile is on is not recorded; what ran through aclnn beside tells that it probably is not."""
    names = [calls.type.names[code] for code in distinct(calls.type.codes[calls.type.known()]).tolist()]
    kept = any(_CONVOLUTION.match(name) for name in names) and PRIVATE_FORMATS.test(view) is not False
    # Neither compile times nor shapes say what the calls had to do.
    unclear = not (calls.compile >= 0).all() and not (calls.recurs >= 0).any()
    switch = Requirement(say("jit_compile switched on"), lambda _: None if compiled or usual is None else False)
    convolutions = Requirement(say("convolutions that may have internal formats"), lambda _: kept)
    others = Requirement(say("no convolutions that may have internal formats"), lambda _: not kept)
    off = Requirement(say("operators that run through aclnn beside them"), lambda _: usual is not None and not compiled)
    without_shapes = Requirement(say("input shapes not recorded"), lambda _: unclear)
    switched_off = say(
        "call torch.npu.set_compile_mode(jit_compile=False): nothing ran through aclnn, which torch_npu takes only "
        "then; it is the default from Atlas A2 on"
    )
    if compiled:
        switched_off = say(
            "call torch.npu.set_compile_mode(jit_compile=False) before the first step, so that operators come from the "
            "binary package; it is the default from Atlas A2 on"
        )
    with_shapes = say("record with npuperf profile --level 1 --shapes, which tells whether their shapes recur")
    return (
        Option(switched_off, _ACLOP, (ON_NPU, switch)),
        Option(_WITHOUT_FORMATS, _ACLOP, (ON_NPU, off, convolutions, PRIVATE_FORMATS)),
        Option(_NO_INTERFACE, _ACLOP, (ON_NPU, off, others)),
        Option(with_shapes, _ACLOP, (ON_NPU, without_shapes)),
    )


# -- Steps recorded too early: operator compilation and warm-up are in them.

_WARM: Final = 10


@rule(
    say("warm-up"),
    say("vendor's profiling guide: run ten steps first, then record one or two"),
    (STEPS,),
    any_device=True,
    relieves="host",
)
def early_steps(view: DeviceView) -> Answer:
    """Look for steps among the first ten. Numbers count from the profiler's start, which may be later."""
    early = [s for s in view.steps if s < _WARM]
    if not early:
        return None
    return Detected(
        title=say("step {step} is among the first ten: compilation and warm-up may be part of it", step=early[0]),
        evidence={"steps": early},
        refute=say("the profiler was started late in a run that was already warm, or later steps take the same time"),
        next=say("torch.profiler.schedule(wait=10, warmup=5, active=2) records later steps") if view.profile.kineto
        else say("npuperf profile --wait 10 (its default) records later steps"),
    )  # fmt: skip


# -- The launching thread loads data, or collects garbage, while the device waits.

data_loading = _rule_of_cause(
    "data_loading",
    say("data loading"),
    say("events and functions of torch's DataLoader on the launching thread"),
    (*HOST_DOINGS, *where_host_bound(*to_rule_out(TORCH_OPERATORS))),
    "data_loading",
    lambda waited, call: say(
        "during {waited} of span the device waits for the host to load data, longest in {call}",
        waited=waited,
        call=call,
    ),
    refute=say("the step takes just as long with a batch that is ready in memory"),
    next=lambda _: say(
        "use more workers, pin_memory, prefetch_factor or persistent_workers, or fetch the next batch during the step"
    ),
)
garbage_collection = _rule_of_cause(
    "garbage_collection",
    say("garbage collection"),
    say("garbage collector events (gc_detect_threshold) and calls of gc.collect"),
    (*HOST_DOINGS, *where_host_bound(*to_rule_out(COLLECTIONS))),
    "gc",
    lambda waited, call: say(
        "during {waited} of span the device waits for the host to collect garbage, longest in {call}",
        waited=waited,
        call=call,
    ),
    refute=say("the step takes just as long with the collector disabled"),
    next=lambda _: say("call gc.freeze() after start-up, or gc.disable() once and gc.collect() between steps"),
)
