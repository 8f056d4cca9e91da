"""What new waits of the host for the device cost: the device's waits for the host that begin in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

from msgspec.structs import replace

from npuperf.documents.digest import Count, Digest, PartSum


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
    others = [part for part in run.parts if part.after not in changed]
    waits = [count for count in run.counts if count.kind == "sync" and count.key in changed]
    return replace(run, parts=[*others, *(row for wait in waits if (row := _row(run, wait)) is not None)])


def _row(run: Digest, wait: Count) -> PartSum | None:
    after = [part for part in run.parts if part.after == wait.key]
    if not after:
        return None
    longest = max(after, key=lambda part: part.ns)
    call = wait.key.rpartition(" (")[0]
    return replace(
        longest,
        key=f"sync: {call.rpartition(' in ')[2]}",
        ns=sum(part.ns for part in after),
        count=sum(wait.count),
        where=wait.where or longest.where,
    )
