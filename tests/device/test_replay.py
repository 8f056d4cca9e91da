"""The replay: the grammar of what-ifs, gains by hand, and when it abstains."""

from __future__ import annotations

import json
from itertools import combinations_with_replacement
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from build import H, K, analyze_path, ascend_pt
from conftest import run_cli
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.base.errors import UsageError
from npuperf.device.study import Study
from npuperf.device.whatif import Change, parse
from npuperf.readers.recording import open_recording

# --- grammar -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("host*0.5", [Change("host", None, 0.5)]),
        (" host*0 , compute*.9 ", [Change("host", None, 0.0), Change("compute", None, 0.9)]),
        ("host:tiling*0", [Change("host", "tiling", 0.0)]),
        ("op:MatMul*0.5", [Change("op", "MatMul", 0.5)]),
        ("op:Mat**0.5", [Change("op", "Mat*", 0.5)]),
        ("launches*0.25,latency*1.5", [Change("launches", None, 0.25), Change("latency", None, 1.5)]),
        ("launches:Add*0.5", [Change("launches", "Add", 0.5)]),
        ("sync:train.py:57*0", [Change("sync", "train.py:57", 0.0)]),
        ("overlap", [Change("overlap", None, 0.0)]),
    ],
)
def test_expressions(text: str, changes: list[Change]) -> None:
    assert parse(text) == changes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot read ''"),
        ("host", "cannot read 'host'"),
        ("host*", "cannot read"),
        ("host*-1", "cannot read"),
        ("host*fast", "cannot read"),
        ("gpu*0.5", "cannot read 'gpu"),
        ("compute:Add*0.5", "takes no name"),
        ("op*0.5", "needs an operator type"),
        ("sync*0.5", "only be removed"),
        ("host:magic*0", "no cause 'magic'"),
        ("host*0.5,,compute*1", "cannot read ''"),
    ],
)
def test_bad_expressions_teach(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("*", r"\*")) as caught:
        parse(text)
    assert caught.value.hint


# --- by hand -------------------------------------------------------------------------------------------------------


def paced(count: int = 50) -> list[K]:
    """A launch every 40 µs (2 µs long), 8 µs of latency, 6 µs of work."""
    return [K(i * 40_000, 6_000, f"aclnnAdd_Add_{i}", launch=i * 40_000 - 10_000, launch_dur=2_000, step=11)
            for i in range(count)]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "saved"),
    [
        ("host*0.5", 49 * 20_000),
        ("host*1.0", 0),
        ("compute*0.5", 3_000),  # only the last kernel's end is seen
        ("latency*0", 0),  # all kernels move alike
        ("host*0.5,compute*0.5", 49 * 20_000 + 3_000),
        ("op:Add*0", 6_000),
        ("host*2", -49 * 40_000),
    ],
)
def test_gains_by_hand(tmp_path: Path, expression: str, saved: int) -> None:
    result = analyze_path(ascend_pt(tmp_path, paced()), what_if=(expression,))
    found = next(w for w in result.what_if if w.asked)
    span = 49 * 40_000 + 6_000
    assert found.span_ns == span - saved
    assert found.gain_pct == pytest.approx(100 * saved / span)
    assert found.gain_ns_per_step == (saved, saved)


@pytest.mark.parametrize("long", [(1 << 31) - 2, 1 << 31, (1 << 32) - 50_000, 1 << 32])
def test_a_pause_and_a_kernel_of_seconds_are_replayed_as_any_others(tmp_path: Path, long: int) -> None:
    """Numbers of 32 bits, with a sign or without, end there; what is saved is known by hand."""
    first, rest = paced(10), paced(10)
    late = 10 * 40_000 + long
    rest[-1] = replace(rest[-1], dur=long)
    moved = [replace(k, start=k.start + late, launch=(k.launch or 0) + late, name=f"{k.name}0") for k in rest]
    result = analyze_path(ascend_pt(tmp_path, first + moved), what_if=("host*0.5", "compute*0.5"))
    found = {w.expr: w for w in result.what_if if w.asked}
    check = result.devices[0].replay
    assert check is not None and check.error == 0
    assert found["compute*0.5"].span_ns == late + 9 * 40_000 + round(long / 2)
    assert found["host*0.5"].span_ns == (late + 9 * 40_000) // 2 + long


