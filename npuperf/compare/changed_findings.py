"""Findings on both sides: which are new, gone, or say something else than before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from npuperf.documents.analysis import Finding, Result, Severity
from npuperf.documents.comparison import FindingChange
from npuperf.messages import Message, Parameter, Series, chain, say

_ORDER: Final[dict[Severity | None, int]] = {"high": 0, "medium": 1, "low": 2, None: 3}
#: What one finding is about: its rule, its rank (None where each side has one device only), and the n-th such one.
_Key = tuple[str, int | None, int]
#: The sentences of several messages.
_Sentences = frozenset[tuple[object, ...]]


def finding_changes(old: Sequence[Result], new: Sequence[Result]) -> tuple[list[FindingChange], int]:
    """Return what changed, the gravest first, and how many problems are as they were.

    Of several runs, a side has the problems that most of its runs have.
    """
    alone = all(len(run.devices) == 1 for run in (*old, *new))
    before, after = _side(old, alone), _side(new, alone)
    changes, unchanged = [], 0
    for key in {**before, **after}:
        a, b = before.get(key), after.get(key)
        if not any(side is not None and side.status == "problem" for side in (a, b)):
            continue
        change = _change(key, a, b)
        if change is None:
            unchanged += 1
        else:
            changes.append(change)
    return sorted(changes, key=_gravest_first), unchanged


def _side(runs: Sequence[Result], alone: bool) -> dict[_Key, Finding]:
    """Return the findings of a side, of the last run that has each, where most runs agree on the problem."""
    found: dict[_Key, Finding] = {}
    votes: Counter[_Key] = Counter()
    for run in runs:
        mine = dict(_keyed(run, alone))
        found |= mine
        votes.update(key for key, finding in mine.items() if finding.status == "problem")
    rare = {key for key, finding in found.items() if finding.status == "problem" and 2 * votes[key] <= len(runs)}
    return {key: finding for key, finding in found.items() if key not in rare}


def _keyed(run: Result, alone: bool) -> Iterator[tuple[_Key, Finding]]:
    seen: Counter[tuple[str, int | None]] = Counter()
    for finding in run.findings:
        where = None if alone else finding.rank if finding.rank is not None else finding.device
        yield (finding.rule, where, seen[finding.rule, where]), finding
        seen[finding.rule, where] += 1


def _change(key: _Key, old: Finding | None, new: Finding | None) -> FindingChange | None:
    """Return how a finding changed; what cannot be told any more is not gone."""
    there = [side is not None and side.status == "problem" for side in (old, new)]
    open_ = [side is not None and side.status == "cannot_tell" for side in (old, new)]
    if all(there) and old is not None and new is not None and _says(old) == _says(new):
        return None
    changed = all(there) or any(open_)
    return FindingChange(
        rule=key[0],
        rank=key[1],
        change="changed" if changed else "added" if there[1] else "removed",
        old=_said(old, new if all(there) else None),
        new=_said(new, old if all(there) else None),
        old_severity=old.severity if old is not None and there[0] else None,
        new_severity=new.severity if new is not None and there[1] else None,
    )


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


def _gravest_first(change: FindingChange) -> tuple[int, int, str, int]:
    kind = {"added": 0, "changed": 1, "removed": 2}[change.change]
    severity = min((s for s in _ORDER if s in (change.old_severity, change.new_severity)), key=_ORDER.__getitem__)
    return kind, _ORDER[severity], change.rule, change.rank if change.rank is not None else -1
