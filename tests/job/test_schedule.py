"""The schedule of a pipeline: micro-batches, chunks and order as they were planted, and what cannot be told."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from cluster_files import write
from cluster_job import Fault, Job
from cluster_world import gain_ns, simulate
from msgspec.structs import replace
from ranks import Item, Work, bandwidth, group, told

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.rank_summary import RankSummary
from npuperf.job.clocks import align, pair_in_time
from npuperf.job.match import match
from npuperf.job.pipeline import find_stages, name_pairs
from npuperf.job.schedule import Schedule, find_schedule
from npuperf.model.job_result import Cluster, Pipeline
from npuperf.model.labels import Labels


def analyzed(job: Job, folder: Path, without: Sequence[str] = ()) -> Cluster:
    write(job, folder)
    for name in without:
        for file in folder.rglob(name):
            file.unlink()
    found = run(AnalyzeRequest(path=folder)).cluster
    assert found is not None
    return found


def pipeline(cluster: Cluster) -> Pipeline:
    assert cluster.pipeline is not None
    return cluster.pipeline


@pytest.mark.parametrize("separate", [False, True], ids=["joined", "apart"])
@pytest.mark.parametrize(("schedule", "name"), [("1f1b", "1F1B"), ("gpipe", "GPipe")])
@pytest.mark.parametrize(("stages", "micro"), [(2, 3), (4, 3), (4, 8)])
def test_micro_batches_are_those_of_the_program(
    stages: int, micro: int, schedule: str, name: str, separate: bool, tmp_path: Path
) -> None:
    """GPipe of two stages was taken for 1F1B with 2m - 1 micro-batches. The bubble is (p - 1) / (m + p - 1) in both."""
    job = Job(pp=stages, dp=1, micro_batches=micro, layers=1, steps=2, schedule=schedule, separate=separate)  # type: ignore[arg-type]
    cluster = analyzed(job, tmp_path)
    found = pipeline(cluster)
    assert (found.micro_batches, found.interleaving, found.schedule) == (micro, 1, name)
    assert found.schedule_share == pytest.approx((stages - 1) / (micro + stages - 1))
    assert sum(r.comm.wait_ns for r in cluster.ranks) == pytest.approx(simulate(job).wait_ns(), rel=0.005)


@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_of_few_micro_batches_the_order_may_not_tell(schedule: str, micro: int, tmp_path: Path) -> None:
    job = Job(pp=2, dp=1, micro_batches=micro, layers=1, steps=2, schedule=schedule, separate=True)  # type: ignore[arg-type]
    found = pipeline(analyzed(job, tmp_path))
    assert (found.micro_batches, found.schedule) == (micro, None)


@pytest.mark.parametrize(("stages", "micro", "chunks"), [(3, 6, 2), (3, 3, 3), (4, 8, 2)])
def test_chunks_go_round(stages: int, micro: int, chunks: int, tmp_path: Path) -> None:
    """Sends run beside compute, in groups of two that no file names; what was unmatched or crossed was 97 % of it."""
    job = Job(pp=stages, dp=1, micro_batches=micro, layers=1, steps=2, schedule="interleaved", virtual=chunks)
    cluster = analyzed(job, tmp_path)
    found = pipeline(cluster)
    assert (found.micro_batches, found.interleaving, found.schedule) == (micro, chunks, "interleaved 1F1B")
    assert found.schedule_share == pytest.approx((stages - 1) / (chunks * micro + stages - 1))
    assert sum(r.comm.wait_ns for r in cluster.ranks) == pytest.approx(simulate(job).wait_ns(), rel=0.005)
    assert sum(g.unmatched for g in cluster.groups) == 0
    assert not [r for r in cluster.roots if r.kind in ("rank", "group", "link")]


@pytest.mark.parametrize(("schedule", "name"), [("1f1b", "1F1B"), ("gpipe", "GPipe")])
@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (3, 4)])
def test_without_bytes_exchanges_are_counted(stages: int, micro: int, schedule: str, name: str, tmp_path: Path) -> None:
    """With kernels alone nobody knows who received: 1F1B has m + 1 exchanges over the last link, GPipe 2m."""
    job = Job(pp=stages, dp=1, micro_batches=micro, layers=1, steps=2, schedule=schedule)  # type: ignore[arg-type]
    found = pipeline(analyzed(job, tmp_path, ("communication*.json",)))
    assert (found.micro_batches, found.schedule) == (micro, name)


def test_a_slow_link_between_stages_is_named_where_no_file_names_its_group(tmp_path: Path) -> None:
    fault = Fault("link", (1, 2), 6.0)
    job = Job(pp=6, dp=1, micro_batches=4, layers=1, steps=3, activation_mb=16.0, separate=True, faults=(fault,))
    root = next(r for r in analyzed(job, tmp_path).roots if r.kind == "link")
    assert root.ranks == [1, 2] and root.gain_ns_per_step is not None
    low, high = root.gain_ns_per_step
    assert 0.98 * low <= gain_ns(simulate(job), fault) <= 1.02 * high


def unnamed(folder: Path) -> None:
    """Let files name no pipelines, as DeepSpeed's do not: nobody says what its groups are for."""
    for file in folder.rglob("profiler_metadata.json"):
        told = json.loads(file.read_text())
        groups = told["parallel_group_info"]
        told["parallel_group_info"] = {name: g for name, g in groups.items() if g["group_name"] != "pp"}
        file.write_text(json.dumps(told))


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved"])
def test_stages_are_found_where_no_group_is_called_a_pipeline(schedule: str, tmp_path: Path) -> None:
    """Of three stages, in groups of two; each of these alone would be a pipeline of two."""
    job = Job(pp=3, dp=2, micro_batches=3, layers=1, steps=2, schedule=schedule, separate=True)  # type: ignore[arg-type]
    write(job, tmp_path)
    unnamed(tmp_path)
    cluster = run(AnalyzeRequest(path=tmp_path)).cluster
    assert cluster is not None
    assert [s.ranks for s in cluster.stages] == [[0, 1], [2, 3], [4, 5]]
    assert (pipeline(cluster).micro_batches, pipeline(cluster).pipelines) == (3, 2)
    assert any("no process group is called a pipeline" in str(note) for note in cluster.notes)


