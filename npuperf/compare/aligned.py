"""Steps and phases of both sides laid over each other by what they run, not by their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from npuperf.documents.analysis import Bound, Result, TypicalPhase, TypicalStep
from npuperf.documents.digest import Digest
from npuperf.messages import Message, ns, say, say_n, series
from npuperf.model.thresholds import Thresholds

#: Steps and phases of a side that are named one by one.
_NAMED: Final = 5
#: Operator types that say what a step runs more of than others.
_TYPES: Final = 3
#: What a step runs: kernels of each type.
_Runs = frozenset[tuple[str, int]]


def aligned(old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds) -> list[Message]:
    """Say which steps run what none of the other side runs, and which phases only one side has."""
    sides = [[run.digest for run in side if run.digest is not None] for side in (old, new)]
    return [*_steps(*sides), *_phases(old, new, thresholds)]


# --- steps ------------------------------------------------------------------------------------------------------------


def _steps(old: Sequence[Digest], new: Sequence[Digest]) -> Iterator[Message]:
    """Yield the steps that differ, where most steps of both sides are alike; else every step differs."""
    sides = [_what_steps_run(side) for side in (old, new)]
    if not all(sides):
        return
    usual = [Counter(runs for _, runs in side).most_common(1)[0][0] for side in sides]
    if usual[0] != usual[1]:
        return
    kinds = [{runs for _, runs in side} for side in sides]
    missing = [(step, runs) for step, runs in sides[0] if runs not in kinds[1]]
    inserted = [(step, runs) for step, runs in sides[1] if runs not in kinds[0]]
    for step, runs in missing[:_NAMED]:
        what = _differs(runs, usual[0])
        yield say("step {step} of the old side is like none of the new one: {what}", step=step, what=what)
    for step, runs in inserted[:_NAMED]:
        what = _differs(runs, usual[0])
        yield say("step {step} of the new side is like none of the old one: {what}", step=step, what=what)
    more = len(missing[_NAMED:]) + len(inserted[_NAMED:])
    if more:
        yield say_n(
            "{n} more step has no like on the other side", "{n} more steps have no like on the other side", more
        )


def _what_steps_run(digests: Sequence[Digest]) -> list[tuple[int, _Runs]]:
    """Return the number of every step, and its kernels by type."""
    found = []
    for digest in digests:
        for place, step in enumerate(digest.steps):
            counts = ((t.type, t.count[place]) for t in digest.types if place < len(t.count) and t.count[place])
            found.append((step, frozenset(counts)))
    return found


def _differs(runs: _Runs, usual: _Runs) -> Message:
    """Say of what a step has more or fewer kernels than usual."""
    mine, others = Counter(dict(runs)), Counter(dict(usual))
    more = Counter({name: mine[name] - others[name] for name in {*mine, *others} if mine[name] != others[name]})
    most = sorted(more.items(), key=lambda item: (-abs(item[1]), item[0]))[:_TYPES]
    return say("{types} than usual", types=series(_than(name, n) for name, n in most))


def _than(name: str, n: int) -> Message:
    if n > 0:
        return say("{n} more {type}", n=n, type=name)
    return say("{n} fewer {type}", n=-n, type=name)


# --- phases -----------------------------------------------------------------------------------------------------------

_BOUND: Final[dict[Bound, Message]] = {
    "host": say("host-bound"),
    "compute": say("compute-bound"),
    "communication": say("communication-bound"),
    "unknown": say("without a verdict"),
}


def _phases(old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds) -> Iterator[Message]:
    """Yield what only one side has of the labelled phases of usual steps, and those that something else limits now."""
    a, b = _usual_step(old), _usual_step(new)
    if a is None or b is None:
        return
    before, after = _by_label(a), _by_label(b)
    if not before or not after:  # a side whose launches are not recorded names none
        return
    long = thresholds.phase_share
    gone = [p for label, p in before.items() if label not in after and p.length.median_ns > long * a.length.median_ns]
    came = [p for label, p in after.items() if label not in before and p.length.median_ns > long * b.length.median_ns]
    turned = [label for label, p in before.items() if label in after and after[label].bound != p.bound]
    for phase in gone[:_NAMED]:
        yield say("the phase {label} ({time}) is gone", label=phase.label, time=ns(phase.length.median_ns))
    for phase in came[:_NAMED]:
        yield say("the phase {label} ({time}) is new", label=phase.label, time=ns(phase.length.median_ns))
    for label in turned[:_NAMED]:
        was, now = _BOUND[before[label].bound], _BOUND[after[label].bound]
        yield say("the phase {label} was {was} and is {now}", label=label, was=was, now=now)


def _usual_step(runs: Sequence[Result]) -> TypicalStep | None:
    """Return the usual step of the first device."""
    return next((device.typical_step for run in runs for device in run.devices), None)


def _by_label(step: TypicalStep) -> dict[Message, TypicalPhase]:
    """Return the phases that have a label; of several with one label the longest."""
    labelled = [(phase.label, phase) for phase in step.phases if phase.label is not None]
    return dict(sorted(labelled, key=lambda item: item[1].length.median_ns))
