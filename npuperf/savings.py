"""What tuned operators are worth in a profile: calls per step, in device-bound time only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from npuperf.analyze.operators import type_labels
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.profile import ReadLog
from npuperf.model.result import Device
from npuperf.model.tasks import Tasks, Work
from npuperf.model.tuning import Entry, Saving, Tuning
from npuperf.pipeline import analyze_path
from npuperf.readers.find import find
from npuperf.readers.read import read_source
from npuperf.units import NS_PER_US


@dataclass(frozen=True, slots=True)
class Usage:
    """The compute kernels of one device of a profile. ``felt``: outside of host-bound phases.

    ``lengths``: of the steps (ns), none where none is recorded; ``step_ns``: their median, else the whole window.
    """

    soc: str | None
    cores: int | None
    lengths: I64
    step_ns: int
    names: Labels
    types: Labels
    dur: I64
    felt: Mask
    dynamic: bool | None
    most_blocks: int | None

    @property
    def steps(self) -> int:
        """How many steps to spread calls over."""
        return max(len(self.lengths), 1)

    def busiest(self, count: int | None = None, *, felt: bool = True) -> list[str]:
        """Return the operator types with most time (that is ``felt``, or any), the most first."""
        time = np.where(self.felt, self.dur, 0) if felt else self.dur
        total = np.bincount(self.types.codes + 1, time, minlength=1)[1:]
        order = [int(i) for i in np.argsort(-total, kind="stable") if total[i] > 0]
        return [self.types.names[i] for i in order[:count]]


def read_usage(path: Path) -> Usage | None:
    """Read the first device of a profile; None where it has no kernel."""
    result = analyze_path(path)
    sources, _ = find(path)
    for source in sources:
        for profile in read_source(source, ReadLog()):
            report = next((d for d in result.devices if (d.rank, d.device) == (profile.rank, profile.device)), None)
            kernels = profile.tasks.only(Work.COMPUTE).without_counters()
            if report is not None and len(kernels):
                return _usage(kernels, report)
    return None


def _usage(kernels: Tasks, report: Device) -> Usage:
    felt = np.ones(len(kernels), np.bool_)
    at = kernels.start - report.origin_ns
    for phase in report.phases:
        if phase.bound == "host":
            felt &= ~((at >= phase.start_ns) & (at < phase.end_ns))
    known = kernels.state.known()
    lengths = np.array([s.partition.span_ns for s in report.steps], np.int64)
    return Usage(
        soc=report.soc,
        cores=report.cores_cube,
        lengths=lengths,
        step_ns=int(np.median(lengths)) if len(lengths) else report.partition.span_ns,
        names=kernels.name,
        types=type_labels(kernels),
        dur=kernels.dur,
        felt=felt,
        dynamic=bool(kernels.dynamic[known].all()) if known.any() else None,
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
    return replace(tuning, savings=tuple(savings(tuning.entries, usage)), step_ns=usage.step_ns)


def savings(entries: Sequence[Entry], usage: Usage) -> list[Saving]:
    """Say what every operator that became faster saves per step, the most first."""
    found = [_saving(e, usage) for e in entries if e.kind == "operator" and e.before_us and e.after_us]
    return sorted(found, key=lambda s: -s.most_ns)


def _saving(entry: Entry, usage: Usage) -> Saving:
    calls = usage.names.flag([n == entry.name for n in usage.names.names])
    basis = "name" if calls.any() else "none"
    if basis == "none":
        wanted = {t.lower() for t in entry.types}
        calls = usage.types.flag([t.lower() in wanted for t in usage.types.names])
        basis = "type" if calls.any() else "none"
    each = round(((entry.before_us or 0) - (entry.after_us or 0)) * NS_PER_US)
    felt = int((calls & usage.felt).sum())
    most = max(each, 0) * felt // usage.steps
    return Saving(
        name=entry.name,
        calls_per_step=int(calls.sum()) / usage.steps,
        felt_per_step=felt / usage.steps,
        least_ns=most if basis == "name" else 0,
        most_ns=most,
        basis=basis,  # type: ignore[arg-type]
        reason=_reason(basis, int(calls.sum()), felt),
    )


def _reason(basis: str, calls: int, felt: int) -> str:
    if basis == "none":
        return "no such operator in the profile: another step, or compiled under another name"
    if not felt:
        return "every call is in host-bound time: the gain will not be felt"
    text = f"{calls - felt} of {calls} calls are in host-bound time" if felt < calls else ""
    if basis == "type":
        text = "; ".join(filter(None, [text, "found by type: which of its calls are this case is not known"]))
    return text
