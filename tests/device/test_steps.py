"""Steps: whole ones and cut ones, numbers that repeat, and the cells of which phases are made."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from build import K, analyze_path, ascend_pt, kernel_details
from conftest import run_cli

from npuperf.advise import load_thresholds
from npuperf.device.partition import Launches, lay_out, span_of
from npuperf.device.steps import _cells, _cheapest
from npuperf.model.result import Device
from npuperf.model.tasks import NO_TIME, Tasks, Work

US = 1_000
WORK, WAIT = 20 * US, 30 * US  # a kernel, and how long the device then waits for the host
CALL, LATENCY = 2 * US, 8 * US


def run_of(counts: list[int], first: int = 11) -> list[K]:
    """Steps of so many kernels each: one every 50 µs, launched while the device is idle."""
    made: list[K] = []
    for step, count in enumerate(counts, first):
        for _ in range(count):
            at = len(made) * (WORK + WAIT)
            made.append(K(at, WORK, f"k{len(made)}", step=step, launch=at - LATENCY - CALL, launch_dur=CALL))
    return made


def copies(start: int, count: int) -> list[K]:
    """Copies of 40 µs each: work of the device, but of no step."""
    return [
        K(start + i * 50 * US, 40 * US, "MEMCPY_ASYNC", core="PCIE_DMA_SQE", launch=start + i * 50 * US - 500 * US,
          launch_dur=CALL)
        for i in range(count)
    ]  # fmt: skip


def device(folder: Path, kernels: list[K], **asked: object) -> Device:
    (found,) = analyze_path(ascend_pt(folder, kernels), **asked).devices
    return found


def test_without_anything_outside_the_steps_are_the_span(tmp_path: Path) -> None:
    found = device(tmp_path, run_of([10, 10]))
    assert found.judged is not None and found.judged.steps == 2
    assert found.judged.partition == found.partition == found.window
    assert (found.judged.before_ns, found.judged.after_ns, found.judged.start_ns) == (0, 0, 0)


def test_without_steps_the_span_is_judged(tmp_path: Path) -> None:
    bare = [K(k.start, k.dur, k.name, launch=k.launch, launch_dur=k.launch_dur) for k in run_of([10])]
    found = device(tmp_path, bare)
    assert found.judged is None and found.window == found.partition


def test_what_lies_outside_is_said_and_not_judged(tmp_path: Path) -> None:
    """20 kernels every 50 µs: two steps of 500 and 470 µs. Copies begin 900 µs before, and end 520 µs after them."""
    begin, end = -900 * US, 20 * 50 * US - WAIT
    work = [*copies(begin, 10), *run_of([10, 10]), *copies(end + 80 * US, 9)]
    found = device(tmp_path, work)
    judged = found.judged
    assert judged is not None
    assert (judged.steps, judged.start_ns, judged.before_ns, judged.after_ns) == (2, 900 * US, 900 * US, 520 * US)
    assert judged.partition.span_ns == 970 * US == sum(s.partition.span_ns for s in found.steps)
    assert found.partition.span_ns == (900 + 970 + 520) * US
    p = judged.partition
    assert (p.compute_ns, p.other_exposed_ns, p.idle_ns) == (20 * WORK, 0, 19 * WAIT)
    assert found.partition.other_exposed_ns == 19 * 40 * US
    assert found.phases[0].start_ns == 900 * US and found.phases[-1].end_ns == 1_870 * US
    shown = run_cli(["analyze", str(tmp_path)]).stdout
    assert "2 steps" in shown and "not counted: " in shown
    assert "copies" not in shown.split("where the time goes")[1].split("operators")[0]


def test_gains_are_of_the_step(tmp_path: Path) -> None:
    """All 19 waits are the host's: without them the window is 20 kernels long, whatever lies outside of it."""
    work = [*copies(-900 * US, 10), *run_of([10, 10])]
    result = analyze_path(ascend_pt(tmp_path, work), what_if=("host*0,latency*0", "compute*0"))
    no_host, no_compute = (w for w in result.what_if if w.asked)
    assert no_host.gain_ns_per_step is not None and no_compute.gain_ns_per_step is not None
    span = 970 * US
    # What is left is the kernels and assumed gaps between them; the gain is spread over two steps.
    assert 0.9 * 19 * WAIT / 2 <= no_host.gain_ns_per_step[1] <= 19 * WAIT / 2
    assert no_compute.gain_ns_per_step[1] <= 20 * WORK / 2
    assert no_host.gain_pct == pytest.approx(100 * (span - (no_host.span_ns or 0)) / span)


