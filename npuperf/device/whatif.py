"""What-if: a small language for changes, and the replay of the changed run.

    expression = change {"," change}
    change     = target "*" factor | "overlap"
    target     = "host" [":" cause] | "latency" | "compute" | "comm" | "copies" | "op:" type
               | "launches" [":" type] | "sync" [":" place]

``factor`` scales the target's time (0 removes it); ``type`` and ``place`` may hold wildcards, and where no type has
exactly that name those that begin with it are meant. A sync is there or not, so its factor is 0. ``launches*0.5``
means that two kernels become one launch. Or an expression is of memory alone (:mod:`npuperf.device.memory_whatif`):

    change     = "block:" operator "*" factor | "batch*" factor | "recompute:" part | "free_at_last_use"
               | "hccl_buffer=" megabytes
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase, translate
from threading import Lock
from typing import Final, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.errors import UsageError
from npuperf.base.messages import Message, chain, first_few, say, series
from npuperf.base.units import forms
from npuperf.device.blame import blame_intervals, event_causes
from npuperf.device.host_events import BETWEEN, CAUSES, CODE, LAUNCHING, NONE, NOT_LAUNCHING
from npuperf.device.maxplus import NEVER, Program
from npuperf.device.replay import Replay, Replayed
from npuperf.device.study import Study
from npuperf.device.syncs import sync_names, wait_names
from npuperf.model.groups import numbered
from npuperf.model.intervals import Intervals, narrow
from npuperf.model.labels import F64, I64, U8, Labels, Mask
from npuperf.model.result import Result
from npuperf.model.tasks import Work

# -- What the host time between two launches is for: causes, calls that launch, pauses.

#: Instructions whose host time is split by cause at a time: bounds the memory of the pieces.
_CHUNK: Final = 20_000


class HostTimes(Struct, frozen=True):
    """For each of ``count`` instructions, how much of its host time was spent on what.

    ``spent``: by cause (its place in CAUSES), instructions, and how much, ns; most have few causes.
    ``pause_ns``: from when on host time without a call that launches is a pause.
    """

    count: int
    pause_ns: int
    spent: dict[int, list[tuple[I64 | slice, I64]]]

    def on(self, *causes: str) -> I64:
        """Return for each instruction how much of its host time was spent on some causes, ns."""
        found = np.zeros(self.count, np.int64)
        for cause in causes:
            for instruction, ns in self.spent.get(CODE[cause], ()):
                found[instruction] += ns
        return found

    def pauses(self) -> I64:
        """Return how much was spent in pauses, as npuperf.device.blame has them, ns."""
        between = self.on(*BETWEEN)
        between[between < self.pause_ns] = 0
        return between

    def kept(self) -> I64:
        """Return how much was spent in pauses and on all else that launching has no part in, ns."""
        return self.pauses() + self.on(*NOT_LAUNCHING)

    @classmethod
    def of(cls, study: Study, replay: Replay) -> HostTimes:
        """Tell what the host time of each instruction is for: cut into pieces by what they are blamed on."""
        spent: dict[int, list[tuple[I64 | slice, I64]]] = {}
        threads, skew, n = study.threads, study.launches.skew, len(replay.since)
        op = np.full(n, -1, threads.op.dtype)
        op[replay.task] = threads.op[replay.active]
        for first in range(0, n, _CHUNK):
            part = slice(first, min(first + _CHUNK, n))
            thread, count = replay.thread[part], part.stop - part.start
            main = np.where(threads.main >= 0, threads.main, thread)
            since, until = replay.since[part] + skew, replay.until[part] + skew
            pieces = blame_intervals((thread, op[part], main), since, until, study.nesting)
            codes, place = numbered(event_causes(pieces.event, study.nesting))
            total = np.bincount(place * count + pieces.owner, weights=pieces.length, minlength=len(codes) * count)
            for code, each in zip(codes.tolist(), total.astype(np.int64).reshape(len(codes), count), strict=True):
                some = np.flatnonzero(each)
                if 2 * len(some) > len(each):  # all of them take less memory than those that are not 0 and their places
                    spent.setdefault(code, []).append((part, narrow(each)))
                else:
                    spent.setdefault(code, []).append((narrow(part.start + some), narrow(each[some])))
        return cls(n, study.pause_ns, spent)


_ONCE: Final = Lock()
#: Share of the window below which assumed gaps are not worth replaying.
_NOTABLE: Final = 0.005
_CHANGE: Final = re.compile(
    r"^(?P<target>host|latency|compute|comm|copies|op|launches|sync|block|batch)(?::(?P<name>.+))?"
    r"\*(?P<factor>\d+\.?\d*|\.\d+)$"
)
#: Changes of memory without a factor.
_OF_MEMORY: Final = re.compile(
    r"^(?:(?P<target>recompute):(?P<name>.+)|(?P<last>free_at_last_use)|(?P<hccl>hccl_buffer)=(?P<mb>[1-9]\d{0,5}))$"
)
_MEMORY: Final = ("block", "batch", "recompute", "free_at_last_use", "hccl_buffer")
#: Names longer than this are named by a part of them; signs that mean something in expressions are wildcards.
_LONG: Final = 60
_WILD: Final = re.compile(r"[*?\[]")
#: So many types are named as taken, and so many names where none matches.
_NAMED_TYPES, _NEAREST = 6, 4
_MEANING: Final = re.compile(r"[,*?\[]")
_WORK: Final = {"compute": Work.COMPUTE, "comm": Work.COMMUNICATION, "copies": Work.OTHER}
_NAMED: Final = ("host", "op", "launches", "sync", "block")
#: Host time by what it is for, beside its causes: pauses, and all that is neither a pause nor in NOT_LAUNCHING.
_PAUSE: Final = "pause"
_LAUNCHES: Final = "launching"
_KINDS: Final = (*CAUSES[1:], _PAUSE, _LAUNCHES)
GRAMMAR: Final = say(
    "TARGET*FACTOR[,…] with host, host:CAUSE, latency, compute, comm, copies, op:TYPE, launches[:TYPE], sync[:PLACE] "
    '(factor 0), or overlap; e.g. "host*0.5", "op:MatMul*0.5,comm*0.8", "sync*0"; of memory block:OP*FACTOR, '
    "batch*FACTOR, recompute:PART, free_at_last_use, hccl_buffer=MB"
)


class Change(Struct, frozen=True):
    """One change of an expression. ``factor``: of ``hccl_buffer`` MB."""

    target: str
    name: str | None
    factor: float


def names_ranks(expression: str) -> bool:
    """Tell whether an expression speaks of ranks, stages or links: only a job can answer it."""
    return any(part.strip().startswith(("rank:", "stage:", "link:")) for part in expression.split(","))


def parse(expression: str) -> list[Change]:
    """Read an expression. Raises UsageError with the grammar."""
    changes = []
    for part in expression.split(","):
        text = part.strip()
        if text == "overlap":
            changes.append(Change("overlap", None, 0.0))
            continue
        if of_memory := _OF_MEMORY.match(text):
            target = of_memory["target"] or of_memory["last"] or of_memory["hccl"]
            changes.append(Change(target, of_memory["name"], float(of_memory["mb"] or 0)))
            continue
        found = _CHANGE.match(text)
        if found is None:
            raise UsageError(say("what-if: cannot read {text}", text=repr(text)), hint=GRAMMAR)
        target, name, factor = found["target"], found["name"], float(found["factor"])
        wrong, hint = None, GRAMMAR
        if name and target not in _NAMED:
            wrong = say("{target} takes no name", target=target)
        elif target == "op" and not name:
            wrong, hint = say("op needs an operator type"), say('e.g. "op:MatMul*0.5"')
        elif target == "block" and not name:
            wrong, hint = say("block needs the operator that asks for the memory"), say('e.g. "block:aten::cat*0"')
        elif target == "sync" and factor:
            wrong = say("a sync can only be removed (sync*0)")
        elif target == "host" and name and name not in (*CAUSES, *_KINDS):
            wrong = say("there is no cause {name}", name=repr(name))
            hint = say("causes: {causes}", causes=series(_KINDS))
        if wrong is not None:
            raise UsageError(say("what-if: {wrong}, in {text}", wrong=wrong, text=repr(text)), hint=hint)
        changes.append(Change(target, name, factor))
    _refuse_mixtures(expression, changes)
    return changes


def _refuse_mixtures(expression: str, changes: list[Change]) -> None:
    """Raise UsageError where changes of one expression have no answer in common."""
    kinds = {change.target in _MEMORY for change in changes}
    wrong = None
    if len(kinds) > 1:
        wrong = say("changes of time and of memory have no answer in common")
    elif len(changes) > 1 and any(change.target == "hccl_buffer" for change in changes):
        wrong = say("hccl_buffer changes what lies outside of PyTorch's memory")
    if wrong is not None:
        raise UsageError(say("what-if: {wrong}, in {text}", wrong=wrong, text=repr(expression)),
                         hint=say("ask for each by a --what-if of its own"))  # fmt: skip


def peak_of(expression: str) -> Literal["allocated", "process"] | None:
    """Return of what an expression changes the peak of memory; None: it is about time."""
    target = parse(expression)[0].target
    return None if target not in _MEMORY else "process" if target == "hccl_buffer" else "allocated"


class Scene(Struct, frozen=True):
    """What expressions are replayed on: a replay, and the window judged.

    ``work`` and ``types`` are of the replay's active tasks. The window begins with active task ``first`` and ends with
    the start of ``last`` (or the end of everything); where it ends with the end of a step instead, that is when the
    tasks of ``ending`` have ended. Where the host begins its first step it begins with the mark ``opening``, though not
    before the task ``before_it`` has ended, and where the host ends the last one it does not end before the mark
    ``closing``; NONE elsewhere. ``measured``: its length; ``before``: that as the replay gives it; ``error``: by how
    much the replay misses it, or the steps in it, ns. ``known``: what was replayed already; ``times`` and ``lengths``:
    what host time is for, and the window's length without unexplained waits (ns), once they were asked for.
    """

    study: Study
    replay: Replay
    first: int
    last: int
    opening: int
    before_it: int
    closing: int
    work: U8
    types: Labels
    ending: I64
    measured: int
    before: int
    error: int
    known: dict[str, Predicted] = field(default_factory=dict)
    times: list[HostTimes] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def host_times(self) -> HostTimes:
        """What the host time of each instruction is for."""
        with _ONCE:  # both rules and what-ifs ask
            if not self.times:
                self.times.append(HostTimes.of(self.study, self.replay))
        return self.times[0]

    @property
    def explained(self) -> int:
        """The length of the window, as the replay gives it, without waits that nothing in the data explains (ns)."""
        if not self.lengths:
            self.lengths.append(_explained(self, self.replay.program))
        return self.lengths[0]

    @classmethod
    def of(cls, study: Study, replay: Replay, span: tuple[int, int]) -> Scene:
        """Set the stage for a window whose borders are starts of tasks, the end of a step, or the end of everything.

        Or they are those of the host's steps.
        """
        tasks, active, moment = study.profile.tasks, replay.active, replay.moment
        start, end, work = tasks.start[active], tasks.end[active], tasks.work[active]
        first, last = np.searchsorted(start, span).tolist()
        by_start = last < len(start) and int(start[last]) == span[1]
        opening, closing = (int(np.flatnonzero(moment == at)[0]) if at in moment else NONE for at in span)
        earlier = np.flatnonzero(end[:first] <= span[0]) if opening >= 0 else np.empty(0, np.int64)
        before_it = int(earlier[np.argmax(end[earlier])]) if len(earlier) else NONE
        of_step = closing >= 0 or (not by_start and span[1] < int(end.max()))
        inside = np.arange(first, last) if of_step else np.empty(0, np.int64)
        ending = inside[end[inside] <= span[1]]
        steps = study.steps  # each by itself, so that errors do not cancel
        within = (steps.start >= span[0]) & (steps.end <= span[1])
        own = Intervals(steps.start[within], steps.end[within])
        missed = int(np.abs(replay.lengths(tasks, own) - (own.end - own.start)).sum())
        scene = cls(
            study=study,
            replay=replay,
            first=first,
            last=last,
            opening=opening,
            before_it=before_it,
            closing=closing,
            work=work,
            types=study.types.take(active),
            ending=ending,
            measured=span[1] - span[0],
            before=0,
            error=missed,
        )
        before = scene.length(replay.base)
        return replace(scene, before=before, error=max(abs(before - scene.measured), missed))

    def length(self, times: Replayed) -> int:
        """Return the length of the window in other times of the replay, ns."""
        first, last, closing = self.first, self.last, self.closing
        if last <= first and self.opening == closing == NONE:
            return 0
        following = int(times.start[last]) if last < len(times.start) else None
        begin = int(times.start[first]) if first < len(times.start) else int(times.end.max())
        if self.opening >= 0:
            done = int(times.end[self.before_it]) if self.before_it >= 0 else None
            begin = min(begin, max(x for x in (int(times.mark[self.opening]), done) if x is not None))
        if closing < 0 and not len(self.ending):
            return (int(times.end.max()) if following is None else following) - begin
        stop = int(times.end[self.ending].max()) if len(self.ending) else begin
        if closing >= 0:
            stop = max(stop, int(times.mark[closing]))
            stop = stop if following is None else min(stop, following)
        return stop - begin


class Predicted(Struct, frozen=True):
    """A replayed change: the window's length now and then, and the gain as an interval (ns).

    The gain is never more than the window; of one that only shortens things the lower end is sure: it is what the
    replay saves less what the replay misses, and never below 0.
    """

    expr: str
    before: int
    after: int
    least: int
    most: int
    matched: bool


def predict(scene: Scene, expression: str) -> Predicted:
    """Replay the run with a change.

    The interval spans what the model leaves open: waits that it cannot explain are kept, or dropped; what is launched
    after a wait of the host may need what the host waited for, or not; fewer launches save their recorded host time, or
    everything between two launches; where no gap between tasks could be measured it is assumed, give or take its own
    length.
    """
    if expression in scene.known:
        return scene.known[expression]
    changes, before = parse(expression), scene.before
    changed, matched = _apply(scene, changes, generous=False)
    gains = gains_of(scene, changed)
    if any(c.target == "launches" for c in changes):
        generous, _ = _apply(scene, changes, generous=True)
        gains.append(saved(scene, generous))
    if any(c.target == "sync" for c in changes):
        gains.append(saved(scene, scene.replay.ordered(changed)))
    # A gain is what can be: the window at most, and of savings only what exceeds the replay's own error.
    most, least = max(gains), min(gains) - scene.error
    after = max(before - gains[0], 0)
    if all(change.factor <= 1 for change in changes):
        most, least, after = max(most, 0), max(least, 0), min(after, before)
    most = min(most, before, scene.measured)
    scene.known[expression] = Predicted(expression, before, after, min(least, most), most, matched)
    return scene.known[expression]


def gains_of(scene: Scene, changed: Program) -> list[int]:
    """Replay a changed program: what it saves of the window (ns), then what it saves where the model is open."""
    replay, tight = scene.replay, False
    if replay.assumed_gap.any():
        times = replay.times(changed)
        gains = [scene.before - scene.length(times)]
        # Assumed gaps in this run between tasks that follow each other at once: have they a notable part in it?
        gap = replay.program.gap_ns.take(replay.task[1:])
        at_once = replay.assumed_gap[1:] & (times.start[1:] - times.end[:-1] <= gap)
        tight = int(gap.compress(at_once).sum()) > _NOTABLE * scene.before
        del times, gap, at_once
    else:
        gains = [saved(scene, changed)]
    if len(replay.unexplained):
        gains.append(scene.explained - _explained(scene, changed))
    if tight:
        gap = changed.gap_ns.astype(np.int64)
        gap[replay.task.compress(replay.assumed_gap)] *= 2
        wider = saved(scene, changed.with_columns(gap_ns=gap))
        gains += [wider, 2 * gains[0] - wider]
    return gains


def saved(scene: Scene, changed: Program) -> int:
    """Replay a changed program: what it saves of the window, ns."""
    return scene.before - _replayed(scene, changed)


def _explained(scene: Scene, program: Program) -> int:
    """Replay a program without waits that nothing in the data explains; return the window's length, ns."""
    return _replayed(scene, program.with_columns(extra_ns=np.zeros_like(program.extra_ns)))


