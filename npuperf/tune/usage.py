"""What a profile says about operators: which calls there are, how long, and what tuned ones save per step."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from npuperf.cores.blocks import on_cores
from npuperf.documents.tuning import Basis, Entry, Saving, Tuning
from npuperf.messages import Message, chain, say
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.operators.sums import type_labels
from npuperf.units import NS_PER_US

if TYPE_CHECKING:
    from npuperf.documents.analysis import Device, Result
    from npuperf.readers.recording import Recording


@dataclass(frozen=True, slots=True)
class Usage:
    """The compute kernels of one device of a profile. ``felt``: outside of host-bound phases.

    ``tunable``: kernels on AI cores; ``dynamic``: the share of those of dynamic shape, where that is known.
    ``lengths``: of the steps (ns), none where none is recorded; ``step_ns``: their mean, as calls are counted per step
    on average, else the whole window; ``step``: of every kernel the step that it begins in, counted from 0.
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
    dynamic: float | None
    most_blocks: int | None

    @property
    def steps(self) -> int:
        """How many steps to spread calls over."""
        return max(len(self.lengths), 1)

    def busiest(self, count: int | None = None, *, felt: bool = True) -> list[str]:
        """Return the operator types with most time (that is ``felt`` and can be tuned, or any), the most first."""
        time = np.where(self.felt & self.tunable, self.dur, 0) if felt else self.dur
        total = np.bincount(self.types.codes + 1, time, minlength=1)[1:]
        order = [int(i) for i in np.argsort(-total, kind="stable") if total[i] > 0]
        return [self.types.names[i] for i in order[:count]]


def read_usage(path: Path, recording: Recording | None = None) -> Usage | None:
    """Read the first device of a profile, each file once; None where it has no kernel.

    ``recording``: what is kept of the profile, where it was read before.
    """
    from npuperf.readers.recording import open_recording

    recording = recording or open_recording(path, keep=True)
    return usage_of(recording, read_analysis(path, recording))


def read_analysis(path: Path, recording: Recording) -> Result:
    """Analyze a profile that is open."""
    from npuperf.analyze.request import AnalyzeRequest  # most of what is asked of tune needs no analysis
    from npuperf.analyze.run import run

    return run(AnalyzeRequest(path=path), recording)


def usage_of(recording: Recording, result: Result) -> Usage | None:
    """Return what the first device of an analyzed recording says about operators; None where it has no kernel."""
    devices = {(d.rank, d.device): d for d in result.devices}
    for profile in recording.profiles:
        device = devices.get((profile.rank, profile.device))
        kernels = profile.tasks.only(Work.COMPUTE).without_counters()
        if device is not None and len(kernels):
            return _usage(kernels, device)
    return None


def _usage(kernels: Tasks, device: Device) -> Usage:
    felt = np.ones(len(kernels), np.bool_)
    at = kernels.start - device.origin_ns
    for phase in device.phases:
        if phase.bound == "host":
            felt &= ~((at >= phase.start_ns) & (at < phase.end_ns))
    steps = device.whole_steps
    if steps:
        inside = (at >= steps[0].start_ns) & (at < steps[-1].start_ns + steps[-1].partition.span_ns)
        kernels, felt, at = kernels.filter(inside), felt[inside], at[inside]
    known = kernels.state.known()
    lengths = np.array([s.partition.span_ns for s in steps], np.int64)
    return Usage(
        soc=device.soc,
        cores=device.cores_cube,
        lengths=lengths,
        step_ns=round(float(lengths.mean())) if len(lengths) else device.partition.span_ns,
        names=kernels.name,
        types=type_labels(kernels),
        dur=kernels.dur,
        step=np.maximum(np.searchsorted([s.start_ns for s in steps], at, side="right") - 1, 0),
        felt=felt,
        dynamic=float(kernels.dynamic[known].mean()) if known.any() else None,
        tunable=on_cores(kernels),
        most_blocks=_most_blocks(kernels),
    )


def _most_blocks(kernels: Tasks) -> int | None:
    on_cube = kernels.core.flag([c in ("AI_CORE", "MIX_AIC") for c in kernels.core.names])
    blocks = kernels.block[on_cube & (kernels.block > 0)]
    return int(blocks.max()) if len(blocks) else None


