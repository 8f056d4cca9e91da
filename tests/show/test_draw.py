"""Drawing from a recording and its result: which devices, on which clock, what a job tells, what has no picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from build import K, ascend_pt, kernel_details
from msgspec import structs

from npuperf.advise import load_thresholds
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import InputError
from npuperf.base.parallel import Engine
from npuperf.model.picture import COLOURS, Picture
from npuperf.model.result import Result
from npuperf.readers.recording import Recording, open_recording
from npuperf.show.draw import draw

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "samples" / "pipeline_job"
DATA = ROOT.parent / "shared" / "data"
THRESHOLDS = load_thresholds({})


def analyzed(path: Path) -> tuple[Recording, Result]:
    recording = open_recording(path, keep=True)
    return recording, run(AnalyzeRequest(path=path), recording)


def drawn(path: Path, limit: int = 8) -> tuple[tuple[Picture, ...], Result]:
    recording, result = analyzed(path)
    return draw(recording, result, THRESHOLDS, limit=limit), result


def test_all_ranks_of_a_small_job_are_drawn_on_its_clock() -> None:
    pictures, result = drawn(JOB)
    assert result.cluster is not None
    assert [p.rank for p in pictures] == [d.rank for d in result.devices] == [0, 1, 2, 3]
    assert [p.offset_ns for p in pictures] == [r.clock.offset_ns if r.clock else 0 for r in result.cluster.ranks]
    assert any(p.offset_ns for p in pictures)
    for picture, device in zip(pictures, result.devices, strict=True):
        assert (picture.origin_ns, picture.span_ns) == (device.origin_ns, device.partition.span_ns)
        assert picture.why is None
        assert {len(share) for lane in picture.lanes for share in lane.shares.values()} == {2048}


def test_a_job_tells_transfers_from_waiting_as_in_its_report() -> None:
    pictures, result = drawn(JOB)
    for picture, device in zip(pictures, result.devices, strict=True):
        parts, told = picture.lanes[0], device.partition
        assert parts.kind == "parts"
        length = np.diff([picture.span_ns * i // 2048 for i in range(2049)])
        for name, ns in (("transfer", told.comm_transfer_ns), ("comm_wait", told.comm_wait_ns)):
            assert ns > 1_000_000
            assert float((parts.shares[name] * length / 255).sum()) == pytest.approx(ns, abs=picture.span_ns / 510)
        sums: Counter[str] = Counter()
        for start, end, colour in zip(parts.slices.start, parts.slices.end, parts.slices.colour, strict=True):
            sums[COLOURS[colour]] += int(end - start)
        assert sums["transfer"] == told.comm_transfer_ns  # the stretches are all of it
        assert sums["comm_wait"] == told.comm_wait_ns
        assert sums["communication"] == told.comm_unknown_ns == 0
        assert sums["compute"] == told.compute_ns
        assert (np.diff(parts.slices.start) > 0).all()
        assert (parts.slices.start[1:] >= parts.slices.end[:-1]).all()


def test_of_a_part_of_a_job_waiting_is_not_told() -> None:
    recording, result = analyzed(JOB)
    assert result.cluster is not None
    roots = [rank for root in result.cluster.roots for rank in root.ranks]
    pictures = draw(recording, result, THRESHOLDS, limit=2)
    assert len(pictures) == 2
    assert all(p.why is not None for p in pictures)
    assert not roots or pictures[0].rank == roots[0]
    for picture in pictures:
        assert "communication" in picture.lanes[0].shares
        assert not {"transfer", "comm_wait"} & picture.lanes[0].shares.keys()


def test_only_what_is_drawn_is_read() -> None:
    _, result = analyzed(JOB)
    told: list[None] = []
    pictures = draw(open_recording(JOB), result, THRESHOLDS, limit=2, finished=lambda: told.append(None))
    assert len(pictures) == len(told) == 2


def test_processes_draw_the_same() -> None:
    _, result = analyzed(JOB)
    here = draw(open_recording(JOB), result, THRESHOLDS)
    there = draw(open_recording(JOB), result, THRESHOLDS, engine=Engine("processes", 2))
    assert [repr(p) for p in here] == [repr(p) for p in there]


def test_a_table_of_several_devices_gives_a_picture_each(tmp_path: Path) -> None:
    path = kernel_details(tmp_path / "kernel_details.csv", [K(100 * i, 50, device=i % 2) for i in range(10)])
    pictures, result = drawn(path)
    assert [(p.rank, p.device) for p in pictures] == [(d.rank, d.device) for d in result.devices]
    assert [p.device for p in pictures] == [0, 1]


def test_steps_whose_numbers_repeat_are_no_steps(tmp_path: Path) -> None:
    kernels = [K(1_000 * i, 100, step=i // 10 % 2) for i in range(40)]
    (picture,), result = drawn(ascend_pt(tmp_path, kernels))
    assert result.devices[0].steps == []
    assert [(e.step, str(e.why)) for e in picture.exact] == [(None, "all that was recorded")]


def test_what_can_no_longer_be_read_is_not_drawn(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, [K(0, 100)])
    _, result = analyzed(folder)
    recording = open_recording(folder)
    for file in (folder / "ASCEND_PROFILER_OUTPUT").iterdir():
        file.write_text("")
    assert draw(recording, result, THRESHOLDS) == ()


def test_a_device_that_is_another_one_now_is_not_drawn() -> None:
    recording, result = analyzed(JOB)
    renamed = [structs.replace(d, source="elsewhere") for d in result.devices]
    assert draw(recording, structs.replace(result, devices=renamed), THRESHOLDS) == ()


def data_inputs() -> list[Path]:
    return [path for path in sorted(DATA.rglob("*")) if path.is_dir() or path.suffix in (".gz", ".csv", ".db", ".json")]


@pytest.mark.skipif(not DATA.exists(), reason="the recordings of others are not here")
def test_every_input_is_drawn_or_has_no_kernels() -> None:
    seen = 0
    for path in data_inputs():
        try:
            pictures, result = drawn(path)
        except InputError:
            continue
        with_kernels = [d for d in result.devices if d.clock.tasks]
        if len(with_kernels) <= 8:  # without any the hosts are drawn
            assert len(pictures) == len(with_kernels or result.hosts[:8]), path
        assert all(p.why for p in pictures) == (len(with_kernels) > 8) or not pictures, path
        seen += len(pictures)
    assert seen > 40
