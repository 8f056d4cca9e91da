"""One rank of a job: its report is its own, and its communication splits as that of the job does."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from cluster_files import write
from cluster_job import Fault, Job

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Device, Partition, Result
from npuperf.show.formats import View, render

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "pipeline_job"
CLUSTER = ROOT.parent / "shared" / "data" / "msinsight" / "cluster4"
#: What little is read of ranks that were not asked for.
FEW = {"communication.json", "communication_matrix.json"}


def analyze(path: Path, **asked: Any) -> Result:
    return run(AnalyzeRequest(path=path, no_cache=True, **asked))


def split(p: Partition) -> tuple[int, ...]:
    return p.comm_exposed_ns, p.comm_transfer_ns, p.comm_wait_ns, p.comm_unknown_ns


def splits(device: Device) -> list[tuple[int, ...]]:
    """Of a device as a whole, of what is judged, of its steps and of its phases."""
    inside = [*(s.partition for s in device.steps), *(p.partition for p in device.phases)]
    return [split(p) for p in (device.partition, device.window, *inside)]


def as_in_the_job(path: Path, *ranks: int) -> list[Result]:
    """Hold the split of each rank by itself against that of the job, to the nanosecond."""
    job = {device.rank: device for device in analyze(path).devices}
    found = []
    for rank in ranks:
        alone = analyze(path, rank=rank)
        (own,) = alone.devices
        assert own.rank == rank and alone.cluster is None
        assert splits(own) == splits(job[rank])
        assert own.window.comm_transfer_ns + own.window.comm_wait_ns > 0
        found.append(alone)
    return found


def test_the_sample() -> None:
    for result in as_in_the_job(SAMPLE, 0, 1, 2, 3):
        rank = result.devices[0].rank
        others = {Path(f).name for f in result.input.files if f"rank_{rank}_" not in f}
        assert {name for name in others if not name.startswith("profiler_")} == FEW  # neither kernels nor timelines
        assert result.digest is not None
        parts = {p.part for p in result.digest.parts}
        assert {"transfer", "wait"} <= parts and "comm_unknown" not in parts


def test_nothing_is_told_of_files_of_other_ranks_that_are_not_needed(tmp_path: Path) -> None:
    whole = analyze(SAMPLE, rank=0)
    folder = tmp_path / "job"
    shutil.copytree(SAMPLE, folder)
    (folder / "rank_1_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv").write_text("Step,Computing\n10,abc\n")
    result = analyze(folder, rank=0)
    assert (result.input.warnings, result.input.lost) == (whole.input.warnings, whole.input.lost)
    assert splits(result.devices[0]) == splits(whole.devices[0])


def late(path: Path, rank: int, steps: int) -> list[tuple[int, float]]:
    """For whom a rank waits per step, ms: who stays shortest in each operation came last; by json alone."""
    stays: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for folder in path.glob("rank_*_ascend_pt"):
        own = int(re.findall(r"\d+", folder.name)[0])
        for step, kinds in json.loads((folder / "ASCEND_PROFILER_OUTPUT/communication.json").read_text()).items():
            for kind, ops in kinds.items():
                for name, op in ops.items():
                    if name != "Total Op Info":
                        head, group = name.split("@")
                        key = re.findall(r"__\d+_(\d+)_", head)[0] if kind == "p2p" else head
                        stays[group, step + key][own] = op["Communication Time Info"]["Elapse Time(ms)"]
    spent = Counter[int]()
    for of in stays.values():
        if rank in of and len(of) > 1:
            last = min(of, key=of.__getitem__)
            spent[last] += of[rank] - of[last]
    return [(r, t / steps) for r, t in spent.most_common() if t]


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_whom_it_waits_for(rank: int) -> None:
    """In the sample nothing of communication is hidden, so that all waiting is exposed."""
    (device,) = analyze(SAMPLE, rank=rank).devices
    assert device.communication is not None and device.communication.waits is not None
    told = re.findall(r"rank (\d+) \(([\d.]+) (ms|us)\)", str(device.communication.waits))
    expected = [(r, t) for r, t in late(SAMPLE, rank, 2) if t >= 0.05 * device.window.comm_wait_ns / 2e6]
    assert [int(r) for r, _, _ in told] == [r for r, _ in expected[:3]]
    times = [float(t) * {"ms": 1, "us": 0.001}[u] for _, t, u in told]
    assert times == pytest.approx([t for _, t in expected[:3]], rel=0.01)


def test_what_it_says_of_its_communication() -> None:
    result = analyze(SAMPLE, rank=0)
    (finding,) = (f for f in result.findings if f.rule == "exposed_communication")
    window = result.devices[0].window
    assert "cannot tell" not in str(finding.title) and "waiting for other ranks" in str(finding.title)
    assert finding.next is not None and finding.next.id.startswith("most of it is waiting, which no faster network")
    assert finding.gain_ns_per_step == (0, window.comm_transfer_ns // 2)
    assert (finding.evidence["wait_ns"], finding.evidence["unknown_ns"]) == (window.comm_wait_ns, 0)
    for change in result.what_if:  # what it saves it may spend waiting
        assert change.gain_ns_per_step is None or change.gain_ns_per_step[0] <= 0
    screen = render(result, "text", View())
    assert "one rank alone" not in screen and "per step it waits for rank 2 (18.64 ms)" in screen


def test_gates_on_its_waiting_can_be_judged() -> None:
    """80.1 % of rank 0's exposed communication, 35.9 % of its step, by the job's own page."""
    (gate,) = analyze(SAMPLE, rank=0, fail_on=("comm.wait>30%",)).gates
    assert gate.value == pytest.approx(35.9, abs=0.1)


def test_a_job_with_hidden_communication_and_a_late_rank(tmp_path: Path) -> None:
    write(Job(pp=2, dp=2, tp=2, steps=3, jitter=0.02, faults=(Fault("compute", (5,), 1.3),)), tmp_path)
    as_in_the_job(tmp_path, 0, 5, 7)


def test_without_sums_kernel_tables_tell(tmp_path: Path) -> None:
    """At Level0 there is no communication.json: tables have the operations as well."""
    write(Job(dp=4, steps=2, jitter=0.05), tmp_path)
    for file in [*tmp_path.rglob("communication.json"), *tmp_path.rglob("communication_matrix.json")]:
        file.unlink()
    as_in_the_job(tmp_path, 1)


def test_ranks_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    path = tmp_path / "job"
    shutil.copytree(SAMPLE, path, copy_function=shutil.copyfile)
    for name in ("communication.json", "step_trace_time.csv"):
        (path / f"rank_3_ascend_pt/ASCEND_PROFILER_OUTPUT/{name}").write_text("{")
    result = analyze(path, rank=1)
    assert any("rank_3" in str(w) for w in result.input.warnings)
    assert result.devices[0].window.comm_unknown_ns > 0  # its operations with rank 3 nobody can split
    told = "load all ranks of the job: only together they tell transfer from waiting"
    assert told in " ".join(render(result, "text", View()).split()) and "alone cannot tell" not in str(result.verdict)


def test_a_rank_without_its_job_cannot_tell(tmp_path: Path) -> None:
    path = tmp_path / "job"
    shutil.copytree(SAMPLE / "rank_1_ascend_pt", path / "rank_1_ascend_pt", copy_function=shutil.copyfile)
    (device,) = analyze(path, rank=1).devices
    assert not device.window.comm_transfer_ns and not device.window.comm_wait_ns


def test_the_vendors_cluster() -> None:
    """Two of its four ranks have no kernels; ranks 0 and 1 wait for stage 1 for 318 and 340 ms."""
    if not CLUSTER.is_dir():
        pytest.skip("the vendor's samples are not here")
    waits = [r.devices[0].window.comm_wait_ns / 1e6 for r in as_in_the_job(CLUSTER, 0, 1, 2, 3)]
    assert waits == pytest.approx([318, 340, 176, 160], abs=1)