def test_why_a_pipeline_without_collectives_is_no_job_is_said(tmp_path: Path) -> None:
    """Exchanges in a group of four name no peer, and there is no clock; sends in groups of two need none."""
    job = Job(pp=4, dp=1, micro_batches=4, layers=1, steps=2, hosts=2, norm=False)
    result = run(AnalyzeRequest(path=write(job, tmp_path / "joined")))
    assert result.cluster is None
    assert "no collective of these ranks brings their clocks together" in str(result.verdict.reason)
    found = pipeline(analyzed(dataclasses.replace(job, separate=True), tmp_path / "apart"))
    assert (found.micro_batches, found.schedule) == (4, "1F1B")


# --- by hand ---------------------------------------------------------------------------------------------------------

F, B = Work(10), Work(20)


def exchanged(programs: dict[int, list[Item]], ends: dict[str, tuple[int, int]]) -> list[RankSummary]:
    """Ranks whose operations go from one rank to another as ``ends`` says, 2 µs each, none with a running number."""
    members = sorted({rank for pair in ends.values() for rank in pair})
    ranks = told(programs, dict.fromkeys(ends, 2), [group(members, "pp", "pp")])
    found = []
    for summary in ranks:
        done = summary.operations
        names = [name or "" for name in done.name.texts()]
        kinds = ["send" if ends[name][0] == summary.rank else "receive" for name in names]
        peers = [sum(ends[name]) - summary.rank for name in names]
        received = [(i, "HCCS", 8, 1, 1_000) for i, kind in enumerate(kinds) if kind == "receive"]
        found.append(
            replace(
                summary,
                operations=replace(done, type=Labels.of(kinds), peer=np.array(peers)),
                bandwidth=bandwidth(received),
            )
        )
    return found


