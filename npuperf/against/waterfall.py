"""The difference of two mean steps in parts that add up to it, to the nanosecond: by count and by speed.

    count = (n' - n) · (t + t') / 2,  speed = the rest, which is (t' - t) · (n + n') / 2

n: how many per mean step, t: mean time of one. A side without a row takes the other's t; where a side has time but
counts nothing, all is speed. Halves are rounded away from zero, so that with the sides exchanged all is negated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from math import lcm
from typing import Final

from msgspec import Struct

from npuperf.model.comparison import Change, WaterfallPart
from npuperf.model.parts import COARSENESS, Digest, KeyedBy, Part

# -- The mean step of one side in whole nanoseconds, by part and key; several runs of a side are one recording.

#: What stands on one row: a part, and the operator, cause or kind of group that it is about.
Row = tuple[Part, str | None]


class Cell(Struct, frozen=True):
    """One row of one side: ns, and how many things make it up, over all its windows."""

    ns: int
    count: int
    where: str | None = None
    torch_op: str | None = None

    def and_also(self, other: Cell) -> Cell:
        """Return both as one; code line and torch operator are those of the longer one."""
        long, short = (self, other) if self.ns >= other.ns else (other, self)
        return Cell(
            ns=self.ns + other.ns,
            count=self.count + other.count,
            where=long.where or short.where,
            torch_op=long.torch_op or short.torch_op,
        )


class Sums(Struct, frozen=True):
    """One side: all rows summed over its windows. ``types``: the operator types that it names."""

    windows: int
    cells: dict[Row, Cell]
    types: frozenset[str]
    keyed_by: KeyedBy

    @property
    def total_ns(self) -> int:
        """The length of all windows together."""
        return sum(cell.ns for cell in self.cells.values())

    def renamed(self, name: Callable[[Row, Cell], str | None], keyed_by: KeyedBy | None = None) -> Sums:
        """Return the same with other keys; what has one key now is one row."""
        cells: dict[Row, Cell] = {}
        for row, cell in self.cells.items():
            _add(cells, (row[0], name(row, cell)), cell)
        return Sums(self.windows, cells, self.types, keyed_by or self.keyed_by)


def sum_runs(digests: Iterable[Digest]) -> Sums:
    """Return the runs of a side as one; the coarsest keys of any are those of all."""
    runs = list(digests)
    keyed_by = max((run.keyed_by for run in runs), key=COARSENESS.index)
    cells: dict[Row, Cell] = {}
    for run in runs:
        for part in run.parts:
            _add(cells, (part.part, part.key), Cell(part.ns, part.count, part.where, part.torch_op))
    types = frozenset(steps.type for run in runs for steps in run.types)
    summed = Sums(sum(run.windows for run in runs), cells, types, keyed_by)
    if keyed_by == "core" or all(run.keyed_by == keyed_by for run in runs):
        return summed
    return keyed(summed, keyed_by)


def keyed(sums: Sums, keyed_by: KeyedBy) -> Sums:
    """Return a side with keys of compute that tell no more than asked for.

    Keys do not name the core: where the other side tells operators apart by core alone, compute is one row.
    """
    if keyed_by == "shapes":
        return sums
    by_type = keyed_by == "type"
    return sums.renamed(
        lambda row, _: row[1] if row[0] != "compute" else type_of(row[1], sums.types) if by_type else None, keyed_by
    )


@lru_cache(maxsize=20_000)  # asked several times of every key
def type_of(key: str | None, types: frozenset[str]) -> str | None:
    """Return the operator type that a key begins with; shapes and dtypes follow it, after spaces."""
    if key is None:
        return None
    name = key
    while name not in types and " " in name:
        name = name.rpartition(" ")[0]
    return name if name in types else key.partition(" [")[0]


def mean_ns(sums: Sums) -> dict[Row, int]:
    """Return each row of the mean step in whole ns, which add up to its rounded length.

    Everything is rounded down; the ns that are missing then go to the rows that lost most, one each.
    """
    windows = max(sums.windows, 1)
    found = {row: cell.ns // windows for row, cell in sums.cells.items()}
    missing = rounded(sums.total_ns, windows) - sum(found.values())
    lost = sorted(((-(cell.ns % windows), row[0], row[1] or "", row) for row, cell in sums.cells.items()))
    for *_, row in lost[:missing]:
        found[row] += 1
    return found


def rounded(above: int, below: int) -> int:
    """Return the quotient rounded to a whole number, halves away from zero, so that the negative has its negative."""
    sign = -1 if (above < 0) != (below < 0) else 1
    above, below = abs(above), abs(below)
    return sign * ((2 * above + below) // (2 * below))


def _add(cells: dict[Row, Cell], row: Row, cell: Cell) -> None:
    there = cells.get(row)
    cells[row] = cell if there is None else there.and_also(cell)


class Mean(Struct, frozen=True):
    """One row of the mean step of one side: whole ns, and how many there are in as many steps as both sides count."""

    ns: int = 0
    count: int = 0

    @property
    def empty(self) -> bool:
        """Whether this side has nothing of the row."""
        return not self.ns and not self.count


class Fallen(Struct, frozen=True):
    """One row of both sides, counted in so many ``steps``.

    ``old_keys``, ``new_keys``: what it holds where that is more than its key.
    """

    row: Row
    steps: int
    old: Mean
    new: Mean
    where: str | None = None
    torch_op: str | None = None
    old_keys: tuple[str, ...] = ()
    new_keys: tuple[str, ...] = ()

    @property
    def only_new(self) -> bool:
        """Whether the old side has nothing of it."""
        return self.old.empty

    @property
    def one_sided(self) -> bool:
        """Whether one side has nothing of it, and the other one has."""
        return self.old.empty != self.new.empty

    @property
    def own(self) -> Mean:
        """The side that has it, of a row that only one side has."""
        return self.new if self.old.empty else self.old


def count_ns(old: Mean, new: Mean) -> int:
    """Return what of the difference comes from there being more or fewer, ns."""
    if old.empty or new.empty:
        return new.ns - old.ns if old.count or new.count else 0
    if not old.count or not new.count:
        return 0
    together = old.ns * new.count + new.ns * old.count
    return rounded((new.count - old.count) * together, 2 * old.count * new.count)


def side_by_side(old: Sums, new: Sums) -> list[Fallen]:
    """Return every row that a side has, with the mean step of both."""
    old_ns, new_ns, nothing = mean_ns(old), mean_ns(new), Cell(0, 0)
    windows = max(old.windows, 1), max(new.windows, 1)
    steps = lcm(*windows)
    found = []
    for row in {**old.cells, **new.cells}:
        before, after = old.cells.get(row, nothing), new.cells.get(row, nothing)
        found.append(
            Fallen(
                row,
                steps,
                Mean(old_ns.get(row, 0), before.count * steps // windows[0]),
                Mean(new_ns.get(row, 0), after.count * steps // windows[1]),
                where=after.where or before.where,
                torch_op=after.torch_op or before.torch_op,
            )
        )
    return found


def parts_of(rows: Iterable[Fallen]) -> tuple[WaterfallPart, ...]:
    """Return the waterfall: what changed most first, then what compensates within the row; equal ones by name."""
    parts = []
    for row in rows:
        delta, by_count = row.new.ns - row.old.ns, count_ns(row.old, row.new)
        change: Change = "same" if row.old == row.new and not row.old_keys else "changed"
        if row.one_sided:
            change = "added" if row.only_new else "removed"
        part = WaterfallPart(
            part=row.row[0],
            key=row.row[1],
            delta_ns=delta,
            count_ns=by_count,
            speed_ns=delta - by_count,
            old_ns=row.old.ns,
            new_ns=row.new.ns,
            old_count=row.old.count / row.steps,
            new_count=row.new.count / row.steps,
            change=change,
            where=row.where,
            torch_op=row.torch_op,
            instead_of=row.old_keys,
            replaced_by=row.new_keys,
        )
        parts.append(part)
    return tuple(sorted(parts, key=lambda p: (-abs(p.delta_ns), -abs(p.count_ns), p.part, p.key or "")))


# -- Operators that the new side runs in place of others of the old one: the same with other shapes, or one for
# several.
#
# Nothing records this; it is inferred from names and from how often per step operators appear and vanish. What belongs
# together is folded into one row, so that the sum says what the replacement brings; all rows still add up. With the
# sides exchanged the same rows are found, negated.
#
# - other shapes: keys of one type, of which some are only on one side and some only on the other, about as often;
# - one for several: keys that are new n times per step, and keys that are gone n times. Of an operator that is only
#   used n times less, these n uses are folded, at what the count of the waterfall says of them; the rest stays a row.

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
        return self.fallen.only_new

    @property
    def uses(self) -> int:
        """How often it is used, in as many steps as both sides count."""
        return self.fallen.own.count

    @property
    def ns(self) -> int:
        return self.fallen.own.ns


def folded(rows: Sequence[Fallen], types: frozenset[str]) -> list[Fallen]:
    """Return the rows with replacements as one row each; ``types``: operator types that keys begin with."""
    compute = [row for row in rows if row.row[0] == "compute" and row.row[1] is not None]
    alone = [row for row in compute if row.one_sided]
    if not alone:
        return list(rows)
    by_type: dict[str | None, list[_Piece]] = defaultdict(list)
    for row in alone:
        by_type[type_of(row.row[1], types)].append(_Piece(row))
    groups = []
    for group in by_type.values():  # rows of one type that change places
        few, many = sorted((sum(p.fallen.old.count for p in group), sum(p.fallen.new.count for p in group)))
        if few > 0 and many <= _AS_OFTEN * few:
            groups.append(group)
    taken = _rows_of(groups)
    groups += _one_for_several([row for row in compute if row.row not in taken])
    gone = _rows_of(groups)
    rests = [piece.rest for group in groups for piece in group if piece.rest is not None]
    kept = [row for row in rows if row.row not in gone] + rests
    named = {row.row for row in kept}
    for group in groups:
        kept.append(_one_row(group, types, named))
        named.add(kept[-1].row)
    return kept


def _one_for_several(rows: Sequence[Fallen]) -> list[list[_Piece]]:
    """Return what appears and vanishes equally often, code line by code line where these agree, else all together."""
    whole = [_Piece(row) for row in rows if row.one_sided and row.own.count]
    parts = [piece for row in rows if (piece := _replaced_part(row)) is not None]
    groups = [group for group in _used_alike(whole, by_line=True) if _is_replacement(group)]
    taken = _rows_of(groups)
    for group in _used_alike([piece for piece in whole + parts if piece.fallen.row not in taken], by_line=False):
        # Uses of operators that both sides have, only where what they make room for is on the other side alone.
        whole_sides = {piece.only_new for piece in group if piece.rest is None}
        kept = [piece for piece in group if piece.rest is None or (not piece.only_new) in whole_sides]
        if _is_replacement(kept) and _is_small(kept):
            groups.append(kept)
    taken = _rows_of(groups)
    _add_multiples(groups, [piece for piece in whole if piece.fallen.row not in taken])
    return groups


def _replaced_part(row: Fallen) -> _Piece | None:
    """Return the uses that one side has more of; None where it is no whole number of them per step."""
    old, new = row.old, row.new
    more = new.count - old.count
    if not old.count or not new.count or not more or more % row.steps:
        return None
    by_count = count_ns(old, new)
    if more < 0:
        sides = (Mean(-by_count, -more), Mean()), (Mean(old.ns + by_count, new.count), new)
    else:
        sides = (Mean(), Mean(by_count, more)), (old, Mean(new.ns - by_count, old.count))
    return _Piece(*(Fallen(row.row, row.steps, *of, where=row.where, torch_op=row.torch_op) for of in sides))


def _used_alike(pieces: Iterable[_Piece], *, by_line: bool) -> Iterable[list[_Piece]]:
    """Return what is used equally often, and on the same code line if that is asked for."""
    found: dict[tuple[int, str | None], list[_Piece]] = defaultdict(list)
    for piece in pieces:
        if not by_line or piece.fallen.where:
            found[piece.uses, piece.fallen.where if by_line else None].append(piece)
    return found.values()


def _two_sides(group: Sequence[_Piece]) -> tuple[list[_Piece], list[_Piece], list[int]]:
    """Return what the new side has, what the old one has, and how long both take, the shorter one first, ns."""
    new, old = [p for p in group if p.only_new], [p for p in group if not p.only_new]
    return new, old, sorted(sum(piece.ns for piece in side) for side in (new, old))


def _is_replacement(group: Sequence[_Piece]) -> bool:
    """Tell whether both sides have something, and both take about as long: one for one if these are alike, too."""
    new, old, (short, long) = _two_sides(group)
    if not new or not old:
        return False
    if max(len(new), len(old)) >= _SEVERAL:
        return long <= _AS_LONG * short
    ops = new[0].fallen.torch_op, old[0].fallen.torch_op
    alike = ops[0] is not None and ops[0] == ops[1]
    whole = new[0].rest is None and old[0].rest is None
    return whole and long <= (_AS_LONG if alike else _AS_LONG_ALONE) * short


def _is_small(group: Sequence[_Piece]) -> bool:
    """Tell whether a replacement that no line of code holds together is one that programmers make."""
    new, old, (short, long) = _two_sides(group)
    few, many = sorted((len(new), len(old)))
    return many < _SEVERAL or (few <= _FEW and many <= _MANY and long <= _AS_LONG_APART * short)


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


def _rows_of(groups: Iterable[Sequence[_Piece]]) -> set[Row]:
    return {piece.fallen.row for group in groups for piece in group}


def _one_row(group: Sequence[_Piece], types: frozenset[str], taken: Collection[Row]) -> Fallen:
    """Return a replacement as one row, under the name of what the new side has: its key, its type, or its longest.

    ``taken``: rows that are there; where the type is taken as a name, it is that of the longest.
    """
    new, old, _ = _two_sides(sorted(group, key=lambda p: (-p.ns, p.fallen.row[1] or "")))
    names = [[p.fallen.row[1] or "" for p in side] for side in (new, old)]
    kinds = {type_of(name, types) for name in names[0]}
    key = names[0][0] if len(new) == 1 or len(kinds) > 1 else kinds.pop()
    return Fallen(
        row=("compute", names[0][0] if ("compute", key) in taken else key),
        steps=group[0].fallen.steps,
        old=Mean(sum(p.ns for p in old), sum(p.uses for p in old)),
        new=Mean(sum(p.ns for p in new), sum(p.uses for p in new)),
        where=new[0].fallen.where or old[0].fallen.where,
        torch_op=new[0].fallen.torch_op or old[0].fallen.torch_op,
        old_keys=tuple(names[1]),
        new_keys=tuple(names[0]),
    )
