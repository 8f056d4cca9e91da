"""Pipelines whose groups have another name, or none."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from ranks import MS, group, operations, summary

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from cluster_files import write
from cluster_job import Fault, Job

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.rank_summary import RankSummary
from npuperf.job.pipeline import likely_pipelines, named_pipelines

JOB = Job(pp=2, dp=2, micro_batches=4, steps=2, layers=1, faults=(Fault("stage", stage=1, factor=1.7),))


def renamed(kinds: dict[str, str | None]) -> Callable[[dict[str, Any]], None]:
    def change(metadata: dict[str, Any]) -> None:
        for found in metadata["parallel_group_info"].values():
            found["group_name"] = kinds.get(found["group_name"], found["group_name"])

    return change


def without_groups(metadata: dict[str, Any]) -> None:
    del metadata["parallel_group_info"]


@pytest.mark.parametrize(
    ("change", "guessed"),
    [
        (renamed({}), False),
        (renamed({"pp": "mesh_pp"}), False),
        (renamed({"pp": "my_group"}), True),
        (renamed({"pp": None, "dp_cp": None, "mp": None, "default_group": None}), True),
        (without_groups, True),
    ],
    ids=["pp", "of a mesh", "own name", "no names", "no groups"],
)
def test_a_pipeline_is_one_whatever_it_is_called(
    change: Callable[[dict[str, Any]], None], guessed: bool, tmp_path: Path
) -> None:
    write(JOB, tmp_path)
    for file in tmp_path.glob("*/profiler_metadata.json"):
        metadata = json.loads(file.read_text())
        change(metadata)
        file.write_text(json.dumps(metadata))
    cluster = run(AnalyzeRequest(path=tmp_path)).cluster
    assert cluster is not None
    assert [s.ranks for s in cluster.stages] == [[0, 1], [2, 3]]
    assert next((r.kind, r.stage) for r in cluster.roots) == ("stage", 1)
    assert any("is called a pipeline" in str(note) for note in cluster.notes) is guessed


def exchanging(rank: int, compute_ms: int, kind: str | None = None) -> RankSummary:
    """A rank of a group of three that computes for a time, then sends and receives."""
    rows = operations([{"type": "batchSendRecv"}] * 2)
    rows = replace(rows, p2p=np.ones(2, np.bool_))
    before = np.array([compute_ms * MS, (compute_ms + 5) * MS])
    return summary(rank, operations=rows, compute_before=before, groups=(group([0, 1, 2], kind),))


def test_who_waits_from_the_begin_is_a_later_stage() -> None:
    assert likely_pipelines([exchanging(0, 10), exchanging(1, 0), exchanging(2, 1)]) == [(0, 1, 2)]


def test_a_ring_is_no_pipeline() -> None:
    """Ranks that share a context exchange blocks of keys: all have computed as long before."""
    assert likely_pipelines([exchanging(r, 10) for r in range(3)]) == []


def test_groups_called_otherwise_are_no_pipelines() -> None:
    ranks = [exchanging(r, 10 if r == 0 else 0, "cp") for r in range(3)]
    assert likely_pipelines(ranks) == named_pipelines(ranks) == []
