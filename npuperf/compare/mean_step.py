"""The mean step of one side in whole nanoseconds, by part and key; several runs of a side are one recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from npuperf.documents.digest import COARSENESS, Digest, KeyedBy, Part

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

    def renamed(self, name: Callable[[Row, Cell], str | None]) -> Sums:
        """Return the same with other keys; what has one key now is one row."""
        cells: dict[Row, Cell] = {}
        for row, cell in self.cells.items():
            _add(cells, (row[0], name(row, cell)), cell)
        return replace(self, cells=cells)


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
    same = all(run.keyed_by == keyed_by for run in runs)
    return summed if same else keyed(summed, keyed_by)


def keyed(sums: Sums, keyed_by: KeyedBy) -> Sums:
    """Return a side with keys of compute that tell no more than asked for.

    Keys do not name the core: where the other side tells operators apart by core alone, compute is one row.
    """
    if keyed_by == "shapes":
        return sums
    if keyed_by == "core" and sums.keyed_by == "core":
        return sums
    by_type = keyed_by == "type"
    folded = sums.renamed(
        lambda row, _: row[1] if row[0] != "compute" else type_of(row[1], sums.types) if by_type else None
    )
    return replace(folded, keyed_by=keyed_by)


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