def add_savings(tuning: Tuning, usage: Usage | None) -> Tuning:
    """Return a tuning with what its operators are worth in a profile, if there is one."""
    if usage is None:
        return tuning
    rows, total = savings(tuning.entries, usage)
    nothing = tuning.mode == "op" and tuning.status in ("successful", "nothing_to_tune")  # and not: not known
    return replace(tuning, savings=rows, saved_ns=total if rows or nothing else None, step_ns=usage.step_ns)


@dataclass(frozen=True, slots=True)
class _Gain:
    """What tuning saves per call of an operator, ns: least and most, where its strategies compete or add up."""

    name: str
    types: tuple[str, ...]
    least_ns: int
    most_ns: int


def savings(entries: Sequence[Entry], usage: Usage) -> tuple[tuple[Saving, ...], tuple[int, int]]:
    """Say what every operator that was tuned saves per step, the most first, and what all of them save (ns).

    Calls with an operator's name are its own; the others may be calls of any operator of their type, and count in the
    sum for the one that would save most. No call saves more than it takes.
    """
    tuned: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind == "operator" and entry.before_us and entry.after_us:
            tuned.setdefault(entry.name, []).append(entry)
    gains = [_gain(name, of_name) for name, of_name in tuned.items()]
    by_name = _calls(usage.names, {g.name for g in gains}, np.ones(len(usage.dur), np.bool_))
    unnamed = np.ones(len(usage.dur), np.bool_)
    for calls in by_name.values():
        unnamed[calls] = False
    by_type = _calls(usage.types.lower(), {t.lower() for g in gains for t in g.types}, unnamed)
    worth, none = np.zeros(len(usage.dur), np.int64), np.empty(0, np.int64)
    rows = []
    for gain in gains:
        basis: Basis = "name" if gain.name in by_name else "type"
        of_type = [by_type[t] for t in dict.fromkeys(map(str.lower, gain.types)) if t in by_type]
        calls = by_name[gain.name] if basis == "name" else np.concatenate([none, *of_type])
        felt = calls[usage.felt[calls]]
        most = np.minimum(gain.most_ns, usage.dur[felt])
        worth[felt] = np.maximum(worth[felt], most)
        least = np.minimum(gain.least_ns, usage.dur[felt]) if basis == "name" else none
        rows.append(_saving(gain.name, basis, len(calls), least, most, usage.steps))
    total = sum(row.least_ns for row in rows), int(worth.sum()) // usage.steps
    return tuple(sorted(rows, key=lambda row: -row.most_ns)), total


def _gain(name: str, tuned: Sequence[Entry]) -> _Gain:
    """Put the strategies of an operator together; one that has several times says nothing certain about a call."""
    saved: dict[str | None, set[int]] = {}
    for entry in tuned:
        each = round(((entry.before_us or 0) - (entry.after_us or 0)) * NS_PER_US)
        saved.setdefault(entry.strategy, set()).add(max(each, 0))
    best = [max(times) for times in saved.values()]
    certain = all(len(times) == 1 for times in saved.values())
    return _Gain(name, tuple(dict.fromkeys(t for e in tuned for t in e.types)), max(best) if certain else 0, sum(best))


def _calls(labels: Labels, wanted: Set[str], among: Mask) -> dict[str, I64]:
    """Return the rows ``among`` these that have each of the wanted texts; texts without a row are left out."""
    rows = np.flatnonzero(among)
    rows = rows[np.argsort(labels.codes[rows], kind="stable")]
    first = np.searchsorted(labels.codes[rows], np.arange(len(labels.names) + 1))
    found = {n: rows[first[i] : first[i + 1]] for i, n in enumerate(labels.names) if n in wanted}
    return {name: calls for name, calls in found.items() if len(calls)}


def _saving(name: str, basis: Basis, calls: int, least: I64, most: I64, steps: int) -> Saving:
    return Saving(
        name=name,
        calls_per_step=calls / steps,
        felt_per_step=len(most) / steps,
        least_ns=int(least.sum()) // steps,
        most_ns=int(most.sum()) // steps,
        basis=basis if calls else "none",
        reason=_reason(basis if calls else "none", calls, len(most)),
    )


def _reason(basis: Basis, calls: int, felt: int) -> Message | None:
    if basis == "none":
        return say("no such operator in the profile: another step, or compiled under another name")
    if not felt:
        return say("every call is in host-bound time: saving there does not shorten the step")
    some = say("{some} of {all} calls are in host-bound time", some=calls - felt, all=calls) if felt < calls else None
    by_type = say("found by type: it is unknown which of its calls are this case") if basis == "type" else None
    return chain(some, by_type) if some or by_type else None