def _replayed(scene: Scene, program: Program) -> int:
    """Replay a program; return the window's length, ns."""
    if len(scene.ending) or scene.opening >= 0 or scene.closing >= 0:
        return scene.length(scene.replay.times(program))
    return scene.replay.length(program, scene.first, scene.last)


def with_communication(scene: Scene, expression: str, part: float) -> str:
    """Return an expression that changes only a ``part`` of the time of communication; the rest stays as it is."""
    rest = []
    for change in parse(expression):
        name, factor = change.name, change.factor
        communicates = change.target == "comm" or (
            change.target == "op" and (_matching(scene, name or "*") & (scene.work == Work.COMMUNICATION)).any()
        )
        if communicates:
            factor = max(1 - (1 - factor) * part, 0.0)
        text = f"{change.target}{f':{name}' if name else ''}*{factor:.9g}"
        rest.append(change.target if change.target == "overlap" else text)
    return ",".join(rest)


def _apply(scene: Scene, changes: list[Change], *, generous: bool) -> tuple[Program, bool]:
    """Return the changed program and whether every change found something to change.

    Shares of host time that several changes save add up; everything else multiplies.
    """
    program, found_all, saved = scene.replay.program, True, None
    for change in changes:
        if (change.target == "launches" and not generous) or (change.target == "host" and change.name):
            share, found = _saved_share(scene, change)
            saved = share if saved is None else np.add(saved, share, out=saved)
        else:
            program, found = _change(scene, program, change)
        found_all &= found
    if saved is not None:
        left = np.subtract(1, np.minimum(saved, 1.0, out=saved), out=saved)
        program = program.with_columns(host_ns=_scale(program.host_ns, left))
    return program, found_all