def test_the_length_of_a_window_needs_its_borders_only(tmp_path: Path) -> None:
    """The same as from the times of all tasks, also where a kernel waits for another stream."""
    made = [replace(k, stream=5 if i % 7 == 3 else 2, dur=6_000 + 11_000 * (i % 5)) for i, k in enumerate(paced(20))]
    (reading,) = open_recording(ascend_pt(tmp_path, made)).map(lambda reading: reading)
    replay = Study.of(reading.profiles[0], load_thresholds()).replay
    assert replay is not None
    changed = replay.program.with_columns(host_ns=replay.program.host_ns // 3, dur_ns=replay.program.dur_ns * 2)
    times = replay.times(changed)
    for first, last in combinations_with_replacement(range(21), 2):
        whole = int(times.end.max() if last == 20 else times.start[last])
        expected = whole - int(times.start[first]) if last > first else 0
        assert replay.length(changed, first, last) == expected


def test_nothing_matches_is_said(tmp_path: Path) -> None:
    result = analyze_path(ascend_pt(tmp_path, paced()), what_if=("host:gc*0.5", "sync*0"))
    for found in (w for w in result.what_if if w.asked):
        assert (found.span_ns, found.gain_pct, str(found.reason)) == (
            None,
            None,
            f"nothing in this profile matches {found.expr}",
        )


def test_without_launches_the_model_abstains(tmp_path: Path) -> None:
    kernels = [K(i * 40_000, 6_000, step=11) for i in range(50)]
    result = analyze_path(ascend_pt(tmp_path, kernels), what_if=("host*0.5",))
    (found,) = result.what_if
    assert found.span_ns is None and "launches are not recorded" in str(found.reason)
    assert result.devices[0].replay is None and result.devices[0].verdict.elasticity is None


def test_without_kernels_the_question_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "step_trace_time.csv").write_text(
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\n"
        "0,11,100,10,0,10,50,160,0\n"
    )
    (found,) = analyze_path(tmp_path / "step_trace_time.csv", what_if=("host*0.5",)).what_if
    assert found.span_ns is None and "no kernel" in str(found.reason)


def test_half_the_launches_are_too_few(tmp_path: Path) -> None:
    kernels = [K(i * 40_000, 6_000, step=11, launch=i * 40_000 - 10_000 if i % 2 else None) for i in range(50)]
    result = analyze_path(ascend_pt(tmp_path, kernels), what_if=("host*0.5",))
    check = result.devices[0].replay
    assert check is not None and not check.usable and check.launched == 0.5
    assert "50.0 %" in str(result.what_if[0].reason)


def test_unexplained_waits_widen_the_interval(tmp_path: Path) -> None:
    """Kernel 30 starts 200 µs after it could have, for no reason in the data: the wait is kept, or it is not."""

    def late(i: int) -> int:
        return 200_000 if i > 30 else 0

    kernels = [K(k.start + late(i + 1), k.dur, k.name, launch=(k.launch or 0) + late(i), launch_dur=2_000, step=11)
               for i, k in enumerate(paced())]  # fmt: skip
    result = analyze_path(ascend_pt(tmp_path, kernels), what_if=("host*0",))
    check = result.devices[0].replay
    assert check is not None and check.usable and check.unexplained_ns == 200_000
    low, high = result.what_if[0].gain_ns_per_step or (0, 0)
    assert low < high


def at_rest(pause: int) -> list[K]:
    """Ten kernels outside of all steps, launched in time; the last starts ``pause`` ns late for no reason recorded."""
    before = [K(k.start, k.dur, k.name, launch=k.launch, launch_dur=2_000) for k in paced(10)]
    return [*before[:-1], K(before[-1].start + pause, 6_000, "late", launch=before[-1].launch, launch_dur=2_000)]