@pytest.mark.parametrize(
    ("counts", "whole"),
    [
        ([20, 20, 20, 5], [True, True, True, False]),
        ([4, 20, 20, 20], [False, True, True, True]),
        ([4, 20, 21, 20, 5], [False, True, True, True, False]),
        ([18, 20, 20, 17], [True, True, True, True]),  # less, but not by a fifth
        ([5, 20, 5], [True, True, True]),  # one step between tells nothing
        ([5, 20, 40, 5], [True, True, True, True]),  # nor do steps that are not alike
        ([5, 20], [True, True]),
        ([20, 5, 20, 20], [True, True, True, True]),  # a recording cuts at its borders only
    ],
)
def test_steps_that_the_recording_cut_are_not_whole(tmp_path: Path, counts: list[int], whole: list[bool]) -> None:
    found = device(tmp_path, run_of(counts))
    assert [s.whole for s in found.steps] == whole
    assert found.judged is not None and found.judged.steps == sum(whole)
    inside = [s.partition.span_ns for s in found.steps if s.whole]
    assert found.judged.partition.span_ns == sum(inside)


def test_a_cut_step_is_left_out_of_headline_and_step_time(tmp_path: Path) -> None:
    """Steps of 1000 µs; the last one, of 3 kernels, takes 120 µs."""
    path = ascend_pt(tmp_path, run_of([20, 20, 20, 20, 3]))
    shown = run_cli(["analyze", str(path)]).stdout
    assert "4 steps" in shown and "1 step cut by the recording is left out" in shown
    assert run_cli(["analyze", str(path), "--fail-on", "step_time<1000us"]).returncode == 0
    assert run_cli(["analyze", str(path), "--fail-on", "step_time>999us"]).returncode == 1


def test_a_step_that_was_asked_for_is_judged_alone(tmp_path: Path) -> None:
    found = device(tmp_path, [*copies(-900 * US, 10), *run_of([20, 20, 20, 5])], step=14)
    assert found.judged is not None and found.judged.steps == 1
    assert found.window == found.partition == found.steps[0].partition
    assert found.partition.span_ns == 5 * 50 * US - WAIT


def test_blame_adds_up_over_years(tmp_path: Path) -> None:
    """Half of the kernels run 200 days after the others, which floats cannot count to the nanosecond."""
    later = 200 * 86_400 * 10**9 + 1
    starts = [i * 20_000 + half for half in (0, later) for i in range(4)]
    made = [K(s, 5_001, f"k{i}", launch=s - 9_001, launch_dur=1_001) for i, s in enumerate(starts)]
    (device,) = analyze_path(ascend_pt(tmp_path, made)).devices
    assert device.partition.span_ns == later + 3 * 20_000 + 5_001
    assert device.partition.host_wait_ns > later // 2
    assert sum(b.ns for b in device.blame) == device.partition.host_wait_ns


# -- A program that counts its steps from 0 twice: a number is then no step, and its median no step's length.


def counted(numbers: list[int]) -> list[K]:
    """A step of ten kernels of 50 µs, 1 ms in all, per number."""
    return [K(n * 1_000_000 + i * 100_000, 50_000, step=number, launch=n * 1_000_000 + i * 100_000 - 20_000,
              launch_dur=2_000) for n, number in enumerate(numbers) for i in range(10)]  # fmt: skip


@pytest.mark.parametrize("table_alone", [True, False])
def test_steps_that_cannot_be_told_apart_are_none(tmp_path: Path, table_alone: bool) -> None:
    kernels = counted([0, 1, 2, 0, 1, 2])
    path = kernel_details(tmp_path / "kernel_details.csv", kernels) if table_alone else ascend_pt(tmp_path, kernels)
    result = analyze_path(path)
    assert result.devices[0].steps == []
    assert any("numbers of steps occur again" in str(warning) for warning in result.input.warnings)
    assert all(f.gain_per == "window" for f in result.findings)


