"""What an operator is called where its type is not recorded, and where it comes from where little is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from build import H, K, analyze_path, ascend_pt

from npuperf.device.operators import type_labels
from npuperf.model.labels import Labels
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