def _saved_share(scene: Scene, change: Change) -> tuple[F64, bool]:
    """Return which share of each instruction's host time a change of named causes or of launches saves."""
    whole: I64 = scene.replay.until - scene.replay.since
    if change.target == "launches":
        spent = np.where(_launching(scene, change), scene.host_times.on(*LAUNCHING), 0)
    elif change.name == _PAUSE:
        spent = scene.host_times.pauses()
    elif change.name == _LAUNCHES:
        spent = whole - scene.host_times.kept()
    else:
        spent = scene.host_times.on(change.name or "")
    share: F64 = spent / np.maximum(whole, 1, out=whole)
    np.minimum(share, 1.0, out=share)  # here and elsewhere in place: these are as long as the recording
    share *= 1 - change.factor
    return share, bool(spent.any())


def _scale(values: I64, factor: float | F64, chosen: Mask | None = None) -> I64:
    product = values * factor
    scaled = np.rint(product, out=product).astype(np.int64)
    return scaled if chosen is None else np.where(chosen, scaled, values)


def _change(scene: Scene, program: Program, change: Change) -> tuple[Program, bool]:
    """Return the program with one change, and whether it found something to change."""
    replay, factor = scene.replay, change.factor
    if change.target == "host":
        return program.with_columns(host_ns=_scale(program.host_ns, factor)), True
    if change.target == "latency":
        launched = program.launch_ns != NEVER
        return program.with_columns(launch_ns=_scale(program.launch_ns, factor, launched)), bool(launched.any())
    if change.target == "launches":  # all host time since the launch before, but for what launching has no part in
        chosen = _launching(scene, change)
        whole = np.maximum(replay.until - replay.since, 1)
        part = 1 - (1 - factor) * (1 - np.minimum(scene.host_times.kept() / whole, 1.0))
        return program.with_columns(host_ns=_scale(program.host_ns, part, chosen)), bool(chosen.any())
    if change.target == "sync":  # the host goes on where it waited
        waited, found = program.waited_ns.copy(), False
        for point in scene.study.points:
            if change.name is None or _any_means(change.name, sync_names(point)):
                waited[replay.sync[point.calls]] = NEVER
                found = True
        return program.with_columns(waited_ns=waited), found
    if change.target == "overlap":  # communication and the rest: neither waits for the other's end
        is_comm = scene.work == Work.COMMUNICATION
        across = (replay.awaited >= 0) & (is_comm != is_comm[replay.awaited])
        other = program.other_ns.copy()
        other[replay.task[across]] = NEVER
        return program.with_columns(other_ns=other), bool(across.any())
    chosen = _matching(scene, change.name or "*") if change.target == "op" else scene.work == _WORK[change.target]
    dur = program.dur_ns.astype(np.int64)
    at = replay.task[chosen]
    dur[at] = _scale(dur[at], factor)
    return program.with_columns(dur_ns=dur), bool(len(at))


