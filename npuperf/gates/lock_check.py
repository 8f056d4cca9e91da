"""A run held against a lock: what changed, named with its counts and its code line."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Final

from msgspec import Struct

from npuperf.documents.analysis import Result
from npuperf.documents.digest import CountKind, Digest
from npuperf.documents.gates import Gate, Status
from npuperf.files import shown
from npuperf.gates.kinds import RECORDED_BY, THINGS
from npuperf.gates.lock_file import SETUP, Counts, Values, counted, differs, incomparable, lost_rows, setup_of
from npuperf.gates.lock_text import Locked, LockedCount, Spans, read_lock, spelled_spans
from npuperf.messages import Message, Parameter, chain, say, say_n, series

#: So many changes are gates of their own.
_NAMED: Final = 20
_NEVER: Final = ((0, 0),)
#: So many values of one count are shown.
_LISTED: Final = 4


class _Change(Struct, frozen=True):
    """Something that happens another number of times, or moves another number of bytes, than the lock says."""

    kind: CountKind
    key: str
    old: LockedCount
    new: LockedCount
    where: str | None
    counts: bool
    bytes: bool

    @property
    def pair(self) -> tuple[int, int]:
        """One number of either side, old and new."""
        old, new = (self.old.count, self.new.count) if self.counts else (self.old.bytes, self.new.bytes)
        return (old or _NEVER)[-1][1], (new or _NEVER)[-1][1]

    @property
    def rank(self) -> tuple[bool, int, str, str]:
        """The order in which changes are told: those of counts first, and the largest first."""
        old, new = self.pair
        return not self.counts, -abs(new - old), self.kind, self.key


def check_lock(result: Result, path: Path) -> list[Gate]:
    """Hold a run against a lock: one gate for all of it, one for each kind that this run does not tell, and one for
    each of the first changes.

    Raises InputError where the lock cannot be read, or is none.
    """
    locked, name, digest = read_lock(path), f"lock {shown(path)}", result.digest
    why = incomparable(locked, digest)
    if digest is None or why is not None:
        return [Gate(expr=name, status="cannot_tell", value=None, limit=0.0, reason=why)]
    found = counted(digest)
    changes = _changes(locked, found, digest)
    return [
        _whole(name, path, locked, result, found, changes),
        *(_untold(name, path, kind) for kind in _untold_kinds(locked, found)),
        *(_gate(name, change, per_step=locked.per_step) for change in changes[:_NAMED]),
    ]


def _changes(locked: Locked, found: Counts, digest: Digest) -> list[_Change]:
    places = {(count.kind, count.key): count.where for count in digest.counts}
    changes = []
    for kind, before in locked.counts.items():
        now = found.get(kind)
        if now is None:
            continue
        for key in before | now:
            old, new = before.get(key, LockedCount(_NEVER)), now.get(key, Values())
            counts, moved = differs(old, new)
            if counts or moved:
                changes.append(_Change(kind, key, old, new.locked, places.get((kind, key)), counts, moved))
    return sorted(changes, key=lambda change: change.rank)


def _untold_kinds(locked: Locked, found: Counts) -> list[CountKind]:
    """Return the kinds of which the lock says something, if only that there is none, and this run nothing."""
    return sorted(locked.counts.keys() - found.keys())


def _whole(name: str, path: Path, locked: Locked, result: Result, found: Counts, changes: list[_Change]) -> Gate:
    """Return the gate of the whole lock, whose value is the number of changes."""
    held = sum(len(before | found[kind]) for kind, before in locked.counts.items() if kind in found)
    doubt = _doubt(locked, result, found)
    status: Status = "fail" if changes else "cannot_tell" if doubt is not None else "pass"
    if changes:
        told = say_n("{n} of {held} counts changed; if that is meant, --update-lock {path} accepts it",
                     "{n} of {held} counts changed; if that is meant, --update-lock {path} accepts it",
                     len(changes), held=held, path=shown(path))  # fmt: skip
    else:
        told = say_n("{n} count is as locked", "{n} counts are as locked", held)
    more = len(changes) > _NAMED
    reason = chain(
        told,
        say("the {n} largest changes follow", n=_NAMED) if more else None,
        doubt,
        _other_setup(locked, setup_of(result)),
        _not_locked(locked, found) if not changes else None,
    )
    value = float(len(changes)) if status != "cannot_tell" else None
    return Gate(expr=name, status=status, value=value, limit=0.0, reason=reason)


def _doubt(locked: Locked, result: Result, found: Counts) -> Message | None:
    """Say why counts that are as locked may be too low, or are not all there."""
    lost = lost_rows(result)
    if lost > locked.lost:
        return say_n("{n} row of this run could not be used, so that there may be more",
                     "{n} rows of this run could not be used, so that there may be more", lost)  # fmt: skip
    untold = [
        key
        for kind, before in locked.counts.items()
        for key, old in before.items()
        if old.bytes is not None and kind in found and found[kind].get(key, Values()).bytes is None
    ]
    if untold:
        return say("bytes are locked that this run does not tell: {keys}", keys=series(untold[:3]))
    return None


def _other_setup(locked: Locked, now: dict[str, str]) -> Message | None:
    different = [name for name in SETUP if name in now and locked.setup.get(name, now[name]) != now[name]]
    if not different:
        return None
    told = [say("{what} {new}, locked: {old}", what=n, new=now[n], old=locked.setup[n]) for n in different]
    return say("the set-up is another one: {differences}", differences=series(told))


def _not_locked(locked: Locked, found: Counts) -> Message | None:
    kinds = [THINGS[kind] for kind in found if kind not in locked.counts and found[kind]]
    return say("not locked: {kinds}", kinds=series(kinds)) if kinds else None


def _untold(name: str, path: Path, kind: CountKind) -> Gate:
    reason = say("{things} are locked, and not told by this run: {how}; --lock {path} --force locks without them",
                 things=THINGS[kind], how=RECORDED_BY[kind], path=shown(path))  # fmt: skip
    return Gate(expr=f"{name}: {kind}", status="cannot_tell", value=None, limit=None, reason=reason)


def _gate(name: str, change: _Change, *, per_step: bool) -> Gate:
    things = THINGS[change.kind]
    told = []
    if change.counts:
        old, new = _shown(change.old.count), _shown(change.new.count)
        told.append(
            say("{things} per step: {new}, locked: {old}", things=things, new=new, old=old)
            if per_step
            else say("{things} in the whole run: {new}, locked: {old}", things=things, new=new, old=old)
        )
    if change.bytes:
        old, new = _shown(change.old.bytes), _shown(change.new.bytes)
        told.append(say("bytes: {new}, locked: {old}", new=new, old=old))
    reason = chain(*told)
    if change.where is not None:
        reason = say("{what} ({where})", what=reason, where=change.where)
    before, now = change.pair
    return Gate(
        expr=f"{name}: {change.kind} {change.key}",
        status="fail",
        value=float(now),
        limit=float(before),
        unit="count" if change.counts else "bytes",
        reason=reason,
    )


def _shown(spans: Spans | None) -> Parameter:
    """Return values as a sentence has them: ``47``, ``47 or 48``, ``none``; many as the range they span."""
    spans = spans or _NEVER
    if len(spans) > _LISTED:
        spans = ((spans[0][0], max(high for _, high in spans)),)
    told: list[Parameter] = [say("none") if span == (0, 0) else spelled_spans((span,)) for span in spans]
    return reduce(lambda one, other: say("{one} or {other}", one=one, other=other), told)
