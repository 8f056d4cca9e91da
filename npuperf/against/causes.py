"""What lasts and slows a job, on both sides: waits and transfers are where it shows, these are why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from npuperf.base.messages import Message, ns_change, say, say_n, series
from npuperf.model.comparison import CauseChange, Change
from npuperf.model.job_result import Root
from npuperf.model.result import Result

#: Roots that somebody can mend. The schedule's own bubble and jitter are none, and of the rest nothing is known.
_LASTING: Final = ("rank", "stage", "link", "group")
#: What one root is about: its kind, and its stage or group, or its ranks.
_Key = tuple[str, object]


class _Cost(Struct, frozen=True):
    """A root as the last run has it, and what it costs a step of its side, least and most, ns."""

    root: Root
    least: int
    most: int


def cause_changes(old: Sequence[Result], new: Sequence[Result]) -> list[CauseChange]:
    """Return the roots that cost a step more or less than before, what changed most first; of jobs alone.

    What a root costs is what the step is shorter by without it, replayed on its side. On a side that does not have it
    it costs nothing. Without a replay on both sides nothing is told; that neither does costs nothing is no proof.
    """
    jobs = [[run.cluster for run in side if run.cluster is not None] for side in (old, new)]
    replayed = [bool(side) and all(job.replay is not None and job.replay.usable for job in side) for side in jobs]
    if not all(replayed) or len(jobs[0]) < len(old) or len(jobs[1]) < len(new):
        return []
    before, after = _paired(*(_costs([job.roots for job in side]) for side in jobs))
    found = []
    for key in {**before, **after}:
        a, b = before.get(key), after.get(key)
        was, now = ((cost.least, cost.most) if cost else (0, 0) for cost in (a, b))
        # intervals that meet are not told apart
        if now[0] > was[1] or now[1] < was[0]:
            worse = b if b is not None and (a is None or sum(now) > sum(was)) else a
            assert worse is not None, "a key is of a side that has it"
            change: Change = "added" if a is None else "removed" if b is None else "changed"
            found.append(
                CauseChange(
                    kind=worse.root.kind,
                    ranks=worse.root.ranks,
                    stage=worse.root.stage,
                    change=change,
                    old_ns=None if a is None else was,
                    new_ns=None if b is None else now,
                    delta_ns=(now[0] - was[1], now[1] - was[0]),
                    title=worse.root.title if a is None or b is None else _titled(a.root, b.root, worse.root),
                )
            )
    return sorted(found, key=lambda cause: (-abs(sum(cause.delta_ns)), cause.kind, cause.ranks))


def _titled(old: Root, new: Root, worse: Root) -> Message:
    """Call a cause of both sides, which on one may be of other ranks than on the other."""
    if worse.kind != "rank" or old.ranks == new.ranks:
        return worse.title
    if worse is new:
        return say_n("{cause}; before, it was rank {ranks}", "{cause}; before, it was ranks {ranks}", len(old.ranks),
                     cause=new.title, ranks=series(old.ranks))  # fmt: skip
    return say_n("{cause}; now it is rank {ranks}", "{cause}; now it is ranks {ranks}", len(new.ranks),
                 cause=old.title, ranks=series(new.ranks))  # fmt: skip


def _paired(before: dict[_Key, _Cost], after: dict[_Key, _Cost]) -> list[dict[_Key, _Cost]]:
    """Let ranks that are causes of both sides, and not the same on both, be one cause, which costs what they do."""
    apart = {key for key in {*before, *after} if key[0] == "rank" and not (key in before and key in after)}
    sets: list[set[int]] = []  # of ranks, whatever has one of them in common
    for ranks in ({*cost.root.ranks} for side in (before, after) for key, cost in side.items() if key in apart):
        joined = [own for own in sets if own & ranks]
        sets = [*(own for own in sets if own not in joined), ranks.union(*joined)]
    found = []
    for side in (before, after):
        one = {key: cost for key, cost in side.items() if key not in apart}
        for ranks in sets:
            costs = [cost for key, cost in side.items() if key in apart and ranks.issuperset(cost.root.ranks)]
            if costs:
                first = max(costs, key=lambda cost: cost.most)
                least, most = sum(cost.least for cost in costs), sum(cost.most for cost in costs)
                one["rank", tuple(sorted(ranks))] = _Cost(first.root, least, most)
        found.append(one)
    return found


def cause_sentence(cause: CauseChange) -> Message:
    """Say what a cause is, whether it is new, and by how much it makes the step longer or shorter."""
    change = ns_change(*cause.delta_ns)
    if cause.change == "added":
        return say("{cause} (new: {change} per step)", cause=cause.title, change=change)
    if cause.change == "removed":
        return say("{cause} (gone: {change} per step)", cause=cause.title, change=change)
    return say("{cause} (on both sides: {change} per step)", cause=cause.title, change=change)


def _costs(runs: Sequence[Sequence[Root]]) -> dict[_Key, _Cost]:
    """Return the roots of a side; of several runs with the mean of what each costs, nothing where a run has it not."""
    sums: dict[_Key, tuple[Root, int, int]] = {}
    for roots in runs:
        for root in roots:
            if root.kind in _LASTING and root.gain_ns_per_step is not None:
                about = root.stage if root.kind == "stage" else root.group if root.kind == "group" else root.ranks
                key = root.kind, tuple(about) if isinstance(about, list) else about
                _, least, most = sums.get(key, (root, 0, 0))
                low, high = root.gain_ns_per_step
                sums[key] = root, least + low, most + high
    return {key: _Cost(root, least // len(runs), most // len(runs)) for key, (root, least, most) in sums.items()}
