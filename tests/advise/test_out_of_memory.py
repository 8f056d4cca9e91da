"""Running out of memory, and settings that reserve less: from snapshots whose every byte is planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import analyze_path
from memory_plan import MIB
from memory_snapshot import PADDING, Allocator, dump

from npuperf.model.result import Finding

LIBRARY = ("/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125, "forward")
MODEL, FORWARD, LOSS = (
    ("/home/u/train.py", line, name) for line, name in ((10, "model"), (41, "forward"), (55, "loss"))
)
NINE = 9 * MIB - PADDING


def ran_out(path: Path) -> Finding | None:
    found = next(f for f in analyze_path(path, no_cache=True).findings if f.rule == "out_of_memory")
    return found if found.status == "problem" else None


def filled(*, device_bytes: int, kept: int, blocks: int, **options: bool) -> Allocator:
    """Some blocks of 40 MiB, and many of 9 MiB, of which every other one is given back: two lie in a segment."""
    allocator = Allocator(device_bytes=device_bytes, **options)
    for _ in range(kept):
        allocator.malloc(40 * MIB - PADDING, 7, LIBRARY, MODEL)
    small = [allocator.malloc(NINE, 7, LIBRARY, FORWARD) for _ in range(blocks)]
    for address in small[::2]:
        allocator.free(address)
    return allocator


def test_too_little_memory(tmp_path: Path) -> None:
    allocator = filled(device_bytes=400 * MIB, kept=4, blocks=16)
    assert allocator.malloc(190 * MIB - PADDING, 7, LIBRARY, LOSS) == -1
    found = ran_out(dump(allocator.snapshot(), tmp_path / "oom_snapshot_1_20261126083000.pickle"))
    assert found is not None and (found.severity, found.code) == ("high", "u/train.py:55 loss")
    # 4 segments of 40 MiB and 8 of 20 MiB; of those the second half of each holds a block of 9 MiB
    reserved, active = 320 * MIB, (4 * 40 + 8 * 9) * MIB
    told = found.evidence
    assert (told["asked_bytes"], told["device_free_bytes"], told["reserved_bytes"]) == (190 * MIB, 80 * MIB, reserved)
    assert (told["allocated_bytes"], told["cached_bytes"]) == (active, reserved - active)
    assert told["largest_free_block_bytes"] == 9 * MIB
    assert told["short_bytes"] == 190 * MIB - 80 * MIB - (reserved - active)
    assert told["holders"] == [
        {"where": "u/train.py:10 model", "count": 4, "bytes": 160 * MIB},
        {"where": "u/train.py:41 forward", "count": 8, "bytes": 72 * MIB},
    ]
    assert "22.0 MiB too little" in str(found.title) and not told["device_had_room"]
    assert "smaller micro-batch" in str(found.next) and "u/train.py:10 model holds 160.0 MiB" in str(found.next)


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_enough_memory_in_pieces_that_are_too_small(tmp_path: Path, settings: str) -> None:
    allocator = filled(device_bytes=400 * MIB, kept=0, blocks=40)
    assert allocator.malloc(100 * MIB - PADDING, 7, LIBRARY, LOSS) == -1
    snapshot = {**allocator.snapshot(), "allocator_settings": {"PYTORCH_NPU_ALLOC_CONF": settings}}
    found = ran_out(dump(snapshot, tmp_path / "snapshot.pickle"))
    assert found is not None and found.evidence["short_bytes"] == 100 * MIB - 20 * 11 * MIB
    assert "pieces that are too small" in str(found.title)
    assert ("expandable_segments:True" in str(found.next)) == (not settings)


def test_pieces_of_another_stream_do_not_count_as_pieces(tmp_path: Path) -> None:
    allocator = Allocator(device_bytes=100 * MIB)
    kept = [allocator.malloc(NINE, stream, LIBRARY, MODEL) for stream in (7, 7, 9, 9)]
    allocator.free(kept[0])
    assert allocator.malloc(80 * MIB, 9, LIBRARY, LOSS) == -1
    found = ran_out(dump(allocator.snapshot(), tmp_path / "snapshot.pickle"))
    assert found is not None and found.evidence["largest_free_block_bytes"] == 2 * MIB


def test_a_program_that_went_on_is_not_held_against_its_later_state(tmp_path: Path) -> None:
    allocator = filled(device_bytes=400 * MIB, kept=4, blocks=16)
    assert allocator.malloc(190 * MIB, 7, LIBRARY, LOSS) == -1
    then = allocator.counters[-1]
    allocator.malloc(50 * MIB, 7, LIBRARY, FORWARD)
    found = ran_out(dump(allocator.snapshot(), tmp_path / "snapshot.pickle"))
    assert found is not None
    assert (found.evidence["allocated_bytes"], found.evidence["reserved_bytes"]) == (then[0], then[2])
    assert found.evidence["largest_free_block_bytes"] is None and not found.evidence["holders"]


def test_nothing_is_said_where_memory_sufficed(tmp_path: Path) -> None:
    allocator = filled(device_bytes=400 * MIB, kept=1, blocks=4)
    assert ran_out(dump(allocator.snapshot(), tmp_path / "snapshot.pickle")) is None


@pytest.mark.parametrize("older", [0, 40 * MIB])  # in use when the history begins
def test_a_setting_that_reserves_less_is_named_with_its_bytes(tmp_path: Path, older: int) -> None:
    allocator = Allocator()
    allocator.recording = False
    if older:
        allocator.malloc(older - PADDING, 7, LIBRARY, MODEL)
    allocator.recording = True
    for step in range(10):  # each step asks for a little more, so that no piece is ever large enough
        allocator.free(allocator.malloc((100 + 4 * step) * MIB - PADDING, 7, LIBRARY, FORWARD))
    path = dump(allocator.snapshot(), tmp_path / "snapshot.pickle")
    (found,) = [f for f in analyze_path(path, no_cache=True).findings if f.rule == "segment_settings"]
    recorded, saved = older + sum(100 + 4 * step for step in range(10)) * MIB, sum(100 + 4 * i for i in range(9)) * MIB
    held = [found.evidence[f"{name}_bytes"] for name in ("recorded", "older", "expandable")]
    assert held == [recorded, older, recorded - saved + 4 * MIB]  # 136 MiB in pages of 20
    assert found.gain_bytes == (0 if older else saved - 4 * MIB, saved - 4 * MIB)
    assert found.severity == "high" and "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True" in str(found.next)


def test_no_setting_is_named_where_none_saves_anything(tmp_path: Path) -> None:
    allocator = Allocator()
    for _ in range(10):
        allocator.malloc(100 * MIB - PADDING, 7, LIBRARY, FORWARD)
    path = dump(allocator.snapshot(), tmp_path / "snapshot.pickle")
    (found,) = [f for f in analyze_path(path, no_cache=True).findings if f.rule == "segment_settings"]
    assert found.status == "ok"


def test_a_device_with_room_for_a_segment_was_not_what_refused_it(tmp_path: Path) -> None:
    """As with torch.npu.set_per_process_memory_fraction: the device reports 60 GiB, and 9 MiB are refused."""
    allocator = filled(device_bytes=200 * MIB, kept=0, blocks=20)
    assert allocator.malloc(100 * MIB - PADDING, 7, LIBRARY, LOSS) == -1
    snapshot = allocator.snapshot()
    for event in snapshot["device_traces"][0]:
        if event["action"] == "oom":
            event["device_free"] = 60 << 30
    found = ran_out(dump(snapshot, tmp_path / "snapshot.pickle"))
    assert found is not None and found.evidence["device_had_room"]
    assert "a limit of the process refused it (inferred)" in str(found.title) and "pieces that are" not in str(
        found.title
    )
    assert "set_per_process_memory_fraction" in str(found.next)
