"""Locks: exact counts per step that a run has to keep, whatever machine it runs on and however fast that is.

Counts have no noise. What changed is named with its counts and its code line, and accepted by writing the lock anew, in
the commit that explains it. A lock is sorted YAML, one line for each count, made to be read in a diff.

    counts:
      launch:
        "MatMulV2 [4096,1024;1024,4096] FLOAT16;FLOAT16": 47  # model/layers.py: forward
      copy:
        "host to device": {count: [3, 4], bytes: 4096..8192}

A value is a number, several (each of them is right), a range ``FIRST..LAST``, or ``any``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import reduce
from operator import add
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct, ValidationError, convert

from npuperf.base.errors import InputError, UsageError
from npuperf.base.escape import for_yaml, for_yaml_comment, without_halves
from npuperf.base.files import is_file, open_input, shown, write_atomically
from npuperf.base.messages import Message, Parameter, chain, say, say_n, series, size
from npuperf.base.notes import read_yaml
from npuperf.model.comparison import COUNTED
from npuperf.model.document import Gate, Status
from npuperf.model.parts import CountKind, Digest, KeyedBy
from npuperf.model.result import Result

#: No lock is larger, bytes: tens of thousands of operators and shapes.
MOST_BYTES: Final = 8 << 20
#: What tells that a file is a lock, even where a merge left marks in it.
_MARK: Final = "npuperf_lock"
_MARK_LINE: Final = re.compile(rf"^{_MARK}:".encode(), re.MULTILINE)
_VERSION: Final = 1
_HEAD: Final = 64 << 10
_HEADER: Final = """\
# Exact counts of a run, locked by npuperf: a different number of steps changes nothing here, anything else does.
#   npuperf analyze RUN --check THIS        fails with what changed
#   npuperf analyze RUN --update-lock THIS  accepts what changed: commit it with the change that explains it
# A value may be a number, a list of numbers that are all right, a range as 40..52, or any. What stands after a # is
# not compared, nor is the setup.
"""

#: Ranges of values that are right, in order and apart from each other.
Spans = tuple[tuple[int, int], ...]
_MOST: Final = 2**64
ANY: Final[Spans] = ((0, _MOST),)
_MOST_DEVICES: Final = 1_000_000
#: More different values than these become one range.
_LISTED: Final = 4
_RANGE: Final = re.compile(r"(\d{1,20})\.\.(\d{1,20})")
#: The longest key that YAML takes without a ``?`` before it has 1,024 characters.
_PLAIN_KEY: Final = 1000
_LINE_NUMBER: Final = re.compile(r"(?<=\S)(\(\d+\)|:\d+)(?=[:,\s]|\Z)")
_WORD: Final = re.compile(r"\S+")
#: What stands in a line before a comment, and the comment.
_COMMENTED: Final = re.compile(r"""((?:"(?:[^"\\]|\\.)*"|'[^']*'|(?<=\S)\#|[^"'#])*)(\#.*)?""", re.DOTALL)
_KEY: Final = re.compile(r"""\s*(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^:"']*)""")
_SPELLING: Final = re.compile(r"[\s\"']+")


class LockedCount(Struct, frozen=True):
    """How often something may happen per step, and how many bytes it may move; ``bytes`` None: nothing tells."""

    count: Spans
    bytes: Spans | None = None


class Locked(Struct, frozen=True):
    """What a lock holds. ``counts`` has every kind that was recorded, with nothing in it where there was none of it.

    ``setup`` is information. ``per_step``: whether counts are of single steps, else of all that was recorded.
    ``lost``: how many rows of the recording could not be used.
    """

    setup: dict[str, str]
    devices: int
    per_step: bool
    keyed_by: KeyedBy
    lost: int
    counts: dict[CountKind, dict[str, LockedCount]]


