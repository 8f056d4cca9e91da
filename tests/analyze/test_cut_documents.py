"""Documents of many ranks are small, and a comparison, a gate or a lock cannot tell them from whole ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace as changed
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_files import write
from cluster_job import Fault, Job
from msgspec.structs import replace

from npuperf.advise import load_thresholds, sort_findings
from npuperf.against.baselines import reduced, without_blanks
from npuperf.against.compare import compare_results
from npuperf.against.gate_verdicts import judge_gate
from npuperf.against.gates import parse_gate
from npuperf.against.locks import check_lock, lock_text
from npuperf.against.metrics import register_all
from npuperf.against.run import run
from npuperf.against.sides import read_result
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import InputError, UsageError
from npuperf.base.messages import say
from npuperf.model.document import metrics_of
from npuperf.model.efficiency_result import EfficiencySum
from npuperf.model.result import Lost, Result, Step, WitnessCheck
from npuperf.model.shortened import sum_columns, sums_of
from npuperf.show.formats import View, render

register_all()
#: 16 ranks whose hosts are recorded and whose kernels take a tenth longer or shorter by chance; told as 72.
JOB = Job(pp=2, tp=2, dp=4, steps=3, layers=1, kernels=3, hosts=2, jitter=0.1, trace=True)
WAYS = ("whole", "cut", "baseline")


def analyzed(job: Job, status: str) -> Result:
    with TemporaryDirectory() as folder:
        write(job, Path(folder) / "job")
        result = run(AnalyzeRequest(path=Path(folder) / "job"))
    return planted(many(result, 72, job.steps), status)


def planted(result: Result, status: str) -> Result:
    """Plant rows that were lost of 150 files, kernels that rank 50 lacks, and answers with numbers of every rank."""
    lost = [Lost(file=f"rank_{n}", rows=n, reason=say("its times are no numbers")) for n in range(150)]
    lacking = WitnessCheck(
        total="kernels", source="a.csv", unit="count", told=90, found=89, missing_share=0.01, holds=True,
        figures=say("89 kernels here"),
    )  # fmt: skip
    devices = [replace(d, witnesses=[*d.witnesses, lacking]) if d.rank == 50 else d for d in result.devices]
    said = {"problem": "title", "cannot_tell": "needs"}[status]
    findings = [
        replace(f, status=status, **{said: say("rank {n} is uneven", n=f.rank or 0)}) if f.rule == "uneven_host" else f
        for f in result.findings
    ]
    made = {"devices": devices, "findings": sort_findings(findings), "input": replace(result.input, lost=lost)}
    return replace(result, **made)


@cache
def before() -> Result:
    return analyzed(JOB, "problem")


@cache
def after() -> Result:
    """Rank 5 computes more slowly, and the host of rank 10."""
    faults = Fault("compute", (5,), 1.5), Fault("host", (10,), 3.0)
    return analyzed(changed(JOB, seed=4, faults=faults), "cannot_tell")


def written(result: Result, way: str) -> str:
    if way == "baseline":
        return without_blanks(render(reduced(result), "json"))
    return render(result, "json", View(full=way == "whole"))


@cache
def read_back(of: str, way: str) -> Result:
    """The result as it is read where it was written in this way."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "r.json"
        file.write_text(written(before() if of == "before" else after(), way), "utf-8")
        return read_result(file, of)


def gates() -> list[str]:
    """A gate of every metric, about everything, over the steps in every way, against a limit and a baseline."""
    about = {"op": ("MatMulV3",), "finding": ("sync_points", "idle_cores"), "comm.wait": ("dp_cp", "pp")}
    sums = [
        f"{metric.name}[{what}]"
        if metric.name.startswith("comm") and what
        else f"{metric.name}:{what}" * bool(what) or metric.name
        for metric in metrics_of(Result).values()
        if not metric.expects
        for what in (*about.get(metric.name, ()), *([] if metric.argument == "required" else [""]))
    ]
    found = [f"{sum_}>{limit}" for sum_ in sums for limit in ("+0", "+5%", "1")]
    found += [f"{way}({sum_})>+5%" for sum_ in sums for way in ("p95", "max", "mean")]
    return [gate for gate in found if is_gate(gate)]


