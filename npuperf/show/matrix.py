"""Heat maps: what is measured for every pair of a row and a column, small enough for a thousand rows."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final, Literal

from npuperf.base.escape import for_screen
from npuperf.base.messages import Message, Quantity, chain, ns, number, say, say_n, share
from npuperf.show.language import text

MatrixUnit = Literal["ns", "share", "gb_s"]
#: Codes of cells: nothing known, and nothing at all; from ``FIRST`` to ``LAST`` from the least to the most.
MISSING, ZERO, FIRST, LAST = 0, 1, 2, 255
#: Of matrices with no more cells every value is there as text; of larger ones it is told from its colour's number.
_EXACT: Final = 1500
#: Kilobytes of a page are few: a layer has no more cells, and no more rows.
MOST_CELLS, MOST_ROWS, MOST_COLUMNS = 61_440, 1024, 120

#: A scale reaches so far to either side of its middle at least, as a part of it: else a thousandth would look like all.
_REACH: Final = 0.05
#: Values that are no farther from their middle are alike, and grey (``compare_ratio`` of the thresholds).
ALIKE: Final = 0.01

Values = Sequence[Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class Layer:
    """One thing that is measured. ``codes``: row by row; ``least`` and ``most``: the ends of the scale.

    ``alike``: whether no value differs from the others by more than chance makes; ``texts``: every value as text, or
    none where there are too many.
    """

    name: Message
    unit: MatrixUnit
    least: float
    most: float
    codes: bytes
    texts: tuple[str, ...]
    said: Message
    alike: bool = False


@dataclass(frozen=True, slots=True)
class Matrix:
    """``rows`` and ``columns``: their labels, after what each is (``row``, ``column``: "rank", "step").

    ``marked``: cells with a frame, by their number row by row, and ``marks`` what that means; ``places``: where a row
    with a column is in the timeline, by the number of the cell.
    """

    title: Message
    row: Message
    column: Message
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    layers: tuple[Layer, ...]
    marked: tuple[int, ...] = ()
    marks: Message | None = None
    places: tuple[tuple[int, str], ...] = ()

    @property
    def said(self) -> Message:
        """What the picture shows, for those who do not see it."""
        return chain(*(layer.said for layer in self.layers))

    def packed(self) -> dict[str, object]:
        """Return it as JSON has it, in the current language."""
        return {
            "title": _plain(self.title),
            "row": _plain(self.row),
            "column": _plain(self.column),
            "rows": [for_screen(label) for label in self.rows],
            "columns": [for_screen(label) for label in self.columns],
            "layers": [
                {
                    "name": _plain(layer.name),
                    "unit": layer.unit,
                    "least": layer.least,
                    "most": layer.most,
                    "ends": [shown(layer.least, layer.unit), shown(layer.most, layer.unit)],
                    "codes": b64encode(layer.codes).decode("ascii"),
                    "texts": list(layer.texts),
                    "said": _plain(layer.said),
                    "alike": layer.alike,
                }
                for layer in self.layers
            ],
            "marked": list(self.marked),
            "marks": _plain(self.marks) if self.marks else "",
            "places": {str(cell): place for cell, place in self.places},
        }


def _plain(message: Message) -> str:
    return for_screen(text(message))


def shown(value: float | None, unit: MatrixUnit) -> str:
    """Return a value of a cell as text."""
    return for_screen(text(_said(value, unit)))


def _said(value: float | None, unit: MatrixUnit) -> Message | Quantity:
    if unit == "ns":
        return ns(value)
    if unit == "share":
        return share(value)
    return say("{n} GB/s", n=number(value) if value is not None else None)


def layer(name: Message, unit: MatrixUnit, values: Values, rows: Sequence[str], columns: Sequence[str]) -> Layer | None:
    """Return a layer of a matrix, None where nothing is measured. ``rows`` and ``columns`` name cells in words."""
    flat = [value for line in values for value in line]
    there = [value for value in flat if value]
    if not there:
        return None
    least, most = min(there), max(there)
    middle = (least + most) / 2
    low_end, high_end = min(least, middle * (1 - _REACH)), max(most, middle * (1 + _REACH))
    texts = tuple(shown(value, unit) if value is not None else "" for value in flat) if len(flat) <= _EXACT else ()

    def code(value: float | None) -> int:
        if value is None:
            return MISSING
        if not value:
            return ZERO
        return FIRST + round((LAST - FIRST) * (value - low_end) / (high_end - low_end))

    at = [divmod(flat.index(end), len(columns)) for end in (least, most)]
    low, high = (say("{row}, {column}", row=rows[r], column=columns[c]) for r, c in at)
    said = say("{what}: least {least} ({where}), most {most} ({there})", what=name, least=_said(least, unit),
               where=low, most=_said(most, unit), there=high)  # fmt: skip
    if len(there) == 1:
        said = say("{what}: {most} ({there})", what=name, most=_said(most, unit), there=high)
    nothing = flat.count(0)
    said = chain(said, say_n("nothing in {n} more", "nothing in {n} more", nothing) if nothing else None)
    alike = len(there) > 1 and most <= middle * (1 + ALIKE)
    return Layer(name, unit, low_end, high_end, bytes(map(code, flat)), texts, said, alike)


@dataclass(frozen=True, slots=True)
class Grouping:
    """Neighbours put together, so that there are no more than ``most``: from where to where each group goes."""

    bounds: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """How many a group has; the last may have fewer."""
        return self.bounds[0][1] - self.bounds[0][0] if self.bounds else 1

    def labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return a name for every group: that of its only one, or of its first and last."""
        return tuple(names[low] if high - low == 1 else f"{names[low]}–{names[high - 1]}" for low, high in self.bounds)

    def note(self) -> Message | None:
        """Say that steps are grouped, where they are."""
        if self.size == 1:
            return None
        return say_n("each column is {n} step", "each column is the mean of {n} steps", self.size)


def grouped(count: int, most: int) -> Grouping:
    """Return ``count`` things in at most ``most`` groups of one size; the last group may be smaller."""
    size = max(-(-count // max(most, 1)), 1)
    return Grouping(tuple((low, min(low + size, count)) for low in range(0, count, size)))


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of what is known, None where nothing is."""
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else None
