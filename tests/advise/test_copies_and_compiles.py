"""Blocking copies and kernels launched through aclopCompileAndExecute: gains worked out by hand, and real profiles."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest
from build import H, K, ascend_pt
from msgspec.structs import replace
from small_programs import analyzed, answer, batches, busy, problem, starved, steps_of

from npuperf.advise.pauses import aclnn_calls
from npuperf.readers.recording import open_recording

DATA = Path(__file__).parents[3] / "shared" / "data"


# --- blocking copies -----------------------------------------------------------------------------------------------


def test_copies_to_the_device_need_pinned_memory(tmp_path: Path) -> None:
    """Once "the host waits for the device in aten::to", with the advice to avoid .item() and .cpu()."""
    kernels, host = batches("aten::to", "acl_memcpy_host_to_device")
    result = analyzed(ascend_pt(tmp_path, kernels, host=host))
    found = problem(result, "blocking_copies")
    assert "copies to the device in aten::to at train.py:41 step (20 times)" in str(found.title)
    assert "pin_memory=True" in steps_of(found) and ".cpu()" not in steps_of(found)
    assert found.gain_ns_per_step == (19 * 24_000 // 2, 19 * 24_000 // 2)
    assert (found.evidence["kind"], found.evidence["pinned"]) == ("htod", None)
    assert answer(result, "sync_points").status == "ok"


def test_copies_to_the_host_are_values_read_back(tmp_path: Path) -> None:
    kernels, host = batches("aten::to", "acl_memcpy_device_to_host")
    result = analyzed(ascend_pt(tmp_path, kernels, host=host))
    found = answer(result, "sync_points")
    assert "values from the device in aten::to" in str(found.title) and ".item()" in steps_of(found)
    assert answer(result, "blocking_copies").status == "ok"


def test_copies_in_an_unknown_direction_are_called_so(tmp_path: Path) -> None:
    kernels, host = batches("aten::to")
    result = analyzed(ascend_pt(tmp_path, kernels, host=host))
    found = answer(result, "blocking_copies")
    assert "direction that is not recorded" in str(found.title)
    assert "to the device: " in steps_of(found) and "to the host: " in steps_of(found)
    assert found.gain_ns_per_step == (19 * 24_000 // 2, 19 * 24_000 // 2)
    assert answer(result, "sync_points").status == "ok"


@pytest.mark.parametrize(
    ("call", "title", "advice"),
    [
        ("AscendCL@aclrtSynchronizeStream", "for a stream in", "stream.wait_stream(other)"),
        ("AscendCL@aclrtSynchronizeEvent", "for an event of the device in", "stream.wait_event(event)"),
        ("AscendCL@aclrtSynchronizeDevice", "for the whole device in", "remove synchronize()"),
    ],
)
def test_waits_that_a_program_asks_for(tmp_path: Path, call: str, title: str, advice: str) -> None:
    """All of them once got the advice of .item()."""
    kernels, host = batches("aten::to")
    asked = [replace(h, name=call) for h in host if h.name.startswith("AscendCL")]
    found = answer(ascend_pt(tmp_path, kernels, host=asked), "sync_points")
    assert title in str(found.title) and advice in steps_of(found) and ".item()" not in steps_of(found)
    assert found.gain_ns_per_step == (19 * 24_000 // 2, 19 * 24_000 // 2)


def test_a_wait_after_each_step_s_work_is_called_so(tmp_path: Path) -> None:
    """The host's steps end with a wait: ten batches are ten steps here, each one ending with synchronize()."""
    kernels, host = batches("aten::to")
    waits = [replace(h, name="AscendCL@aclrtSynchronizeDevice", thread=10) for h in host if "Stream" in h.name]
    begin, steps = -5_000, {}
    for n, wait in enumerate(waits):
        end = wait.start + wait.dur + 1_000
        steps[n] = (begin, end)
        begin = end
    numbered = [replace(k, step=n // 5) for n, k in enumerate(kernels)]
    result = analyzed(ascend_pt(tmp_path, numbered, steps=steps, host=waits))
    assert {s.purpose for s in result.devices[0].syncs} == {"step_end"}
    found = answer(result, "sync_points")
    assert "after all work of a step" in str(found.title) and "on purpose" in steps_of(found)
    assert found.gain_ns_per_step is not None and found.gain_ns_per_step[0] == 0 < found.gain_ns_per_step[1]


# --- aclopCompileAndExecute ----------------------------------------------------------------------------------------


def looked_up(count: int = 100) -> list[H]:
    """Around each launch of starved() a call of 27 µs, of which 1 is opCompile and 2 are the launch: 24 its own."""
    calls = [H("AscendCL@aclopCompileAndExecute", i * 40_000 - 34_000, 27_000) for i in range(count)]
    return [*calls, *(H("AscendCL@opCompile", i * 40_000 - 33_000, 1_000) for i in range(count))]


def test_calls_that_look_operators_up_are_told_with_what_they_cost(tmp_path: Path) -> None:
    """Once "operator compilation: ok" and nothing else. Without aclnn calls all of their own 24 µs may go."""
    kernels = [replace(k, type="Conv2D", shapes=f"{i % 10},4") for i, k in enumerate(starved())]
    result = analyzed(ascend_pt(tmp_path, kernels, host=looked_up()))
    found = problem(result, "online_compile")
    assert found.gain_ns_per_step == (0, 99 * 24_000 // 2)
    told = found.evidence
    assert (told["calls"], told["host_ns"], told["aclnn_call_ns"]) == (100, 100 * 27_000, None)
    assert (told["compiled"], told["longest_compile_ns"]) == (0, 1_000)
    assert (told["shapes_known"], told["shapes_seen_before"]) == (100, 90)  # ten shapes, each ten times
    assert told["types"] == [{"type": "Conv2D", "count": 100, "host_ns": 2_700_000}]
    assert "set_compile_mode(jit_compile=False)" in steps_of(found)
    blamed = sum(b.ns for b in result.devices[0].blame if b.cause == "aclop")
    assert blamed == told["host_wait_ns"] > 0


@pytest.mark.parametrize(
    ("compiling", "shapes", "compiled", "unclear"),
    [(None, "", None, True), (None, "8,4", None, False), (0, "", 0, False), (1_000, "", 0, False)],
)
def test_shapes_are_asked_for_where_neither_they_nor_compiling_is_recorded(
    tmp_path: Path, compiling: int | None, shapes: str, compiled: int | None, *, unclear: bool
) -> None:
    host = [h if h.name.endswith("Execute") else replace(h, dur=compiling) for h in looked_up()
            if compiling is not None or h.name.endswith("Execute")]  # fmt: skip
    folder = ascend_pt(tmp_path, [replace(k, type="Conv2D", shapes=shapes) for k in starved()], host=host)
    found = answer(folder, "online_compile")
    told = [found.evidence[name] for name in ("compiled", "longest_compile_ns", "shapes_known")]
    assert told == [compiled, compiling, 100 if shapes else 0]
    assert ("tells whether their shapes recur" in steps_of(found)) == unclear


def test_calls_are_of_the_window_by_the_device_s_clock(tmp_path: Path) -> None:
    """It is 10 µs behind at least: a call that launches nothing, 5 µs after the last kernel's end, is in time."""
    late, end = 20_000, 99 * 40_000 + 6_000
    kernels = [replace(k, type="Conv2D", launch=(k.launch or 0) + late) for k in starved()]
    calls = [replace(h, start=h.start + late) for h in looked_up()]
    more = [H("AscendCL@aclopCompileAndExecute", end + after, 1_000, thread=12) for after in (5_000, 15_000)]
    found = answer(ascend_pt(tmp_path, kernels, host=[*calls, *more]), "online_compile")
    assert (found.evidence["calls"], found.evidence["host_ns"]) == (101, 100 * 27_000 + 1_000)


def test_beside_aclnn_calls_jit_compile_is_not_to_blame(tmp_path: Path) -> None:
    """Calls of aclnn take 4 µs, so 23 of 27 µs are too much, and torch_npu takes them only with jit_compile off."""
    kernels = [replace(k, type="Conv2D") for k in starved()]
    other = [H("AscendCL@aclnnAdd", i * 40_000 - 34_000, 3_000, thread=12) for i in range(50)]
    other += [H("AscendCL@aclnnAddGetWorkspaceSize", i * 40_000 - 30_000, 1_000, thread=12) for i in range(50)]
    found = answer(ascend_pt(tmp_path / "a", kernels, host=[*looked_up(), *other]), "online_compile")
    assert found.evidence["aclnn_call_ns"] == 4_000
    assert found.gain_ns_per_step == (0, pytest.approx(99 * 24_000 * 23 / 27 / 2, rel=1e-3))
    assert "allow_internal_format = False" in steps_of(found) and "seems to be off" in steps_of(found)
    assert "none of them compiles here, opCompile takes 1.00 us at most" in str(found.title)
    held = {str(p.what): p.holds for p in found.preconditions if not str(p.what).startswith("recorded: ")}
    expected = {
        "an NPU": True,
        "operators that run through aclnn beside them": True,
        "convolutions that may have internal formats": True,
        "private formats allowed by torch_npu's default": None,
    }
    assert expected.items() <= held.items()
    assert "allowed by torch_npu's default, which the profile does not tell" in steps_of(found)
    reduced = [replace(k, type="ReduceSum") for k in starved()]
    found = answer(ascend_pt(tmp_path / "b", reduced, host=[*looked_up(), *other]), "online_compile")
    assert "no aclnn interface" in steps_of(found)


def test_a_long_op_compile_is_a_compilation(tmp_path: Path) -> None:
    """One of the calls compiles for 2 ms."""
    long = [H("AscendCL@aclopCompileAndExecute", 4_000_000 - 34_000, 2_100_000),
            H("AscendCL@opCompile", 4_000_000 - 33_000, 2_000_000)]  # fmt: skip
    late = [replace(k, start=k.start + 6_200_000, launch=(k.launch or 0) + 6_200_000, step=13) for k in starved(20)]
    found = answer(ascend_pt(tmp_path, [*starved(), *late], host=[*looked_up(), *long]), "online_compile")
    assert (found.evidence["compiled"], found.evidence["longest_compile_ns"]) == (1, 2_000_000)
    assert "1 of them compile" in str(found.title) and "set_compile_mode(jit_compile=False)" in steps_of(found)


def away(*names: str) -> tuple[list[K], list[H]]:
    """Two steps of 50 kernels of 50 µs; between them the host is in these nested events for 10 ms, 8 of them waited."""
    first = [K(i * 50_000, 50_000, f"k{i}", launch=i * 10_000 - 10_000, launch_dur=2_000, step=11) for i in range(50)]
    begin = 10_500_000
    second = [K(begin + 8_000 + i * 50_000, 50_000, f"m{i}", launch=begin + i * 10_000 - 2_000, launch_dur=2_000,
                step=12) for i in range(50)]  # fmt: skip
    host = [H(name, 490_000 + n, 10_000_000 - 2 * n, python="@" not in name) for n, name in enumerate(names)]
    recorded = [H("aten::empty", -950_000, 100_000, python=True), H("AscendCL@aclrtMalloc", -900_000, 1_000)]
    return [*first, *second], [*recorded, *host]


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (["AscendCL@opCompile"], "set_compile_mode"),
        (["compile_inner (dynamo_timed)", "aten::mm"], "TORCH_LOGS=recompiles"),
        (["torch/_dynamo/convert_frame.py(580): _compile", "torch/fx/graph.py(9): lint"], "TORCH_LOGS=recompiles"),
    ],
)
def test_who_compiles_decides_the_advice(tmp_path: Path, names: list[str], advice: str) -> None:
    kernels, host = away(*names)
    found = answer(ascend_pt(tmp_path, kernels, host=host), "compilation")
    assert found.status == "problem" and advice in steps_of(found)
    assert found.evidence["host_wait_ns"] == 10_490_000 - 2_500_000


@pytest.mark.parametrize(
    "name",
    [
        "/tmp/torchinductor_root/xx/cabc.py(12): call",
        "jit_compile_test.py(5): step",
        "compile_and_run",
        "my_dataloader/model.py(3): forward",
        "garbage.py(3): forward",
        "Torch-Compiled Region: 0/0",
        "TorchDynamo Cache Lookup",
    ],
)
def test_names_that_sound_like_a_cause_are_none(tmp_path: Path, name: str) -> None:
    """Executing generated code was once "compiling operators 80 %", and a module my_dataloader was data loading."""
    kernels, host = away(name, "aten::mm")
    result = analyzed(ascend_pt(tmp_path, kernels, host=host))
    for rule in ("compilation", "data_loading", "garbage_collection"):
        assert answer(result, rule).status != "problem"
    longest = result.devices[0].blame[0]
    assert (longest.cause, longest.name, longest.ns) == ("torch_op", "aten::mm", 10_490_000 - 2_500_000 - 1)


def test_without_such_calls_or_with_a_busy_device_there_is_no_problem(tmp_path: Path) -> None:
    calls = [H("AscendCL@aclnnAdd", i * 40_000 - 36_000, 25_500) for i in range(100)]
    assert answer(ascend_pt(tmp_path / "a", starved(), host=calls), "online_compile").status == "ok"
    hidden = [H("AscendCL@aclopCompileAndExecute", i * 5_000 - 502_000, 4_500) for i in range(100)]
    assert answer(ascend_pt(tmp_path / "b", busy(), host=hidden), "online_compile").status == "ok"


@pytest.mark.parametrize(
    "folder",
    ["msinsight/text/level1/rank0_ascend_pt", "msinsight/text/level1/rank1_ascend_pt", "msprof-analyze/timeline"],
)
def test_real_calls_are_counted_and_none_of_them_compiled(folder: str) -> None:
    """Real ResNets: 19 and 11 calls, opCompile below 0.05 ms each; convolutions, and other operators through aclnn."""
    found_at = sorted((DATA / folder).rglob("trace_view.json")) if (DATA / folder).exists() else []
    if not found_at:
        pytest.skip("no shared data")
    rows = [e for e in json.loads(found_at[0].read_text()) if e.get("ph") == "X"]
    calls = [1000 * float(e["dur"]) for e in rows if e["name"] == "AscendCL@aclopCompileAndExecute"]
    found = answer(DATA / folder, "online_compile")
    assert found.status == "problem"
    assert (found.evidence["calls"], found.evidence["host_ns"]) == (len(calls), pytest.approx(sum(calls), rel=1e-4))
    compiles = [1000 * float(e["dur"]) for e in rows if e["name"] == "AscendCL@opCompile"]
    assert found.evidence["compiled"] == 0
    assert found.evidence["longest_compile_ns"] == pytest.approx(max(compiles), abs=500)
    queued = [e["name"] for e in rows if e["name"].startswith("Dequeue@Conv2D")]
    assert sum(t["count"] for t in found.evidence["types"] if t["type"].startswith("Conv2D")) == len(queued)
    # What prepares them is recorded of a fifth of them, of others than are usual: the calls are told by themselves.
    run = [float(e["dur"]) for e in rows if e["name"].startswith("AscendCL@aclnn") and "Workspace" not in e["name"]]
    prepare = [e for e in rows if e["name"].endswith("GetWorkspaceSize")]
    assert 0 < len(prepare) < 0.3 * len(run)
    assert found.evidence["aclnn_call_ns"] == pytest.approx(1000 * median(run), abs=1000)
    assert "allow_internal_format = False" in steps_of(found)


def test_an_aclnn_call_is_one_call_and_not_two_medians(tmp_path: Path) -> None:
    """Three operators take 101, 101 and 2 us, prepared and called: the medians of the halves are 1 us each."""
    halves = [("Add", 100_000, 1_000), ("Mul", 1_000, 100_000), ("Sub", 1_000, 1_000)]
    host = []
    for i, (name, prepare, call) in enumerate(halves):
        host.append(H(f"AscendCL@aclnn{name}GetWorkspaceSize", 400_000 * i, prepare, thread=12))
        host.append(H(f"AscendCL@aclnn{name}", 400_000 * i + 200_000, call, thread=13))
    timeline = open_recording(ascend_pt(tmp_path / "a", busy(), host=host)).profiles[0].host.events
    assert sorted(aclnn_calls(timeline, 0.9).tolist()) == [2_000, 101_000, 101_000]
    host.append(H("AscendCL@aclnnDiv", 1_300_000, 5_000, thread=13))  # what prepared it is not recorded
    timeline = open_recording(ascend_pt(tmp_path / "b", busy(), host=host)).profiles[0].host.events
    assert sorted(aclnn_calls(timeline, 0.9).tolist()) == [1_000, 1_000, 5_000, 100_000]


def test_without_calls_of_the_runtime_there_is_no_ok() -> None:
    """A real Level0 text export: the device waits for the host for more than a tenth, and no AscendCL call is there."""
    folder = DATA / "msinsight" / "text" / "level0" / "rank0_ascend_pt"
    if not folder.exists():
        pytest.skip("no shared data")
    assert "AscendCL@" not in (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text()
    result = analyzed(folder)
    for rule in ("blocking_copies", "online_compile"):
        found = answer(result, rule)
        assert (found.status, "calls of the runtime" in str(found.needs)) == ("cannot_tell", True)
