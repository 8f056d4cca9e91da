"""Which files were not there, and of which ranks where others have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npuperf.messages import Message, Series, say, say_n, series


def name_places(
    missing: Sequence[Sequence[Message]], ranks: Sequence[set[int]], roots: Sequence[Path]
) -> list[Message]:
    """Return what is missing of each source once, with the ranks it is about unless it is missing of all.

    ``ranks``: of each source, as far as they are recorded; else the folder stands for it.
    """
    lacking: dict[Message, list[int]] = {}
    for place, notes in enumerate(missing):
        for note in dict.fromkeys(notes):
            lacking.setdefault(note, []).append(place)
    return [
        note if len(places) == len(missing) else _placed(note, [(ranks[i], roots[i]) for i in places])
        for note, places in lacking.items()
    ]


def _placed(note: Message, places: list[tuple[set[int], Path]]) -> Message:
    what, then = note.parameters["what"], note.parameters["consequence"]
    if all(ranks for ranks, _ in places):
        numbers = sorted({rank for ranks, _ in places for rank in ranks})
        return say_n("{what} of rank {ranks}: {consequence}", "{what} of ranks {ranks}: {consequence}",
                     len(numbers), what=what, ranks=series(numbers), consequence=then)  # fmt: skip
    folders: Series = series(str(root) for _, root in places)
    return say("{what} in {folders}: {consequence}", what=what, folders=folders, consequence=then)