def _matching(scene: Scene, pattern: str) -> Mask:
    meant = set(types_meant(pattern, scene.types.names))
    return scene.types.flag([name in meant for name in scene.types.names])


def types_meant(pattern: str, types: Sequence[str]) -> list[str]:
    """Return the types that a name in an expression means: by its wildcards, or so called, or else beginning with it.

    Capital letters make no difference.
    """
    wanted = pattern.lower()
    match = re.compile(translate(wanted)).match
    found = [name for name in types if match(name.lower()) is not None]
    if found or _WILD.search(pattern):
        return found
    return [name for name in types if name.lower().startswith(wanted)]


def types_taken(scene: Scene, expression: str) -> Message | None:
    """Name the types that an expression's ``op:`` and ``launches:`` mean, those with most time first.

    None where it names each as it is called.
    """
    taken: dict[str, float] = {}
    for change in parse(expression):
        if change.target in ("op", "launches") and change.name:
            chosen = _matching(scene, change.name)
            dur = scene.study.profile.tasks.dur[scene.replay.active][chosen]
            spent = np.bincount(scene.types.codes[chosen], dur, len(scene.types.names)).tolist()
            named = zip(scene.types.names, spent, strict=True)
            taken |= {name: ns for name, ns in named if ns and name.lower() != change.name.lower()}
    names = sorted(taken, key=lambda name: -taken[name])
    if not names:
        return None
    return say("types: {types}", types=first_few(names, _NAMED_TYPES))


