"""Sequences of operators, and optimizers, that torch_npu has one fused operator for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, TypedDict

import numpy as np
from msgspec import Struct

from npuperf.advise.needs import EAGER, INFERENCE, TRAINING, Option, Requirement, see_where
from npuperf.advise.rule import Answer, Detected, Untold, load_shipped, rule
from npuperf.base.messages import Message, chain, say, series, share
from npuperf.device.mode import is_graph
from npuperf.device.view import DeviceView
from npuperf.model.groups import distinct
from npuperf.model.host import HostOps, Spans
from npuperf.model.intervals import rows_of
from npuperf.model.labels import I64, Mask, Operands

# -- Torch operators that the program calls itself: not within one another, a backward pass or an optimizer's step.

_OPERATOR: Final = re.compile(r"^(?!autograd::|torch::|c10d::|record_param)\w+::\w")
_APART: Final = re.compile(r"^autograd::engine::evaluate_function|^Optimizer\.(step|zero_grad)#|^c10d::")


class TorchCalls(Struct, frozen=True):
    """Outermost operators, ordered by thread and start: ``op`` is their place among the host's operators.

    ``breaks``: where another thread or other work begins, with the end; ``starts`` and ``ends`` of each call.
    """

    op: I64
    thread: I64
    start: I64
    end: I64
    breaks: I64
    ops: Spans

    def place(self, op: I64) -> I64:
        """Return the outermost call in which each operator lies (an index of the host's operators), -1 in none."""
        found = np.full(len(op), -1, np.int64)
        known = np.flatnonzero(op >= 0)
        if not len(known) or not len(self.op):
            return found
        ops = op[known]
        at = np.searchsorted(self.op, ops, side="right") - 1
        around = np.maximum(at, 0)
        inside = (at >= 0) & (self.thread[around] == self.ops.thread[ops]) & (self.ops.start[ops] < self.end[around])
        found[known] = np.where(inside, around, -1)
        return found


def outermost(host: HostOps) -> TorchCalls:
    """Select the operators that the program calls itself."""
    ops = host.ops
    name = ops.name.compact()
    named = name.flag([bool(_OPERATOR.match(n)) for n in name.names])
    apart = name.flag([bool(_APART.match(n)) for n in name.names])
    free = ~_within(ops, apart)
    chosen = named & free & ~_within(ops, named)
    index = np.flatnonzero(chosen).astype(np.int64)
    thread = ops.thread[index]
    before = np.searchsorted(np.flatnonzero(apart), index)  # other work between two calls
    new = (thread[1:] != thread[:-1]) | (before[1:] != before[:-1])
    breaks = np.concatenate([[0], np.flatnonzero(new) + 1, [len(index)]]).astype(np.int64)
    return TorchCalls(index, thread, ops.start[index], ops.end[index], breaks, ops)


def _within(ops: Spans, outer: Mask) -> Mask:
    """Return True for events that begin within one of ``outer`` before them on their thread."""
    inside = np.zeros(len(ops), np.bool_)
    for thread in distinct(ops.thread).tolist():
        rows = rows_of(ops.thread, thread)
        latest = np.maximum.accumulate(np.where(outer[rows], ops.end[rows], np.iinfo(np.int64).min))
        inside[rows][1:] = ops.start[rows][1:] < latest[:-1]
    return inside


def steps_of(host: HostOps, name: str, op: I64) -> tuple[int, Mask]:
    """Return how many events of a name there are among the operators, and which of ``op`` lie within one of them."""
    ops = host.ops
    named = ops.name.flag([n == name for n in ops.name.names])
    inside = _within(ops, named)
    return int(named.sum()), (op >= 0) & inside[np.maximum(op, 0)] if len(ops) else np.zeros(len(op), np.bool_)


# -- Sequences that an operator of torch_npu replaces: the list of them, and where a run has them.

#: Operators that only name, view or cast a value: between two of a sequence they do not break it.
_BETWEEN: Final = (
    "to", "_to_copy", "type_as", "float", "contiguous", "view", "reshape", "transpose", "permute", "unsqueeze",
    "squeeze", "expand", "expand_as", "detach", "alias", "slice", "empty", "lift_fresh",
)  # fmt: skip
_FIRST: Final = 0xE000  # private characters stand for operators
_OTHER: Final = "\ue000"
#: Sequences whose code lines are compared first; where all are of one function, the layers beyond repeat them.
_CHECKED: Final = 100


class Replacement(Struct, frozen=True):
    """One entry of affinity.yaml."""

    api: str
    operators: tuple[str, ...]
    source: str
    least: int
    kernels: tuple[str, ...] = ()
    between: tuple[str, ...] = _BETWEEN
    dtypes: tuple[str, ...] = ()
    requires: str | None = None


class Found(Struct, frozen=True):
    """Where a run has the sequences of one entry: how many, and which tasks they launch."""

    replacement: Replacement
    count: int
    tasks: Mask


@cache
def replacements() -> tuple[Replacement, ...]:
    """Read affinity.yaml."""
    found = []
    for entry in load_shipped("affinity.yaml"):
        between = entry.get("between")
        replacement = Replacement(
            api=entry["api"],
            operators=tuple(entry["operators"].split()),
            source=entry["source"],
            least=entry["least"],
            kernels=tuple(entry.get("kernels", "").split()),
            between=_BETWEEN if between is None else tuple(between.split()),
            dtypes=tuple(entry.get("dtypes", ())),
            requires=entry.get("requires"),
        )
        found.append(replacement)
    return tuple(found)


class Alphabet:
    """Characters for names, so that sequences of them are found by regular expressions."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """Give each name a character of its own."""
        self._of = {name: chr(_FIRST + 2 + i) for i, name in enumerate(dict.fromkeys(names))}

    def text(self, names: tuple[str, ...], codes: I64) -> str:
        """Return a column as text, one character per cell."""
        of = np.array([ord(self._of.get(name.removeprefix("aten::"), _OTHER)) for name in (*names, "")], np.uint32)
        return of[codes].tobytes().decode("utf-32-le")

    def possible(self, steps: tuple[str, ...], letters: frozenset[str]) -> bool:
        """Tell whether a text of these letters can hold a sequence: each step that must be there has one of them."""
        needed = (step.split("|") for step in steps if not step.endswith("?"))
        return all(any(self._of[name] in letters for name in names) for names in needed)

    def pattern(self, steps: tuple[str, ...], between: tuple[str, ...]) -> re.Pattern[str]:
        """Return the expression for a sequence."""
        gap = f"[{self._any(between)}]*" if between else ""
        parts = []
        for i, step in enumerate(steps):
            one = f"[{self._any(tuple(step.rstrip('?').split('|')))}]"
            one = f"{gap}{one}" if i else one
            parts.append(f"(?:{one})?" if step.endswith("?") else one)
        return re.compile("".join(parts))

    def _any(self, names: tuple[str, ...]) -> str:
        return "".join(self._of[name] for name in names)


def _alphabet(entries: tuple[Replacement, ...], *, kernels: bool) -> Alphabet:
    steps = [step for e in entries for step in (e.kernels if kernels else e.operators)]
    names = [name for step in steps for name in step.rstrip("?").split("|")]
    return Alphabet((*names, *(() if kernels else (b for e in entries for b in e.between))))


def by_operators(view: DeviceView) -> list[Found]:
    """Find sequences of outermost torch operators, complete, in order and of one function, and what they launch."""
    host = view.profile.host
    calls = outermost(host)
    entries = replacements()
    letters = _alphabet(entries, kernels=False)
    called = host.ops.name.take(calls.op).compact()
    text = letters.text(called.names, called.codes.astype(np.int64))
    placed = calls.place(view.tasks.op)
    kernels = np.bincount(placed[placed >= 0], minlength=len(calls.op))
    taken = np.zeros(len(calls.op), np.bool_)
    found = []
    present = frozenset(text)
    for entry in entries:
        if not letters.possible(entry.operators, present):
            continue
        pattern = letters.pattern(entry.operators, entry.between)
        spans = [s for s in _spans(pattern, text, calls.breaks) if not taken[slice(*s)].any()]
        spans = [s for s in spans if int(kernels[slice(*s)].sum()) >= entry.least]
        if not all(_one_function(view, calls, s) for s in spans[:_CHECKED]):
            spans = [s for s in spans if _one_function(view, calls, s)]
        mine = np.zeros(len(calls.op), np.bool_)
        for begin, end in spans:
            mine[begin:end] = True
        taken |= mine
        if spans:
            found.append(Found(entry, len(spans), view.compute & (placed >= 0) & mine[placed]))
    return found


def _spans(pattern: re.Pattern[str], text: str, breaks: I64) -> Iterator[tuple[int, int]]:
    """Yield where a pattern matches, within one thread and one stretch without other work."""
    for begin, end in zip(breaks[:-1].tolist(), breaks[1:].tolist(), strict=True):
        for match in pattern.finditer(text, begin, end):
            yield match.span()


def _one_function(view: DeviceView, calls: TorchCalls, span: tuple[int, int]) -> bool:
    """Tell whether the first and the last operator are called in one function, as far as that is recorded."""
    host = view.profile.host
    lines = [host.code_line(int(calls.op[i])) for i in (span[0], span[1] - 1)]
    places = [re.sub(r":\d+ ", " ", line) for line in lines if line]
    return len(set(places)) <= 1


def by_kernels(view: DeviceView) -> list[Found]:
    """Find sequences of operator types on a stream, for profiles without torch operators."""
    entries = tuple(e for e in replacements() if e.kernels)
    letters = _alphabet(entries, kernels=True)
    order = np.flatnonzero(view.compute)
    order = order[np.argsort(view.tasks.stream[order], kind="stable")]
    streams = view.tasks.stream[order]
    breaks = np.concatenate([[0], np.flatnonzero(streams[1:] != streams[:-1]) + 1, [len(order)]]).astype(np.int64)
    text = letters.text(view.types.names, view.types.codes[order].astype(np.int64))
    found = []
    present = frozenset(text)
    for entry in entries:
        if not letters.possible(entry.kernels, present):
            continue
        mine = np.zeros(len(view.tasks), np.bool_)
        count = 0
        for begin, end in _spans(letters.pattern(entry.kernels, ()), text, breaks):
            # As far as it is recorded, the batch of the first kernel's tensor comes back in the last one's.
            first, last = (view.tasks.shapes[int(order[i])] for i in (begin, end - 1))
            if first and last and _leading(first) == _leading(last):
                mine[order[begin:end]] = True
                count += 1
        if count:
            found.append(Found(entry, count, mine))
    return found


def _leading(shapes: str) -> str:
    return shapes.strip('"').partition(";")[0].partition(",")[0]


# -- Which optimizer a step runs, and how: parameter by parameter, by lists of them, or fused.

_STEP: Final = re.compile(r"^Optimizer\.step#(\w+)\.step$")
#: Optimizers of torch that torch_npu.optim has fused ones for.
_FUSED: Final = {
    "SGD": "NpuFusedSGD",
    "Adadelta": "NpuFusedAdadelta",
    "Lamb": "NpuFusedLamb",
    "Adam": "NpuFusedAdam",
    "AdamW": "NpuFusedAdamW",
    "AdamP": "NpuFusedAdamP",
    "BertAdam": "NpuFusedBertAdam",
    "RMSprop": "NpuFusedRMSprop",
    "RMSpropTF": "NpuFusedRMSpropTF",
}
_FOREACH: Final = re.compile("^aten::_foreach_")
_ONE_KERNEL: Final = re.compile(r"_fused_(adam|adamw|sgd|adagrad)_|ApplyAdamW?|ApplyFused|npu_apply_adam", re.I)


def optimizers(view: DeviceView) -> list[str]:
    """Return the classes of the optimizers whose steps were recorded."""
    return [match.group(1) for match in map(_STEP.match, view.profile.host.events.name.names) if match]


def replaceable(view: DeviceView) -> str | None:
    """Return an optimizer that torch_npu has a fused one for."""
    return next((name for name in optimizers(view) if name in _FUSED), None)


def fused_name(optimizer: str) -> str:
    """Return torch_npu's fused optimizer for one of torch."""
    return f"torch_npu.optim.{_FUSED[optimizer]}"


def fused_optimizer(view: DeviceView) -> Message:
    """Say which optimizer replaces which."""
    name = replaceable(view)
    if name is None:
        return say("use a fused optimizer of torch_npu.optim (NpuFusedAdamW and others)")
    return say(
        "replace {optimizer} by {fused}, which updates all parameters of a type as one tensor; they must not be "
        "allocated anew afterwards",
        optimizer=name,
        fused=fused_name(name),
    )


def optimizer_gain(view: DeviceView) -> tuple[int, int] | None:
    """Return what a fused optimizer saves per step at most: all time of the update and all waiting for its launches."""
    host = view.profile.host
    named = [name for name in host.ops.name.names if name.startswith("Optimizer.step#")]
    inside = np.zeros(len(view.tasks), np.bool_)
    for name in named:
        inside |= steps_of(host, name, view.tasks.op)[1]
    tasks = view.compute & inside
    return (0, view.per_step(view.exposed(tasks) + int(view.waits[tasks].sum()))) if tasks.any() else None


NO_TIME_AT_ALL: Final = say(
    "the step takes just as long with the update fused (the maximum assumes that it takes no time at all)"
)


def _of_optimizer(test: Callable[[DeviceView], bool]) -> Callable[[DeviceView], bool | None]:
    """Ask about an optimizer; without torch operators none would have been seen."""

    def ask(view: DeviceView) -> bool | None:
        if not optimizers(view):
            return False if len(view.profile.host.ops) else None
        return test(view)

    return ask


def _has(view: DeviceView, pattern: re.Pattern[str]) -> bool:
    return view.profile.host.events.name.has(pattern) or view.profile.tasks.type.has(pattern)


NOT_FUSED: Final = Requirement(
    say("an optimizer of torch that torch_npu has a fused one for"),
    _of_optimizer(lambda view: replaceable(view) is not None and not _has(view, _ONE_KERNEL)),
)
NOT_REPLACEABLE: Final = Requirement(
    say("an optimizer that torch_npu has no fused one for"), _of_optimizer(lambda view: replaceable(view) is None)
)
ONE_BY_ONE: Final = Requirement(
    say("an optimizer that updates parameter by parameter"),
    _of_optimizer(lambda view: not _has(view, _ONE_KERNEL) and not _has(view, _FOREACH)),
)


_OPTIMIZERS: Final = say("torch_npu.optim, fused optimizers")


class ReplacedRow(TypedDict):
    """What one fused operator would replace, in the evidence."""

    api: str
    count: int
    kernels: int
    exposed_ns: int
    host_wait_ns: int
    where: list[str]


@rule(
    say("sequences that have a fused operator"),
    say("the order of outermost torch operators on a thread, or of operator types on a stream"),
    (),
)
def fused_operators(view: DeviceView) -> Answer:
    """Find complete sequences that take a notable part of the window, in time or in waiting for their launches."""
    with_operators = bool((view.tasks.op[view.compute] >= 0).any())
    replaced: list[tuple[ReplacedRow, Option]] = []
    for found in by_operators(view) if with_operators else by_kernels(view):
        entry = found.replacement
        row = _row(view, entry.api, found.count, found.tasks)
        requires = [{"inference": INFERENCE, "training": TRAINING}[r] for r in (entry.requires,) if r]
        if entry.dtypes:
            requires.append(_of_dtypes(entry.dtypes, found.tasks))
        use = chain(say("use {api}", api=row["api"]), see_where(view))
        if row["where"]:
            use = say("use {api} at {where}", api=row["api"], where=series(row["where"]))
        replaced.append((row, Option(use, say("{source}", source=entry.source), tuple(requires))))
    optimizer = replaceable(view) if with_operators and NOT_FUSED.test(view) is True else None
    if optimizer is not None:
        count, of_steps = steps_of(view.profile.host, f"Optimizer.step#{optimizer}.step", view.tasks.op)
        if (tasks := view.compute & of_steps).any():
            row = _row(view, fused_name(optimizer), count, tasks)
            replaced.append((row, Option(fused_optimizer(view), _OPTIMIZERS, (EAGER, TRAINING, NOT_FUSED))))
    replaced.sort(key=lambda r: -(r[0]["exposed_ns"] + r[0]["host_wait_ns"]))
    rows = [row for row, option in replaced if all(r.test(view) is not False for r in option.requires)]
    most = sum(row["exposed_ns"] + row["host_wait_ns"] for row in rows)
    if not rows or most < view.thresholds.cause_share * view.partition.span_ns:
        # That there is nothing is said only where it would have been seen: kernels have their torch operator.
        total = int(view.tasks.dur[view.compute].sum())
        known = int(view.tasks.dur[view.compute & (view.tasks.op >= 0)].sum())
        if total and known >= view.thresholds.enough_data * total:
            return None
        if is_graph(view.mode):
            return Untold(say("the kernels run in graphs, so which torch operator they come from is not recorded"))
        return Untold(say("which torch operator launched a kernel is not recorded: record with npuperf profile "
                          "--activities cpu,npu"))  # fmt: skip
    apis = series(say("{api} ×{count}", api=row["api"], count=row["count"]) for row in rows[:3])
    return Detected(
        title=say(
            "{share} of span is in sequences that have a fused operator: {apis}",
            share=share(most / view.partition.span_ns),
            apis=apis,
        ),
        evidence={"replacements": rows},
        gain=(0, view.per_step(most)),
        refute=say(
            "the fused operator takes as long as its parts, or does not compute the same (the maximum assumes that it "
            "takes no time at all)"
        ),
        next=tuple(option for _, option in replaced),
    )


def _of_dtypes(dtypes: tuple[str, ...], tasks: Mask) -> Requirement:
    def test(view: DeviceView) -> bool | None:
        codes = distinct(view.tasks.operands.codes[tasks])
        texts = [view.tasks.operands.names[c] for c in codes.tolist() if c >= 0]
        floats = {d for t in texts for d in Operands.parse(t).dtypes[:1] if "FLOAT" in d or d == "BF16"}
        return floats <= set(dtypes) if floats else None

    return Requirement(say("tensors of {dtypes}", dtypes=series(dtypes)), test)


def _row(view: DeviceView, api: str, count: int, tasks: Mask) -> ReplacedRow:
    return {
        "api": api,
        "count": count,
        "kernels": int(tasks.sum()),
        "exposed_ns": view.exposed(tasks),
        "host_wait_ns": int(view.waits[tasks].sum()),
        "where": view.code_lines(np.flatnonzero(tasks)),
    }
