"""Planted profiles: what the analysis says against what the simulation did, and does after the fix."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import itertools

from accuracy import Measured, measure
from planted import Recording, Scenario, Task, scenarios

from npuperf.base.units import NS_PER_US
from npuperf.model.result import Device, Phase

SCENARIOS = {s.name: s for s in scenarios()}
ALONE = [s for s in SCENARIOS.values() if s.ranks == 1]
IDLE_SHARE = 0.1  # below this much time without compute no run is host-bound


@cache
def measured(name: str) -> Measured:
    with TemporaryDirectory(prefix="planted") as folder:
        return measure(SCENARIOS[name], Path(folder))


def device_of(name: str) -> Device:
    (device,) = measured(name).result.devices
    return device


def test_there_are_many_situations() -> None:
    assert len(SCENARIOS) >= 60
    assert {s.ranks for s in SCENARIOS.values()} == {1, 2, 4}


@pytest.mark.parametrize("name", SCENARIOS)
def test_everything_adds_up(name: str) -> None:
    for device in measured(name).result.devices:
        assert sum(b.ns for b in device.blame) == device.window.host_wait_ns
        assert device.phases[0].start_ns == 0
        assert device.phases[-1].end_ns == device.window.span_ns
        for before, after in zip(device.phases, device.phases[1:], strict=False):
            assert before.end_ns == after.start_ns
        for part in ("span", "compute", "comm_exposed", "idle", "host_wait", "unattributed"):
            whole = getattr(device.window, f"{part}_ns")
            assert sum(getattr(p.partition, f"{part}_ns") for p in device.phases) == whole
        for phase in device.phases:
            assert sum(b.ns for b in phase.blame) == phase.partition.host_wait_ns
            assert phase.partition.span_ns == phase.end_ns - phase.start_ns


def expected_bound(m: Measured) -> set[str]:
    """The resource that the simulated window depends on most; near ties may go either way."""
    partition = m.result.devices[0].window
    without_compute = 1 - partition.compute_ns / partition.span_ns
    truth = {k: v for k, v in m.truth.items() if k != "host" or without_compute >= IDLE_SHARE}
    most = max(truth.values())
    return {k for k, v in truth.items() if v >= most - 0.05}


@pytest.mark.parametrize("scenario", ALONE, ids=lambda s: s.name)
def test_the_verdict_is_what_the_run_depends_on(scenario: Scenario) -> None:
    m = measured(scenario.name)
    verdict = m.result.verdict
    assert verdict.bound in expected_bound(m), (m.truth, verdict)
    if scenario.unlaunched == 1.0:
        assert verdict.basis == "inferred"
        return
    assert verdict.basis == "measured"
    if scenario.unlaunched > 0.1:
        assert verdict.elasticity is None
        return
    assert verdict.elasticity is not None
    for resource, true in m.truth.items():
        assert getattr(verdict.elasticity, resource) == pytest.approx(true, abs=0.05), resource


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda s: s.name)
def test_fixes_do_what_was_predicted(scenario: Scenario) -> None:
    for c in measured(scenario.name).compared:
        if scenario.unlaunched > 0.1:
            assert c.predicted is None
            continue
        assert c.predicted is not None
        assert abs(c.error) <= 0.05, c
        assert c.inside, c


def test_predictions_are_within_five_percent_in_95_of_100() -> None:
    errors = [abs(c.error) for s in SCENARIOS for c in measured(s).compared if c.predicted is not None]
    assert len(errors) > 100
    assert sum(e <= 0.05 for e in errors) >= 0.95 * len(errors)


@pytest.mark.parametrize("scenario", [s for s in ALONE if s.unlaunched < 0.1], ids=lambda s: s.name)
def test_the_model_reproduces_the_measured_window(scenario: Scenario) -> None:
    replay = device_of(scenario.name).replay
    assert replay is not None and replay.usable
    assert replay.error <= 0.001


@pytest.mark.parametrize(
    "scenario", [s for s in ALONE if s.cause not in ("", "sync")], ids=lambda s: f"{s.name}: {s.cause}"
)
def test_the_planted_cause_is_blamed(scenario: Scenario) -> None:
    device = device_of(scenario.name)
    if device.partition.host_wait_ns < 0.02 * device.partition.span_ns:
        assert "1000" in scenario.name  # the queue covers a stall of a millisecond
        return
    causes: dict[str, int] = {}
    for b in device.blame:
        causes[b.cause] = causes.get(b.cause, 0) + b.ns
    # Python that records nothing is blamed on its frame, or on nothing.
    accepted = {"python": {"python", "unrecorded"}}.get(scenario.cause, {scenario.cause})
    assert max(causes, key=causes.__getitem__) in accepted, causes


@pytest.mark.parametrize("scenario", [s for s in ALONE if s.sync_line], ids=lambda s: s.name)
def test_the_planted_sync_is_listed_with_its_line(scenario: Scenario) -> None:
    device = device_of(scenario.name)
    (site,) = [s for s in device.syncs if s.where == scenario.sync_line]
    actions = scenario.program(0)[7001]
    per_step = sum(getattr(a, "where", "") == _frame(scenario.sync_line) for a in actions)
    assert site.count == per_step * scenario.steps
    assert site.idle_ns > 0 and site.host_ns > 0 and site.gain_ns_per_step is not None
    assert site.torch_op == "aten::item"
    assert device.syncs[0].where == scenario.sync_line  # the costliest first


def _frame(line: str | None) -> str:
    file, rest = (line or "").split(":")
    number, function = rest.split(" ")
    return f"{file}({number}): {function}"


def test_clock_skew_is_found(tmp_path: Path) -> None:
    """The clocks are 20 µs apart and a launch takes 8 µs to arrive: what causality shows is the difference."""
    for name, skew in (("clocks 20000 ns apart", 20_000), ("clocks apart, with syncs", 20_000)):
        found = device_of(name).clock.skew_ns
        assert skew - 3_500 - 8_000 * 1.2 <= found <= skew  # causality is seen from the launch's start


# --- borders of phases ---------------------------------------------------------------------------------------------


def by_steps(recording: Recording) -> dict[int, list[Task]]:
    """Tasks by step, in time order."""
    steps: dict[int, list[Task]] = {}
    for t in sorted(recording.tasks, key=lambda t: t.start):
        steps.setdefault(t.step, []).append(t)
    return steps


def best_cut(tasks: list[Task], host_first: bool) -> int:
    """Brute force: the start of the task before which most time is paced by one side, behind which by the other."""
    cells = [(b.start - a.start) * (1 if b.host_paced else -1) for a, b in itertools.pairwise(tasks)]
    best, place, left, right = None, 0, 0, sum(cells)
    for i, cell in enumerate([0, *cells]):
        left, right = left + cell, right - cell
        score = (left - right) if host_first else (right - left)
        if best is None or score > best:
            best, place = score, i
    return tasks[place].start


def borders(device: Device, kinds: tuple[str, str]) -> list[int]:
    """Starts of phases of the second kind that follow one of the first kind."""
    pairs = zip(device.phases, device.phases[1:], strict=False)
    return [b.start_ns for a, b in pairs if (a.bound, b.bound) == kinds]


@pytest.mark.parametrize(
    ("name", "kinds", "host_first"),
    [
        ("device first, then host", ("compute", "host"), False),
        ("host first, then device", ("host", "compute"), True),
        ("device, host, communication", ("compute", "host"), False),
    ],
)
def test_borders_inside_steps(name: str, kinds: tuple[str, str], host_first: bool) -> None:
    m = measured(name)
    device = device_of(name)
    origin = min(t.start for t in m.recordings[0].tasks)
    found = borders(device, kinds)
    for step, tasks in by_steps(m.recordings[0]).items():
        compute = [t for t in tasks if not t.op.collective and t.op.after == ()]
        true = best_cut(compute, host_first) - origin
        length = next(s.partition.span_ns for s in device.steps if s.step == step)
        assert min(abs(true - f) for f in found) <= 0.01 * length, step


def test_the_border_to_communication() -> None:
    m = measured("device, host, communication")
    origin = min(t.start for t in m.recordings[0].tasks)
    found = borders(device_of(m.scenario.name), ("host", "communication"))
    true = [t.start - origin for t in m.recordings[0].tasks if t.op.collective]
    assert len(found) == len(true) == m.scenario.steps
    assert max(abs(a - b) for a, b in zip(found, true, strict=True)) <= 260 * NS_PER_US  # 1 % of a step of 26 ms


def test_phases_that_last_for_steps() -> None:
    device = device_of("host-bound steps, then device-bound ones")
    assert [p.bound for p in device.phases] == ["host", "compute"]
    first = device.phases[0]
    assert (first.first_step, first.last_step) in ((11, 13), (11, 14))
    length = device.steps[3].partition.span_ns
    assert abs(first.end_ns - device.steps[3].start_ns) <= length


def test_phases_repeat_in_the_typical_step() -> None:
    """By construction: 20 kernels of 400 µs, then tiny ones at the host's pace, then 8 ms of communication.

    Of the tiny ones the host launches one in 30 µs, of which the device, once it gets there, takes 3.4.
    """
    typical = device_of("device, host, communication").typical_step
    assert typical is not None and typical.steps == 6 and typical.odd == []
    assert [p.bound for p in typical.phases] == ["compute", "host", "communication"]
    first, _, last = typical.phases
    assert first.start.max_ns == 0
    assert first.end.median_ns == pytest.approx(8_000_000 / (1 - 3.4 / 30), rel=0.03)
    assert last.length.median_ns == pytest.approx(8_000_000, rel=0.03)
    for phase in typical.phases:
        assert phase.length.min_ns <= phase.length.median_ns <= phase.length.max_ns


@pytest.mark.parametrize(
    ("name", "step"), [("data stall in one step", 14), ("compile stall in one step", 13), ("one slow step", 15)]
)
def test_the_odd_step_is_marked(name: str, step: int) -> None:
    typical = device_of(name).typical_step
    assert typical is not None
    assert [o.step for o in typical.odd] == [step]
    assert "host-bound" in str(typical.odd[0].why) or "one slow" in name


def test_forward_backward_and_optimizer_are_told_apart() -> None:
    phase: Phase = device_of("training 25/4").phases[0]
    assert "backward" in str(phase.label) and "forward" in str(phase.label)


# --- several ranks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("2 ranks, one 2.0 times slower", 1),
        ("4 ranks, one 1.5 times slower", 3),
        ("2 ranks, one 1.0 times slower", None),
    ],
)
def test_the_slow_rank_is_named(name: str, slow: int | None) -> None:
    m = measured(name)
    found = [f for f in m.result.findings if f.rule == "slow_rank"]
    if slow is None:
        assert found == []
        return
    assert m.result.devices[slow].verdict.bound == "host"
    assert f"rank {slow} sets the pace" in str(m.result.verdict.reason)
    # It waits for nobody, so the job is as long as it takes: its own time tells what the job depends on.
    own = m.result.devices[slow].partition
    parts = {"host": own.host_wait_ns + own.launch_latency_ns, "compute": own.compute_ns,
             "communication": own.comm_exposed_ns}  # fmt: skip
    assert own.comm_wait_ns == 0 and m.result.verdict.bound == max(parts, key=lambda name: parts[name])
    (finding,) = found
    assert (finding.rank, finding.status) == (slow, "problem")
    # What the others wait: their collectives are longer than the slow rank's by as much.
    stays = [sum(t.end - t.start for t in r.tasks if t.op.collective) for r in m.recordings]
    longer = (stays[0] - stays[slow]) / m.scenario.steps
    assert finding.gain_ns_per_step is not None
    assert 0.95 * longer <= finding.gain_ns_per_step[0] <= longer <= finding.gain_ns_per_step[1] <= 1.05 * longer
