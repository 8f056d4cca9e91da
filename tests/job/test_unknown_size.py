"""Jobs of which nobody says how many ranks they have: what may be waiting for others is never called transfer."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from ranks import MS, bandwidth, ints, link_use, operations, summary

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.rank_summary import RankSummary, awaited_ranks, least_transfer, least_wait, slower_than_larger
from npuperf.job.job_study import find_world
from npuperf.job.match import match
from npuperf.job.waits import find_waits, held_up, split_exposed
from npuperf.model.communication import ProcessGroup
from npuperf.model.result import Result
from npuperf.show.formats import View, render
from npuperf.show.job_charts import groups

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "pipeline_job"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "msinsight" / "text" / "level1"


def two(*, least: tuple[int, int] = (0, 0), world: int | None = None, **parts: Any) -> list[RankSummary]:
    """Two ranks in one allReduce: rank 0 stays 10 ms, rank 1, which came later, 4."""
    return [
        summary(rank, operations=operations([{"stay": stay * MS, "name": "a", "index": 0}]), world=world,
                groups=(ProcessGroup("1", least=own),), **parts)
        for rank, (stay, own) in enumerate(zip((10, 4), least, strict=True))
    ]  # fmt: skip


def test_ranks_numbered_without_a_gap_are_not_all_ranks() -> None:
    ranks = two()
    world = find_world(ranks, None)
    assert (world.size, world.least) == (None, 2)
    matched = match(ranks, world.size)
    assert not matched.groups[0].complete and not matched.complete.any()
    waits = find_waits(matched, ranks)
    assert waits.wait.tolist() == [6 * MS, 0]
    assert waits.transfer.tolist() == [0, 0]
    assert waits.unknown.tolist() == [4 * MS, 4 * MS]


@pytest.mark.parametrize("told", ["recorded", "by the user"])
def test_a_size_that_is_told_counts(told: str) -> None:
    ranks = two(world=2 if told == "recorded" else None)
    world = find_world(ranks, None if told == "recorded" else 2)
    assert (world.size, world.least) == (2, 2)
    waits = find_waits(match(ranks, world.size), ranks)
    assert waits.transfer.tolist() == [4 * MS, 4 * MS] and not waits.unknown.any()


@pytest.mark.parametrize(
    ("least", "complete"), [((2, 2), True), ((2, 3), False), ((8, 8), False), ((2, 0), False), ((0, 0), False)]
)
def test_links_that_lead_nowhere_else_close_a_group(least: tuple[int, int], complete: bool) -> None:
    """A collective reaches all: where each rank's links end among those loaded there is nobody else."""
    ranks = two(least=least)
    assert match(ranks, None).groups[0].complete is complete
    assert find_world(ranks, None).least == max(2, *least)


def test_a_group_of_all_ranks_tells_the_size() -> None:
    """Other groups do not: they tell of ranks that there are at least."""
    ranks = [summary(r, groups=(ProcessGroup("1", "tp", (0, 1)), ProcessGroup("2", "dp", (r, r + 2)))) for r in (0, 1)]
    assert (find_world(ranks, None).size, find_world(ranks, None).least) == (None, 4)


def test_what_is_transfer_for_certain_is_that_of_the_operation() -> None:
    """Rank 0's links tell of 2 ms, rank 1's of 1; the exporter saw rank 1 transfer for 3 ms: 3 for both."""
    moved = [bandwidth([(0, "HCCS", 64, 1, ns * MS)]) for ns in (2, 1)]
    use = link_use([{"source": 0, "target": 1, "bytes": 1, "ns": 1, "name": "a"}])
    ranks = [
        RankSummary(**{name: getattr(r, name) for name in r.__struct_fields__} | {
            "bandwidth": own, "links": use, "transit": ints([transit]),
        })
        for r, own, transit in zip(two(), moved, (-1, 3 * MS), strict=True)
    ]  # fmt: skip
    waits = find_waits(match(ranks, None), ranks)
    assert waits.transfer.tolist() == [3 * MS, 3 * MS]
    assert waits.unknown.tolist() == [MS, MS]
    assert (waits.transfer + waits.wait + waits.unknown).tolist() == [10 * MS, 4 * MS]