def is_gate(text: str) -> bool:
    try:
        return bool(parse_gate(text, Result))
    except UsageError:
        return False


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize(("old", "new"), [("before", "after"), ("after", "before"), ("before", "before")])
def test_no_comparison_and_no_gate_sees_a_cut(old: str, new: str, way: str) -> None:
    thresholds = load_thresholds({})
    sides = {way: (read_back(old, way), before() if new == "before" else after()) for way in ("whole", way)}
    compared = {way: compare_results([a], [b], thresholds, allow_mismatch=True) for way, (a, b) in sides.items()}
    assert compared[way] == compared["whole"]
    assert len(gates()) > 60
    for text in gates():
        condition = parse_gate(text, Result)
        answers = [judge_gate(condition, b, [a], comparison=compared[w]) for w, (a, b) in sides.items()]
        answers += [judge_gate(condition, a) for a, _ in sides.values() if not condition.relative]
        assert answers[1::2] == answers[::2], text


@pytest.mark.parametrize("way", WAYS[1:])
def test_a_cut_run_can_be_the_new_side_again(way: str) -> None:
    """With --again: its steps and findings are those of the whole run."""
    thresholds, old = load_thresholds({}), before()
    whole, cut = ([after(), read_back("before", w)] for w in ("whole", way))
    assert compare_results([old], cut, thresholds) == compare_results([old], whole, thresholds)


@pytest.mark.parametrize("way", WAYS[1:])
def test_no_lock_sees_a_cut(tmp_path: Path, way: str) -> None:
    lock = tmp_path / "perf.lock"
    lock.write_text(lock_text(read_back("before", way)), "utf-8")
    assert lock.read_text("utf-8") == lock_text(read_back("before", "whole"))
    assert check_lock(read_back("after", way), lock) == check_lock(read_back("after", "whole"), lock)


def test_what_is_cut_is_said() -> None:
    """By hand: 72 devices with 3 steps each, of which 16 are whole; as many findings as each list is short of."""
    result = before()
    document = json.loads(written(result, "cut"))
    cuts = {cut["list"]: (cut["shown"], cut["total"]) for cut in document["cut"]}
    whole = json.loads(written(result, "whole"))
    assert "cut" in whole
    assert whole["cut"] == []
    assert cuts["devices[].steps"] == (48, 216)
    assert cuts["findings"] == (len(document["findings"]), len(whole["findings"]))
    assert sum(len(d["phases"]) for d in document["devices"]) == cuts["devices[].phases"][0]
    assert sum(len(d["phases"]) for d in whole["devices"]) == cuts["devices[].phases"][1]
    assert {d["rank"] for d in document["devices"]} == set(range(72))
    others = [rank for f in document["findings"] for more in f["also"] for rank in more["ranks"]]
    assert len(document["findings"]) + len(others) == len(whole["findings"])
    said = {(f["rule"], f["rank"]): f["title"] for f in whole["findings"]}
    for one in document["findings"]:  # that all is well is said in its own words only once
        for more in one["also"]:
            own = {said[one["rule"], rank] for rank in more["ranks"]}
            assert more["title"] is None if one["status"] == "ok" or own == {one["title"]} else own == {more["title"]}


def test_the_devices_told_whole_are_those_that_matter() -> None:
    result = after()
    document = json.loads(written(result, "cut"))
    assert result.cluster is not None
    first = result.cluster.roots[0]
    told = {device["rank"] for device in document["devices"] if device["steps"]}
    assert {*first.ranks} & {5, 10}
    assert {*first.ranks} <= told
    weights = [f["gain_ns_per_step"][1] for f in document["findings"] if f["gain_ns_per_step"] and f["evidence"]]
    assert weights  # what saves most has its evidence
    assert max(weights) == max(f.gain_ns_per_step[1] for f in result.findings if f.gain_ns_per_step)