def told_by(ranks: list[RankSummary]) -> Schedule:
    return find_schedule(ranks, match(ranks, len(ranks)), find_stages(ranks))


def sent(stage: int, program: str) -> list[Item]:
    """A program in short: F and B compute; a0 and g0 send, or receive, activation and gradient 0."""
    return [F if word == "F" else B if word == "B" else f"pp/{word}" for word in program.split()]


def both(first: str, second: str) -> list[RankSummary]:
    words = {word for word in first.split() if word not in "FB"}
    ends = {f"pp/{word}": (0, 1) if word[0] in "ax" else (1, 0) for word in words}
    return exchanged({0: sent(0, first), 1: sent(1, second)}, ends)


def test_parts_of_an_activation_are_one() -> None:
    """DeepSpeed sends every tensor of a tuple by itself, and gradients of some of them: a and x, but only g."""
    ranks = both(
        "F a0 x0 F a1 x1 g0 B F a2 x2 g1 B g2 B",
        "a0 x0 F B a1 x1 g0 F B a2 x2 g1 F B g2",
    )
    assert (told_by(ranks).micro_batches, told_by(ranks).name) == (3, "1F1B")


def test_a_link_over_which_nothing_was_matched_is_said() -> None:
    """Stage 0 exchanges with stage 1 as it should; of stages 1 and 2 no operation has its other end."""
    first = "F a0 g0 B F a1 g1 B"
    ends = {f"pp/{word}": (0, 1) if word[0] == "a" else (1, 0) for word in first.split() if word not in "FB"}
    ends |= {"pp/x0": (2, 3), "pp/y0": (3, 2)}
    ranks = exchanged(
        {0: sent(0, first), 1: sent(1, "a0 F B g0 a1 F B g1"), 2: sent(2, "F x0 y0 B"), 3: sent(3, "x0 F B y0")}, ends
    )
    stages = replace(find_stages(ranks), of=np.array([0, 1, 2, 3]), count=4)
    told = find_schedule(ranks, match(ranks, len(ranks)), stages)
    assert str(told.why) == "no exchange between stages 1 and 2 was matched"


def test_an_order_of_no_known_schedule_is_none() -> None:
    """Stage 0 runs three ahead of four, and then waits: two are 1F1B, all four GPipe."""
    ranks = both("F a0 F a1 F a2 g0 B F a3 g1 B g2 B g3 B", "a0 F a1 F a2 F B g0 a3 F B g1 B g2 B g3")
    found = told_by(ranks)
    assert (found.micro_batches, found.share(2)) == (None, None)
    assert "neither 1F1B's nor GPipe's" in str(found.why)


def test_chunks_of_two_stages_are_not_counted_as_micro_batches() -> None:
    """Two micro-batches in two chunks: activations a and b go round to x, gradients g and a2, a3 back to k; as many of
    them, and as far ahead, as in 1F1B with six. But what stage 1 computes between its sends is F or B or more.
    """
    ranks = both(
        "F a0 F a1 b0 b1 F x0 F x1 g0 g1 B a2 B a3 k0 B k1 B",
        "a0 F a1 b0 F b1 x0 F x1 F B g0 B g1 a2 a3 B k0 B k1",
    )
    assert told_by(ranks).micro_batches is None and "uneven" in str(told_by(ranks).why)
    six = both(
        "F a0 F a1 g0 B F a2 g1 B F a3 g2 B F a4 g3 B F a5 g4 B g5 B",
        "a0 F B a1 g0 F B a2 g1 F B a3 g2 F B a4 g3 F B a5 g4 F B g5",
    )
    assert (told_by(six).micro_batches, told_by(six).name) == (6, "1F1B")


