"""A thousand ranks on dask: pipeline 4 × tensor parallel 8 × data parallel 32, each rank small."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from cluster_files import big

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.show.formats import View, render


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_thousand_ranks_on_dask(tmp_path: Path) -> None:
    truth = big(tmp_path, 1024, 50)
    result = run(AnalyzeRequest(path=tmp_path, engine="dask"))
    cluster = result.cluster
    assert cluster is not None and len(cluster.ranks) == 1024 and cluster.absent == []
    assert [r.rank for r in cluster.ranks] == list(range(1024))
    assert {len(s.ranks) for s in cluster.stages} == {256}
    kinds = {g.kind: g for g in cluster.groups}
    assert {kind: len(kinds[kind].ranks) for kind in ("tp", "dp_cp", "pp")} == {"tp": 8, "dp_cp": 32, "pp": 4}
    assert all(g.complete and not g.unmatched for g in cluster.groups)
    waited = sum(r.comm.wait_ns for r in cluster.ranks)
    assert waited == pytest.approx(truth.wait_ns(), rel=0.01)
    assert sum(r.wait_ns for r in cluster.roots) == waited
    # Nothing is wrong in this job but luck and the schedule.
    assert {r.kind for r in cluster.roots} <= {"schedule", "jitter", "unknown"}
    assert cluster.replay is not None and cluster.replay.error < 0.01
    assert len(render(result, "text", View(width=80)).splitlines()) <= 45