def refuse_unmatched(expressions: Sequence[str], result: Result) -> None:
    """Raise UsageError for an expression that names a type, or a wait of the host, which nothing recorded has."""
    types = list(dict.fromkeys(one.type for one in (*result.operators, *result.window_operators) if one.type))
    syncs = {name for d in result.devices for s in d.syncs for name in wait_names(s.where, s.torch_op, s.name, s.kind)}
    for expression in expressions:
        for change in () if names_ranks(expression) else parse(expression):
            known = types if change.target in ("op", "launches") else sorted(syncs)
            if not change.name or not known or change.target not in ("op", "launches", "sync"):
                continue
            of_types = change.target != "sync"
            if types_meant(change.name, types) if of_types else _any_means(change.name, known):
                continue
            what = say("what-if: no operator type matches {name}, in {text}", name=change.name, text=repr(expression))
            if not of_types:
                what = say("what-if: no wait of the host matches {name}, in {text}", name=change.name,
                           text=repr(expression))  # fmt: skip
            lists = "operators" if of_types else "syncs"
            near = nearest(change.name, known)
            all_of_them = say("--table {table} lists them", table=lists)
            meant = say("the nearest: {names}", names=series(near)) if near else None
            raise UsageError(what, hint=chain(meant, all_of_them))


def _any_means(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def nearest(name: str, known: Sequence[str]) -> list[str]:
    """Return a few names that may be meant by one that nothing has: such as hold it or are spelled alike."""
    from difflib import get_close_matches

    bare = re.sub(r"[*?\[\]]", "", name).lower()
    lower = {one.lower(): one for one in known}
    holding = [one for one in lower if bare and (bare in one or one in bare)]
    alike = get_close_matches(bare, lower, n=_NEAREST, cutoff=0.5)
    begun = {one[: len(bare)]: one for one in reversed(lower)}
    begin_alike = (begun[one] for one in get_close_matches(bare, begun, n=_NEAREST))
    return [lower[one] for one in dict.fromkeys((*holding, *begin_alike, *alike))][:_NEAREST]


def pattern(type_: str, types: Iterable[str] = ()) -> str:
    """Return how to name one operator type in an expression: as shortly as no other of ``types`` is meant.

    Signs that mean something in expressions are wildcards in it, and so is what is left out of a template.
    """
    if not _MEANING.search(type_) and len(type_) <= _LONG:
        return type_
    others = [name.lower() for name in dict.fromkeys(types) if name != type_]
    whole = _MEANING.sub("?", type_)
    for form in [*forms(type_)][:-1]:
        words = [_MEANING.sub("?", word) for word in form.partition(" #")[0].split("…")]
        short = f"*{'*'.join(filter(None, words)).rstrip('*>')}*{whole[-1]}"
        if _means(short, type_.lower()) and not any(_means(short, name) for name in others):
            return short
    return whole


def _means(short: str, name: str) -> bool:
    return fnmatchcase(name, short.lower())


def is_all_communication(scene: Scene, pattern: str) -> bool:
    """Tell whether a pattern of operator types means exactly what ``comm`` means."""
    return bool(np.array_equal(_matching(scene, pattern), scene.work == Work.COMMUNICATION))


def _launching(scene: Scene, change: Change) -> Mask:
    """True for the instructions that launch kernels of the types meant."""
    chosen = np.zeros(len(scene.replay.since), np.bool_)
    chosen[scene.replay.task[_matching(scene, change.name or "*") & (scene.work == Work.COMPUTE)]] = True
    return chosen
