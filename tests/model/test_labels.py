"""Text columns: names that no cell uses are left out, and answers per name are spread over the cells."""

from __future__ import annotations

import random

import numpy as np
import pytest

from npuperf.model.labels import Labels


def cells(labels: Labels) -> list[str | None]:
    return [labels[i] for i in range(len(labels))]


def test_compact_drops_unused_names_only() -> None:
    labels = Labels(np.array([3, -1, 1, 3], np.int32), ("a", "b", "c", "d", "e"))
    compact = labels.compact()
    assert compact.names == ("b", "d")
    assert compact.codes.tolist() == [1, -1, 0, 1]
    assert compact.codes.dtype == np.int32


def test_compact_of_columns_without_names_or_cells() -> None:
    assert cells(Labels.missing(2).compact()) == [None, None]
    nothing = Labels(np.empty(0, np.int32), ("a", "b")).compact()
    assert (nothing.names, len(nothing)) == ((), 0)
    unknown = Labels(np.array([-1, -1], np.int32), ("a",)).compact()
    assert (unknown.names, cells(unknown)) == ((), [None, None])


def test_compact_keeps_every_cell_and_the_order_of_names() -> None:
    rng = random.Random(3)
    for _ in range(200):
        names = tuple(f"n{i}" for i in range(rng.randrange(1, 9)))
        column = [rng.randrange(-1, len(names)) for _ in range(rng.randrange(12))]
        compact = Labels(np.array(column, np.int32), names).compact()
        assert cells(compact) == [None if c < 0 else names[c] for c in column]
        assert compact.names == tuple(n for i, n in enumerate(names) if i in column)


@pytest.mark.parametrize("chosen", [0, 1, 7, 12, 20])
@pytest.mark.parametrize("default", [False, True])
def test_one_answer_per_name_is_spread_over_the_cells(chosen: int, default: bool) -> None:
    rng = np.random.default_rng(chosen)
    names = tuple(f"name {i}" for i in range(20))
    labels = Labels(rng.integers(-1, 20, 300).astype(np.int32), names)
    yes = set(names[:chosen])
    expected = [default if text is None else text in yes for text in labels.texts()]
    assert labels.flag([name in yes for name in names], default).tolist() == expected
