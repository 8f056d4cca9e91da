"""The difference of two mean steps in parts that add up to it, to the nanosecond: by count and by speed.

    count = (n' - n) · (t + t') / 2,  speed = the rest, which is (t' - t) · (n + n') / 2

n: how many per mean step, t: mean time of one. A side without a row takes the other's t; where a side has time but
counts nothing, all is speed. Halves are rounded away from zero, so that with the sides exchanged all is negated.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from npuperf.compare.mean_step import Cell, Row, Sums, mean_ns, rounded
from npuperf.documents.comparison import Change, WaterfallPart


class Mean(Struct, frozen=True):
    """One row of the mean step of one side: whole ns, and ``count`` in ``windows``."""

    ns: int
    count: int
    windows: int

    @property
    def per_step(self) -> float:
        """How many there are in a mean step."""
        return self.count / self.windows

    @property
    def empty(self) -> bool:
        """Whether this side has nothing of the row."""
        return not self.ns and not self.count

    def and_also(self, other: Mean) -> Mean:
        """Return both rows of one side as one."""
        return Mean(self.ns + other.ns, self.count + other.count, self.windows)


class Fallen(Struct, frozen=True):
    """One row of both sides. ``old_keys``, ``new_keys``: what it holds where that is more than its key."""

    row: Row
    old: Mean
    new: Mean
    where: str | None = None
    torch_op: str | None = None
    old_keys: tuple[str, ...] = ()
    new_keys: tuple[str, ...] = ()

    @property
    def change(self) -> Change:
        """Which side has it."""
        if self.old.empty != self.new.empty:
            return "added" if self.old.empty else "removed"
        alike = self.old.ns == self.new.ns and self.old.count * self.new.windows == self.new.count * self.old.windows
        return "same" if alike and not self.old_keys else "changed"


def count_ns(old: Mean, new: Mean) -> int:
    """Return what of the difference comes from there being more or fewer, ns."""
    if old.empty or new.empty:
        return new.ns - old.ns if old.count or new.count else 0
    if not old.count or not new.count:
        return 0
    more = new.count * old.windows - old.count * new.windows
    together = old.ns * old.windows * new.count + new.ns * new.windows * old.count
    return rounded(more * together, 2 * old.windows * new.windows * old.count * new.count)


def side_by_side(old: Sums, new: Sums) -> list[Fallen]:
    """Return every row that a side has, with the mean step of both."""
    old_ns, new_ns, nothing = mean_ns(old), mean_ns(new), Cell(0, 0)
    windows = max(old.windows, 1), max(new.windows, 1)
    found = []
    for row in {**old.cells, **new.cells}:
        before, after = old.cells.get(row, nothing), new.cells.get(row, nothing)
        found.append(
            Fallen(
                row,
                Mean(old_ns.get(row, 0), before.count, windows[0]),
                Mean(new_ns.get(row, 0), after.count, windows[1]),
                where=after.where or before.where,
                torch_op=after.torch_op or before.torch_op,
            )
        )
    return found


def parts_of(rows: Iterable[Fallen]) -> tuple[WaterfallPart, ...]:
    """Return the waterfall: what changed most first; rows that did not change come last."""
    return tuple(sorted(map(_part, rows), key=_most_first))


def _part(fallen: Fallen) -> WaterfallPart:
    delta, by_count = fallen.new.ns - fallen.old.ns, count_ns(fallen.old, fallen.new)
    return WaterfallPart(
        part=fallen.row[0],
        key=fallen.row[1],
        delta_ns=delta,
        count_ns=by_count,
        speed_ns=delta - by_count,
        old_ns=fallen.old.ns,
        new_ns=fallen.new.ns,
        old_count=fallen.old.per_step,
        new_count=fallen.new.per_step,
        change=fallen.change,
        where=fallen.where,
        torch_op=fallen.torch_op,
        instead_of=fallen.old_keys,
        replaced_by=fallen.new_keys,
    )


def _most_first(part: WaterfallPart) -> tuple[int, int, str, str]:
    """Order by size of the difference, then by what compensates within the row; equal ones by name."""
    return -abs(part.delta_ns), -abs(part.count_ns), part.part, part.key or ""
