"""How many ranks a job has."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from cluster_files import write
from cluster_job import Job

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest


def test_a_group_of_ranks_that_do_not_exist_makes_no_job_of_a_million(tmp_path: Path) -> None:
    write(Job(dp=4), tmp_path)
    path = tmp_path / "rank_0_ascend_pt" / "profiler_metadata.json"
    metadata = json.loads(path.read_text())
    metadata["parallel_group_info"]["group_name_99"] = {
        "group_name": "odd",
        "group_rank": 0,
        "global_ranks": [0, 10**6],
    }
    path.write_text(json.dumps(metadata))
    cluster = run(AnalyzeRequest(path=tmp_path)).cluster
    assert cluster is not None
    assert (cluster.world_size, cluster.absent) == (4, [])