class _Note(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file has, before every value is looked at."""

    npuperf_lock: Literal[1]
    setup: dict[str, str]
    devices: Annotated[int, Meta(ge=0, le=_MOST_DEVICES)]
    per: Literal["step", "recording"]
    keyed_by: KeyedBy
    lost: Annotated[int, Meta(ge=0)]
    counts: dict[CountKind, dict[str, Any]]


def spans_of(values: Iterable[int]) -> Spans:
    """Return the different values, each by itself; of many the range that they span."""
    different = sorted(set(values))
    if len(different) > _LISTED:
        return ((different[0], different[-1]),)
    return tuple((value, value) for value in different)


def accepts(spans: Spans, values: Iterable[int]) -> bool:
    """Tell whether every value is right."""
    return all(any(low <= value <= high for low, high in spans) for value in values)


def spelled_spans(spans: Spans) -> str:
    """Return values as the lock spells them, without the brackets of a list."""
    if spans == ANY:
        return "any"
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in spans)


def _listed(spans: Spans) -> str:
    return spelled_spans(spans) if len(spans) == 1 else f"[{spelled_spans(spans)}]"


def is_lock(path: Path) -> bool:
    """Tell whether a file is a lock, mended or not. Raises InputError where it cannot be read."""
    with open_input(path) as file:
        return _MARK_LINE.search(file.read(_HEAD)) is not None


def read_lock(path: Path) -> Locked:
    """Read a lock, which people may have edited. Raises InputError where something in it is not what locks have."""
    try:
        note = read_yaml(path, most=MOST_BYTES)
    except InputError as error:
        raise InputError(error.what, hint=error.hint or _way_out(path)) from error
    version = note.get(_MARK)
    if version is None:
        raise _refused(path, say("no lock of npuperf"))
    if isinstance(version, int) and version > _VERSION:
        raise InputError(
            say("{path}: made by a newer npuperf, whose locks have the version {version}",
                path=str(path), version=_brief(version)),
            hint=say("check it with the npuperf that made it"),
        )  # fmt: skip
    try:
        found = convert(without_halves(note), _Note)
    except ValidationError as error:
        raise _refused(path, say("{error}", error=str(error))) from error
    counts: dict[CountKind, dict[str, LockedCount]] = {kind: {} for kind in found.counts}
    for kind, of in found.counts.items():
        for key, value in of.items():
            name = f"{kind}: {_brief(key)}"
            if isinstance(value, dict) and value.keys() != {"count", "bytes"}:
                raise _refused(
                    path, say("{name}: of count and bytes both are to be there, and nothing else", name=name)
                )
            both = (value["count"], value["bytes"]) if isinstance(value, dict) else (value,)
            counts[kind][key] = LockedCount(*(_spans(path, name, one) for one in both))
    return Locked(found.setup, found.devices, found.per == "step", found.keyed_by, found.lost, counts)


def _spans(path: Path, name: str, value: object) -> Spans:
    if value == "any":
        return ANY
    spans = []
    for item in value if isinstance(value, list) else [value]:
        low = high = -1
        if isinstance(item, str) and (given := _RANGE.fullmatch(item)):
            low, high = int(given[1]), int(given[2])
        elif isinstance(item, int) and not isinstance(item, bool):
            low = high = item
        if not 0 <= low <= high < _MOST:
            raise _refused(path, say("{name}: {value} is no count", name=name, value=_brief(item)))
        spans.append((low, high))
    if not spans:
        raise _refused(path, say("{name}: no value; 0 says that it never happens", name=name))
    return tuple(sorted(spans))


def _refused(path: Path, why: Message) -> InputError:
    return InputError(say("{path}: cannot be used as a lock: {why}", path=str(path), why=why), hint=_way_out(path))


def _way_out(path: Path) -> Message:
    if not is_file(path):
        return say("npuperf analyze RUN --lock {path} makes one", path=str(path))
    if not is_lock(path):  # whatever it is, nobody should be told to write over it
        return say("npuperf analyze RUN --lock FILE makes one")
    return say("mend it by hand, or write it anew with --lock {path} --force", path=str(path))


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


# -- A run as a lock, and held against one.

#: What makes another set-up: why counts differ, more often than not.
SETUP: Final = ("soc", "cann", "torch", "torch_npu", "level", "world_size")


class Values(Struct, frozen=True):
    """The different values of a count in this run, in order; ``bytes`` None: nothing tells."""

    count: tuple[int, ...] = (0,)
    bytes: tuple[int, ...] | None = (0,)

    @property
    def locked(self) -> LockedCount:
        """The lock that holds exactly these."""
        return LockedCount(spans_of(self.count), None if self.bytes is None else spans_of(self.bytes))


Counts = dict[CountKind, dict[str, Values]]


def lock_text(result: Result) -> str:
    """Return the lock of a run. Raises InputError where nothing was counted, or too much for a file."""
    return _whole_text(result, _lines(result, None))


def write_lock(result: Result, path: Path, *, force: bool = False, update: bool = False) -> None:
    """Lock a run. With ``update``, in a lock that there is, only the lines that this run contradicts change.

    Raises UsageError where there is a file already, or none to update, InputError where it is no lock or nothing was
    counted, and where it cannot be written.
    """
    check_target(path, force=force, update=update)
    old, lines = None, list[str]()
    if update:
        with open_input(path) as file:
            lines = file.read(MOST_BYTES).decode("utf-8", "replace").splitlines()
        with suppress(InputError):  # marks of a merge, most likely
            old = read_lock(path)
    found = _lines(result, old)
    write_atomically(path, _whole_text(result, found if old is None else _commented(found, lines)))


def _commented(lines: Iterable[str], before: Iterable[str]) -> Iterator[str]:
    """Yield lines with the comments that they had: above a key, and behind a line that says the same."""
    above, behind, kept = dict[tuple[str, str], list[str]](), dict[tuple[str, str], str](), list[str]()
    for line, kind, key, said, comment in _taken_apart(before):
        if not key:
            kept += [line] if comment and line not in _HEADER.splitlines() else []
            continue
        above[kind, key], kept = kept, []
        behind |= {(kind, said): comment} if comment else {}
    for line, kind, key, said, comment in _taken_apart(lines):
        yield from above.get((kind, key), ())
        own = behind.get((kind, said))
        yield f"{line.removesuffix(comment).rstrip()}  {own}" if own else line
    yield from kept


def _taken_apart(lines: Iterable[str]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield lines, and of each the kind of thing it is of, its key, all it says however it is spelled, its comment."""
    kind = ""
    for line in lines:
        said, comment = _COMMENTED.match(line).groups("")  # type: ignore[union-attr]  # it matches any line
        key = _KEY.match(said)[0]  # type: ignore[index]
        if re.match(r" {2}\S", said):
            kind = key
        yield line, kind, _SPELLING.sub("", key), _SPELLING.sub("", said), comment


def _lines(result: Result, old: Locked | None) -> list[str]:
    """Return the lines of a run's lock, with what the old one says of counts that it accepts, and of kinds that are not
    told now.

    An old one that cannot be compared with this run is left behind.
    """
    digest = result.digest
    found = {} if digest is None else counted(digest)
    if digest is None or not any(found.values()):
        what = say("{path}: nothing was counted, and a lock with nothing in it holds nothing", path=result.input.path)
        raise InputError(what, hint=say("record the run with npuperf profile"))
    counts = {kind: {key: of.locked for key, of in values.items()} for kind, values in found.items()}
    if old is not None and _incomparable(old, digest, found) is None:
        for kind, before in old.counts.items():
            now = found.get(kind)
            kept = {key: o for key, o in before.items() if now is None or not any(_differs(o, now.get(key, Values())))}
            counts[kind] = {**counts.get(kind, {}), **kept}
    setup = _setup_of(result)
    places = {(c.kind, c.key): c.where for c in digest.counts}
    lines = [f"{_MARK}: {_VERSION}", "setup:" if setup else "setup: {}"]
    lines += [f"  {name}: {for_yaml(value)}" for name, value in sorted(setup.items())]
    lines += [
        f"devices: {digest.devices}",
        f"per: {'step' if digest.steps else 'recording'}",
        f"keyed_by: {digest.keyed_by}",
        f"lost: {_lost_rows(result)}",
        "counts:",
    ]
    for kind, of_kind in sorted(counts.items()):
        lines.append(f"  {kind}:" if of_kind else f"  {kind}: {{}}")
        for key, count in sorted(of_kind.items()):
            place, name, value = places.get((kind, key)), for_yaml(key), _listed(count.count)
            if count.bytes is not None:
                value = f"{{count: {value}, bytes: {_listed(count.bytes)}}}"
            line = f"    {name}: {value}" if len(name) <= _PLAIN_KEY else f"    ? {name}\n    : {value}"
            if place:  # without numbers of lines, which move with every edit above, and the outer folders
                short = _WORD.sub(lambda word: "/".join(word[0].split("/")[-2:]), _LINE_NUMBER.sub("", place))
                line += f"  # {for_yaml_comment(short)}"
            lines.append(line)
    return lines


def _whole_text(result: Result, lines: Iterable[str]) -> str:
    """Return the text of a lock. Raises InputError where it is too long."""
    text = _HEADER + "".join(f"{line}\n" for line in lines)
    length = len(text.encode())
    if length > MOST_BYTES:
        what = say("{path}: its lock would have {size}, more than {most}",
                   path=result.input.path, size=size(length), most=size(MOST_BYTES))  # fmt: skip
        raise InputError(what, hint=say("lock one rank: --rank 0"))
    return text


def check_target(path: Path, *, force: bool = False, update: bool = False) -> None:
    """Raise UsageError or InputError where a lock could not be written: before the work that it takes."""
    name = shown(path)
    if path.is_dir():
        raise UsageError(say("{path}: a folder, and a lock is a file", path=name))
    if update:
        if not path.exists():
            hint = say("--lock {path} makes one", path=name)
            raise UsageError(say("--update-lock {path}: no such file", path=name), hint=hint)
        if not is_lock(path):
            raise InputError(say("{path}: no lock of npuperf; it is not overwritten", path=name))
    elif path.is_file() and not force:
        hint = say("choose another name")
        if is_lock(path):
            hint = say("--update-lock {path} accepts what changed; --force writes it anew", path=name)
        raise UsageError(say("--lock {path}: the file exists", path=name), hint=hint)


def _setup_of(result: Result) -> dict[str, str]:
    """Return what the run was made with, as far as it is known."""
    known = {name: getattr(result.workload, name) for name in SETUP}
    return {name: str(value) for name, value in known.items() if value is not None}


def _lost_rows(result: Result) -> int:
    return sum(lost.rows for lost in result.input.lost)


def counted(digest: Digest) -> Counts:
    """Return the values of every count; kinds of which there was nothing are there, kinds that are not told are not."""
    sums: dict[tuple[CountKind, str], tuple[list[int], list[int] | None]] = {}
    for count in digest.counts:
        name = count.kind, without_halves(count.key)
        times, moved = sums.get(name, ([0] * len(count.count), [0] * len(count.count)))
        more = None if moved is None or count.bytes is None else list(map(add, moved, count.bytes))
        sums[name] = list(map(add, times, count.count)), more
    told: Counts = {kind: {} for kind in get_args(CountKind) if kind not in digest.uncounted}
    for (kind, key), (times, moved) in sums.items():
        if kind in told and any(times):
            different = None if moved is None else tuple(sorted(set(moved)))
            told[kind][key] = Values(tuple(sorted(set(times))), different)
    return told


def _differs(old: LockedCount, new: Values) -> tuple[bool, bool]:
    """Tell whether the number of times is another one, and the number of bytes."""
    moved = old.bytes is not None and new.bytes is not None and not accepts(old.bytes, new.bytes)
    return not accepts(old.count, new.count), moved


def _incomparable(locked: Locked, digest: Digest | None, found: Counts) -> Message | None:
    """Say why a run cannot be held against a lock, if so; ``found``: what the run counted."""
    if not any(locked.counts.values()):
        return say("the lock has nothing in it")
    if digest is None or not any(found.values()):
        return say("nothing was counted in this run; record it with npuperf profile")
    if digest.devices != locked.devices:
        return say("devices: {new}, locked: {old}; choose the same ranks, or lock this run anew",
                   old=locked.devices, new=digest.devices)  # fmt: skip
    if bool(digest.steps) != locked.per_step:
        if locked.per_step:
            return say("the lock counts per step, and this run has no whole step")
        return say("the lock counts a whole run without steps, and this run has steps; lock it anew")
    if digest.keyed_by != locked.keyed_by:
        return say("the lock tells operators apart by {old}, and this run by {new}; lock it anew",
                   old=locked.keyed_by, new=digest.keyed_by)  # fmt: skip
    for kind, of in COUNTED.items():
        before, now = locked.counts.get(kind), found.get(kind)
        if of.shapes is None or not before or not now:
            continue
        had, has = ((any("[" in key for key in side)) for side in (before, now))  # else everything would have changed
        if had and not has:
            return say("the lock has the shapes of operators, and this run has not: {how}", how=of.shapes)
        if has and not had:
            return say("the lock has no shapes of operators, and this run has: record it as then, or lock it anew")
    return None


#: So many changes are gates of their own.
_NAMED: Final = 20
_NEVER: Final = ((0, 0),)
#: So many values of one count are shown.
_SHOWN: Final = 4


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
    found = {} if digest is None else counted(digest)
    why = _incomparable(locked, digest, found)
    if digest is None or why is not None:
        return [Gate(expr=name, status="cannot_tell", value=None, limit=0.0, reason=why)]
    places = {(count.kind, count.key): count.where for count in digest.counts}
    changes = []
    for kind, before in locked.counts.items():
        now = found.get(kind, {})
        for key in before | now if kind in found else ():
            old, new = before.get(key, LockedCount(_NEVER)), now.get(key, Values())
            counts, moved = _differs(old, new)
            if counts or moved:
                changes.append(_Change(kind, key, old, new.locked, places.get((kind, key)), counts, moved))
    changes.sort(key=lambda change: change.rank)
    gates = [_whole(name, path, locked, result, found, changes)]
    for kind in sorted(locked.counts.keys() - found.keys()):  # of which the lock says something, if only that none is
        why = say("{things} are locked, and not told by this run: {how}; --lock {path} --force locks without them",
                  things=COUNTED[kind].things, how=COUNTED[kind].recorded, path=shown(path))  # fmt: skip
        gates.append(Gate(expr=f"{name}: {kind}", status="cannot_tell", value=None, limit=None, reason=why))
    return gates + [_gate(name, change, per_step=locked.per_step) for change in changes[:_NAMED]]


def _whole(name: str, path: Path, locked: Locked, result: Result, found: Counts, changes: list[_Change]) -> Gate:
    """Return the gate of the whole lock, whose value is the number of changes."""
    # Why counts that are as locked may be too low, or are not all there.
    doubt, lost = None, _lost_rows(result)
    untold = [
        key
        for kind, before in locked.counts.items()
        for key, old in before.items()
        if old.bytes is not None and kind in found and found[kind].get(key, Values()).bytes is None
    ]
    if lost > locked.lost:
        doubt = say_n("{n} row of this run could not be used, so that there may be more",
                      "{n} rows of this run could not be used, so that there may be more", lost)  # fmt: skip
    elif untold:
        doubt = say("bytes are locked that this run does not tell: {keys}", keys=series(untold[:3]))
    now = _setup_of(result)
    setup = [
        say("{what} {new}, locked: {old}", what=what, new=now[what], old=locked.setup[what])
        for what in SETUP
        if what in now and locked.setup.get(what, now[what]) != now[what]
    ]
    kinds = [COUNTED[kind].things for kind in found if kind not in locked.counts and found[kind]]
    held = sum(len(before | found[kind]) for kind, before in locked.counts.items() if kind in found)
    told = say_n("{n} count is as locked", "{n} counts are as locked", held)
    if changes:
        told = say_n("{n} of {held} counts changed; if that is meant, --update-lock {path} accepts it",
                     "{n} of {held} counts changed; if that is meant, --update-lock {path} accepts it",
                     len(changes), held=held, path=shown(path))  # fmt: skip
    reason = chain(
        told,
        say("the {n} largest changes follow", n=_NAMED) if len(changes) > _NAMED else None,
        doubt,
        say("the set-up is another one: {differences}", differences=series(setup)) if setup else None,
        say("not locked: {kinds}", kinds=series(kinds)) if kinds and not changes else None,
    )
    status: Status = "fail" if changes else "cannot_tell" if doubt is not None else "pass"
    value = float(len(changes)) if status != "cannot_tell" else None
    return Gate(expr=name, status=status, value=value, limit=0.0, reason=reason)


def _gate(name: str, change: _Change, *, per_step: bool) -> Gate:
    things = COUNTED[change.kind].things
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
    if len(spans) > _SHOWN:
        spans = ((spans[0][0], max(high for _, high in spans)),)
    told: list[Parameter] = [say("none") if span == (0, 0) else spelled_spans((span,)) for span in spans]
    return reduce(lambda one, other: say("{one} or {other}", one=one, other=other), told)