def test_without_gradients_it_is_forward_only() -> None:
    found = told_by(both("F a0 F a1 F a2", "a0 F a1 F a2 F"))
    assert (found.micro_batches, found.name) == (3, "forward only")
    once = told_by(both("F a0", "a0 F"))
    assert str(once.why) == "per step 1 activation over every link, no gradient back"


def test_who_sends_and_receives_in_another_order_is_matched() -> None:
    """Stage 0 begins to receive g0 before it sends a2, stage 1 sends g0 after it began to receive a2."""
    ranks = both("F a0 F a1 F g0 a2 B g1 B g2 B", "a0 F B a1 g0 F B a2 g1 F B g2")
    matched = match(ranks, 2)
    names = np.concatenate([r.operations.name.texts() for r in ranks])
    assert matched.instances == 6 and all(len({*names[matched.instance == i]}) == 1 for i in range(6))


def test_sends_are_paired_with_receives_in_time() -> None:
    """Three stages in one group whose files tell no peer: the ends of a send and of its receive are the same."""
    ends = {"pp/a0": (0, 1), "pp/a1": (1, 2), "pp/g1": (2, 1), "pp/g0": (1, 0)}
    programs: dict[int, list[Item]] = {
        0: [F, "pp/a0", "pp/g0", B],
        1: ["pp/a0", F, "pp/a1", "pp/g1", B, "pp/g0"],
        2: ["pp/a1", F, B, "pp/g1"],
    }
    ranks = exchanged(programs, ends)
    unknown = [replace(r, operations=replace(r.operations, peer=np.full(len(r.operations), -1))) for r in ranks]
    matched = match(unknown, 3)
    assert matched.instances == 0
    paired = pair_in_time(unknown, matched, replace(align(matched, 3), part=np.zeros(3, np.int64)))
    assert [r.operations.peer.tolist() for r in paired] == [r.operations.peer.tolist() for r in ranks]


def test_groups_of_two_are_named_where_what_one_sends_the_other_receives() -> None:
    """Of a group that no file names: both of its ranks, unless one of them had others to send to."""
    ranks = both("F a0 F a1 g0 B g1 B", "a0 F B a1 g0 F B g1")
    unnamed = [
        replace(r, groups=(), operations=replace(r.operations, peer=np.full(len(r.operations), -1))) for r in ranks
    ]
    named, found = name_pairs(unnamed)
    assert found
    assert [g.ranks for r in named for g in r.groups] == [(0, 1)] * 2
    assert [r.operations.peer.tolist() for r in named] == [[1] * 4, [0] * 4]
    fewer = replace(unnamed[1], operations=unnamed[1].operations.take(np.arange(3)))
    assert not any(r.groups for r in name_pairs([unnamed[0], fewer])[0])


def blind(ranks: list[RankSummary], *, compute: bool = True) -> list[RankSummary]:
    """The same where it is not recorded who receives, nor, if so, what is computed."""
    return [
        replace(r, operations=replace(r.operations, type=Labels.of(["batchSendRecv"] * len(r.operations))),
                bandwidth=bandwidth([]), compute_before=r.compute_before * compute)
        for r in ranks
    ]  # fmt: skip


@pytest.mark.parametrize("micro", [1, 2, 3, 4, 6, 8])
def test_exchanges_alone_do_not_tell_that_gradients_come_back(micro: int) -> None:
    """Forward only: a stage exchanges once per micro-batch. Three were taken for two of 1F1B, two for one and back."""
    ranks = both(" ".join(f"F a{i}" for i in range(micro)), " ".join(f"a{i} F" for i in range(micro)))
    found = told_by(blind(ranks))
    assert (found.micro_batches, found.name) == (None, None)
    assert "not recorded who sends" in str(found.why)


def test_without_compute_exchanges_tell_no_schedule() -> None:
    """GPipe of three micro-batches was taken for 1F1B of five where no compute is known."""
    gpipe = both("F a0 F a1 F a2 g0 B g1 B g2 B", "a0 F a1 F a2 F B g0 B g1 B g2")
    assert (told_by(blind(gpipe)).micro_batches, told_by(blind(gpipe)).name) == (3, "GPipe")
    assert told_by(blind(gpipe, compute=False)).micro_batches is None
    once = both("F a0 g0 B", "a0 F B g0")
    assert told_by(blind(once)).micro_batches == 1
    assert told_by(blind(once, compute=False)).micro_batches is None


