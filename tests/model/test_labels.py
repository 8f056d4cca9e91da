"""Text columns: names and codes, and what goes into a kernel and comes out of it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from npuperf.model.labels import OPERAND_COLUMNS, Labels, Operands, operand_labels


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


# -- Four columns of an export as one, and back.


ROWS = [
    ("FLOAT", "ND", "DT_BF16", "ND", "2,3", "NO"),
    (None, None, None, None, None, None),
    ("DT_BF16;INT64", None, "DT_BF16", "FRACTAL_NZ", None, None),
    ("FLOAT", "ND", "DT_BF16", "ND", "2,3", "NO"),
    ("FLOAT", "NCHW", "DT_BF16", "ND", "2,3", "NO"),
    (None, "ND", None, None, None, "YES"),
]


def joined(rows: list[tuple[str | None, ...]]) -> Labels:
    return operand_labels({name: Labels.of([row[i] for row in rows]) for i, name in enumerate(OPERAND_COLUMNS)})


def test_each_row_keeps_its_cells_and_equal_rows_one_name() -> None:
    labels = joined(ROWS)
    assert [None if t is None else t.split("|") for t in (labels[i] for i in range(len(ROWS)))] == [
        None if row == (None,) * 6 else [cell or "" for cell in row] for row in ROWS
    ]
    assert labels.codes[0] == labels.codes[3] != labels.codes[4]
    assert len(labels.names) == 4


def test_any_columns_come_back() -> None:
    """Also where there are too many combinations to keep a place for each."""
    rng = np.random.default_rng(3)
    many: list[tuple[str | None, ...]] = [
        tuple(None if v % 7 == 0 else f"t{v}" for v in row) for row in rng.integers(0, 3_000, (4_000, 6)).tolist()
    ]
    labels = joined(many)
    for i, row in enumerate(many):
        text = labels[i]
        assert (text is None) == (set(row) == {None})
        assert text is None or tuple(cell or None for cell in text.split("|")) == row


def test_no_rows_and_nothing_recorded() -> None:
    assert len(joined([])) == 0
    assert not joined([(None,) * 6] * 3).known().any()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            'FLOAT|FORMAT_ND|DT_BF16|ND|"2,3;;"|YES',
            Operands(("FLOAT32",), ("ND",), ("BF16",), ("ND",), ("2,3", "", ""), True)),
        (
            '"FLOAT16;INT64"|NCHW;ND|FLOAT16|NC1HWC0:1||NO',
            Operands(("FLOAT16", "INT64"), ("NCHW", "ND"), ("FLOAT16",), ("NC1HWC0",), (), False)),
        ("|||||N/A", Operands()),
    ],
)  # fmt: skip
def test_one_spelling_for_each_dtype_and_format(text: str, read: Operands) -> None:
    assert Operands.parse(text) == read


def test_what_holds_the_columns_apart_is_part_of_no_cell() -> None:
    columns = {"dtypes": "DT_BF16|x", "formats": "ND", "out_dtypes": "|", "out_formats": "NZ"}
    text = operand_labels({name: Labels.of([cell]) for name, cell in columns.items()})[0]
    assert text is not None
    assert Operands.parse(text) == Operands(("BF16 X",), ("ND",), ("",), ("NZ",))