@pytest.mark.parametrize(("hidden", "certain"), [(0, 3), (2, 1), (4, 0)])
def test_transfer_that_fits_behind_compute_is_not_exposed_for_certain(hidden: int, certain: int) -> None:
    """Of rank 0's 10 ms the first 6 are waiting; of the other 4, 3 are transfer and ``hidden`` lie behind compute.

    Two pieces are exposed: [0, 6 + 1) and the last 4 - 1 - hidden ms.
    """
    shown = 4 - hidden
    pieces = [(0, 6 * MS + MS), (10 * MS - (shown - 1) * MS, 10 * MS)] if shown > 1 else [(0, 6 * MS)]
    given = two(transit=ints([3 * MS]), bandwidth=bandwidth([(0, "HCCS", 64, 1, 1)]),
                exposed_op=ints([0] * len(pieces)), exposed_start=ints([a for a, _ in pieces]),
                exposed_end=ints([b for _, b in pieces]))  # fmt: skip
    matched = match(given, None)
    waits = find_waits(matched, given)
    assert waits.transfer.tolist() == [3 * MS, 3 * MS]
    whole = split_exposed(given[0], matched, waits, 0, ints([0]), ints([10 * MS]))
    exposed = sum(b - a for a, b in pieces)
    assert (whole.wait.tolist(), whole.transfer.tolist()) == ([6 * MS], [certain * MS])
    assert whole.unknown.tolist() == [exposed - (6 + certain) * MS]
    # Cut anywhere, the parts of the windows add up to those of the whole.
    edges = np.arange(0, 10 * MS + 1, MS // 2)
    cut = split_exposed(given[0], matched, waits, 0, edges[:-1], edges[1:])
    assert [int(part.sum()) for part in (cut.wait, cut.transfer, cut.unknown)] == [
        int(part[0]) for part in (whole.wait, whole.transfer, whole.unknown)
    ]


def test_what_was_awaited_is_waiting_for_who_is_not_there() -> None:
    """Rank 0 waits 9 ms in all before anything moves, rank 1 3 ms, for rank 3 of the group: 1 ms may be transfer."""
    ranks = [
        summary(rank, operations=operations([{"stay": stay * MS, "name": "a", "index": 0, "awaited": awaited * MS,
                                              "awaited_rank": 3}]), groups=(ProcessGroup("1"),))
        for rank, (stay, awaited) in enumerate(((10, 9), (4, 2)))
    ]  # fmt: skip
    matched = match(ranks, None)
    waits = find_waits(matched, ranks)
    assert (waits.wait.tolist(), waits.absent.tolist()) == ([9 * MS, 3 * MS], [3 * MS, 3 * MS])
    assert (waits.unknown.tolist(), waits.here.tolist()) == ([MS, MS], [6 * MS, 0])
    cut = np.split(waits.absent, matched.first[1:-1])
    assert [(a.rank, a.group, a.ns) for a in awaited_ranks(ranks, cut)] == [(3, "1", 6 * MS)]
    # Where all are loaded, the shortest stay is the transfer, whatever notifications say.
    whole = find_waits(match(ranks, 2), ranks)
    assert whole.wait.tolist() == [6 * MS, 0] and not whole.absent.any() and not whole.unknown.any()
    # Ranks of a group that is known are those of the job.
    named = [replace(r, groups=(ProcessGroup("1", "dp", (0, 1, 4, 6)),)) for r in ranks]
    assert [(a.rank, a.group) for a in awaited_ranks(named, cut)] == [(6, None)]


def test_of_a_broadcast_an_early_wait_may_be_for_data() -> None:
    row = {"stay": 10 * MS, "type": "broadcast", "awaited": 9 * MS, "awaited_rank": 1}
    alone = summary(0, operations=operations([row]))
    assert least_wait(alone, least_transfer(alone)).tolist() == [0]


def test_an_operation_that_moves_less_and_takes_far_longer_waits() -> None:
    """20 ms for 1 MB, where 8 MB take 2 and 4 MB take 3; what moves more than all may take as long as it likes."""
    rows = [{"name": f"op{i}", "index": i, "stay": stay * MS} for i, stay in enumerate((20, 2, 3, 50))]
    moved = bandwidth([(i, "HCCS", mb * 1_000_000, 1, 1) for i, mb in enumerate((1, 8, 4, 90))])
    ranks = [summary(r, operations=operations(rows), bandwidth=moved, groups=(ProcessGroup("1"),)) for r in (0, 1)]
    (found,) = held_up(match(ranks, None), ranks, 5)
    assert (found.name, found.bytes, found.stay) == ("op0", 1_000_000, 20 * MS)
    assert (found.other, found.other_bytes, found.other_stay) == ("op1", 8_000_000, 2 * MS)
    assert held_up(match(ranks, 2), ranks, 5) == []  # where all are there nobody else is waited for


# -- Two of eight ranks, as they were recorded; and without what tells that they are two of eight.


@pytest.fixture
def recorded(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Take away what names the other ranks: ``links`` keeps sums per operation, ``level0`` keeps neither."""
    if not DATA.is_dir():
        pytest.skip("the vendor's samples are not here")
    path = tmp_path / "job"
    shutil.copytree(DATA, path, copy_function=shutil.copyfile)
    for folder in path.rglob("*"):
        if folder.is_dir():
            folder.chmod(0o755)
    for output in path.glob("*/ASCEND_PROFILER_OUTPUT"):
        if request.param != "whole":
            (output / "communication_matrix.json").unlink()
        if request.param == "level0":
            (output / "communication.json").unlink()
            events = json.loads((output / "trace_view.json").read_text())
            tasks = [e for e in events if "transport type" not in (e.get("args") or {})]
            (output / "trace_view.json").write_text(json.dumps(tasks))
    return path


def raw_operations(rank: int) -> dict[str, tuple[float, float]]:
    """Of each operation: its stay, and the most that is transfer for certain, ms, of the exporter's own file."""
    (file,) = DATA.glob(f"rank{rank}_*/ASCEND_PROFILER_OUTPUT/communication.json")
    found = {}
    for name, op in json.loads(file.read_text())["step50"]["collective"].items():
        if name != "Total Op Info":
            times, links = op["Communication Time Info"], op["Communication Bandwidth Info"]
            seven = links["HCCS"]["Transit Time(ms)"] / 7  # each rank has a link to each of seven others
            assert links["RDMA"]["Transit Time(ms)"] == links["PCIE"]["Transit Time(ms)"] == 0
            found[name.split("@")[0]] = (times["Elapse Time(ms)"], max(times["Transit Time(ms)"], seven))
    return found


def raw_waits(rank: int) -> dict[str, dict[str, Any]]:
    """Of each operation, from the timeline alone, µs: its start, what it waited for each rank before it moved anything,
    and of the longest of these what is left without the lag of its own notification and the busiest plane's transfers.
    """
    (file,) = DATA.glob(f"rank{rank}_*/ASCEND_PROFILER_OUTPUT/trace_view.json")
    events = [e for e in json.loads(file.read_text()) if e.get("ph") == "X" and e["name"] != "process_name"]
    inside = [(float(e["ts"]), e) for e in events if "transport type" in (e.get("args") or {})]
    found = {}
    for op in (e for e in events if e["name"].startswith("hcom_")):
        begin = float(op["ts"])
        parts = [(t - begin, e) for t, e in inside if begin <= t < begin + op["dur"]]
        links = [(t, e) for t, e in parts if e["args"]["link type"] == "HCCS" and e["args"]["size(Byte)"]]
        waits = [(t, e) for t, e in parts if e["name"] == "Notify_Wait" and t + e["dur"] <= min(t for t, _ in links)]
        lag, longest = max(waits, key=lambda row: row[1]["dur"])
        busy = Counter[int]()
        for _, e in links:
            busy[e["tid"]] += e["dur"]
        left = longest["dur"] - lag - max(busy.values())
        found[op["name"]] = {
            "start": begin, "by": {e["args"]["dst rank"]: e["dur"] for _, e in waits},
            "rank": longest["args"]["dst rank"], "least": max(left, 0.0),
        }  # fmt: skip
    return found


def possible(*, parts: bool) -> dict[str, float]:
    """Of each operation what may be transfer at most, ms; ``parts``: they are recorded, too."""
    stays = [{name: stay for name, (stay, _) in raw_operations(r).items()} for r in (0, 1)]
    waited = [{name: of["least"] / 1000 for name, of in raw_waits(r).items()} for r in (0, 1)]
    return {
        name: min(s[name] - (w[name] if parts else 0) for s, w in zip(stays, waited, strict=True)) for name in stays[0]
    }


def test_a_first_wait_is_as_long_as_the_other_is_late() -> None:
    """Rank 1 begins the first allReduce 5.608 ms after rank 0, by the clock that both share on one machine."""
    if not DATA.is_dir():
        pytest.skip("the vendor's samples are not here")
    first, second = (raw_waits(r)["hcom_allReduce__586_0_1"] for r in (0, 1))
    assert second["start"] - first["start"] == pytest.approx(5_608, abs=1)
    assert first["by"][1] == pytest.approx(5_608, abs=10) and second["by"][0] < 1
    # What both waited for rank 5 ends at the same time.
    assert first["start"] + first["by"][5] == pytest.approx(second["start"] + second["by"][5], abs=10)


@pytest.mark.parametrize("recorded", ["whole", "sums", "level0"], indirect=True)
def test_two_of_eight_are_never_said_to_transfer(recorded: Path, request: pytest.FixtureRequest) -> None:
    result = run(AnalyzeRequest(path=recorded, no_cache=True))
    cluster = result.cluster
    assert cluster is not None and cluster.world_size is None
    assert not any(group.complete for group in cluster.groups)
    assert (
        cluster.replay is not None and cluster.replay.error < 1e-3
    )  # the job is replayed with what it waited for others
    (comm,) = (w for w in result.what_if if w.expr == "comm*0.5" and w.rank is None)
    assert comm.gain_ns_per_step is not None and comm.gain_ns_per_step[0] == 0
    recorded_parts = not request.node.name.endswith("[level0]")
    assert cluster.world_size_least == (8 if recorded_parts else 2)  # parts name the others where no matrix does
    most = sum(possible(parts=recorded_parts).values())
    assert comm.gain_ns_per_step[1] == pytest.approx(most / 2 * MS, rel=0.002)  # all that may be transfer, halved
    for own in result.what_if:
        if own.expr == "comm*0.5":
            assert own.gain_ns_per_step is not None and own.gain_ns_per_step[0] == 0
    (finding,) = (f for f in result.findings if f.rule == "exposed_communication")
    assert finding.next is not None and finding.gain_ns_per_step is not None
    told = "most of it is waiting" if recorded_parts else "load all ranks of the job"
    assert finding.next.id.startswith(told) and "move less" not in str(finding.next)
    assert finding.gain_ns_per_step[0] == 0 and finding.gain_ns_per_step[1] <= 1.002 * most * MS
    # Sizes tell which operation waits, whether they are of links or of elements; parts tell for whom.
    longest = finding.evidence["held_up"][0]
    assert longest["name"] == "hcom_allReduce__586_0_1"
    assert longest["bytes"] == (4 * 4_097_000 if request.node.name.endswith("[level0]") else 28_647_232)
    awaited = sum(of["least"] for r in (0, 1) for of in raw_waits(r).values())  # µs
    late = sum(s[n] - min(s[n], t[n]) for s, t in both_ways() for n in s) * 1000  # what they waited for each other
    told_of = finding.evidence["awaited"]
    assert [(one["rank"], one["group"] is None) for one in told_of] == ([(5, False)] if recorded_parts else [])
    if recorded_parts:
        assert told_of[0]["ns"] == pytest.approx((awaited - late) * 1000, rel=0.002)


def both_ways() -> list[tuple[dict[str, float], dict[str, float]]]:
    """Stays of one rank and of the other, ms."""
    first, second = ({name: stay for name, (stay, _) in raw_operations(r).items()} for r in (0, 1))
    return [(first, second), (second, first)]


@pytest.mark.parametrize("recorded", ["whole"], indirect=True)
def test_one_quantity_has_one_answer(recorded: Path) -> None:
    """Table, ranks, groups, finding and partition of the exporter's own figures: 3.9 ms per rank of 100."""
    result = run(AnalyzeRequest(path=recorded, no_cache=True))
    cluster = result.cluster
    assert cluster is not None and cluster.absent == [2, 3, 4, 5, 6, 7] and cluster.world_size_least == 8
    own = [raw_operations(r) for r in (0, 1)]
    certain = {name: max(mine[name][1] for mine in own) for name in own[0]}
    most = possible(parts=True)
    for of in cluster.collectives:
        assert of.transfer_ns == pytest.approx(certain[of.name] * MS, abs=20)
        assert of.transfer_ns + of.unknown_ns == pytest.approx(most[of.name] * MS, abs=2_000)
        assert of.last is None
    whole = sum(certain.values()) * MS
    for rank in cluster.ranks:
        assert rank.comm.transfer_ns == sum(of.transfer_ns for of in cluster.collectives)
        assert rank.comm.transfer_ns == pytest.approx(whole, abs=100)
        assert rank.comm.total_ns == rank.comm.transfer_ns + rank.comm.wait_ns + rank.comm.unknown_ns
    (group,) = cluster.groups
    assert group.transfer_ns == sum(r.comm.transfer_ns for r in cluster.ranks)
    assert group.unknown_ns == sum(r.comm.unknown_ns for r in cluster.ranks)
    (finding,) = (f for f in result.findings if f.rule == "exposed_communication")
    assert finding.evidence["transfer_ns"] == sum(r.comm.exposed_transfer_ns for r in cluster.ranks)
    by_rank = {d.rank: d.partition.comm_transfer_ns for d in result.devices}
    assert by_rank == {r.rank: r.comm.exposed_transfer_ns for r in cluster.ranks}
    assert sum(p.ns for p in result.digest.parts if p.part == "transfer") == sum(by_rank.values())
    # 28.65 MB in 73.5 ms beside 117.44 in 2.3: rank 5 comes 78.8 ms late, as its Notify_Wait says.
    first = finding.evidence["held_up"][0]
    assert first["name"] == "hcom_allReduce__586_0_1" and first["bytes"] == 28_647_232


@pytest.mark.parametrize("recorded", ["sums"], indirect=True)
def test_who_has_all_ranks_may_say_so(recorded: Path) -> None:
    def shared(**told: Any) -> Result:
        return run(AnalyzeRequest(path=recorded, no_cache=True, **told))

    cluster = shared(world_size=2).cluster
    assert cluster is not None and cluster.world_size == 2 and all(g.complete for g in cluster.groups)
    assert all(r.comm.unknown_ns == 0 and r.comm.transfer_ns > 0 for r in cluster.ranks)
    cluster = shared(world_size=8).cluster
    assert cluster is not None and cluster.absent == [2, 3, 4, 5, 6, 7] and not any(g.complete for g in cluster.groups)


# -- The same quantity wherever it stands.


def test_the_row_of_a_rank_is_of_one_step() -> None:
    """Of two: its parts add up to the step beside which they stand."""
    result = run(AnalyzeRequest(path=SAMPLE, no_cache=True))
    cluster = result.cluster
    assert cluster is not None and cluster.steps == 2
    rows = list(csv.DictReader(io.StringIO(render(result, "csv", View(table="ranks")))))
    for row in rows:
        own = next(r for r in cluster.ranks if r.rank == int(row["rank"]))
        assert 2 * int(row["compute_ns"]) == pytest.approx(own.compute_ns, abs=2)
        parts = int(row["compute_ns"]) + sum(int(row[f"exposed_{p}_ns"]) for p in ("transfer", "wait", "unknown"))
        assert parts + int(row["idle_ns"]) == pytest.approx(int(row["step_ns"]), rel=0.001)


@pytest.mark.parametrize("recorded", ["whole"], indirect=True)
def test_a_rank_waits_for_its_host_as_its_own_report_says(recorded: Path) -> None:
    """Launches under way are another part: neither row, nor gate, nor partition counts them as waiting."""
    result = run(AnalyzeRequest(path=recorded, no_cache=True, fail_on=("host_wait>0%",)))
    assert result.cluster is not None
    waits = {d.rank: d.window.host_wait_ns for d in result.devices}
    assert {r.rank: r.host_wait_ns for r in result.cluster.ranks} == waits
    worst = max(100 * wait / d.window.span_ns for d in result.devices for wait in [waits[d.rank]])
    assert result.gates[0].value == pytest.approx(worst)


@pytest.mark.parametrize("recorded", ["level0"], indirect=True)
def test_the_page_draws_what_is_unknown(recorded: Path) -> None:
    """All but the waiting may be either: 200.7 ms of both ranks, which is neither drawn as transfer nor left out."""
    cluster = run(AnalyzeRequest(path=recorded, no_cache=True)).cluster
    assert cluster is not None
    chart = groups(cluster)
    assert chart is not None and "c-communication" in str(chart)
    assert "transfer 0 ns, waiting 5.63 ms, unknown 200.74 ms" in str(chart)


@pytest.mark.parametrize("seed", range(20))
def test_who_was_slower_than_a_larger_one_of_its_kind_is_found_by_asking_every_pair(seed: int) -> None:
    random = Random(seed)
    rows = [(random.randrange(3), random.choice([0, 0, 10, 20, 40]), random.randrange(40)) for _ in range(12)]
    kind, moved, stay = (np.array(column) for column in zip(*rows, strict=True))
    found = dict(slower_than_larger(kind, moved, stay, 2.0))
    for i, (of, size, took) in enumerate(rows):
        larger = [t for k, s, t in rows if k == of and s >= size > 0]
        slow = bool(larger) and took > 2 * max(min(larger), 1)
        assert (i in found) == slow
        assert not slow or (stay[found[i]], kind[found[i]], moved[found[i]] >= size) == (min(larger), of, True)
