"""Gains: of a step and never more, sure at their lower end, and only lines that mean something."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from build import H, K, analyze_path, ascend_pt
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace
from test_replay import hosts, kernels

from npuperf.advise import load_thresholds
from npuperf.device import whatif
from npuperf.device.host_events import CAUSES
from npuperf.device.maxplus import Times
from npuperf.device.replay import Replay
from npuperf.device.study import Study
from npuperf.device.whatif import Scene, predict
from npuperf.model.result import Result
from npuperf.readers.recording import open_recording
from npuperf.show.words import verdict_of

US = 1_000
LIMITS = load_thresholds()
CHANGES = ("host*0", "host*0,latency*0", "compute*0", "comm*0", "host*0,latency*0,compute*0,comm*0,copies*0", "sync*0",
           "launches*0", "overlap", "op:**0", "host:torch_op*0", "host*3")  # fmt: skip


def within_the_step(result: Result) -> None:
    """Every gain of every device, in ns per step and in percent."""
    by_device = {(d.rank, d.device): d for d in result.devices}
    for answer in (*result.findings, *result.what_if):
        gain, percent = answer.gain_ns_per_step, getattr(answer, "gain_pct_interval", None) or answer.gain_pct
        if gain is None or (answer.rank, answer.device) not in by_device:
            continue
        device = by_device[answer.rank, answer.device]
        step = device.window.span_ns // max(device.step_count, 1)
        if not step:
            assert gain == (0, 0), answer
            continue
        assert gain[0] <= gain[1] <= step, answer
        assert isinstance(percent, tuple) and percent[0] <= percent[1] <= 100, answer
        if getattr(answer, "expr", "") != "host*3":
            assert gain[0] >= 0 and percent[0] >= 0, answer


@settings(max_examples=30)
@given(st.lists(kernels(), min_size=1, max_size=40), st.lists(hosts, max_size=30))
def test_no_gain_exceeds_the_step(made: list[K], host: list[H]) -> None:
    with TemporaryDirectory() as folder:
        within_the_step(analyze_path(ascend_pt(Path(folder), made, host=host), what_if=CHANGES))


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(5, 90), st.integers(1, 60), st.booleans()), min_size=4, max_size=60),
    st.integers(1, 4),
    st.integers(0, 600),
)
def test_nor_where_much_lies_outside(drawn: list[tuple[int, int, bool]], per: int, outside: int) -> None:
    """Steps of random kernels that the replay reproduces, with copies of any length before and after them."""
    made, at = [], 0
    for i, (gap, dur, comm) in enumerate(drawn):
        at += gap * US
        kernel = K(at, dur * US, f"k{i}", step=11 + i // (len(drawn) // per or 1), launch=at - 9 * US, launch_dur=US)
        name = f"hcom_allReduce__{i}_1"
        made.append(replace(kernel, name=name, core="COMMUNICATION", stream="N/A") if comm else kernel)
        at += dur * US
    if outside:
        copy = K(-2 * outside * US, outside * US, "MEMCPY_ASYNC", core="PCIE_DMA_SQE", launch=-3 * outside * US)
        made = [copy, *made, replace(copy, start=at + outside * US, launch=at)]
    with TemporaryDirectory() as folder:
        within_the_step(analyze_path(ascend_pt(Path(folder), made), what_if=CHANGES))


def studied(folder: Path, made: list[K], host: Sequence[H] = ()) -> tuple[Study, Replay]:
    (reading,) = open_recording(ascend_pt(folder, made, host=host)).map(lambda reading: reading)
    study = Study.of(reading.profiles[0], LIMITS)
    assert study.replay is not None
    return study, study.replay


def every_50_us(count: int) -> list[K]:
    """Kernels of 10 µs, ten per step."""
    return [K(i * 50 * US, 10 * US, f"k{i}", step=11 + i // 10, launch=i * 50 * US - 9 * US, launch_dur=US)
            for i in range(count)]  # fmt: skip


def test_the_lower_end_is_less_what_the_replay_misses(tmp_path: Path) -> None:
    """A replay made wrong by hand: it takes every task of the second step 3 µs late, so it misses that step by 3 µs.

    20 kernels of 10 µs every 50 µs in two steps; ``op:Add*0.5`` saves half of the last kernel alone: the host sets the
    pace of all others.
    """
    study, replay = studied(tmp_path, every_50_us(20))
    exact = Scene.of(study, replay, study.judged)
    assert replay.error == 0
    assert exact.error == 0 and (predict(exact, "op:Add*0.5").least, predict(exact, "op:Add*0.5").most) == (
        5_000,
        5_000,
    )
    late = np.where(np.arange(20) >= 11, 3 * US, 0)
    base = Times(replay.base.start + late, replay.base.end + late)
    wrong = structs.replace(replay, base=base)
    held = wrong.held_against(study.profile.tasks, study.steps)
    assert held.error == pytest.approx(3 * US / study.steps.total())
    scene = Scene.of(study, held, study.judged)
    assert scene.error == 3 * US
    found = predict(scene, "op:Add*0.5")
    assert found.least == found.before - found.after - 3 * US


def test_errors_of_steps_do_not_cancel(tmp_path: Path) -> None:
    """One step 4 µs too long, the next one 4 µs too short: the run as a whole is exact, the replay is not."""
    study, replay = studied(tmp_path, every_50_us(30))
    late = np.where(np.arange(30) == 10, 4 * US, 0)
    wrong = structs.replace(replay, base=Times(replay.base.start + late, replay.base.end + late))
    span = study.judged
    assert wrong.held_against(study.profile.tasks, study.steps).error == pytest.approx(8 * US / (span[1] - span[0]))
    assert Scene.of(study, wrong, span).error == 8 * US


# --- lines that mean something ---------------------------------------------------------------------------------------


def lines(path: Path) -> list[str]:
    return [w.expr for w in analyze_path(path).what_if if not w.asked]


def paced_by_host(comm: int = 0) -> list[K]:
    """Kernels of 5 µs, one every 40 µs as the host launches them; after each, communication of so many ns."""
    made, at = [], 0
    for i in range(60):
        made.append(K(at, 5 * US, f"k{i}", step=11, launch=at - 9 * US, launch_dur=US))
        if comm:
            collective = K(at + 5 * US, comm, f"hcom_allReduce__{i}_1", "hcom_allReduce_", "COMMUNICATION", step=11)
            made.append(replace(collective, stream="N/A", block=0, launch=at - 5 * US, launch_dur=US))
        at += 40 * US + comm
    return made


def test_fused_pairs_where_the_device_waits_for_launches(tmp_path: Path) -> None:
    assert "launches*0.5" in lines(ascend_pt(tmp_path / "host", paced_by_host()))
    busy = [K(i * 50 * US, 50 * US, f"k{i}", step=11, launch=i * US - 500 * US, launch_dur=500) for i in range(60)]
    assert "launches*0.5" not in lines(ascend_pt(tmp_path / "device", busy))


def test_communication_twice_as_fast_is_one_line(tmp_path: Path) -> None:
    """All communication is of one type, and the longest: its own line would say what ``comm*0.5`` says."""
    found = lines(ascend_pt(tmp_path, paced_by_host(comm=300 * US)))
    assert "comm*0.5" in found and not [expr for expr in found if expr.startswith("op:hcom")]
    others = lines(ascend_pt(tmp_path / "compute", paced_by_host(comm=US)))
    assert "op:Add*0.5" in others


# --- verdict and findings --------------------------------------------------------------------------------------------


def test_a_lever_of_another_kind_is_named(tmp_path: Path) -> None:
    """Compute sets the pace for 6 ms, the host for 4: a tenth less of the first saves more than of the second.

    But all waiting together, 3.5 ms, is more than any finding about compute could spare.
    """
    ahead = [K(i * 100 * US, 100 * US, f"a{i}", step=11, launch=i * US - 2_000 * US, launch_dur=500) for i in range(60)]
    begin = 6_000 * US
    waits = [
        K(begin + 70 * US + i * 80 * US, 10 * US, f"w{i}", step=11, launch=begin + 60 * US + i * 80 * US, launch_dur=US)
        for i in range(50)
    ]
    drained = H("AscendCL@aclrtSynchronizeDevice", -1_900 * US, 7_910 * US)
    result = analyze_path(ascend_pt(tmp_path, [*ahead, *waits], host=[drained]))
    assert result.verdict.bound == "compute"
    problems = [f for f in result.findings if f.status == "problem" and f.gain_pct]
    best = max(problems, key=lambda f: f.gain_pct[1] if f.gain_pct else 0)
    assert best.relieves == "host"
    said = str(verdict_of(result))
    assert f"largest lever: {best.title!s}" in said
    assert "waiting for the others" not in said  # there is no communication in which it could wait


def test_no_change_is_tried_of_kernels_that_have_no_name(tmp_path: Path) -> None:
    """Most time is theirs, and they have no name that a change could be about."""
    made = [K(i * 20_000, 9_000, "N/A", "N/A", launch=i * 20_000 - 9_000, launch_dur=1_000) for i in range(8)]
    made += [K(i * 20_000, 3_000, f"k{i}", "Add", launch=i * 20_000 - 9_000, launch_dur=1_000) for i in range(8, 12)]
    result = analyze_path(ascend_pt(tmp_path, made, {11: (-20_000, 240_000)}))
    assert {(o.type, o.total_ns) for o in result.operators} == {("N/A", 72_000), ("Add", 12_000)}
    assert [w.expr for w in result.what_if if w.expr.startswith("op:")] == ["op:Add*0.5"]


# -- A wait of the host may be what orders two streams: that nothing else does is not recorded, so no gain is sure.


def gain(folder: Path, second_stream: int) -> tuple[int, int]:
    """1 ms on stream 5, a wait of the host for it, then 0.5 ms on a stream, and 40 kernels more before and after."""
    before = [K(i * 100_000, 100_000, "b", stream=5, launch=i * 10_000 - 410_000, launch_dur=2_000) for i in range(20)]
    first = K(2_000_000, 1_000_000, "a", stream=5, launch=-200_000, launch_dur=2_000)
    wait = H("AscendCL@aclrtSynchronizeStream", -190_000, 3_196_000)  # until 3.006 ms
    second = K(3_030_000, 500_000, "c", stream=second_stream, launch=3_018_000, launch_dur=2_000)
    path = ascend_pt(folder, [*before, first, second], host=[wait, H("aten::mm", -420_000, 5_000, python=True)])
    (found,) = (w for w in analyze_path(path, what_if=("sync*0",)).what_if if w.asked)
    assert found.gain_ns_per_step is not None
    return found.gain_ns_per_step


def test_what_another_stream_may_need_is_no_sure_gain(tmp_path: Path) -> None:
    """Beside each other they save all 530 µs of the second; one after the other only the 30 µs between them."""
    least, most = gain(tmp_path, second_stream=2)
    assert 0 <= least <= 30_000
    assert most == pytest.approx(530_000, abs=5_000)


def test_one_stream_keeps_its_order_anyway(tmp_path: Path) -> None:
    least, most = gain(tmp_path, second_stream=5)
    assert 25_000 <= least <= most <= 30_000


# -- Host time by cause: each nanosecond of it counts once, whatever part of the run is looked at together.


def staged(folder: Path) -> Scene:
    """20 kernels, launched every 50 µs for 1 µs; before each launch but the first 20 µs of aten::mm, and once a GC."""
    made = [K(i * 50 * US, 10 * US, f"k{i}", launch=i * 50 * US - 9 * US, launch_dur=US) for i in range(20)]
    host = [H("aten::mm", i * 50 * US - 39 * US, 20 * US, python=True) for i in range(1, 20)]
    gc = H("GC", 5 * 50 * US - 54 * US, 10 * US, python=True)
    study, replay = studied(folder, made, [*host, gc])
    return Scene.of(study, replay, study.judged)


@pytest.mark.parametrize("at_a_time", [1, 3, 20, None])
def test_time_on_a_cause_lies_where_it_was_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int | None
) -> None:
    """However many instructions are split at a time."""
    if at_a_time:
        monkeypatch.setattr(whatif, "_CHUNK", at_a_time)
    scene = staged(tmp_path)
    assert scene.host_times.on("torch_op").tolist() == [0, *[20 * US] * 19]
    assert scene.host_times.on("gc").tolist() == [10 * US if i == 5 else 0 for i in range(20)]
    assert not scene.host_times.on("data_loading").any()


def test_causes_add_up_to_all_host_time(tmp_path: Path) -> None:
    scene = staged(tmp_path)
    total = sum(scene.host_times.on(cause) for cause in CAUSES)
    assert np.array_equal(total, scene.replay.until - scene.replay.since)
