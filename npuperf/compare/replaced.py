"""Operators that the new side runs in place of others of the old one: the same with other shapes, or one for several.

Nothing records this; it is inferred from names and from how often per step operators appear and vanish. What belongs
together is folded into one row, so that the sum says what the replacement brings; all rows still add up. With the sides
exchanged the same rows are found, negated.

- other shapes: keys of one type, of which some are only on one side and some only on the other, about as often;
- one for several: keys that are new n times per step, and keys that are gone n times. Of an operator that is only used
  n times less, these n uses are folded, at what the count of the waterfall says of them; the rest stays a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.compare.mean_step import type_of
from npuperf.compare.waterfall import Fallen, Mean, count_ns

#: Other shapes: launches of the side with more of them, per launch of the other.
_AS_OFTEN: Final = 1.5
#: One for several: how much longer one side's operators may take than what they are believed to replace.
_AS_LONG: Final = 10
#: Without a line of code nothing but numbers says that these belong together: then no more than so many keys stand for
#: so many, and neither side takes so many times as long. (Two stages of a pipeline differ by more.)
_FEW: Final = 3
_MANY: Final = 12
_AS_LONG_APART: Final = 5
#: One for one: the same, where no torch operator says that they are the same.
_AS_LONG_ALONE: Final = 3
#: Uses of one operator for which one of another may stand (a sum of squares multiplies twice).
_TIMES: Final = (2, 3, 4)
#: An exchange of several has at least so many operators on the side that has more.
_SEVERAL: Final = 2


class _Piece(Struct, frozen=True):
    """Uses of an operator that only one side has: a whole row, or what of ``rest`` is to be taken off a row."""

    fallen: Fallen
    rest: Fallen | None = None

    @property
    def only_new(self) -> bool:
        return self.fallen.old.empty

    @property
    def uses(self) -> int:
        """How often it is used: whole numbers, of which one per step is the product of both sides' windows."""
        old, new = self.fallen.old, self.fallen.new
        return new.count * old.windows if self.only_new else old.count * new.windows

    @property
    def ns(self) -> int:
        return self.fallen.new.ns if self.only_new else self.fallen.old.ns


def folded(rows: Sequence[Fallen], types: frozenset[str]) -> list[Fallen]:
    """Return the rows with replacements as one row each; ``types``: operator types that keys begin with."""
    compute = [row for row in rows if row.row[0] == "compute" and row.row[1] is not None]
    alone = [row for row in compute if row.old.empty != row.new.empty]
    if not alone:
        return list(rows)
    groups = [[_Piece(row) for row in group] for group in _other_shapes(alone, types)]
    taken = {piece.fallen.row for group in groups for piece in group}
    left = [row for row in compute if row.row not in taken]
    groups += _one_for_several(left)
    gone = {piece.fallen.row for group in groups for piece in group}
    rests = [piece.rest for group in groups for piece in group if piece.rest is not None]
    kept = [row for row in rows if row.row not in gone] + rests
    return kept + _named_apart([_one_row(group, types) for group in groups], kept)


# --- the same, with other shapes --------------------------------------------------------------------------------------


def _other_shapes(alone: Sequence[Fallen], types: frozenset[str]) -> Iterator[list[Fallen]]:
    """Yield rows of one type that change places."""
    by_type: dict[str | None, list[Fallen]] = defaultdict(list)
    for row in alone:
        by_type[type_of(row.row[1], types)].append(row)
    for rows in by_type.values():
        old = sum(row.old.count * row.new.windows for row in rows)
        new = sum(row.new.count * row.old.windows for row in rows)
        if min(old, new) > 0 and max(old, new) <= _AS_OFTEN * min(old, new):
            yield rows


# --- one for several --------------------------------------------------------------------------------------------------


def _one_for_several(rows: Sequence[Fallen]) -> list[list[_Piece]]:
    """Return what appears and vanishes equally often, code line by code line where these agree, else all together."""
    whole = [_Piece(row) for row in rows if row.old.empty != row.new.empty and (row.old.count or row.new.count)]
    parts = [piece for row in rows if (piece := _part(row)) is not None]
    groups: list[list[_Piece]] = []
    for group in _buckets(whole, by_line=True):
        if _is_replacement(group):
            groups.append(group)
    taken = _rows_of(groups)
    for group in _buckets([piece for piece in whole + parts if piece.fallen.row not in taken], by_line=False):
        kept = _sure(group)
        if _is_replacement(kept) and _is_small(kept):
            groups.append(kept)
    taken = _rows_of(groups)
    _add_multiples(groups, [piece for piece in whole if piece.fallen.row not in taken])
    return groups


def _part(row: Fallen) -> _Piece | None:
    """Return the uses that one side has more of; None where it is no whole number of them per step."""
    old, new = row.old, row.new
    if not old.count or not new.count:
        return None
    more = new.count * old.windows - old.count * new.windows
    uses, apart = divmod(abs(more), old.windows * new.windows)
    if uses == 0 or apart:
        return None
    by_count = count_ns(old, new)
    if more < 0:
        gone, stays = _taken(old, uses, -by_count)
        return _Piece(replace(row, old=gone, new=Mean(0, 0, new.windows)), replace(row, old=stays))
    came, stays = _taken(new, uses, by_count)
    return _Piece(replace(row, old=Mean(0, 0, old.windows), new=came), replace(row, new=stays))


