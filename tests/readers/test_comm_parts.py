"""What parts of collectives tell: by hand, on timelines and in the vendor's recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuperf.model.labels import Labels
from npuperf.readers.comm_parts import Parts, bytes_of, first_waits
from npuperf.readers.recording import open_recording

US = 1000
#: operation, plane, from, to (µs), "wait" or bytes moved, the other rank
Part = tuple[int, int, float, float, str | int, int]


def parts(*rows: Part) -> Parts:
    op, plane, start, end, what, partner = zip(*rows, strict=True)
    return Parts(
        np.array(op), np.array(plane), *(np.array([round(t * US) for t in times], np.int64) for times in (start, end)),
        np.array([w == "wait" for w in what]), np.array([w if isinstance(w, int) else 0 for w in what]),
        np.array(partner),
    )  # fmt: skip


def told(*rows: Part, starts: tuple[float, ...] = (0,)) -> list[tuple[float, int, int]]:
    found = first_waits(parts(*rows), np.array([round(t * US) for t in starts], np.int64))
    return [(a / US if a >= 0 else -1, r, n) for a, r, n in zip(*(found[c].tolist() for c in found), strict=True)]


MESH: tuple[Part, ...] = (
    (0, 1, 2, 2.1, "wait", 1), (0, 2, 3, 500, "wait", 2), (0, 3, 4, 300, "wait", 3),
    (0, 1, 501, 520, 4096, 1), (0, 2, 501, 521, 4096, 2), (0, 3, 502, 522, 4096, 3),
    (0, 1, 522, 900, "wait", 1), (0, 1, 901, 911, 4096, 1),
)  # fmt: skip


def test_the_longest_wait_before_anything_moves() -> None:
    """497 µs for rank 2, less 3 until it notified itself, less 29 of the busiest plane; later waits are for data."""
    assert told(*MESH) == [(497 - 3 - 29, 2, 4)]


def test_each_operation_for_itself() -> None:
    second = [(1, plane, start + 2000, end + 2000, what, 7) for _, plane, start, end, what, _ in MESH[:3]]
    # The second one moves nothing: what its waits were for nobody knows, but that there are eight ranks.
    assert told(*MESH, *second, starts=(0, 2000)) == [(465, 2, 4), (-1, -1, 8)]


def test_a_wait_that_is_not_over_when_data_moves_is_not_counted() -> None:
    assert told((0, 1, 1, 400, "wait", 1), (0, 2, 1, 2, "wait", 2), (0, 2, 3, 10, 64, 2)) == [(0, -1, 3)]


def test_what_the_other_end_may_have_moved_meanwhile_is_taken_off() -> None:
    assert told((0, 1, 1, 60, "wait", 1), (0, 1, 61, 200, 64, 1)) == [(0, -1, 2)]


def test_bytes_of_elements() -> None:
    dtype = Labels.of(["FP32", "BFP16", "INT8", "INVALID_TYPE", None, "FP64"])
    assert bytes_of(np.array([4, 4, 4, 4, 4, -1]), dtype).tolist() == [16, 8, 4, -1, -1, -1]


# -- In a timeline: two groups at the same time, each with its thread and the planes that follow it.


def timeline(path: Path, planes: dict[int, list[tuple[str, int, int, int, int]]]) -> Path:
    """Write one: threads 0 and 4 are groups of two and four ranks, whose allReduces last from 100 to 700 µs."""
    names = {0: "Group 0 Communication", 4: "Group 1 Communication"} | {t: f"Plane {t % 4 - 1}" for t in (1, 2, 5, 6)}
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "HCCL"}}]
    events += [{"ph": "M", "name": "thread_name", "pid": 9, "tid": t, "args": {"name": n}} for t, n in names.items()]
    for tid in (0, 4):
        events.append({"ph": "X", "pid": 9, "tid": tid, "name": f"hcom_allReduce__11{tid}_0_1", "ts": "100.000",
                       "dur": 600, "args": {"data_type": "FP16", "count": 10 + tid}})  # fmt: skip
    for tid, rows in planes.items():
        for name, at, dur, to, size in rows:
            events.append({"ph": "X", "pid": 9, "tid": tid, "name": name, "ts": f"{at}.000", "dur": dur,
                           "args": {"src rank": 0, "dst rank": to, "size(Byte)": size}})  # fmt: skip
    path.write_text(json.dumps(events))
    return path


def of_groups(path: Path) -> list[tuple[str | None, int, int, int, int]]:
    (profile,) = open_recording(path).profiles
    ops = profile.communication.operations
    return sorted(zip(ops.name.texts(), ops.bytes.tolist(), ops.awaited.tolist(), ops.awaited_rank.tolist(),
                      ops.reached.tolist(), strict=True))  # fmt: skip


PLANES = {
    1: [("Memcpy", 101, 5, 0, 8)],  # of the rank with itself
    2: [("Notify_Wait", 102, 300, 1, 0), ("Memcpy", 403, 8, 1, 8)],
    6: [("Notify_Wait", 104, 100, 3, 0), ("Memcpy", 205, 6, 3, 8)],
}


def test_planes_are_of_the_group_before_them(tmp_path: Path) -> None:
    assert of_groups(timeline(tmp_path / "trace_view.json", PLANES)) == [
        ("hcom_allReduce__110_0_1", 20, (300 - 2 - 8) * US, 1, 2),
        ("hcom_allReduce__114_0_1", 28, (100 - 4 - 6) * US, 3, 4),
    ]


def test_planes_with_parts_of_no_operation_tell_nothing(tmp_path: Path) -> None:
    stray = {**PLANES, 5: [("Notify_Wait", 900, 1, 2, 0)]}
    assert of_groups(timeline(tmp_path / "trace_view.json", stray))[1] == ("hcom_allReduce__114_0_1", 28, -1, -1, -1)


# -- As the vendor's tools recorded them.

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "msinsight"


@pytest.mark.parametrize(
    ("folder", "rank", "longest"),
    [("text/level1/rank0", 5, 78.7646), ("text/level1/rank1", 5, 73.1500), ("db/level1/rank0", 6, 88.4189),
     ("db/level1/rank1", 6, 84.9065), ("text/level0/rank0", -1, 0), ("db/level0/rank0", -1, 0)],
)  # fmt: skip
def test_recorded(folder: str, rank: int, longest: float) -> None:
    """``longest``: the longest Notify_Wait of the first allReduce, ms, by json and sqlite3."""
    if not DATA.is_dir():
        pytest.skip("the vendor's samples are not here")
    (profile,) = open_recording(DATA / f"{folder}_ascend_pt").profiles
    ops = profile.communication.operations
    assert ops.bytes.tolist() == [4 * n for n in (4_097_000, 16_781_312, 37_752_832, 2_469_696)]
    assert ops.reached.tolist() == [8 if rank >= 0 else -1] * 4
    assert int(ops.awaited_rank[0]) == rank
    if rank >= 0:  # without at most 0.3 ms of transfers, and 20 us until it notified the others itself
        assert longest - 0.32 < ops.awaited[0] / 1e6 < longest
