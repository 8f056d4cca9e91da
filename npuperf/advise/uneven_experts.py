"""Experts with different loads: all ranks of their group wait for the fullest one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from npuperf.advise.across import JobSteps, job_finding
from npuperf.advise.rule import Detected, RankRule
from npuperf.documents.analysis import Finding
from npuperf.documents.cluster import Cluster, Experts
from npuperf.messages import Message, chain, ns, say
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.cluster.judge import JobStudy

NAME: Final = "uneven_experts"
TITLE = say("uneven experts")
SOURCE = say(
    "durations and input shapes of the grouped matmuls of each rank, the n-th of a step beside the others' n-th"
)
_SHOWN: Final = 10


def judge(layers: Sequence[Experts], job: JobSteps, thresholds: Thresholds) -> Finding | None:
    """Name the fullest rank of the group that loses most; see :func:`npuperf.cluster.experts.judge_experts`."""
    lost: dict[str, int] = {}
    for layer in layers:
        lost[layer.group] = lost.get(layer.group, 0) + layer.lost_ns
    if not any(lost.values()):
        return None
    group = max(lost, key=lambda g: lost[g])
    mine = [layer for layer in layers if layer.group == group]
    times = np.array([layer.time_ns for layer in mine], np.int64).sum(axis=0)
    gain = job.gain(lost[group])
    problem = Detected(
        title=_title(mine[0].ranks, times, gain, job),
        evidence=_evidence(mine, times, lost[group]),
        gain=gain,
        refute=say(
            "tokens are spread evenly over the ranks in other recordings, or the ranks do not wait for one another "
            "after the grouped matmuls"
        ),
        next=say(
            "spread the tokens more evenly (load-balancing loss or expert bias, a capacity limit), or the experts: "
            "place full and empty ones together, repeat the fullest"
        ),
    )
    return job_finding(NAME, SOURCE, problem, mine[0].ranks[int(times.argmax())], job, thresholds)


def _title(ranks: list[int], times: I64, gain: tuple[int, int], job: JobSteps) -> Message:
    steps = max(job.steps, 1)
    uneven = say(
        "experts are loaded unevenly over {ranks} ranks: grouped matmuls take rank {rank} {longest} of a step, the "
        "ranks {mean} on average, and each layer waits for its longest",
        ranks=len(ranks),
        rank=ranks[int(times.argmax())],
        longest=ns(int(times.max()) // steps),
        mean=ns(float(times.mean()) / steps),
    )
    return chain(uneven, job.price(gain))


def _evidence(layers: Sequence[Experts], times: I64, lost: int) -> dict[str, Any]:
    """Return times and tokens by rank, and the layers that lose most."""
    tokens = list(zip(*(layer.tokens for layer in layers), strict=True))
    worst = sorted(layers, key=lambda layer: -layer.lost_ns)[:_SHOWN]
    return {
        "group": layers[0].group,
        "lost_ns": lost,
        "time_ns": {str(r): int(t) for r, t in zip(layers[0].ranks, times, strict=True)},
        "tokens": {
            str(r): None if None in mine else sum(t for t in mine if t is not None)
            for r, mine in zip(layers[0].ranks, tokens, strict=True)
        },
        "layers": [{"layer": w.layer, "imbalance": w.imbalance, "lost_ns": w.lost_ns} for w in worst],
    }


def _ask(study: JobStudy, cluster: Cluster, thresholds: Thresholds) -> list[Finding]:
    del study
    found = judge(cluster.experts, JobSteps.of(cluster), thresholds)
    return [found] if found else []


RULE = RankRule(NAME, TITLE, SOURCE, _ask, any_device=True)