def _taken(side: Mean, per_step: int, ns: int) -> tuple[Mean, Mean]:
    """Take so many uses, and their time, off a side; return them, and what stays."""
    count = per_step * side.windows
    return Mean(ns, count, side.windows), Mean(side.ns - ns, side.count - count, side.windows)


def _buckets(pieces: Iterable[_Piece], *, by_line: bool) -> Iterator[list[_Piece]]:
    """Yield what is used equally often, and on the same code line if that is asked for."""
    found: dict[tuple[int, str | None], list[_Piece]] = defaultdict(list)
    for piece in pieces:
        if not by_line or piece.fallen.where:
            found[piece.uses, piece.fallen.where if by_line else None].append(piece)
    yield from found.values()


def _sure(group: Sequence[_Piece]) -> list[_Piece]:
    """Leave out uses of operators that both sides have, unless what they make room for is only on the other side."""
    whole_sides = {piece.only_new for piece in group if piece.rest is None}
    return [piece for piece in group if piece.rest is None or (not piece.only_new) in whole_sides]


def _is_replacement(group: Sequence[_Piece]) -> bool:
    """Tell whether both sides have something, one of them several, and both take about as long."""
    sides = [piece for piece in group if piece.only_new], [piece for piece in group if not piece.only_new]
    if not all(sides):
        return False
    times = _times(sides)
    if max(map(len, sides)) < _SEVERAL:
        return _alone(sides[0][0], sides[1][0], times)
    return times[1] <= _AS_LONG * times[0]


def _is_small(group: Sequence[_Piece]) -> bool:
    """Tell whether a replacement that no line of code holds together is one that programmers make."""
    sides = [piece for piece in group if piece.only_new], [piece for piece in group if not piece.only_new]
    few, many = sorted(map(len, sides))
    if many < _SEVERAL:
        return True
    times = _times(sides)
    return few <= _FEW and many <= _MANY and times[1] <= _AS_LONG_APART * times[0]


def _times(sides: Iterable[Sequence[_Piece]]) -> list[int]:
    """Return how long both sides take, the shorter one first, ns."""
    return sorted(sum(piece.ns for piece in side) for side in sides)


def _alone(new: _Piece, old: _Piece, times: Sequence[int]) -> bool:
    """Tell whether one operator stands for one other."""
    if new.rest is not None or old.rest is not None:
        return False
    ops = new.fallen.torch_op, old.fallen.torch_op
    alike = ops[0] is not None and ops[0] == ops[1]
    return times[1] <= (_AS_LONG if alike else _AS_LONG_ALONE) * times[0]


def _add_multiples(groups: Sequence[list[_Piece]], left: Iterable[_Piece]) -> None:
    """Add what is there two, three or four times as often as the only replacement that this holds for."""
    by_uses: dict[int, list[list[_Piece]]] = defaultdict(list)
    for group in groups:
        by_uses[min(piece.uses for piece in group)].append(group)
    more: dict[int, list[_Piece]] = defaultdict(list)
    for piece in left:
        near = [group for n in _TIMES if piece.uses % n == 0 for group in by_uses.get(piece.uses // n, ())]
        if len(near) == 1:
            more[id(near[0])].append(piece)
    for group in groups:
        if _is_small([*group, *more[id(group)]]):
            group += more[id(group)]


def _rows_of(groups: Iterable[Sequence[_Piece]]) -> set[tuple[str, str | None]]:
    return {piece.fallen.row for group in groups for piece in group}


# --- as one row -------------------------------------------------------------------------------------------------------


def _named_apart(groups: Sequence[Fallen], kept: Sequence[Fallen]) -> list[Fallen]:
    """Give replacements of which the type is taken as a name the key of their longest operator."""
    taken = {row.row for row in kept}
    named = []
    for group in groups:
        row = group if group.row not in taken else replace(group, row=("compute", group.new_keys[0]))
        taken.add(row.row)
        named.append(row)
    return named


def _one_row(group: Sequence[_Piece], types: frozenset[str]) -> Fallen:
    """Return a replacement as one row, under the name of what the new side has: its key, its type, or its longest."""
    new = sorted((p for p in group if p.only_new), key=lambda p: (-p.ns, p.fallen.row[1] or ""))
    old = sorted((p for p in group if not p.only_new), key=lambda p: (-p.ns, p.fallen.row[1] or ""))
    names = [[p.fallen.row[1] or "" for p in side] for side in (new, old)]
    kinds = {type_of(name, types) for name in names[0]}
    first = new[0].fallen
    key = names[0][0] if len(names[0]) == 1 or len(kinds) > 1 else next(iter(kinds))
    return Fallen(
        row=("compute", key),
        old=reduce(Mean.and_also, (p.fallen.old for p in group)),
        new=reduce(Mean.and_also, (p.fallen.new for p in group)),
        where=first.where or old[0].fallen.where,
        torch_op=first.torch_op or old[0].fallen.torch_op,
        old_keys=tuple(names[1]),
        new_keys=tuple(names[0]),
    )
