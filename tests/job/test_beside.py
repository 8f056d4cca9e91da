"""Equal kernels beside communication and without it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from npuperf.advise import load_thresholds
from npuperf.device.operators import BesideCommunication, Slowed, beside_communication
from npuperf.model.labels import Labels
from npuperf.model.tasks import Tasks, Work

#: Type, shapes, start, duration (µs).
Kernel = tuple[str, str | None, int, int]


def compared(kernels: Sequence[Kernel], communication: Sequence[tuple[int, int]]) -> BesideCommunication:
    """Kernels, and communication from … to … (µs)."""
    rows = [*kernels, *(("hcom_allReduce_", None, start, end - start) for start, end in communication)]
    start, dur = (np.array([row[i] for row in rows], np.int64) * 1_000 for i in (2, 3))
    work = np.array([Work.COMPUTE] * len(kernels) + [Work.COMMUNICATION] * len(communication), np.uint8)
    tasks = Tasks.build(
        start, start + dur, work, type=Labels.of([r[0] for r in rows]), shapes=Labels.of([r[1] for r in rows])
    ).sorted()
    return beside_communication(tasks, tasks.type, load_thresholds())


def run(kernels: Sequence[Kernel], communication: Sequence[tuple[int, int]]) -> tuple[Slowed, ...]:
    return compared(kernels, communication).slowed


def series(first: int, durations: Sequence[int], kind: str = "MatMulV2", shapes: str | None = "8,8") -> list[Kernel]:
    """Kernels that begin 100 µs after one another."""
    return [(kind, shapes, first + 100 * i, dur) for i, dur in enumerate(durations)]


def test_kernels_beside_communication_take_longer() -> None:
    """Alone 10 µs, median 10; beside it 12, 13, 9, 12, 15: 2 + 3 + 0 + 2 + 5 µs beyond, median 12."""
    (row,) = run([*series(0, [10, 10, 10, 11, 9]), *series(1_000, [12, 13, 9, 12, 15])], [(900, 1_600)])
    assert row == Slowed("MatMulV2", "8,8", 5, 5, 12_000, 10_000, 61_000, 12_000)
    assert row.ratio == pytest.approx(1.2)


def test_the_costliest_kind_comes_first() -> None:
    kernels = [
        *series(0, [10] * 5),
        *series(1_000, [12] * 5),
        *series(50, [20] * 5, "Add"),
        *series(1_050, [30] * 5, "Add"),
    ]
    rows = run(kernels, [(900, 1_600)])
    assert [(r.type, r.lost_ns) for r in rows] == [("Add", 50_000), ("MatMulV2", 10_000)]


def test_overlap_in_part_tells_nothing() -> None:
    """Kernels of 90 µs of which communication covers 50 are on neither side."""
    kernels = [*series(0, [10] * 5), *series(1_000, [90] * 5)]
    assert run(kernels, [(start, start + 50) for start in range(1_000, 1_500, 100)]) == ()


@pytest.mark.parametrize(
    "kernels",
    [
        [*series(0, [10] * 4), *series(1_000, [20] * 5)],  # four alone
        [*series(0, [10] * 5), *series(1_000, [20] * 4)],  # four beside communication
        [*series(0, [100] * 5), *series(1_000, [104] * 5)],  # 4 %
        [*series(0, [20] * 5), *series(1_000, [10] * 5)],  # faster
        [*series(0, [10] * 5), *series(1_000, [20] * 5, shapes="9,9")],  # other shapes
        [*series(0, [10] * 5, shapes=None), *series(1_000, [20] * 5, shapes=None)],  # shapes not recorded
        [],
    ],
)
def test_nothing_is_slowed(kernels: list[Kernel]) -> None:
    assert run(kernels, [(900, 1_600)]) == ()


def test_without_communication_nothing_is_beside_it() -> None:
    assert run(series(0, [10] * 10), []) == ()


def test_what_has_no_equals_cannot_be_compared() -> None:
    """Beside it 5 × 10 of a kind with five equals, 4 × 20 of a kind that has four, and 3 × 30 of one that has none."""
    kernels = [
        *series(0, [10] * 5), *series(1_000, [10] * 5),
        *series(50, [20] * 4, "Add"), *series(1_050, [20] * 4, "Add"),
        *series(1_020, [30] * 3, "Mul"),
    ]  # fmt: skip
    assert compared(kernels, [(900, 1_600)]) == BesideCommunication((), (4 * 20 + 3 * 30) * 1_000)
