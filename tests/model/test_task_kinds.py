"""What a hardware task does, where only its type and name tell."""

from __future__ import annotations

import pytest

from npuperf.model.labels import Labels
from npuperf.model.tasks import Work, work_of_tasks


@pytest.mark.parametrize(
    ("type_", "name", "work"),
    [
        # Old exporters write Other for kernels; their own Overlap Analysis counts these as computing.
        ("Other", "trans_TransData_3_MemSet", Work.COMPUTE),
        ("Other", "aclnnAddmm_MatMulCommon_MemSet", Work.COMPUTE),
        ("Other", "ReduceSum7_MemSet", Work.COMPUTE),
        ("Other", "atomic_memset-1_18_186609_1", Work.COMPUTE),
        ("Other", "aclnnSmoothLabel_SmoothLabel_SmoothLabel", Work.COMPUTE),
        ("Other", "Conv2D1", Work.COMPUTE),
        ("Other", "MEMSET_ASYNC", Work.OTHER),
        ("Other", "MEMCPY_ASYNC", Work.OTHER),
        ("Other", "EVENT_RECORD", Work.CONTROL),
        ("EVENT_WAIT", "EVENT_WAIT", Work.CONTROL),
        ("PCIE_DMA_SQE", "MEMCPY_ASYNC", Work.OTHER),
        ("KERNEL_AIVEC", "aclnnAddmm_MatMulCommon_MemSet", Work.COMPUTE),
    ],
)
def test_kernels_are_no_hardware_tasks_whatever_their_names_contain(type_: str, name: str, work: Work) -> None:
    assert work_of_tasks(Labels.of([type_]), Labels.of([name])).tolist() == [work]
