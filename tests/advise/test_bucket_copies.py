"""Copies from DDP's buckets are told by the range around their operators, on its thread and at its time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from npuperf.advise.moves import BUCKETS, from_buckets
from npuperf.model.host import Spans
from npuperf.model.labels import Labels

#: Ordered by thread, then start: (thread, start, end, name).
OPS = [
    (1, 0, 100, "aten::copy_"),  # before the range
    (1, 200, 900, BUCKETS),
    (1, 300, 400, "aten::copy_"),
    (1, 320, 380, "aclnnInplaceCopy"),
    (1, 950, 990, "aten::copy_"),  # after it
    (1, 1_000, 1_400, BUCKETS),
    (1, 1_100, 1_200, "aten::copy_"),
    (2, 300, 400, "aten::copy_"),  # at its time, on another thread
]


def asked(ops: list[tuple[int, int, int, str]], op: list[int]) -> list[bool]:
    thread, start, end, name = zip(*ops, strict=True)
    spans = Spans(np.array(start), np.array(end), np.array(thread), Labels.of(list(name)))
    view = SimpleNamespace(
        profile=SimpleNamespace(host=SimpleNamespace(ops=spans)), tasks=SimpleNamespace(op=np.array(op))
    )
    return cast("list[bool]", from_buckets(cast(Any, view), np.arange(len(op))).tolist())


def test_only_what_lies_within_the_range_is_ddp_s() -> None:
    assert asked(OPS, [0, 2, 3, 4, 6, 7, -1]) == [False, True, True, False, True, False, False]


def test_without_such_a_range_nothing_is() -> None:
    assert asked([op for op in OPS if op[3] != BUCKETS], [0, 1, 2, -1]) == [False] * 4
