"""Host time by cause: each nanosecond of it counts once, whatever part of the run is looked at together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from build import H, K, ascend_pt

from npuperf.advise import load_thresholds
from npuperf.device import whatif
from npuperf.device.host_events import CAUSES
from npuperf.device.study import Study
from npuperf.device.whatif import Scene
from npuperf.readers.recording import open_recording

US = 1_000


def staged(folder: Path) -> Scene:
    """20 kernels, launched every 50 µs for 1 µs; before each launch but the first 20 µs of aten::mm, and once a GC."""
    made = [K(i * 50 * US, 10 * US, f"k{i}", launch=i * 50 * US - 9 * US, launch_dur=US) for i in range(20)]
    host = [H("aten::mm", i * 50 * US - 39 * US, 20 * US, python=True) for i in range(1, 20)]
    gc = H("GC", 5 * 50 * US - 54 * US, 10 * US, python=True)
    (reading,) = open_recording(ascend_pt(folder, made, host=[*host, gc])).map(lambda reading: reading)
    study = Study.of(reading.profiles[0], load_thresholds())
    assert study.replay is not None
    return Scene.of(study, study.replay, study.judged)


def test_time_on_a_cause_lies_where_it_was_spent(tmp_path: Path) -> None:
    scene = staged(tmp_path)
    assert scene.host_times.on("torch_op").tolist() == [0, *[20 * US] * 19]
    assert scene.host_times.on("gc").tolist() == [10 * US if i == 5 else 0 for i in range(20)]
    assert not scene.host_times.on("data_loading").any()


def test_causes_add_up_to_all_host_time(tmp_path: Path) -> None:
    scene = staged(tmp_path)
    total = sum(scene.host_times.on(cause) for cause in CAUSES)
    assert np.array_equal(total, scene.replay.until - scene.replay.since)


@pytest.mark.parametrize("at_a_time", [1, 3, 20])
def test_the_answer_does_not_depend_on_how_much_is_split_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr(whatif, "_CHUNK", at_a_time)
    scene = staged(tmp_path)
    assert scene.host_times.on("torch_op").tolist() == [0, *[20 * US] * 19]
    assert scene.host_times.on("gc").tolist() == [10 * US if i == 5 else 0 for i in range(20)]