# --- one step in time -------------------------------------------------------------------------------------------------


def kernels(folder: Path, rank: int, step: int) -> list[tuple[str, float]]:
    """Types and durations (µs) of a rank's kernels in a step that are no communication, in order of time."""
    (file,) = folder.glob(f"*rank_{rank}_*/ASCEND_PROFILER_OUTPUT/kernel_details.csv")
    with file.open() as rows:
        found = [
            (float(row["Start Time(us)"].strip()), row["Type"], float(row["Duration(us)"]))
            for row in csv.DictReader(rows)
            if int(row["Step Id"]) == step and not row["Type"].startswith("hcom")
        ]
    return [(type_, us) for _, type_, us in sorted(found)]


@pytest.mark.parametrize(
    ("schedule", "stages", "micro", "separate"),
    [("1f1b", 4, 6, False), ("1f1b", 3, 3, True), ("gpipe", 3, 4, True), ("1f1b", 2, 1, False)],
)
def test_a_step_in_time_is_the_program_s(
    schedule: str, stages: int, micro: int, separate: bool, tmp_path: Path
) -> None:
    """Attention and its gradient are once in each forward and backward, so kernels say what ran, in which order."""
    job = Job(pp=stages, dp=2, micro_batches=micro, layers=1, steps=3, schedule=schedule, separate=separate)  # type: ignore[arg-type]
    found = pipeline(analyzed(job, tmp_path)).in_time
    assert found is not None and found.told and found.step is not None
    assert [track.stage for track in found.stages] == [*range(stages)]
    for track in found.stages:
        ran = kernels(tmp_path, track.rank, found.step)
        works = dict.fromkeys((f, b) for f, b in zip(track.forward, track.backward, strict=True) if max(f, b) >= 0)
        last = track.stage == stages - 1  # there a micro-batch turns round: forward first
        drawn = "".join(
            letter
            for forward, backward in works
            for letter, n in ((("F", forward), ("B", backward)) if last else (("B", backward), ("F", forward)))
            if n >= 0
        )
        letters = {"FlashAttentionScore": "F", "FlashAttentionScoreGrad": "B"}
        assert drawn == "".join(letters.get(type_, "") for type_, _ in ran)
        for numbers in zip(*works, strict=True):
            assert [n for n in numbers if n >= 0] == [*range(micro)]
        for (start, end), after in zip(
            pairwise([*zip(track.start_ns, track.end_ns, strict=True)]), track.start_ns[1:], strict=False
        ):
            assert start[0] < start[1] <= after == end[0]
        busy = sum(us for type_, us in ran if type_ != "ApplyAdamWV2")
        spans = zip(track.start_ns, track.end_ns, track.what, strict=True)
        worked = sum(b - a for a, b, what in spans if what in ("forward", "backward", "both"))
        assert worked / 1000 == pytest.approx(busy, rel=0.05)


def test_a_step_in_time_says_where_micro_batches_are_not_told_apart(tmp_path: Path) -> None:
    """Chunks, and exchanges of which nobody knows who received: what was recorded is drawn, and nothing else."""
    job = Job(pp=3, dp=1, micro_batches=3, layers=1, steps=2, schedule="interleaved", virtual=2)
    for where, without in (("chunks", ()), ("bytes", ("communication*.json",))):
        one = dataclasses.replace(
            job, schedule="interleaved" if where == "chunks" else "1f1b", virtual=1 + (not without)
        )
        found = pipeline(analyzed(one, tmp_path / where, without)).in_time
        assert found is not None and not found.told
        for track in found.stages:
            assert {*track.what} == {"own", "wait", "communication"}
            assert {*track.forward, *track.backward} == {-1}
