"""What operators are called, where they come from, and how they are spelled: the same in every run."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from build import H, K, analyze_path, ascend_pt

from npuperf.device.operators import operator_key, operator_keys, type_labels
from npuperf.model.labels import Labels, operand_labels
from npuperf.model.tasks import Tasks


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("aclnnMatmul_MatMulCommon_MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2"),  # V2 is the type's, no number
        ("MatMulV2_17", "MatMulV2"),
        ("ConcatV212", "ConcatV212"),  # which of the digits count is not known
        ("Add17", "Add"),
        ("trans_TransData_3", "trans_TransData"),
        ("hcom_allReduce__731_1_1", "hcom_allReduce"),
        ("42", "42"),
    ],
)
def test_running_numbers_are_left_out_and_nothing_else(name: str, told: str) -> None:
    tasks = Tasks.build(np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros(1, np.uint8), name=Labels.of([name]))
    assert type_labels(tasks)[0] == told


def test_a_step_is_no_operator(tmp_path: Path) -> None:
    """The only host event around the launches is the step."""
    kernels = [K(i * 100_000, 50_000, step=11 + i // 10, launch=i * 100_000 - 20_000, launch_dur=2_000)
               for i in range(20)]  # fmt: skip
    steps = [
        H("ProfilerStep#11", -50_000, 1_000_000, python=True),
        H("ProfilerStep#12", 950_000, 1_040_000, python=True),
    ]
    (operator,) = analyze_path(ascend_pt(tmp_path, kernels, host=steps)).operators
    assert (operator.torch_op, operator.where) == (None, None)


# -- How operators are spelled: one text per type, shapes and dtypes, the same in every run.


def tasks(shapes: list[str | None], dtypes: list[str | None], out: list[str | None]) -> Tasks:
    size = len(shapes)
    start = np.arange(size, dtype=np.int64)
    operands = operand_labels({"dtypes": Labels.of(dtypes), "out_dtypes": Labels.of(out)})
    return Tasks.build(start, start + 1, np.zeros(size, np.uint8), shapes=Labels.of(shapes), operands=operands)


@pytest.mark.parametrize(
    ("shapes", "dtypes", "out", "spelled"),
    [
        ('"2,3;3,4"', "FLOAT16;FLOAT16", "FLOAT16", "MatMul [2,3;3,4] FLOAT16"),
        ("2,3;3,4;", "DT_BF16;DT_BF16;FLOAT", "DT_BF16", "MatMul [2,3;3,4;] BF16 x2;FLOAT32"),
        ("8;8;8;2,2", "FLOAT;FLOAT;FLOAT;FLOAT", "FLOAT", "MatMul [8 x3;2,2] FLOAT32"),
        ("32,64", "FLOAT", "BF16", "MatMul [32,64] FLOAT32->BF16"),
        ("32,64", None, None, "MatMul [32,64]"),
        (None, "FLOAT;INT64", "FLOAT", "MatMul FLOAT32;INT64"),
        (";;", "FLOAT;FLOAT;FLOAT", None, "MatMul FLOAT32"),
        (None, None, "FLOAT", "MatMul ->FLOAT32"),
        (None, None, None, "MatMul"),
    ],
)
def test_what_is_recorded_is_spelled(shapes: str | None, dtypes: str | None, out: str | None, spelled: str) -> None:
    assert operator_keys(Labels.of(["MatMul"]), tasks([shapes], [dtypes], [out])).texts() == [spelled]


def test_what_has_no_type_has_no_key() -> None:
    assert operator_keys(Labels.of([None, "Add"]), tasks(["2", "2"], [None, None], [None, None])).texts() == [
        None,
        "Add [2]",
    ]


def test_keys_are_told_apart_as_their_columns_are() -> None:
    """Against one text per row, made without any grouping."""
    rng = random.Random(5)
    rows = [
        (rng.choice(["Add", "Mul", "Cast", None]), rng.choice(["2;2", "4", "", None]),
         rng.choice(["FLOAT;FLOAT", "INT64", None]), rng.choice(["FLOAT", "BOOL", None]))
        for _ in range(500)
    ]  # fmt: skip
    types, shapes, dtypes, out = (list(column) for column in zip(*rows, strict=True))
    found = operator_keys(Labels.of(types), tasks(shapes, dtypes, out)).texts()
    places: dict[str | None, set[tuple[object, ...]]] = {}
    for key, row in zip(found, rows, strict=True):
        assert (key is None) == (row[0] is None)
        places.setdefault(key, set()).add(
            (row[0], row[1] or None, row[2], row[3] if row[3] not in (row[2] or "").split(";") else None)
        )
    del places[None]
    assert all(len(same) == 1 for same in places.values())
    assert len({one for same in places.values() for one in same}) == len(places)
    assert Counter(found).total() == 500


def test_long_lists_are_cut_and_still_told_apart() -> None:
    """Optimizers take hundreds of tensors; the whole list decides, not only what is shown."""
    many = [f"{n},{n + 1}" for n in range(300)]
    one, other = operator_key("Adam", many, ["FLOAT32"]), operator_key("Adam", [*many[:-1], "7"], ["FLOAT32"])
    assert one != other
    assert len(one) < 250
    assert one == operator_key("Adam", many, ["FLOAT32"])
