"""Gains of a job and of its ranks: nothing at least, their step at most."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from cluster_files import write
from cluster_job import Fault, Job

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Result

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "msinsight"
CHANGES = ("comm*0", "compute*0", "compute*0,comm*0", "host*0", "host*0,latency*0,compute*0,comm*0,copies*0")
JOBS = {
    "a slow rank": Job(dp=4, faults=(Fault("compute", (2,), 1.8),)),
    "nobody": Job(dp=4, jitter=0.05),
    "one step": Job(dp=4, steps=1, jitter=0.05),
}


def hold(result: Result) -> None:
    """Every figure of the job against its step, of each rank against the rank's own."""
    cluster = result.cluster
    assert cluster is not None
    own = {d.rank: d.window.span_ns // max(d.step_count, 1) for d in result.devices}
    across = [f for f in result.findings if f.rank is not None]
    seen = [(w.gain_ns_per_step, cluster.step_ns if w.rank is None else own[w.rank], w) for w in result.what_if]
    seen += [(f.gain_ns_per_step, max(own[f.rank or 0], cluster.step_ns), f) for f in across]
    seen += [(r.gain_ns_per_step, cluster.step_ns, r) for r in cluster.roots]
    checked = 0
    for gain, step, what in seen:
        if gain is not None:
            checked += 1
            assert 0 <= gain[0] <= gain[1] <= step, what
    assert checked > 3
    for w in result.what_if:
        low, high = w.gain_pct_interval or (0, 0)
        assert 0 <= low <= high <= 100, w


@pytest.mark.parametrize("name", JOBS)
def test_no_gain_of_a_job_exceeds_its_step(tmp_path: Path, name: str) -> None:
    write(JOBS[name], tmp_path)
    hold(run(AnalyzeRequest(path=tmp_path, what_if=CHANGES)))


@pytest.mark.skipif(not REAL.is_dir(), reason="no data of msinsight")
@pytest.mark.parametrize("folder", ["text/level1", "db/level1", "cluster4"])
def test_nor_of_a_real_one(folder: str) -> None:
    hold(run(AnalyzeRequest(path=REAL / folder, what_if=CHANGES)))