def test_few_ranks_are_told_whole(tmp_path: Path) -> None:
    write(changed(JOB, dp=2, hosts=1, trace=False), tmp_path / "job")
    result = run(AnalyzeRequest(path=tmp_path / "job"))
    assert written(result, "cut") == written(result, "whole")
    # and what their verdict names is a tenth of what its evidence has
    said = dict(re.findall(r"10 % less (host|compute|transfer).*? by ([\d.]+) %", str(result.verdict.reason)))
    evidence = {"transfer": result.verdict.evidence["communication_elasticity"]}
    evidence |= {name: result.verdict.evidence[f"{name}_elasticity"] for name in ("host", "compute")}
    assert {name: float(part) for name, part in said.items()} == {
        n: round(10 * max(e, 0), 1) for n, e in evidence.items()
    }


def many(result: Result, ranks: int, steps: int) -> Result:
    """A job of so many ranks, with so many steps each, whose devices and findings are those of the result again."""
    assert result.cluster is not None

    def of_rank(part, rank: int):
        return replace(part, rank=rank)

    def with_steps(found: list[Step]) -> list[Step]:
        return [replace(found[at % len(found)], step=at) for at in range(steps)]

    own = {rank: [f for f in result.findings if f.rank == rank] for rank in range(len(result.devices))}
    places = [rank % len(own) for rank in range(ranks)]
    devices = [result.devices[place] for place in places]
    cluster = result.cluster
    return replace(
        result,
        devices=[of_rank(replace(d, steps=with_steps(d.steps)), rank) for rank, d in enumerate(devices)],
        findings=[of_rank(f, rank) for rank, place in enumerate(places) for f in own[place]],
        what_if=[of_rank(one, rank) for rank in range(ranks) for one in result.what_if if one.rank == places[rank]],
        cluster=replace(cluster, ranks=[of_rank(cluster.ranks[place], rank) for rank, place in enumerate(places)]),
    )


def test_a_thousand_ranks_are_twelve_megabytes() -> None:
    """Of 1,024 ranks with launches, counters and ten steps each a document has no more than 12 MB, a baseline half."""
    result = many(after(), 1_024, 10)
    assert len(written(result, "cut").encode()) < 12_000_000
    assert len(written(result, "baseline").encode()) < 6_000_000


def test_steps_that_contradict_themselves_are_no_baseline(tmp_path: Path) -> None:
    note = json.loads(written(before(), "baseline"))
    note["devices"][7]["step_columns"]["parts"]["comm_wait_ns"].pop()
    file = tmp_path / "r.json"
    file.write_text(json.dumps(note), "utf-8")
    with pytest.raises(InputError, match="it has not something for every step"):
        read_result(file, "r")


SUMS = {
    "all told, one figure each": [EfficiencySum(hfu=(0.2, 0.2), kernels=(0.2, 0.2), cube_busy=0.25,
                                                recoverable_ns=(1, 1))],
    "bounds": [EfficiencySum(hfu=(0.2, 0.3), kernels=(0.1, 0.3), cube_busy=None, recoverable_ns=(1, 9), palm=0.4)],
    "nothing told": [EfficiencySum(hfu=None, kernels=None, cube_busy=None, recoverable_ns=None)],
    "some of the steps": [EfficiencySum(hfu=None, kernels=None, cube_busy=0.5, recoverable_ns=None),
                          EfficiencySum(hfu=(0.1, 0.1), kernels=(0.1, 0.1), cube_busy=0.5, recoverable_ns=(0, 4))],
}  # fmt: skip


@pytest.mark.parametrize("sums", SUMS.values(), ids=SUMS)
def test_columns_of_efficiency_are_as_good_as_what_they_are_of(sums: list[EfficiencySum]) -> None:
    columns = sum_columns(sums)
    assert sums_of(json.loads(json.dumps(columns)), len(sums)) == sums
    assert all(any(value is not None for value in column) for column in columns.values())