def test_idle_outside_of_the_judged_steps_is_no_share_of_their_window(tmp_path: Path) -> None:
    """50 ms without a cause before two steps of 1.966 ms are most of the recording, and nothing of what is judged."""
    at = 60_000_000
    steps = [K(at + k.start, k.dur, k.name, launch=at + (k.launch or 0), launch_dur=2_000, step=11 + i // 25)
             for i, k in enumerate(paced())]  # fmt: skip
    result = analyze_path(ascend_pt(tmp_path, [*at_rest(50_000_000), *steps]), what_if=("compute*0.5",))
    check = result.devices[0].replay
    assert check is not None and (check.usable, check.unexplained_ns, check.reason) == (True, 0, None)
    assert result.what_if[0].span_ns is not None


def test_idle_of_the_judged_steps_is_not_thinned_out_by_what_lies_around_them(tmp_path: Path) -> None:
    """Of a step of 1.206 ms, 0.8 ms have no cause: 66.3 %, however long the recording goes on before it."""
    at = 60_000_000
    late = [K(at + k.start + (800_000 if i > 4 else 0), k.dur, k.name, launch_dur=2_000, step=11,
              launch=at + (k.launch or 0) + (800_000 if i > 5 else 0)) for i, k in enumerate(paced(11))]  # fmt: skip
    busy = K(0, at - 1_000_000, "busy", launch=-10_000, launch_dur=2_000)
    result = analyze_path(ascend_pt(tmp_path, [busy, *late]), what_if=("compute*0.5",))
    check = result.devices[0].replay
    assert check is not None and (check.usable, check.unexplained_ns) == (False, 800_000)
    assert str(check.reason) == "66.3 % of the window is idle for reasons that the data does not show"


def test_one_step_can_be_asked(tmp_path: Path) -> None:
    kernels = [K(k.start, k.dur, k.name, launch=k.launch, launch_dur=2_000, step=11 + i // 25) for i, k in
               enumerate(paced())]  # fmt: skip
    result = analyze_path(ascend_pt(tmp_path, kernels), what_if=("host*0.5",), step=12)
    assert result.devices[0].partition.span_ns == 24 * 40_000 + 6_000
    assert result.what_if[0].gain_ns_per_step == (24 * 20_000, 24 * 20_000)


def test_the_same_answer_from_the_command_line(tmp_path: Path) -> None:
    command = ["analyze", str(ascend_pt(tmp_path, paced())), "--what-if", "host*0.5", "--what-if", "op:Add*0"]
    asked = [w for w in json.loads(run_cli([*command, "--format", "json"]).stdout)["what_if"] if w["asked"]]
    assert [w["expr"] for w in asked] == ["host*0.5", "op:Add*0"]
    text = run_cli(command).stdout
    assert "host*0.5" in text and "what if (replayed" in text
    bad = run_cli([*command, "--what-if", "host"])
    assert bad.returncode == 2 and "TARGET*FACTOR" in bad.stderr and "Traceback" not in bad.stderr


# --- syncs ---------------------------------------------------------------------------------------------------------


def test_reading_a_cpu_tensor_is_no_sync(tmp_path: Path) -> None:
    host = [
        H("aten::_local_scalar_dense", 1_000_000, 2_000, python=True),
        H("AscendCL@aclrtSynchronizeStream", 5_000, 99),
    ]
    (device,) = analyze_path(ascend_pt(tmp_path, paced(), host=host)).devices
    assert [s.name for s in device.syncs] == ["AscendCL@aclrtSynchronizeStream"]


def test_without_runtime_calls_reading_a_value_counts(tmp_path: Path) -> None:
    """Level0 has no CANN events. A value that is there within 2 µs lay on the CPU: no copy comes back so soon."""
    host = [
        H("aten::item", 1_000_000, 30_000, python=True),
        H("aten::_local_scalar_dense", 1_000_500, 20_000, python=True),
        H("aten::item", 2_000_000, 3_000, python=True),
        H("aten::_local_scalar_dense", 2_000_500, 2_000, python=True),
    ]
    (device,) = analyze_path(ascend_pt(tmp_path, paced(), host=host)).devices
    assert [(s.name, s.torch_op, s.count) for s in device.syncs] == [("aten::_local_scalar_dense", "aten::item", 1)]


# --- anything at all -----------------------------------------------------------------------------------------------

NAMES = ("aten::add", "AscendCL@aclrtSynchronizeStream", "AscendCL@aclnnAdd", "Optimizer.step#SGD.step", "my range",
         "AddBackward0", "train.py(3): f", "nn.Module: Net_0", "GC", "Dequeue@aclnnAdd")  # fmt: skip


@st.composite
def kernels(draw: st.DrawFn) -> K:
    start = draw(st.integers(0, 3_000_000))
    core = draw(st.sampled_from(["AI_CORE", "AI_VECTOR_CORE", "COMMUNICATION", "EVENT_WAIT", "PCIE_DMA_SQE"]))
    launch = draw(st.one_of(st.none(), st.integers(-2_000_000, 3_000_000)))
    comm = core == "COMMUNICATION"
    return K(
        start,
        draw(st.integers(0, 400_000)),
        f"hcom_allReduce__{start}_1" if comm else f"k{start}",
        draw(st.sampled_from(["Add", "MatMul"])),
        core,
        stream="N/A" if comm else draw(st.sampled_from([2, 5, 6])),
        step=draw(st.sampled_from([11, 12, ""])),
        launch=launch,
        launch_dur=draw(st.integers(0, 20_000)),
    )


hosts = st.builds(
    H,
    st.sampled_from(NAMES),
    st.integers(-2_000_000, 3_000_000),
    st.integers(0, 1_000_000),
    st.booleans(),
    st.sampled_from([11, 10, 12]),
)


@settings(max_examples=30)
@given(st.lists(kernels(), min_size=1, max_size=40), st.lists(hosts, max_size=30))
def test_whatever_the_data_it_adds_up(made: list[K], host: list[H]) -> None:
    expressions = ("host*0.5", "sync*0", "overlap", "launches*0.5,op:**0", "host:torch_op*0")
    with TemporaryDirectory() as folder:
        result = analyze_path(ascend_pt(Path(folder), made, host=host), what_if=expressions)
    for device in result.devices:
        if not device.clock.tasks or not device.window.span_ns:
            continue
        begin = device.judged.start_ns if device.judged else 0
        assert sum(b.ns for b in device.blame) == device.window.host_wait_ns
        assert device.phases[0].start_ns == begin and device.phases[-1].end_ns == begin + device.window.span_ns
        for phase in device.phases:
            assert sum(b.ns for b in phase.blame) == phase.partition.host_wait_ns
        assert sum(p.partition.span_ns for p in device.phases) == device.window.span_ns
        if device.replay and device.replay.usable:
            assert device.replay.error <= 0.05
    for w in result.what_if:
        assert (w.span_ns is None) == (w.reason is not None)
        if w.gain_ns_per_step:
            assert w.gain_ns_per_step[0] <= w.gain_ns_per_step[1]
