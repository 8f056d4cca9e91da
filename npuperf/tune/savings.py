"""What tuning is worth: what tuned operators save per step of a profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from npuperf.base.messages import Message, chain, ns, say
from npuperf.base.units import NS_PER_US
from npuperf.device.cores import on_cores
from npuperf.device.operators import type_labels
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Work
from npuperf.model.tuning import Basis, Entry, Saving, TunableOperator, Tuning
from npuperf.readers.recording import Recording, open_recording

if TYPE_CHECKING:
    from npuperf.model.result import Result, WhatIf

#: Operators that a sentence names.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Worth:
    """What a step is shorter by, ns, where operator types take no time at all: each by itself, and all of them.

    The replay says so: what runs beside a longer collective, or waits for the host anyway, saves nothing. ``reason``:
    why there is no replay.
    """

    each: dict[str, int] = field(default_factory=dict)
    together: int = 0
    reason: Message | None = None

    @classmethod
    def of(cls, answers: Sequence[WhatIf], types: Mapping[str, str]) -> Worth:
        """Read the answers of one device; ``types``: of expressions. All types in one expression stand together."""
        gains = {w.expr: w.gain_ns_per_step[1] for w in answers if w.gain_ns_per_step is not None}
        each = {type_: max(gains[expr], 0) for expr, type_ in types.items() if expr in gains}
        everything = ",".join(types)
        if not each or everything not in gains:
            return cls(reason=next((w.reason for w in answers if w.asked and w.reason is not None), None))
        return cls(each, max(gains[everything], 0))

    def most(self, types: Sequence[str]) -> int | None:
        """Return the most that operators of some types save per step; None where one of them was not replayed."""
        lower = {type_.lower(): ns for type_, ns in self.each.items()}
        known = [lower.get(type_.lower()) for type_ in types]
        return None if not known or None in known else sum(ns or 0 for ns in known)


@dataclass(frozen=True, slots=True)
class Usage:
    """The compute kernels of one device of a profile. ``felt``: outside of phases that host or communication bound.

    ``tunable``: kernels on AI cores; ``precompiled``: those that aclnn launches, which come with CANN; ``dynamic``: the
    share of those of dynamic shape, where that is known.
    ``lengths``: of the steps (ns), none where none is recorded; ``step_ns``: their mean, as calls are counted per step
    on average, else the whole window; ``step``: of every kernel the step that it begins in, counted from 0;
    ``worth``: of the types that were asked about; ``winnable``: by type, the part of its time that could be won at
    most, were its kernels as fast as their roofs; a type without any roof is not in it.
    """

    soc: str | None
    cores: int | None
    lengths: I64
    step_ns: int
    names: Labels
    types: Labels
    dur: I64
    step: I64
    felt: Mask
    tunable: Mask
    precompiled: Mask
    dynamic: float | None
    most_blocks: int | None
    worth: Worth
    winnable: Mapping[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many steps to spread calls over."""
        return max(len(self.lengths), 1)

    @property
    def part_precompiled(self) -> float | None:
        """The share of kernels on AI cores that come with CANN."""
        return float(self.precompiled[self.tunable].mean()) if self.tunable.any() else None

    def busiest(self, count: int | None = None, *, felt: bool = True) -> list[str]:
        """Return the operator types with most time (that is ``felt`` and can be tuned, or any), the most first."""
        return list(self._times(felt=felt, tunable=felt))[:count]

    def at_most(self) -> dict[str, int]:
        """Return what tuning the types could win per step at most, ns: to their roofs, else all of their time.

        Of types that were replayed no more than that says; without a replay of time that is felt. The most comes first.
        """
        replayed = self.worth.reason is None and self.worth.each
        time = self._times(felt=not replayed, tunable=True)
        won = {t: round(ns * self.winnable.get(t, 1.0)) // self.steps for t, ns in time.items()}
        if replayed:
            won = {t: min(won[t], replayed[t]) for t in self.busiest() if replayed.get(t)}
        return dict(sorted(won.items(), key=lambda one: -one[1]))

    def candidates(self, chosen: Sequence[str], *, dumped: bool) -> Iterator[TunableOperator]:
        """Yield the types, the most expensive first; ``chosen``: those to tune, or none for all that can be.

        ``dumped``: what torch_npu compiles while a program runs is tuned, else what is in a model.
        """
        won, wanted = self.at_most(), {type_.lower() for type_ in chosen}
        asked = self.worth.each if self.worth.reason is None and self.worth.each else None  # None: all count
        calls = np.bincount(self.types.codes + 1, minlength=len(self.types.names) + 1)[1:]
        for type_, time in self._times(felt=False, tunable=False).items():
            mine = self.types.flag([name == type_ for name in self.types.names])
            on_cores = bool(self.tunable[mine].any())
            most = won.get(type_, 0) if on_cores and (asked is None or type_ in asked) else None
            reason = None
            if not on_cores:
                reason = say("runs on no AI core")
            elif dumped and self.precompiled[mine].all():
                reason = say("precompiled (aclnn): never dumped")
            elif most == 0:
                reason = say("saves nothing: no step waits for it")
            yield TunableOperator(
                type=type_,
                calls=int(calls[self.types.names.index(type_)]) / self.steps,
                time_ns=round(time / self.steps),
                share=time / self.steps / max(self.step_ns, 1),
                most_ns=most,
                chosen=reason is None and (not wanted or type_.lower() in wanted),
                reason=reason,
            )

    def _times(self, *, felt: bool, tunable: bool) -> dict[str, float]:
        chosen = (self.felt | (not felt)) & (self.tunable | (not tunable))
        time = np.where(chosen, self.dur, 0)
        total = np.bincount(self.types.codes + 1, time, minlength=1)[1:]
        return {self.types.names[i]: float(total[i]) for i in np.argsort(-total, kind="stable") if total[i] > 0}


@dataclass(frozen=True, slots=True)
class Profiled:
    """One profile: its analysis, and the calls of the operators of its first device that ran any."""

    path: Path
    result: Result
    usage: Usage


#: Of the operator types of a device, those with most time first, the ones that are to be replayed.
Asked = Callable[[list[str]], list[str]]


def read_profiled(path: Path, recording: Recording | None = None, asked: Asked = lambda _: []) -> Profiled | None:
    """Read a profile, each file once; None where it has no kernel. ``recording``: of it, if it was read before."""
    from npuperf.against.run import run
    from npuperf.analyze.request import AnalyzeRequest  # most of what is asked of tune needs no analysis

    recording = recording or open_recording(path, keep=True)
    expressions = _expressions(recording, asked)
    every = (",".join(expressions),) if len(expressions) > 1 else ()
    result = run(AnalyzeRequest(path=path, what_if=(*expressions, *every)), recording)
    devices = {(d.rank, d.device): d for d in result.devices}
    for profile in recording.profiles:
        device = devices.get((profile.rank, profile.device))
        kernels = profile.tasks.only(Work.COMPUTE).without_counters()
        if device is None or not len(kernels):
            continue
        felt = np.ones(len(kernels), np.bool_)
        at = kernels.start - device.origin_ns
        for phase in device.phases:
            if phase.bound in ("host", "communication"):
                felt &= ~((at >= phase.start_ns) & (at < phase.end_ns))
        steps = device.whole_steps
        if steps:
            inside = (at >= steps[0].start_ns) & (at < steps[-1].start_ns + steps[-1].partition.span_ns)
            kernels, felt, at = kernels.filter(inside), felt[inside], at[inside]
        known = kernels.state.known()
        on_cube = kernels.core.flag([c in ("AI_CORE", "MIX_AIC") for c in kernels.core.names])
        blocks = kernels.block[on_cube & (kernels.block > 0)]
        lengths = np.array([s.partition.span_ns for s in steps], np.int64)
        answers = [w for w in result.what_if if (w.rank, w.device) == (device.rank, device.device)]
        usage = Usage(
            soc=device.soc,
            cores=device.cores_cube,
            lengths=lengths,
            step_ns=round(float(lengths.mean())) if len(lengths) else device.window.span_ns,
            names=kernels.name,
            types=type_labels(kernels),
            dur=kernels.dur,
            step=np.maximum(np.searchsorted([s.start_ns for s in steps], at, side="right") - 1, 0),
            felt=felt,
            dynamic=float(kernels.dynamic[known].mean()) if known.any() else None,
            tunable=on_cores(kernels),
            precompiled=kernels.name.flag([name.startswith("aclnn") for name in kernels.name.names]),
            most_blocks=int(blocks.max()) if len(blocks) else None,
            worth=Worth.of(answers, expressions),
            winnable=_winnable(result),
        )
        return Profiled(path, result, usage)
    return None


def _winnable(result: Result) -> dict[str, float]:
    """Return for each type which part of its time could be won at most: of kernels without a roof all."""
    time: dict[str, int] = {}
    won: dict[str, int] = {}
    for one in result.window_operators:
        time[one.type] = time.get(one.type, 0) + one.total_ns
        if one.recoverable_ns is not None:
            won[one.type] = won.get(one.type, 0) + one.recoverable_ns[1] - one.roofed_ns
    return {type_: 1 + ns / time[type_] for type_, ns in won.items() if time[type_]}


def _expressions(recording: Recording, asked: Asked) -> dict[str, str]:
    """Return what to replay, in which an operator type of the first device with kernels takes no time, and the type."""
    from npuperf.device.whatif import pattern

    for profile in recording.profiles:
        kernels = profile.tasks.only(Work.COMPUTE)
        if len(kernels):
            types, tunable = type_labels(kernels), on_cores(kernels)
            total = np.bincount(types.codes + 1, np.where(tunable, kernels.dur, 0), minlength=1)[1:]
            busiest = [types.names[i] for i in np.argsort(-total, kind="stable").tolist() if total[i] > 0]
            return {f"op:{pattern(type_, types.names)}*0": type_ for type_ in asked(busiest)}
    return {}


def with_savings(tuning: Tuning, usage: Usage | None, **more: Any) -> Tuning:
    """Return a tuning with what its operators are worth in a profile, if there is one, and with ``more`` fields."""
    if usage is not None:
        rows, total = savings(tuning.entries, usage)
        nothing = tuning.mode == "op" and tuning.status in ("successful", "nothing_to_tune")  # and not: not known
        more |= {"savings": rows, "saved_ns": total if rows or nothing else None, "step_ns": usage.step_ns}
    return replace(tuning, **more)


def tuned_types(tuning: Tuning) -> Asked:
    """Return which types of a profile are those of the operators that were tuned."""
    tuned = {type_.lower() for entry in tuning.entries for type_ in entry.types}
    return lambda types: [type_ for type_ in types if type_.lower() in tuned]


def savings(entries: Sequence[Entry], usage: Usage) -> tuple[tuple[Saving, ...], tuple[int, int] | None]:
    """Say what every operator that was tuned saves per step, the most first, and what all of them save (ns).

    None of them is in the profile: then nobody can tell what they save, and there is no sum.

    Calls with an operator's name are its own; the others may be calls of any operator of their type, and count in the
    sum for the one that would save most. No call saves more than it takes.
    """
    tuned: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind == "operator" and entry.before_us and entry.after_us:
            tuned.setdefault(entry.name, []).append(entry)
    types = {name: tuple(dict.fromkeys(t.lower() for e in of_name for t in e.types)) for name, of_name in tuned.items()}
    everything = np.ones(len(usage.dur), np.bool_)
    by_name = _calls(usage.names, tuned.keys(), everything)
    unnamed = everything.copy()
    for calls in by_name.values():
        unnamed[calls] = False
    by_type = _calls(usage.types.lower(), {t for of_name in types.values() for t in of_name}, unnamed)
    worth, none = np.zeros(len(usage.dur), np.int64), np.empty(0, np.int64)
    rows, called = [], set[str]()
    for name, of_name in tuned.items():
        # What is saved per call, ns: least and most, where strategies compete or add up. An operator that has one of
        # them several times says nothing certain about a call.
        saved: dict[str | None, set[int]] = {}
        for entry in of_name:
            each = round(((entry.before_us or 0) - (entry.after_us or 0)) * NS_PER_US)
            saved.setdefault(entry.strategy, set()).add(max(each, 0))
        best = [max(times) for times in saved.values()]
        certain = all(len(times) == 1 for times in saved.values())
        named = name in by_name
        of_type = [by_type[t] for t in types[name] if t in by_type]
        calls = by_name[name] if named else np.concatenate([none, *of_type])
        felt = calls[usage.felt[calls]]
        most = np.minimum(sum(best), usage.dur[felt])
        worth[felt] = np.maximum(worth[felt], most)
        least = np.minimum(max(best) if certain else 0, usage.dur[felt]) if named else none
        row = _saving(name, "name" if named else "type", len(calls), least, most, usage.steps)
        own = usage.types.take(calls).compact().names
        rows.append(_as_replayed(row, usage.worth.most(own)))
        called.update(own)
    if rows and all(row.basis == "none" for row in rows):
        return tuple(rows), None
    total = sum(row.least_ns for row in rows), int(worth.sum()) // usage.steps
    if usage.worth.most([*called]) is not None:  # then all of them were replayed together, too
        total = min(total[0], usage.worth.together), min(total[1], usage.worth.together)
    return tuple(sorted(rows, key=lambda row: -row.most_ns)), total


def _as_replayed(row: Saving, most: int | None) -> Saving:
    """Return a saving that is no more than what the step would lose with all operators of its types."""
    if most is None or most >= row.most_ns:
        return row
    why = say("replayed: without any time in operators of its type the step is shorter by {most}", most=ns(most))
    return replace(row, least_ns=min(row.least_ns, most), most_ns=most, reason=chain(row.reason, why))


def _calls(labels: Labels, wanted: Set[str], among: Mask) -> dict[str, I64]:
    """Return the rows ``among`` these that have each of the wanted texts; texts without a row are left out."""
    rows = np.flatnonzero(among)
    rows = rows[np.argsort(labels.codes[rows], kind="stable")]
    first = np.searchsorted(labels.codes[rows], np.arange(len(labels.names) + 1))
    found = {n: rows[first[i] : first[i + 1]] for i, n in enumerate(labels.names) if n in wanted}
    return {name: calls for name, calls in found.items() if len(calls)}


def _saving(name: str, basis: Basis, calls: int, least: I64, most: I64, steps: int) -> Saving:
    reason: Message | None = None
    if not calls:
        reason = say("no such operator in the profile: another step, or compiled under another name")
    elif not len(most):
        reason = say("every call is in host-bound or communication-bound time: saving there does not shorten the step")
    elif len(most) < calls or basis == "type":
        reason = chain(
            say(
                "{some} of {all} calls are in host-bound or communication-bound time",
                some=calls - len(most),
                all=calls,
            )
            if len(most) < calls
            else None,
            say("found by type: it is unknown which of its calls are this case") if basis == "type" else None,
        )
    return Saving(
        name=name,
        calls_per_step=calls / steps,
        felt_per_step=len(most) / steps,
        least_ns=int(least.sum()) // steps,
        most_ns=int(most.sum()) // steps,
        basis=basis if calls else "none",
        reason=reason,
    )
