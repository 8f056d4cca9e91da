"""What every step is made of: exact to the nanosecond, by operator, group and cause, on one device and on many."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from build import H, K, analyze_path, ascend_pt, kernel_details
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace
from sample_documents import SAMPLES

from npuperf.advise import load_thresholds
from npuperf.analyze import digests
from npuperf.analyze.digests import DeviceDigest, fold_waits, merge_digests
from npuperf.analyze.examine import Earlier, Examined, examine
from npuperf.analyze.request import AnalyzeRequest
from npuperf.analyze.whole_job import as_one_job
from npuperf.model.chip import Cores
from npuperf.model.communication import Communication, Operations, ProcessGroup
from npuperf.model.device import DeviceProfile
from npuperf.model.labels import Labels
from npuperf.model.parts import Count, Digest, PartSum, TypeSteps
from npuperf.model.result import Device, Result
from npuperf.model.tasks import NO_TIME, Tasks, Work
from npuperf.readers.log import ReadLog

LIMITS = load_thresholds()
#: Where a part of the digest stands in a partition.
FIELDS = {
    "compute": "compute_ns",
    "transfer": "comm_transfer_ns",
    "wait": "comm_wait_ns",
    "comm_unknown": "comm_unknown_ns",
    "other": "other_exposed_ns",
    "host_wait": "host_wait_ns",
    "launch_latency": "launch_latency_ns",
    "dependency": "dependency_wait_ns",
    "unattributed": "unattributed_ns",
}


def by_part(parts: list[PartSum]) -> Counter[str]:
    found: Counter[str] = Counter()
    for part in parts:
        found[part.part] += part.ns
    return found


def of_partitions(devices: list[Device]) -> Counter[str]:
    """What the partitions of the judged steps, or of all where none is recorded, say."""
    split = [p for d in devices for p in ([s.partition for s in d.whole_steps] or [d.window])]
    return Counter({part: sum(getattr(p, field) for p in split) for part, field in FIELDS.items()})


def digest(result: Result) -> Digest:
    assert result.digest is not None
    return result.digest


def assert_exact(result: Result) -> Digest:
    found = digest(result)
    assert +by_part(found.parts) == +of_partitions(result.devices)
    assert sum(p.ns for p in found.parts) == found.total_ns
    assert len({(p.part, p.key, p.after) for p in found.parts}) == len(found.parts)
    return found


def keyed(found: Digest, part: str) -> dict[str | None, tuple[int, int]]:
    return {p.key: (p.ns, p.count) for p in found.parts if p.part == part}


# --- one device, against a slow answer ---------------------------------------------------------------------------

drawn_tasks = st.lists(
    st.tuples(
        st.integers(0, 70),
        st.sampled_from([0, 1, 3, 8, 20]),
        st.sampled_from([Work.COMPUTE, Work.COMPUTE, Work.COMMUNICATION, Work.OTHER, Work.CONTROL]),
        st.sampled_from(["Add", "MatMul", "Cast"]),
        st.sampled_from([-1, 0, 1, 2]),
        st.one_of(st.none(), st.integers(-30, 3)),
    ),
    min_size=1,
    max_size=14,
)


def profile_of(drawn: list) -> DeviceProfile:
    rows = sorted(
        (1000 + begin, 1000 + begin + dur, int(work), type_, step, -999 if launch is None else launch)
        for begin, dur, work, type_, step, launch in drawn
    )
    start, end, work, type_, step, launch = zip(*rows, strict=True)
    launched = [NO_TIME if one == -999 else at + one for at, one in zip(start, launch, strict=True)]
    tasks = Tasks.build(
        np.array(start, np.int64),
        np.array(end, np.int64),
        np.array(work, np.uint8),
        step=np.array(step, np.int64),
        type=Labels.of([*type_]),
        launch_start=np.array([t if t == NO_TIME else t - 2 for t in launched], np.int64),
        launch_end=np.array(launched, np.int64),
    )
    return DeviceProfile(source="here", rank=0, device=0, soc=None, cores=Cores(), tasks=tasks)


def examined(profile: DeviceProfile, step: int | None = None) -> Examined | None:
    return examine(profile, AnalyzeRequest(path=Path("here"), step=step), LIMITS, Earlier(), ReadLog())


def windows_of(report: Device) -> list[tuple[int, int]]:
    """What is judged: the steps, or all where none is recorded."""
    steps = [(s.start_ns, s.start_ns + s.partition.span_ns) for s in report.whole_steps]
    return [(a + report.origin_ns, b + report.origin_ns) for a, b in steps or [(0, report.window.span_ns)]]


def slow_sums(tasks: Tasks, windows: list[tuple[int, int]]) -> dict[tuple[str, str | None], list[int]]:
    """Ask for each nanosecond who works, and for each task whether it begins in a window."""
    parts = {Work.COMPUTE: "compute", Work.COMMUNICATION: "comm_unknown", Work.OTHER: "other"}
    rows = [
        (int(tasks.start[i]), int(tasks.end[i]), Work(int(tasks.work[i])), tasks.type[i]) for i in range(len(tasks))
    ]
    found: dict[tuple[str, str | None], list[int]] = {}
    for a, b in windows:
        for work, part in parts.items():
            for start, _, kind, type_ in rows:
                if kind == work and a <= start < b:
                    found.setdefault((part, type_), [0, 0])[1] += 1
        for ns in range(a, b):
            running = [(work, i) for i, (start, end, work, _) in enumerate(rows) if start <= ns < end]
            running = [r for r in running if r[0] != Work.CONTROL]
            if running:
                work, i = min(running)
                found.setdefault((parts[work], rows[i][3]), [0, 0])[0] += 1
    return found


@given(drawn_tasks)
def test_every_nanosecond_of_the_steps_has_one_owner(drawn: list) -> None:
    profile = profile_of(drawn)
    one = examined(profile)
    if one is None:
        return
    windows = windows_of(one.report)
    found = merge_digests([one.digest])
    assert found is not None
    busy = {(p.part, p.key): [p.ns, p.count] for p in found.parts if p.part in ("compute", "comm_unknown", "other")}
    assert busy == slow_sums(profile.tasks, windows)
    assert +by_part(found.parts) == +of_partitions([one.report])
    assert found.total_ns == sum(b - a for a, b in windows) == sum(found.span_ns)
    assert found.windows == len(windows)


@given(drawn_tasks, st.sampled_from([0, 1, 2]))
@settings(max_examples=20)
def test_one_step_alone_is_what_it_is_among_all(drawn: list, step: int) -> None:
    profile = profile_of(drawn)
    whole = examined(profile)
    if whole is None or step not in {s.step for s in whole.report.steps}:
        return
    one = examined(profile, step)
    assert one is not None
    (mine,) = [s.partition for s in whole.report.steps if s.step == step]
    found = merge_digests([one.digest])
    assert found is not None and found.steps == [step]
    assert found.total_ns == mine.span_ns
    assert +by_part(found.parts) == +of_partitions([structs.replace(one.report, steps=one.report.steps[:1])])
    assert by_part(found.parts)["compute"] == mine.compute_ns


# --- a device by hand ----------------------------------------------------------------------------------------------

STEPS = {1: (0, 10_000), 2: (10_000, 20_000)}


def two_steps(slower: int = 0) -> list[K]:
    """Two streams: in each step a matmul of 4 us, an add that overlaps its end by 1 us, and a collective behind."""
    kernels = []
    for step, base in ((1, 0), (2, 10_000)):
        kernels += [
            K(base, 4000 + slower * (step == 2), type="MatMulV2", core="AI_CORE", step=step, shapes="2,3;3,4"),
            K(base + 3000, 2000, type="Add", step=step, stream=3, shapes="2,4"),
            K(base + 4500, 2500, name="hcom_allReduce__170_1_1", type="hcom_allReduce_", core="COMMUNICATION",
              step=step, stream=4),
            K(base + 8000, 1000, type="Add", step=step, stream=3, shapes="8;8"),
        ]  # fmt: skip
    return kernels


def test_operators_by_type_and_shapes(tmp_path: Path) -> None:
    found = assert_exact(analyze_path(kernel_details(tmp_path / "kernel_details.csv", two_steps())))
    assert found.steps == [1, 2] and found.span_ns == [10_000, 9000] and found.windows == 2
    assert keyed(found, "compute") == {
        "MatMulV2 [2,3;3,4]": (8000, 2),
        "Add [2,4]": (2000, 2),  # of 2 us each the matmul owns the first
        "Add [8 x2]": (2000, 2),
    }
    assert sum(ns for ns, _ in keyed(found, "comm_unknown").values()) == 2 * 2000  # compute hides the first 500 ns
    assert found.keyed_by == "shapes"


def test_types_have_the_time_that_kernels_took_themselves(tmp_path: Path) -> None:
    found = digest(analyze_path(kernel_details(tmp_path / "kernel_details.csv", two_steps(slower=500))))
    types = {t.type: (t.ns, t.count) for t in found.types}
    assert types["MatMulV2"] == ([4000, 4500], [1, 1])
    assert types["Add"] == ([3000, 3000], [2, 2])
    assert types["hcom_allReduce_"] == ([2500, 2500], [1, 1])
    assert keyed(found, "compute")["Add [2,4]"] == (1500, 2)  # owned: of the second one the matmul hides 1.5 us


def test_one_step_asked_for(tmp_path: Path) -> None:
    result = analyze_path(kernel_details(tmp_path / "kernel_details.csv", two_steps(500)), step=2)
    assert {o.type: (o.count, o.total_ns) for o in result.operators}["MatMulV2"] == (1, 4500)
    found = digest(result)
    assert (found.steps, found.windows, found.total_ns) == ([2], 1, 9000)
    assert keyed(found, "compute")["MatMulV2 [2,3;3,4]"] == (4500, 1)
    assert {t.type: t.ns for t in found.types}["MatMulV2"] == [4500]


def test_without_steps_all_is_one_window(tmp_path: Path) -> None:
    kernels = [replace(k, step="") for k in two_steps()]
    found = assert_exact(analyze_path(kernel_details(tmp_path / "kernel_details.csv", kernels)))
    assert (found.steps, found.windows, found.span_ns) == ([], 1, [19_000])
    assert {t.type: (t.ns, t.count) for t in found.types}["Add"] == ([6000], [4])


def waiting(line: int) -> tuple[list[K], list[H]]:
    """Three kernels, each launched long after the one before ended, by a function that begins in a line of a file."""
    kernels = [K(i * 100_000, 10_000, launch=i * 100_000 - 4000, launch_dur=1000, step=1) for i in range(1, 4)]
    begin = [i * 100_000 - 60_000 for i in range(1, 4)]
    frames = [H(f"train.py({line}): prepare", at, 55_000, python=True, thread=10) for at in begin]
    return kernels, frames


def test_waits_for_the_host_by_cause_and_name_without_line_numbers(tmp_path: Path) -> None:
    keys = []
    for line in (41, 57):
        kernels, frames = waiting(line)
        folder = ascend_pt(tmp_path / str(line), kernels, {1: (0, 400_000)}, host=frames)
        found = assert_exact(analyze_path(folder))
        waits = [p for p in found.parts if p.part == "host_wait"]
        keys.append({p.key: (p.ns, p.count) for p in waits})
        (mine,) = [p for p in waits if p.key and "prepare" in p.key]
        assert mine.key == "python: train.py prepare"
        assert mine.ns == 3 * 55_000 and mine.count == 3  # the host begins the step before the first one
        assert mine.where == f"train.py:{line} prepare"
    assert keys[0] == keys[1]


def test_all_names_are_kept_that_the_report_sums_up(tmp_path: Path) -> None:
    kernels = [K(i * 100_000, 10_000, launch=i * 100_000 - 4000, launch_dur=1000, step=1) for i in range(1, 40)]
    frames = [H(f"train.py({i}): part{i}", i * 100_000 - 60_000, 55_000, python=True, thread=10) for i in range(1, 40)]
    result = analyze_path(ascend_pt(tmp_path, kernels, {1: (0, 4_000_000)}, host=frames))
    named = {key for key in keyed(assert_exact(result), "host_wait") if key and key.startswith("python: ")}
    assert named == {f"python: train.py part{i}" for i in range(1, 40)}
    assert len(result.devices[0].blame) < 20


@pytest.mark.parametrize("name", ["transformer_ascend_pt", "micro_batch_ascend_pt", "pipeline_job"])
def test_samples_add_up(name: str) -> None:
    assert_exact(analyze_path(SAMPLES / name))


# --- several devices ------------------------------------------------------------------------------------------------


def test_a_job_splits_communication_by_kind_of_group() -> None:
    result = analyze_path(SAMPLES / "pipeline_job", engine="serial")
    found = assert_exact(result)
    assert found.devices == 4 and found.windows == 8 and found.steps == [10, 11]
    assert set(keyed(found, "wait")) == {"pp", "dp_cp", "mp"} == set(keyed(found, "transfer"))
    assert not any(ns for ns, _ in keyed(found, "comm_unknown").values())
    collectives = sum(o.count for o in result.operators if o.core == "COMMUNICATION")
    assert sum(count for _, count in keyed(found, "wait").values()) == collectives
    lengths = [[d.steps[i].partition.span_ns for d in result.devices] for i in range(2)]
    assert all(abs(4 * mean - sum(own)) <= 2 for mean, own in zip(found.span_ns, lengths, strict=True))


def test_workers_count_as_one_process_does() -> None:
    path = SAMPLES / "pipeline_job"
    assert analyze_path(path, engine="processes", workers=2).digest == analyze_path(path, engine="serial").digest


def device_of(
    times: dict[str, int], numbers: tuple[int, ...] = (1,), *, spans: tuple[int, ...] | None = None
) -> DeviceDigest:
    """A device that computes for so long per operator, ``Type [shape]``."""
    size = max(len(numbers), 1)
    lengths = list(spans or (sum(times.values()) // size,) * size)
    return DeviceDigest(
        devices=1,
        windows=size,
        steps=list(numbers),
        span_ns=lengths,
        total_ns=sum(lengths),
        parts=[PartSum(part="compute", key=key, ns=ns, count=1) for key, ns in times.items()],
        types=[TypeSteps(type="Add", ns=[10] * size, count=[3] * size)],
        counts=[Count(kind="launch", key="Add", count=[3] * size)],
        operators={key: (key.split(" ")[0], "AI_CORE") for key in times},
    )


def merged(*devices: DeviceDigest) -> Digest:
    found = merge_digests(devices)
    assert found is not None
    return found


def test_no_device_has_no_digest() -> None:
    assert merge_digests([]) is None


def test_steps_are_aligned_by_number_and_lengths_are_means_of_those_that_have_them() -> None:
    a = device_of({"Add [2]": 300}, (1, 2), spans=(100, 200))
    b = device_of({"Add [2]": 500}, (2, 3), spans=(203, 297))
    found = merged(a, b)
    assert found.steps == [1, 2, 3] and found.span_ns == [100, 202, 297]  # 201.5 is rounded up
    assert (found.windows, found.total_ns, found.devices) == (4, 800, 2)
    assert found.types == [TypeSteps(type="Add", ns=[10, 10, 10], count=[3, 6, 3])]
    assert [c.count for c in found.counts] == [[3, 6, 3]]
    assert keyed(found, "compute") == {"Add [2]": (800, 2)}


def test_a_type_that_one_of_two_devices_runs_is_half_as_long_in_the_mean() -> None:
    idle = structs.replace(device_of({"Add [2]": 100}), types=())
    assert merged(device_of({"Add [2]": 100}), idle).types == [TypeSteps(type="Add", ns=[5], count=[3])]


def test_devices_of_which_one_has_no_steps_are_one_window_each() -> None:
    found = merged(device_of({"Add [2]": 300}, (1, 2), spans=(100, 200)), device_of({"Add [2]": 500}, ()))
    assert (found.steps, found.windows, found.span_ns) == ([], 2, [400])
    assert found.types == [TypeSteps(type="Add", ns=[15], count=[9])]
    assert [c.count for c in found.counts] == [[9]]


def test_too_many_operators_are_told_apart_by_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MOST_KEYS", 3)
    a = device_of({"Add [1]": 10, "Add [2]": 20, "Mul [1]": 5})
    assert merged(a).keyed_by == "shapes"
    b = device_of({"Add [3]": 1})
    found = merged(a, b)
    assert found.keyed_by == "type"
    assert keyed(found, "compute") == {"Add": (31, 3), "Mul": (5, 1)}
    many = merged(a, device_of({"Sub [1]": 1, "Div [1]": 2, "Exp [1]": 4}))
    assert many.keyed_by == "core" and keyed(many, "compute") == {"AI_CORE": (42, 6)}


def test_the_device_that_tells_least_decides() -> None:
    coarse = structs.replace(device_of({"Add": 7}), keyed_by="type")
    found = merged(device_of({"Add [1]": 10, "Add [2]": 20}), coarse)
    assert found.keyed_by == "type" and keyed(found, "compute") == {"Add": (37, 3)}


@pytest.mark.parametrize(("most", "keyed_by", "keys"), [
    (3, "shapes", {"MatMulV2 [2,3;3,4]", "Add [2,4]", "Add [8 x2]"}),
    (2, "type", {"MatMulV2", "Add"}),
    (1, "core", {"AI_CORE", "AI_VECTOR_CORE"}),
])  # fmt: skip
def test_a_device_decides_by_the_number_of_its_operators(
    most: int, keyed_by: str, keys: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MOST_KEYS", most)
    found = assert_exact(analyze_path(kernel_details(tmp_path / "kernel_details.csv", two_steps())))
    assert found.keyed_by == keyed_by
    assert set(keyed(found, "compute")) == keys


def test_beyond_so_many_waits_the_rest_of_a_cause_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MOST_WAITS", 2)
    waits = [PartSum(part="host_wait", key=f"python: f{i}", ns=i, count=1) for i in range(1, 5)]
    waits.append(PartSum(part="host_wait", key="gc: collect", ns=1, count=7))
    found = {p.key: (p.ns, p.count) for p in fold_waits(waits)}
    assert found == {"python: f4": (4, 1), "python: f3": (3, 1), "python: others": (3, 2), "gc: others": (1, 7)}


def test_of_too_many_types_the_costliest_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(digests, "KEPT_TYPES", 1)
    monkeypatch.setattr(digests, "MOST_TYPES", 2)
    kernels = [K(9_500, 1, type="Abs", stream=5, step=1), *two_steps()]
    found = digest(analyze_path(kernel_details(tmp_path / "kernel_details.csv", kernels)))
    assert [t.type for t in found.types] == ["MatMulV2"]
    one = device_of({"Add [2]": 300})
    types = [structs.replace(one.types[0], type=name, ns=[ns]) for name, ns in (("Abs", 1), ("Mul", 5), ("Sin", 2))]
    assert [t.type for t in merged(structs.replace(one, types=types)).types] == ["Mul"]


# --- a job of two ranks, against a slow answer ----------------------------------------------------------------------

Drawn = list[tuple[int, tuple[int, int], tuple[int, int], tuple[int, int]]]
KINDS = ("dp", None)
drawn_collectives = st.lists(
    st.tuples(
        st.sampled_from([0, 1]),  # group
        # per rank: begins so long after the last, in the order of the other rank, and stays
        *[st.tuples(st.integers(1, 25), st.integers(1, 30))] * 2,
        st.tuples(st.integers(0, 40), st.integers(1, 12)),  # compute of both ranks: where, and how long
    ),
    min_size=2,
    max_size=6,
)  # fmt: skip


def rank_of(rank: int, drawn: Drawn, *, named: bool) -> DeviceProfile:
    """A rank with collectives of two groups, that may overlap; ``named``: files tell the kinds of groups."""
    rows, at = [], 1000
    for i, (group, *own, (later, dur)) in enumerate(drawn):
        gap, stay = own[rank]
        at += gap
        name = f"hcom_allReduce__17{group}_{i}_1"
        rows.append((at, at + stay, Work.COMMUNICATION, i // 2, name, group, i))
        rows.append((at + later, at + later + dur, Work.COMPUTE, i // 2, "Add", -1, -1))
    rows.sort()
    start, end, work, step, name, group, index = zip(*rows, strict=True)
    mine = np.array(work) == Work.COMMUNICATION
    columns = [np.array(c, np.int64) for c in (start, end, step, index)]
    tasks = Tasks.build(
        columns[0], columns[1], np.array(work, np.uint8), step=columns[2], type=Labels.of([*name]),
        name=Labels.of([*name]),
    )  # fmt: skip
    none = np.full(int(mine.sum()), -1, np.int64)
    operations = Operations(
        name=Labels.of([*name]).filter(mine),
        type=Labels.of(["allReduce"] * len(none)),
        group=Labels.of([str(g) for g in group]).filter(mine),
        start=columns[0][mine],
        end=columns[1][mine],
        step=columns[2][mine],
        index=columns[3][mine],
        p2p=np.zeros(len(none), np.bool_),
        peer=none,
        retry=none,
        relay=none,
        bytes=none,
        awaited=none,
        awaited_rank=none,
        reached=none,
    )
    groups = tuple(ProcessGroup(str(g), kind, (0, 1)) for g, kind in enumerate(KINDS)) if named else ()
    return DeviceProfile(
        source=f"rank{rank}", rank=rank, device=rank, soc=None, cores=Cores(), tasks=tasks,
        communication=Communication(operations=operations, groups=groups),
    )  # fmt: skip


def slow_split(
    profiles: list[DeviceProfile], devices: list[Device], keys: tuple[str, str], rest: str
) -> Counter[tuple[str, str]]:
    """Of each exposed nanosecond ask which collective owns it, and whether its peer had come yet; ``rest``: if so."""
    stays = [
        dict(zip(p.communication.operations.index.tolist(), p.communication.operations.stay.tolist(), strict=True))
        for p in profiles
    ]
    found: Counter[tuple[str, str]] = Counter()
    for profile, device, own in zip(profiles, devices, stays, strict=True):
        tasks, operations = profile.tasks, profile.communication.operations
        compute = tasks.only(Work.COMPUTE)
        for begin, end in windows_of(device):
            for ns in range(begin, end):
                if ((compute.start <= ns) & (ns < compute.end)).any():
                    continue
                running = np.flatnonzero((operations.start <= ns) & (ns < operations.end)).tolist()
                if running:
                    i = int(operations.index[running[0]])
                    wait = own[i] - min(s[i] for s in stays)
                    part = "wait" if ns < operations.start[running[0]] + wait else rest
                    found[part, keys[int(operations.group[running[0]] or 0)]] += 1
    return found


@given(drawn_collectives, st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=25)
def test_a_job_tells_whose_group_waited(drawn: Drawn, named: bool, world: int | None) -> None:
    """Where nothing tells that the groups are of these two ranks alone, both may have waited for others."""
    profiles = [rank_of(rank, drawn, named=named) for rank in (0, 1)]
    alone = [one for p in profiles if (one := examined(p)) is not None]
    job = as_one_job(alone, AnalyzeRequest(path=Path("here"), world_size=world), LIMITS)
    assume(job is not None)
    assert job is not None
    found = merge_digests([one.digest for one in alone], job.exposed)
    assert found is not None
    assert +by_part(found.parts) == +of_partitions(job.devices)
    keys = ("dp", "2 ranks") if named else ("allReduce", "allReduce")
    split = {(p.part, p.key): p.ns for p in found.parts if p.part in ("wait", "transfer", "comm_unknown") and p.ns}
    rest = "transfer" if named or world else "comm_unknown"
    assert split == slow_split(profiles, job.devices, keys, rest)
    begun = {p.key: p.count for p in found.parts if p.part == "wait"}
    assert sum(begun.values()) == 2 * len(drawn)


@given(drawn_collectives)
@settings(max_examples=15)
def test_a_rank_alone_cannot_split_its_communication(drawn: Drawn) -> None:
    one = examined(rank_of(0, drawn, named=True))
    assert one is not None
    assume(one.excerpt is None)  # steps that cross while operations are in order are of a clock that was set
    found = merge_digests([one.digest])
    assert found is not None
    assert +by_part(found.parts) == +of_partitions([one.report])
    parts = keyed(found, "comm_unknown")
    assert set(parts) <= {"dp", "2 ranks"}
    assert sum(count for _, count in parts.values()) == len(drawn)


# --- without kernels ----------------------------------------------------------------------------------------------


def test_the_exporters_own_split_is_all_that_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    (folder / "step_trace_time.csv").write_text(
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\n"
        "0,7,100.5,20.25,0,20.25,9.25,130,0,20.25,0\n0,8,110,20,0,20,10,140,0,20,0\n"
    )
    found = digest(analyze_path(tmp_path / "rank0_ascend_pt"))
    assert found.steps == [7, 8] and found.span_ns == [130_000, 140_000] and found.windows == 2
    assert keyed(found, "compute") == {None: (210_500, 0)}
    assert keyed(found, "comm_unknown") == {None: (40_250, 0)}
    assert keyed(found, "unattributed") == {None: (19_250, 0)}
    assert "launch" in found.uncounted and not found.counts