def test_steps_in_order_are_steps(tmp_path: Path) -> None:
    result = analyze_path(ascend_pt(tmp_path, counted([5, 6, 7, 8])))
    assert [s.step for s in result.devices[0].steps] == [5, 6, 7, 8]
    assert result.input.warnings == []


def test_steps_may_overlap(tmp_path: Path) -> None:
    """A last step of two kernels begins before the last kernel of the step before it begins, on another stream."""
    late = [K(1_850_000 + i * 10_000, 5_000, step=7, stream=5, launch=1_800_000, launch_dur=2_000) for i in range(2)]
    result = analyze_path(ascend_pt(tmp_path, [*counted([5, 6]), *late]))
    assert [s.step for s in result.devices[0].steps] == [5, 6, 7]


# -- The cells of which phases are made, against asking for every nanosecond who speaks for it.


ARRIVAL = 2


def speaks(tasks: Tasks, launches: Launches, time: int) -> str:
    """Return what the nanosecond from ``time`` on is: what runs, else whether the next task was launched by then."""
    rows = [r for r in zip(tasks.start, tasks.end, tasks.work, launches.end, strict=True) if r[2] != Work.CONTROL]
    running = {int(work) for start, end, work, _ in rows if start <= time < end}
    if running:
        first = min(running)
        return {Work.COMPUTE: "compute", Work.COMMUNICATION: "communication"}.get(Work(first), "unknown")
    after = min(start for start, end, *_ in rows if start > time and end > start)
    launch = min((int(e) for start, _, _, e in rows if start == after and e != NO_TIME), default=None)
    # A launch into idle time takes its latency from where that began.
    idle = max((end for start, end, *_ in rows if start <= time and end > start), default=rows[0][0])
    late = launch is None or launch + ARRIVAL > idle
    return "host" if late and (launch is None or time < max(launch, idle) + ARRIVAL) else "unknown"


@pytest.mark.parametrize("seed", range(40))
def test_every_nanosecond_counts_for_what_it_is(seed: int) -> None:
    rng = random.Random(seed)
    starts = sorted(rng.randrange(90) for _ in range(12))
    ends = [start + rng.randrange(9) for start in starts]
    ends[-1] = max(starts[-1] + 3, *ends)
    work = [rng.choice([0, 0, 0, 1, 2, 3]) for _ in starts[1:-1]]
    launch = [start - rng.randrange(9) if rng.random() < 0.8 else NO_TIME for start in starts]
    tasks = Tasks.build(np.array(starts), np.array(ends), np.array([0, *work, 0], np.uint8))
    launches = Launches(np.array(launch), ARRIVAL, samples=1, skew=0, implausible=0)
    timeline = lay_out(tasks, launches)
    low, high = span_of(tasks)
    span = low + seed % 7, high - seed % 5
    borders, (host, compute, communication, unknown) = _cells(tasks, launches, timeline, span, load_thresholds())
    assert (borders[0], borders[-1]) == span
    for i, (start, end) in enumerate(zip(borders.tolist(), borders[1:].tolist(), strict=False)):
        found = [speaks(tasks, launches, time) for time in range(start, end)]
        assert int(communication[i]) == found.count("communication")
        assert int(host[i] + compute[i]) == found.count("host") + found.count("compute")  # slow launches take compute
        assert int(unknown[i]) == found.count("unknown")
        assert len(set(found) & {"compute"}) == 0 or set(found) == {"compute"}


@pytest.mark.parametrize("seed", range(12))
def test_of_all_ways_to_cut_runs_into_phases_none_is_cheaper(seed: int) -> None:
    """What a run has of other kinds costs its time, and every border as much as is asked."""
    rng = random.Random(seed)
    count, border = rng.randrange(1, 6), rng.choice([0, 3, 8, 30])
    weights = np.array([[rng.randrange(10) for _ in range(4)] for _ in range(count)], np.float64)
    length = weights.sum(axis=1).astype(np.int64)

    def price(states: tuple[int, ...]) -> float:
        others = sum(length[i] - weights[i, state] for i, state in enumerate(states))
        return float(others) + border * sum(a != b for a, b in itertools.pairwise(states))

    found = tuple(_cheapest(weights, length, border).tolist())
    assert price(found) == min(map(price, itertools.product(range(4), repeat=count)))
