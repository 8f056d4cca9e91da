"""Steps and phases of both sides laid over each other by what they run, not by their numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from msgspec.structs import replace

from npuperf.advise import RULES
from npuperf.against.step_kinds import Kind, kinds
from npuperf.base.messages import Message, Parameter, Series, chain, ns, say, say_n, series
from npuperf.device.sections import parts_of
from npuperf.model.comparison import FindingChange
from npuperf.model.parts import Digest, PartSum
from npuperf.model.result import Bound, Finding, Result, Severity, TypicalPhase, TypicalStep
from npuperf.model.thresholds import Thresholds

#: Steps and phases of a side that are named one by one.
_NAMED: Final = 5
#: Operator types that say what a step runs more of than others.
_TYPES: Final = 3


def aligned(old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds) -> list[Message]:
    """Say which steps run what none of the other side runs, and which phases only one side has."""
    sides = [[run.digest for run in side if run.digest is not None] for side in (old, new)]
    return [*_steps(*sides), *_phases(old, new, thresholds)]


# --- steps ------------------------------------------------------------------------------------------------------------


def _steps(old: Sequence[Digest], new: Sequence[Digest]) -> Iterator[Message]:
    """Yield the steps that differ, where most steps of both sides are alike; else every step differs."""
    sides = [[pair for d in digests for pair in zip(d.steps, kinds(d), strict=True)] for digests in (old, new)]
    if not all(sides):
        return
    usual = [Counter(runs for _, runs in side).most_common(1)[0][0] for side in sides]
    if usual[0] != usual[1]:
        return
    known = [{runs for _, runs in side} for side in sides]
    missing = [(step, runs) for step, runs in sides[0] if runs not in known[1]]
    inserted = [(step, runs) for step, runs in sides[1] if runs not in known[0]]
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


def _differs(runs: Kind, usual: Kind) -> Message:
    """Say of what a step has more or fewer kernels than usual."""
    mine, others = Counter(dict(runs)), Counter(dict(usual))
    more = Counter({name: mine[name] - others[name] for name in {*mine, *others} if mine[name] != others[name]})
    most = sorted(more.items(), key=lambda item: (-abs(item[1]), item[0]))[:_TYPES]
    named = (
        say("{n} more {type}", n=n, type=name) if n > 0 else say("{n} fewer {type}", n=-n, type=name)
        for name, n in most
    )
    return say("{types} than usual", types=series(named))


# --- phases -----------------------------------------------------------------------------------------------------------

_BOUND: Final[dict[Bound, Message]] = {
    "host": say("host-bound"),
    "compute": say("compute-bound"),
    "communication": say("communication-bound"),
    "unknown": say("without a verdict"),
}


def _phases(old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds) -> Iterator[Message]:
    """Yield what only one side has of the labelled phases of usual steps, and those that something else limits now."""
    # the usual step of the first device
    a, b = (next((device.typical_step for run in side for device in run.devices), None) for side in (old, new))
    if a is None or b is None:
        return
    before, after = _by_label(a), _by_label(b)
    if not before or not after:  # a side whose launches are not recorded names none
        return
    long = thresholds.phase_share
    gone = [p for p in _lacking(before, after) if p.length.median_ns > long * a.length.median_ns]
    came = [p for p in _lacking(after, before) if p.length.median_ns > long * b.length.median_ns]
    turned = [label for label, p in before.items() if label in after and after[label].bound != p.bound]
    for phase in gone[:_NAMED]:
        yield say(
            "{label} is no phase of its own any more ({time} before)",
            label=phase.label,
            time=ns(phase.length.median_ns),
        )
    for phase in came[:_NAMED]:
        yield say("{label} is a phase of its own now ({time})", label=phase.label, time=ns(phase.length.median_ns))
    for label in turned[:_NAMED]:
        was, now = _BOUND[before[label].bound], _BOUND[after[label].bound]
        yield say("the phase {label} was {was} and is {now}", label=label, was=was, now=now)


def _lacking(here: dict[Message, TypicalPhase], there: dict[Message, TypicalPhase]) -> list[TypicalPhase]:
    """Return the phases that do a part of the program which none does on the other side.

    Where a phase ends differs from run to run: with a little more or less of its neighbour it is none that is new.
    """
    known = frozenset[str]().union(*map(parts_of, there))
    return [phase for label, phase in here.items() if not parts_of(label) <= known]


def _by_label(step: TypicalStep) -> dict[Message, TypicalPhase]:
    """Return the phases that have a label; of several with one label the longest."""
    labelled = [(phase.label, phase) for phase in step.phases if phase.label is not None]
    return dict(sorted(labelled, key=lambda item: item[1].length.median_ns))


# -- Findings on both sides: which are new, gone, or say something else than before.

_ORDER: Final[dict[Severity | None, int]] = {"high": 0, "medium": 1, "low": 2, None: 3}
#: Rules that name a cause, of a job; other rules of jobs name a rank at which to look first, and that is no cause.
_CAUSES: Final = ("slow_rank", "slow_link")
#: What one finding is about: its rule, its rank (None where each side has one device only, and of a job), what else
#: tells it apart, and the n-th such one.
_Key = tuple[str, int | None, tuple[object, ...], int]
#: The sentences of several messages.
_Sentences = frozenset[tuple[object, ...]]


def finding_changes(old: Sequence[Result], new: Sequence[Result]) -> tuple[list[FindingChange], int]:
    """Return what changed, the gravest first, and how many problems are as they were.

    Of several runs, a side has the problems that most of its runs have. What changed alike on several ranks is one.
    """
    alone = all(len(run.devices) == 1 for run in (*old, *new))
    before, after = _side(old, alone), _side(new, alone)
    _pair_causes(before, after)
    changes, unchanged = [], 0
    for key in {**before, **after}:
        a, b = before.get(key), after.get(key)
        had, has = (side is not None and side.status == "problem" for side in (a, b))
        if not had and not has:
            continue
        if had and has and a is not None and b is not None and _says(a) == _says(b) and _ranks_of(a) == _ranks_of(b):
            unchanged += 1
            continue
        untold = any(side is not None and side.status == "cannot_tell" for side in (a, b))  # which is not gone
        change = FindingChange(
            rule=key[0],
            rank=key[1],
            change="changed" if had == has or untold else "added" if has else "removed",
            old=_said(a, b if had and has else None),
            new=_said(b, a if had and has else None),
            old_severity=a.severity if a is not None and had else None,
            new_severity=b.severity if b is not None and has else None,
        )
        changes.append(change)

    def gravest_first(change: FindingChange) -> tuple[int, int, bool, str, int]:
        severity = min(_ORDER[s] for s in _ORDER if s in (change.old_severity, change.new_severity))
        kind = ("added", "changed", "removed").index(change.change)
        return kind, severity, change.rule not in _CAUSES, change.rule, -1 if change.rank is None else change.rank

    return _on_several(sorted(changes, key=gravest_first)), unchanged


def _on_several(changes: Sequence[FindingChange]) -> list[FindingChange]:
    """Return changes that are said alike of several ranks as one, in the words of the first."""
    alike: dict[tuple[object, ...], list[FindingChange]] = defaultdict(list)
    for place, c in enumerate(changes):
        said = tuple(None if side is None else _ids(side) for side in (c.old, c.new))
        only = place if c.rank is None else None
        alike[c.rule, c.change, c.old_severity, c.new_severity, said, only].append(c)
    ranks = ([c.rank for c in same if c.rank is not None] for same in alike.values())
    return [replace(same[0], ranks=of) for same, of in zip(alike.values(), ranks, strict=True)]


def _side(runs: Sequence[Result], alone: bool) -> dict[_Key, Finding]:
    """Return the findings of a side, of the last run that has each, where most runs agree on the problem."""
    found: dict[_Key, Finding] = {}
    votes: Counter[_Key] = Counter()
    of_jobs = {rule.name for rule in RULES if rule.on_job is not None}
    for run in runs:
        mine: dict[_Key, Finding] = {}
        seen: Counter[tuple[object, ...]] = Counter()
        for finding in run.findings:
            whole = alone or (run.cluster is not None and finding.rule in of_jobs)
            where = None if whole else finding.rank if finding.rank is not None else finding.device
            about = finding.rule, where, _ranks_of(finding)
            mine[(*about, seen[about])] = finding
            seen[about] += 1
        found |= mine
        votes.update(key for key, finding in mine.items() if finding.status == "problem")
    rare = {key for key, finding in found.items() if finding.status == "problem" and 2 * votes[key] <= len(runs)}
    return {key: finding for key, finding in found.items() if key not in rare}


def _ranks_of(finding: Finding) -> tuple[object, ...]:
    """Return the ranks that a cause of a job names: with other ones it is another cause. Nothing of other findings."""
    if finding.rule not in _CAUSES or finding.status != "problem":
        return ()
    return tuple(n for n in _plain(finding.title) if isinstance(n, int))


def _plain(message: Parameter) -> Iterator[object]:
    """Yield the numbers and names in a message that are no measured quantities."""
    if isinstance(message, Series):
        for item in message.items:
            yield from _plain(item)
    elif isinstance(message, Message):
        for value in message.parameters.values():
            yield from _plain(value)
    else:
        yield message


def _pair_causes(before: dict[_Key, Finding], after: dict[_Key, Finding]) -> None:
    """Make one of a cause that only the old side has and one of its rule that only the new one has: it moved."""
    gone = [key for key in before if key not in after and key[2]]
    for key in [key for key in after if key not in before and key[2]]:
        was = next((other for other in gone if other[0] == key[0]), None)
        if was is not None:
            gone.remove(was)
            before[key] = before.pop(was)


def _said(finding: Finding | None, other: Finding | None) -> Message | None:
    """Say what a finding says, and what only it, of two, presupposes or advises against."""
    if finding is None or finding.status == "ok":
        return None
    if finding.status == "cannot_tell":
        needs = finding.needs or finding.title
        return say("cannot be told: {needs}", needs=needs)
    if other is None:
        return finding.title
    lacking, excluded = _holds(other)
    missing = [p.what for p in finding.preconditions if p.holds is False and _ids(p.what) not in lacking]
    against = [e.advice for e in finding.excluded if _ids(e.advice) not in excluded]
    more = [say("does not hold: {what}", what=what) for what in missing]
    more += [say("not advised: {advice}", advice=advice) for advice in against]
    return chain(finding.title, *more)


def _says(finding: Finding) -> tuple[object, ...]:
    """Return what a finding says, without its numbers, which are never the same twice."""
    return finding.severity, _ids(finding.title), *_holds(finding)


def _holds(finding: Finding) -> tuple[_Sentences, _Sentences]:
    """Return what of the finding's preconditions does not hold, and what is not advised."""
    lacking = frozenset(_ids(p.what) for p in finding.preconditions if p.holds is False)
    return lacking, frozenset(_ids(e.advice) for e in finding.excluded)


