"""Findings, counts, cores, links, ranks, roots, operators, steps and phases of two sides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from clusters import finding, large_job, pipeline_job, result_of
from digests import digest_of, run_of
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.against.aligned import aligned, by_new_waits, finding_changes
from npuperf.against.compare import compare_results
from npuperf.against.shifts import MOST, Listed, operator_rows, shifts
from npuperf.base.messages import say, series
from npuperf.model.comparison import FindingChange, Shift
from npuperf.model.parts import Count, CountKind, Digest, PartSum, TypeSteps
from npuperf.model.result import (
    CoreSide,
    CoreUse,
    Excluded,
    Finding,
    Partition,
    Precondition,
    Result,
    Spread,
    Step,
    TypicalPhase,
    TypicalStep,
)

THRESHOLDS = load_thresholds()
STEPS = 8


# --- findings ---------------------------------------------------------------------------------------------------------


def with_findings(*findings: Finding) -> Result:
    return replace(run_of(digest_of({}, [1] * STEPS)), findings=list(findings))


def changes(old: Result, new: Result) -> list[FindingChange]:
    return finding_changes([old], [new])[0]


def test_findings_are_new_gone_or_as_they_were() -> None:
    old = with_findings(finding("casts", 0), finding("sync_points", 0))
    new = with_findings(finding("casts", 0), finding("ai_cpu", 0))
    found, unchanged = finding_changes([old], [new])
    assert [(f.rule, f.change, f.old_severity, f.new_severity) for f in found] == [
        ("ai_cpu", "added", None, "medium"),
        ("sync_points", "removed", "medium", None),
    ]
    assert unchanged == 1
    counted = [compare_results([a], [b], THRESHOLDS).unchanged for a, b in ((old, old), (old, new), (new, new))]
    assert counted[0] - 1 == counted[1] == counted[2] - 1  # the parts are the same


def test_other_numbers_in_a_title_are_no_change_but_another_severity_is() -> None:
    old = replace(finding("casts", 0), title=say("casts take {n} us", n=3))
    assert not changes(with_findings(old), with_findings(replace(old, title=say("casts take {n} us", n=4))))
    (found,) = changes(with_findings(old), with_findings(replace(old, severity="high")))
    assert (found.change, found.old_severity, found.new_severity) == ("changed", "medium", "high")


def test_what_does_not_hold_any_more_is_said() -> None:
    old = replace(finding("casts", 0), preconditions=[Precondition(what=say("shapes are static"), holds=True)])
    new = replace(
        old,
        preconditions=[Precondition(what=say("shapes are static"), holds=False)],
        excluded=[Excluded(advice=say("capture a graph"), because=say("shapes change"))],
    )
    (found,) = changes(with_findings(old), with_findings(new))
    assert found.change == "changed"
    assert "does not hold: shapes are static; not advised: capture a graph" in str(found.new)


def test_what_cannot_be_told_any_more_is_not_gone() -> None:
    new = replace(finding("casts", 0), status="cannot_tell", needs=say("record shapes"))
    (found,) = changes(with_findings(finding("casts", 0)), with_findings(new))
    assert (found.change, str(found.new)) == ("changed", "cannot be told: record shapes")


def test_one_device_is_the_same_whatever_its_rank() -> None:
    assert not changes(
        with_findings(finding("casts", 0)), with_findings(replace(finding("casts", 0), rank=None, device=3))
    )


def test_of_several_runs_most_decide() -> None:
    has, lacks = with_findings(finding("casts", 0)), with_findings()
    assert finding_changes([has, has, lacks], [has]) == ([], 1)
    (found,) = finding_changes([has, lacks, lacks], [has])[0]
    assert found.change == "added"


def test_findings_of_ranks_are_told_apart() -> None:
    old = result_of(pipeline_job(), findings=[finding("casts", 0), finding("casts", 1)])
    new = result_of(pipeline_job(), findings=[finding("casts", 1), finding("casts", 2)])
    assert [(f.rank, f.change) for f in changes(old, new)] == [(2, "added"), (0, "removed")]


# --- counts -----------------------------------------------------------------------------------------------------------


def counted(kind: CountKind, key: str, counts: Sequence[int], size: Sequence[int] | None = None) -> Count:
    return Count(kind=kind, key=key, count=list(counts), bytes=None if size is None else list(size))


def digest_with(*counts: Count, steps: int = STEPS, devices: int = 1) -> Digest:
    return replace(digest_of({}, [100] * steps, counts=counts), devices=devices)


def shifts_of(old: Digest, new: Digest) -> Listed:
    return shifts([run_of(old)], [run_of(new)], THRESHOLDS)


def test_a_new_sync_is_counted_and_named() -> None:
    old = digest_with(counted("sync", "aten::item", [2] * STEPS), counted("launch", "Add", [9] * STEPS))
    new = digest_with(counted("sync", "aten::item", [2] * STEPS), counted("sync", "nonzero", [1] * STEPS),
                      counted("launch", "Add", [9] * STEPS))  # fmt: skip
    found = shifts_of(old, new)
    assert [(s.what, s.old, s.new, s.verdict) for s in found.shifts] == [
        ("synchronizations per step", 2, 3, "worse"),
        ("synchronizations: nonzero", 0, 1, "worse"),
    ]
    assert found.unchanged == 2  # launches, and aten::item


def test_counts_of_more_devices_are_per_device() -> None:
    found = shifts_of(digest_with(counted("launch", "Add", [30] * STEPS), devices=3),
                      digest_with(counted("launch", "Add", [20] * STEPS), devices=2))  # fmt: skip
    assert found.shifts == []
    (more,) = shifts_of(digest_with(counted("launch", "Add", [30] * STEPS), devices=3),
                        digest_with(counted("launch", "Add", [22] * STEPS), devices=2)).shifts  # fmt: skip
    assert (more.old, more.new, more.verdict) == (10, 11, "worse")


def test_what_a_side_does_not_tell_is_not_compared() -> None:
    new = replace(digest_with(), uncounted=["sync"])
    assert shifts_of(digest_with(counted("sync", "aten::item", [2] * STEPS)), new).shifts == []


def test_operators_of_a_host_are_compared_by_name_where_one_side_has_no_shapes() -> None:
    old = digest_with(counted("host_operator", "aten::mm", [3] * STEPS),
                      counted("host_operator", "aten::fill_", [1] * STEPS))  # fmt: skip
    shaped = ["aten::mm [2,3;3,4] float", "aten::mm [9,9;9,9] float", "aten::fill_ float", "aten::tanh [2,4] float"]
    counts = [1, 2, 1, 1]
    new = digest_with(*(counted("host_operator", key, [n] * STEPS) for key, n in zip(shaped, counts, strict=True)))
    for a, b, totals, ones in ((old, new, (4, 5), (0, 1)), (new, old, (5, 4), (1, 0))):
        found = shifts_of(a, b)
        assert [(s.what, s.old, s.new) for s in found.shifts] == [
            ("host operators per step", *totals),
            ("host operators: aten::tanh", *ones),
        ]
        assert found.unchanged == 2
    by_shapes = shifts_of(new, digest_with(*new.counts[1:]))
    assert [s.what for s in by_shapes.shifts] == ["host operators per step", f"host operators: {shaped[0]}"]


def test_bytes_are_compared_where_both_sides_tell_them() -> None:
    old = digest_with(counted("copy", "HtoD", [1] * STEPS, [100] * STEPS), counted("copy", "DtoH", [1] * STEPS))
    new = digest_with(
        counted("copy", "HtoD", [1] * STEPS, [150] * STEPS), counted("copy", "DtoH", [1] * STEPS, [9] * STEPS)
    )
    (found,) = shifts_of(old, new).shifts
    assert (found.what, found.unit, found.old, found.new) == ("copies: HtoD", "bytes", 100, 150)


def test_more_graph_replays_are_neither_better_nor_worse() -> None:
    found = shifts_of(digest_with(), digest_with(counted("graph_replay", "g", [1] * STEPS)))
    assert {s.verdict for s in found.shifts} == {"cannot_tell"}


def test_of_many_the_most_changed_are_listed_and_the_rest_counted() -> None:
    new = digest_with(*(counted("aicpu", f"Op{i}", [i + 1] * STEPS) for i in range(50)))
    found = shifts_of(digest_with(), new)
    assert len(found.shifts) == MOST + 1
    assert str(found.note) == "30 more figures changed, by less than those that are listed"
    assert found.shifts[1].what == "AI CPU operators: Op49"


def test_counts_of_several_runs() -> None:
    """Four per step in one run of two steps, one in one of six: 1.75 in the mean."""
    runs = [
        run_of(digest_with(counted("sync", "x", [4] * 2), steps=2)),
        run_of(digest_with(counted("sync", "x", [1] * 6), steps=6)),
    ]
    first = shifts(runs, [run_of(digest_with())], THRESHOLDS).shifts[0]
    assert (first.old, first.new, first.samples) == (1.75, 0, (8, 8))


# --- cores and jobs ---------------------------------------------------------------------------------------------------


def with_occupancy(cube: float) -> Result:
    use = CoreSide(cores=24, kernels=9, occupancy_busy=cube, occupancy_span=cube / 2, idle_core_ns=0)
    run = run_of(digest_with())
    cores = CoreUse(source=None, cube=use, vector=None, by_type=[], most_idle=[], reason=None)
    return replace(run, devices=[replace(run.devices[0], cores=cores)])


def test_occupancy_of_cores() -> None:
    (found,) = shifts([with_occupancy(0.9)], [with_occupancy(0.6)], THRESHOLDS).shifts
    assert (found.what, found.unit, found.old, found.new) == ("occupancy of cube cores", "percent", 90, 60)
    for now, listed in ((0.893, 1), (0.899, 0)):  # from half a point on
        assert len(shifts([with_occupancy(0.9)], [with_occupancy(now)], THRESHOLDS).shifts) == listed


def by_name(found: Listed) -> dict[str, Shift]:
    return {shift.what: shift for shift in found.shifts}


def test_a_slower_link_and_a_root_of_waiting_of_a_job() -> None:
    job = pipeline_job()
    slower = replace(job, links=[replace(job.links[0], time_ns=2 * job.links[0].time_ns)], roots=job.roots[:1])
    found = by_name(shifts([result_of(job)], [result_of(slower)], THRESHOLDS))
    link = found["HCCS 0-2"]
    assert link.old == pytest.approx(1_200 / 63) and link.new == pytest.approx(600 / 63)
    root = found["waiting caused by stage 1 (compute)"]
    assert (root.old, root.new) == (306_000_000, 0)


def with_steps(job: Result, slow: int, ns: int) -> Result:
    """Each rank with its own steps of about 1 ms; those of one rank are longer."""
    random = np.random.default_rng(7)
    devices = []
    for device in job.devices:
        spans = (1_000_000 + random.integers(0, 2_000, STEPS) + (ns if device.rank == slow else 0)).tolist()
        devices.append(replace(device, steps=[step(i, span, device.partition) for i, span in enumerate(spans)]))
    return replace(job, devices=devices)


def step(number: int, span: int, like: Partition) -> Step:
    verdict = result_of(None).verdict
    return Step(step=number, start_ns=0, partition=replace(like, span_ns=span), verdict=verdict)


def test_a_slow_rank_is_judged_by_its_own_steps() -> None:
    job = result_of(large_job(32))
    found = by_name(shifts([with_steps(job, 5, 0)], [with_steps(job, 5, 300_000)], THRESHOLDS))
    assert list(found) == ["step of rank 5"]
    assert found["step of rank 5"].verdict == "worse"
    assert found["step of rank 5"].interval is not None


# --- operators, steps and phases --------------------------------------------------------------------------------------


def types(**of: Sequence[int]) -> Digest:
    """The time of operator types per step, one kernel each."""
    return digest_of({}, [1_000_000] * STEPS, types=of)


def test_operators_are_judged_by_their_own_steps() -> None:
    jitter = [0, 300, 100, 700, 500, 200, 900, 400]
    old = types(MatMul=[500_000 + j for j in jitter], Add=[10_000] * STEPS, Gone=[50_000] * STEPS)
    new = types(MatMul=[600_000 + j for j in jitter], Add=[10_000] * STEPS, New=[90_000] * STEPS)
    rows, unchanged = operator_rows([old], [new], THRESHOLDS)
    assert [(r.name, r.change, r.verdict, r.old_ns, r.new_ns) for r in rows] == [
        ("MatMul", "changed", "worse", 500_388, 600_388),
        ("New", "added", "worse", None, 90_000),
        ("Gone", "removed", "better", 50_000, None),
    ]
    assert unchanged == 1


def counts_of(*steps: int, first: int = 0) -> Result:
    """A run whose steps launch so many additions beside one matrix product."""
    digest = digest_of({}, [100] * len(steps))
    kernels = [TypeSteps(type=name, ns=[1] * len(steps), count=list(counts))
               for name, counts in (("MatMul", [1] * len(steps)), ("Add", steps))]  # fmt: skip
    return run_of(replace(digest, types=kernels, steps=list(range(first, first + len(steps)))))


def test_an_inserted_and_a_missing_step_are_told_by_what_they_run() -> None:
    old, new = counts_of(4, 4, 7, 4, first=10), counts_of(4, 4, 4, 1, 4, first=20)
    assert list(map(str, aligned([old], [new], THRESHOLDS))) == [
        "step 12 of the old side is like none of the new one: 3 more Add than usual",
        "step 23 of the new side is like none of the old one: 3 fewer Add than usual",
    ]


def test_where_every_step_runs_something_else_no_step_stands_out() -> None:
    assert aligned([counts_of(4, 4, 4)], [counts_of(5, 5, 5)], THRESHOLDS) == []


def phased(**phases: tuple[str, int]) -> Result:
    def spread(ns: int) -> Spread:
        return Spread(min_ns=ns, median_ns=ns, max_ns=ns)

    usual = [
        TypicalPhase(bound=bound, label=say("{name}", name=name), start=spread(0), end=spread(ns), length=spread(ns))  # type: ignore[arg-type]
        for name, (bound, ns) in phases.items()
    ]
    run = run_of(digest_with())
    step = TypicalStep(steps=STEPS, length=spread(1_000_000), phases=usual, odd=[])
    return replace(run, devices=[replace(run.devices[0], typical_step=step)])


def test_a_side_without_any_phase_has_lost_none() -> None:
    """Without launches no phase has a label."""
    phases, none = phased(forward=("compute", 400_000)), phased()
    assert not aligned([phases], [none], THRESHOLDS) and not aligned([none], [phases], THRESHOLDS)


def test_phases_that_are_new_gone_or_limited_by_something_else() -> None:
    old = phased(forward=("compute", 400_000), loss=("host", 100_000), tiny=("host", 1_000))
    new = phased(forward=("host", 500_000), optimizer=("compute", 200_000))
    assert list(map(str, aligned([old], [new], THRESHOLDS))) == [
        "loss is no phase of its own any more (100.00 us before)",
        "optimizer is a phase of its own now (200.00 us)",
        "the phase forward was compute-bound and is host-bound",
    ]


def test_a_phase_with_more_of_its_neighbour_is_not_new() -> None:
    """Of the optimizer some launches are of no known part now, and the loss is inferred: both were there before."""
    inferred = say("{part} (inferred)", part=say("loss"))
    labels = (
        [say("optimizer")], [say("loss"), say("forward")], [say("forward")],
        [say("optimizer"), say("not told")], [inferred], [say("backward")],
    )  # fmt: skip
    sides = []
    for named in (labels[:3], labels[3:]):
        run = phased(a=("compute", 200_000), b=("compute", 200_000), c=("compute", 200_000))
        step = run.devices[0].typical_step
        assert step is not None
        phases = [replace(p, label=say("{parts}", parts=series(of))) for p, of in zip(step.phases, named, strict=True)]
        sides.append(replace(run, devices=[replace(run.devices[0], typical_step=replace(step, phases=phases))]))
    assert list(map(str, aligned([sides[0]], [sides[1]], THRESHOLDS))) == [
        "loss, forward is no phase of its own any more (200.00 us before)",
        "forward is no phase of its own any more (200.00 us before)",
        "backward is a phase of its own now (200.00 us)",
    ]


def test_counts_of_a_gpu_and_an_npu_are_neither_better_nor_worse_than_each_other() -> None:
    """Calls have other names there, so that only kinds of things are listed."""
    counts = [Count(kind="sync", key="aclrtSynchronizeStream", count=[3])]
    npu = run_of(digest_of({("compute", "A"): (100, 1)}, [100], counts=counts))
    cuda = [Count(kind="sync", key="cudaStreamSynchronize", count=[1])]
    gpu = run_of(digest_of({("compute", "A"): (100, 1)}, [100], counts=cuda), kineto=True)
    listed = shifts([gpu], [npu], THRESHOLDS).shifts
    assert [(s.what, s.old, s.new, s.verdict) for s in listed] == [("synchronizations per step", 1, 3, "cannot_tell")]


# --- what new waits of the host for the device cost the device --------------------------------------------------------

ITEM = "AscendCL@aclrtSynchronizeStream in aten::item (stream)"
END = "AscendCL@aclrtSynchronizeDevice (device)"


def side(waits: dict[str | None, int], syncs: dict[str, list[int]]) -> Digest:
    """Two steps that wait for the host in ``aten::linear``, so long after each wait for the device."""
    found = digest_of(
        {},
        [100, 100],
        counts=[Count(kind="sync", key=k, count=n, where=f"metrics.py:{len(k)}") for k, n in syncs.items()],
    )
    parts = [
        PartSum(part="host_wait", key="torch_op: aten::linear", ns=ns, count=2, after=after)
        for after, ns in waits.items()
    ]
    return replace(found, parts=parts, total_ns=sum(waits.values()))


def keys(run: Digest) -> dict[str | None, int]:
    return {part.key: part.ns for part in run.parts}


def test_a_new_wait_is_named_on_both_sides_and_the_others_are_not() -> None:
    old = side({END: 30, None: 50}, {END: [1, 1]})
    new = side({END: 40, ITEM: 70, None: 50}, {END: [1, 1], ITEM: [3, 3]})
    (before,), (after,) = by_new_waits([old], [new])
    assert before == old
    assert sorted((p.key or "", p.ns) for p in after.parts) == [
        ("sync: aten::item", 70), ("torch_op: aten::linear", 40), ("torch_op: aten::linear", 50)
    ]  # fmt: skip
    assert sum(p.ns for p in after.parts) == new.total_ns
    assert {p.key: (p.where, p.count) for p in after.parts if p.after == ITEM} == {
        "sync: aten::item": (f"metrics.py:{len(ITEM)}", 6)  # three in each of two steps
    }


def test_one_that_became_more_frequent_is_held_against_itself() -> None:
    old = side({ITEM: 20, None: 5}, {ITEM: [1, 1]})
    new = side({ITEM: 60, None: 5}, {ITEM: [3, 3]})
    (before,), (after,) = by_new_waits([old], [new])
    assert keys(before) == {"sync: aten::item": 20, "torch_op: aten::linear": 5}
    assert keys(after) == {"sync: aten::item": 60, "torch_op: aten::linear": 5}


def test_whatever_the_host_did_after_a_wait_is_one_row() -> None:
    new = side({ITEM: 70}, {ITEM: [3, 3]})
    more = PartSum(part="host_wait", key="launch: Node@launch", ns=8, count=5, after=ITEM)
    _, (after,) = by_new_waits([side({}, {})], [replace(new, parts=[*new.parts, more])])
    assert [(p.key, p.ns, p.count) for p in after.parts] == [("sync: aten::item", 78, 6)]


def test_as_many_waits_in_more_steps_are_no_more() -> None:
    old = side({END: 30}, {END: [1, 1]})
    new = replace(side({END: 45}, {END: [1, 1, 1]}), span_ns=[100] * 3, steps=[0, 1, 2], windows=3)
    assert by_new_waits([old], [new]) == ([old], [new])


def test_a_call_without_an_operator_is_named_itself() -> None:
    _, (after,) = by_new_waits([side({}, {})], [side({END: 9}, {END: [1, 1]})])
    assert keys(after) == {"sync: AscendCL@aclrtSynchronizeDevice": 9}


def test_where_a_side_does_not_tell_its_waits_nothing_is_named() -> None:
    old = replace(side({None: 30}, {}), uncounted=["sync"])
    new = side({ITEM: 40}, {ITEM: [1, 1]})
    assert by_new_waits([old], [new]) == ([old], [new])
