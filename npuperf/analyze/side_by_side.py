"""Several devices: each for itself, or one job if they wait for each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.advise import without_alone
from npuperf.analyze.examine import Examined, unanswered
from npuperf.analyze.request import AnalyzeRequest
from npuperf.cluster.job_grammar import names_ranks
from npuperf.cluster.pace import may_bring_nothing
from npuperf.documents.analysis import Device, Finding, WhatIf
from npuperf.documents.cluster import Cluster
from npuperf.documents.digest import PartSum
from npuperf.messages import say
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.cluster.judge import JobStudy

_NO_JOB: Final = say("this asks about several ranks of one job: analyze the folder that holds them all")


class Across(Struct, frozen=True):
    """What several devices tell together; without a ``study`` each stands for itself.

    ``exposed``: of each device in its order the exposed communication of its steps, where the job tells more of it.
    """

    devices: list[Device]
    what_if: list[WhatIf]
    findings: list[Finding] = field(default_factory=list)
    cluster: Cluster | None = None
    study: JobStudy | None = None
    exposed: list[tuple[PartSum, ...] | None] = field(default_factory=list)

    @classmethod
    def apart(cls, examined: Sequence[Examined]) -> Across:
        """Return devices that are of no common job."""
        return cls([e.report for e in examined], [w for e in examined for w in e.what_if])


def look_across(examined: Sequence[Examined], request: AnalyzeRequest, thresholds: Thresholds) -> Across:
    """Study the devices as one job, if they have operations in common."""
    if sum(e.summary is not None for e in examined) > 1:
        from npuperf.analyze.whole_job import as_one_job  # much that one device has no use for

        together = as_one_job(examined, request, thresholds)
        if together is not None:
            return together
    alone = Across.apart(examined)
    asked = [unanswered(e, _NO_JOB) for e in request.what_if if names_ranks(e)]
    return replace(alone, what_if=[*asked, *alone.what_if]) if asked else alone


def own_findings(examined: Sequence[Examined], across: Across, thresholds: Thresholds) -> list[Finding]:
    """Return what is found on each device by itself, as it stands within the job."""
    found = []
    for e in examined:
        mine = without_alone(e.findings, e.report, across.study)
        if across.study is not None:
            mine = may_bring_nothing(mine, e.report, waited(across.study, e.report), thresholds.cause_share)
        found += mine
    return found


def waited(study: JobStudy, device: Device) -> int:
    """Return how long a device waited for others of the job, ns."""
    place = place_of(study, device)
    return int(study.waited[place]) if place >= 0 else 0


def place_of(study: JobStudy, device: Device) -> int:
    """Return where a device stands among the ranks of the job; negative: it is none of them."""
    return study.places.get((device.source, device.device), -1)
