"""Slices and their names, made column by column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from npuperf.documents.picture import COLOURS, NOTHING_KNOWN, LaneSlices
from npuperf.model.labels import I64, U8, Labels

COLOUR: Final = {name: np.uint8(code) for code, name in enumerate(COLOURS)}


class Names:
    """The names of a picture, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, name: str | None) -> int:
        """Return the number of a name; -1 for none."""
        return NOTHING_KNOWN if name is None else self._places.setdefault(name, len(self._places))

    def places(self, labels: Labels) -> I64:
        """Return the number of each text, -1 where nothing was recorded."""
        small = labels.compact()
        table = np.array([*map(self.place, small.names), NOTHING_KNOWN], np.int64)
        return table[small.codes]

    def of_each(self, keys: I64, name: Callable[[int], str | None]) -> I64:
        """Return the number of the name that each key has; ``name`` is asked once for each, and never for -1."""
        found, which = np.unique(keys, return_inverse=True)
        table = [NOTHING_KNOWN if key < 0 else self.place(name(key)) for key in found.tolist()]
        return np.array(table, np.int64)[which.reshape(-1)]

    def all(self) -> tuple[str, ...]:
        """Return the names in the order of their numbers."""
        return tuple(self._places)


def slices(
    start: I64,
    end: I64,
    colour: U8,
    *,
    depth: I64 | None = None,
    name: I64 | None = None,
    where: I64 | None = None,
    cause: I64 | None = None,
    launch: I64 | None = None,
    cube: I64 | None = None,
    vector: I64 | None = None,
) -> LaneSlices:
    """Fill columns that are not given with "unknown", and depths with the outermost."""
    nothing = np.broadcast_to(np.int64(NOTHING_KNOWN), len(start))
    return LaneSlices(
        start=start,
        end=end,
        depth=np.zeros(len(start), np.int64) if depth is None else depth,
        colour=colour,
        name=nothing if name is None else name,
        where=nothing if where is None else where,
        cause=nothing if cause is None else cause,
        launch=nothing if launch is None else launch,
        cube=nothing if cube is None else cube,
        vector=nothing if vector is None else vector,
    )


def no_slices() -> LaneSlices:
    """Return a lane's slices where it has none."""
    none = np.empty(0, np.int64)
    return slices(none, none, none.astype(np.uint8))


def sub_tracks(start: I64, end: I64, at_least: I64 | None = None) -> I64:
    """Return for each of some things, ordered by start, the first track that is free: no two of one track overlap.

    ``at_least``: the first track that each may have.
    """
    if at_least is None and (start[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return np.zeros(len(start), np.int64)
    tracks: list[int] = []
    until: list[int] = []
    lowest = [0] * len(start) if at_least is None else at_least.tolist()
    for begin, stop, track in zip(start.tolist(), end.tolist(), lowest, strict=True):
        while track < len(until) and until[track] > begin:
            track += 1
        until += [begin] * (track + 1 - len(until))
        until[track] = stop
        tracks.append(track)
    return np.array(tracks, np.int64)
