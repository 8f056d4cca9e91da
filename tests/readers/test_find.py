"""Finding input in every layout: which files belong together, which rank and device they are of."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from shutil import rmtree

import pytest
from build import EPOCH, ascend_pt, kernel_details
from inputs import KERNELS, op_summary

from npuperf.base.errors import InputError
from npuperf.base.messages import text
from npuperf.readers.find import find
from npuperf.readers.recording import open_recording


def test_a_torch_npu_result_and_every_way_to_name_it(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, KERNELS, {11: (-10_000, 30_000), 12: (30_000, 90_000)}, cores="24,48")
    for path in (tmp_path, folder, folder / "ASCEND_PROFILER_OUTPUT"):
        (reading,) = open_recording(path).map(lambda reading: reading)
        (device,) = reading.profiles
        assert (reading.source.kind, device.rank, device.cores.cube, device.cores.vector) == ("ascend_pt", 0, 24, 48)
        assert sorted(set(device.tasks.step.tolist())) == [11, 12]
        assert reading.log.missing == [] and reading.log.warnings == []


def test_newest_export_wins_and_slices_are_joined(tmp_path: Path) -> None:
    output = tmp_path / "PROF_000001_20250101000000000_X" / "mindstudio_profiler_output"
    op_summary(output / "op_summary_20250101000000.csv", KERNELS[:1])
    op_summary(output / "op_summary_slice_0_20250102000000.csv", KERNELS[:2])
    op_summary(output / "op_summary_slice_1_20250102000000.csv", KERNELS[2:])
    for path in (tmp_path, output.parent, output):
        (reading,) = open_recording(path).map(lambda reading: reading)
        assert [len(p.tasks) for p in reading.profiles] == [4]
        (warning,) = reading.log.warnings
        assert "older export" in str(warning) and warning.parameters["newest"] == "20250102000000"


def test_the_old_layout_has_one_device_per_folder(tmp_path: Path) -> None:
    prof = tmp_path / "PROF_000001_20230101000000000_X"
    for device in (0, 3):
        text = "Op Name,OP Type,Task Type,Task Start Time,Task Duration(us),Block Dim\n"
        text += f"k,Add,AI_CORE,{(EPOCH + device) // 1000},{device + 1}.5,32\n"
        path = prof / f"device_{device}" / "summary" / f"op_summary_{device}_1.csv"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        info = {"DeviceInfo": [{"id": device, "ai_core_num": 32, "aiv_num": 0}]}
        (path.parent.parent / f"info.json.{device}").write_text(json.dumps(info))
    found = open_recording(tmp_path).profiles
    assert [(d.device, d.tasks.dur.tolist(), d.cores.cube) for d in found] == [(0, [1500], 32), (3, [4500], 32)]


def test_ranks_come_from_the_files_never_from_folder_names(tmp_path: Path) -> None:
    for rank in (0, 8):
        folder = ascend_pt(tmp_path / f"rank{rank + 1}", KERNELS)
        (folder / "profiler_info_0.json").unlink()
        (folder / f"profiler_info_{rank}.json").write_text("{}")
    assert [d.rank for d in open_recording(tmp_path).profiles] == [0, 8]
    bare = kernel_details(tmp_path / "rank5" / "kernel_details.csv", KERNELS)
    assert open_recording(bare).profiles[0].rank is None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"config": 3}', '{"config": {"experimental_config": []}}', "{", '{"rank_id": "x"}']
)
def test_broken_context_files_cost_only_what_they_say(tmp_path: Path, text: str) -> None:
    folder = ascend_pt(tmp_path, KERNELS, cores="24,48")
    for path in (folder / "profiler_info_0.json", folder / "profiler_metadata.json", *folder.rglob("info.json.0")):
        path.write_text(text)
    (device,) = open_recording(folder).profiles
    assert (device.cores.cube, device.rank) == (None, 0)  # the rank is in the file's name
    assert len(device.tasks) == 4


def test_what_is_missing_says_what_and_its_consequence_apart(tmp_path: Path) -> None:
    kernel_details(tmp_path / "kernel_details.csv", KERNELS)
    (log,) = open_recording(tmp_path).map(lambda reading: reading.log)
    assert [text(m.parameters["what"]) for m in log.missing] == [
        "no trace_view.json, msprof_*.json or .db", "no PROF_*/device_*/info.json.*"
    ]  # fmt: skip
    assert all(text(m) == f"{text(m.parameters['what'])}: {text(m.parameters['consequence'])}" for m in log.missing)


def test_raw_data_beside_a_profile_is_said_and_alone_an_error(tmp_path: Path) -> None:
    raw = tmp_path / "b" / "PROF_000002_20250101000000000_Y"
    (raw / "device_0" / "data").mkdir(parents=True)
    with pytest.raises(InputError) as caught:
        find(raw.parent)
    assert str(caught.value.what).startswith(f"{raw}: raw profiling data that was")
    assert str(caught.value.hint) == f"npuperf profile --export {raw}"
    (tmp_path / "c" / "host_1_20250101000000000_ascend_pt" / raw.name / "device_0" / "data").mkdir(parents=True)
    with pytest.raises(InputError, match="raw profiling data of 2 profiles that was") as caught:
        find(tmp_path)
    assert str(caught.value.hint) == f"npuperf profile --export {tmp_path}"
    rmtree(tmp_path / "c")
    ascend_pt(tmp_path / "a", KERNELS)
    sources, notes = find(tmp_path)
    assert len(sources) == 1
    assert [str(n) for n in notes] == [
        f"{raw}: raw data that was never exported; export it with: npuperf profile --export {raw}"
    ]


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_nothing_there_is_an_error_that_says_what_to_give(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        find(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value) and caught.value.hint


@pytest.mark.parametrize("name", ["op_statistic.csv", "api_statistic_20260101000000.csv"])
def test_sums_are_no_profile_of_their_own(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("Device_id,OP Type,Count\n0,MatMul,3\n")
    with pytest.raises(InputError, match="sums of the exporter's, without a task") as caught:
        find(tmp_path / name)
    assert str(caught.value.hint) == f"give the folder of its profile: {tmp_path}"


@pytest.mark.parametrize("packed", [False, True])
def test_a_loose_trace_is_told_by_its_beginning(tmp_path: Path, packed: bool) -> None:
    """The header of a PyTorch trace may be long; other JSON files are passed over."""
    header = {"deviceProperties": [{"name": "x" * 30_000}], "traceEvents": []}
    name, content = ("t.json.gz", gzip.compress(json.dumps(header).encode())) if packed else ("t.json", None)
    (tmp_path / name).write_bytes(content or json.dumps(header).encode())
    (tmp_path / "other.json").write_text(json.dumps([{"ts": 1}] * 1000))
    (tmp_path / "damaged.json.gz").write_bytes(b"\x1f\x8b damaged")
    (source,) = find(tmp_path)[0]
    assert source.timeline == (tmp_path / name,)