def _ids(message: Parameter) -> tuple[object, ...]:
    """Return the sentences that a message is made of."""
    if isinstance(message, Series):
        return tuple(_ids(item) for item in message.items)
    if isinstance(message, Message):
        return message.id, *(_ids(value) for value in message.parameters.values())
    return ()


# -- What new waits of the host for the device cost: the device's waits for the host that begin in them.


def by_new_waits(old: Sequence[Digest], new: Sequence[Digest]) -> tuple[list[Digest], list[Digest]]:
    """Name waits for the host after what they began in, where one side waits so more often than the other.

    A device that runs dry because the host waited for it does so in whatever the host did next; that this takes so
    long is not what changed. Where one side does not tell how often its host waited, nothing is named anew.
    """
    before, after = _per_step(old), _per_step(new)
    changed = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    if not changed or any("sync" in run.uncounted for run in (*old, *new)):
        return [*old], [*new]
    return [_named(run, changed) for run in old], [_named(run, changed) for run in new]


def _per_step(runs: Sequence[Digest]) -> Mapping[str, Fraction]:
    """Return how often per step the host waits for the device, exactly, by the key of its count."""
    found: defaultdict[str, Fraction] = defaultdict(Fraction)
    steps = sum(max(len(run.span_ns), 1) for run in runs)
    for count in (count for run in runs for count in run.counts if count.kind == "sync"):
        found[count.key] += Fraction(sum(count.count), steps)
    return found


def _named(run: Digest, changed: set[str]) -> Digest:
    """Make one row of what followed each of the changed waits, which are what is counted in it."""
    parts = [part for part in run.parts if part.after not in changed]
    for wait in run.counts:
        after = [part for part in run.parts if part.after == wait.key]
        if wait.kind != "sync" or wait.key not in changed or not after:
            continue
        longest = max(after, key=lambda part: part.ns)
        call = wait.key.rpartition(" (")[0]
        row = PartSum(
            part=longest.part,
            key=f"sync: {call.rpartition(' in ')[2]}",
            ns=sum(part.ns for part in after),
            count=sum(wait.count),
            where=wait.where or longest.where,
            torch_op=longest.torch_op,
            after=wait.key,
        )
        parts.append(row)
    return replace(run, parts=parts)
