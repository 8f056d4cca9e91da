"""What-if over all ranks: the job run with changes, as :mod:`npuperf.job.job_whatif` names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.errors import UsageError
from npuperf.base.messages import Message, say
from npuperf.job.job_replay import JobChange, JobProgram, faster_link, level_ranks, run, scaled
from npuperf.job.job_study import JobStudy
from npuperf.job.links import held_by
from npuperf.model.result import Device, Finding, WhatIf

# -- What may be asked of a whole job: a small language for its changes.
#
#     expression = change {"," change}
#     change     = "rank:" N "=median" | "rank:" N [":" part] "*" factor | "stage:" N "*" factor
#                | "link:" A "-" B "=peers" | ("comm" | "host" | "compute") "*" factor
#     part       = "host" | "compute"
#
# ``rank:3=median`` lets a rank work like the median of its peers (of its stage, if there are stages);
# ``link:0-1=peers`` lets a link carry what the median of its peers does; ``comm`` scales transfers only, because
# waiting for others is not sped up by a faster network.

_NUMBER: Final = r"(?P<factor>\d+\.?\d*|\.\d+)"
_RANK: Final = re.compile(rf"^rank:(?P<rank>\d{{1,9}})(?:=(?P<median>median)|(?::(?P<part>host|compute))?\*{_NUMBER})$")
_STAGE: Final = re.compile(rf"^stage:(?P<stage>\d{{1,9}})\*{_NUMBER}$")
_LINK: Final = re.compile(r"^link:(?P<a>\d{1,9})-(?P<b>\d{1,9})=peers$")
_ALL: Final = re.compile(rf"^(?P<part>comm|host|compute)\*{_NUMBER}$")
_OF_COMMUNICATION: Final = re.compile(r"\bcomm\*")
GRAMMAR: Final = say(
    "over several ranks: rank:N=median, rank:N*FACTOR, rank:N:host*FACTOR, rank:N:compute*FACTOR, stage:N*FACTOR, "
    "link:A-B=peers, comm*FACTOR, host*FACTOR, compute*FACTOR, joined by commas"
)


def answers(expression: str) -> bool:
    """Tell whether the job can run with all of an expression."""
    return all(read(part.strip()) is not None for part in expression.split(","))


def check(expression: str) -> None:
    """Raise UsageError, with the grammar, where an expression that names ranks cannot be read."""
    for part in expression.split(","):
        if read(part.strip()) is None:
            raise UsageError(say("what-if: cannot read {text}", text=repr(part.strip())), hint=GRAMMAR)


def read(part: str) -> re.Match[str] | None:
    """Return what one part of an expression says; None where it cannot be read."""
    return next((m for pattern in (_RANK, _STAGE, _LINK, _ALL) if (m := pattern.match(part))), None)


class Answer(Struct, frozen=True):
    """What a change of the job saves (ns of its length), and between which limits; or why nothing can be told."""

    saved: float = 0.0
    least: float = 0.0
    most: float = 0.0
    reason: Message | None = None


def predict(study: JobStudy, expression: str) -> Answer:
    """Run the job with a change. Where the replay abstains, or data is missing, the answer says so."""
    if not study.usable:
        return Answer(reason=say("the replay over all ranks misses the measured time, so it gives no figures"))
    job, stage = study.job, study.stages.of
    # Factors of each rank's time by what fills it, and everything else. ``host_least`` is ``host`` where a faster host
    # gets ahead at once, and nothing waits for it any more.
    compute, host, host_least, other = np.ones((4, job.ranks))
    change = JobChange()
    untold = np.ones(len(job.transfer))  # by what is changed, at most, what may be transfer or waiting
    for part in expression.split(","):
        found = read(part.strip())
        assert found is not None, "expressions are checked before"
        words = found.groupdict()
        factor, fills, places = float(words.get("factor") or 1), words.get("part"), list(range(job.ranks))
        if words.get("rank") is not None:
            places = [i for i, r in enumerate(study.ranks) if r.rank == int(words["rank"])]
            if not places:
                return Answer(reason=say("rank {rank} was not loaded", rank=int(words["rank"])))
        if words.get("median"):
            peers = np.setdiff1d(np.flatnonzero(stage == stage[places[0]]), places)
            if not len(peers):
                return Answer(reason=say("rank {rank} has no peers of its stage", rank=int(words["rank"])))
            change = _joined(job, change, level_ranks(job, [(np.array(places), peers)]))
        elif words.get("stage") is not None:
            number = int(words["stage"])
            if number not in stage.tolist():
                return Answer(reason=say("there is no stage {stage}: the groups of this job name {count}", stage=number,
                                         count=study.stages.count))  # fmt: skip
            compute[stage == number] *= factor
        elif words.get("a") is not None:
            a, b = int(words["a"]), int(words["b"])
            holds_up = held_by(study.paces, (a, b))
            ends = [i for i, r in enumerate(study.ranks) if r.rank in (a, b)]
            if not holds_up or len(ends) != 2:
                return Answer(reason=say("link {a}-{b} has no peers to be like", a=a, b=b))
            change = faster_link(job, (ends[0], ends[1]), holds_up, change)
        elif fills == "comm":
            transfer = job.transfer if change.transfer is None else change.transfer
            # Of known operations at least what is transfer for certain, of others nothing for certain.
            waits = study.waits
            told = waits.transfer / np.maximum(waits.transfer + waits.unknown, 1)
            least = np.where(waits.known, np.where(waits.unknown > 0, 1 - (1 - factor) * told, factor), 1.0)
            change = replace(change, transfer=transfer * least)
            untold = untold * np.divide(factor, least, out=np.ones(len(least)), where=least != factor)
        elif fills == "host":
            if any(study.ranks[p].host_ns is None for p in places):
                return Answer(reason=say("launches are not recorded on every rank, so host time cannot be changed "
                                         "(record with npuperf profile --level 1)"))  # fmt: skip
            host[places] *= factor
            host_least[places] *= 0.0 if factor < 1 else factor
        else:
            for filled in (compute,) if fills == "compute" else (compute, host, host_least, other):
                filled[places] *= factor
    changes, hosts = [change], [host]
    if (untold != 1).any():
        transfer = job.transfer if change.transfer is None else change.transfer
        absent = np.minimum(study.waits.absent, transfer)  # which no faster network shortens either
        changes.append(replace(change, transfer=absent + (transfer - absent) * untold))
    if (host != host_least).any():
        hosts.append(host_least)
    tried = [scaled(job, compute, each, host=own, other=other) for each in changes for own in hosts]
    length = run(job, [JobChange(), *tried]).length
    saved = length[0] - length[1:]
    slack = study.error * study.length
    # What is unknown may all be waiting, which no faster network shortens, or all be transfer.
    least = saved[0] if len(changes) == 1 else saved.min()
    return Answer(float(saved[0]), float(least) - slack, float(saved.max()) + slack)


def _joined(job: JobProgram, change: JobChange, other: JobChange) -> JobChange:
    """Put a rank's own change on top of others: its stretches replace theirs."""
    begins = [begin for begin in (change.begin, other.begin) if begin is not None]
    parts = {"begin": np.minimum.reduce(begins)} if begins else {}
    for name in ("to_start", "to_block", "tail"):
        before, own, now = getattr(change, name), getattr(job, name).length, getattr(other, name)
        parts[name] = now if before is None else np.where(now != own, now, before)
    return replace(change, **parts)


# -- What-ifs and findings of ranks that wait for others: what such a rank saves alone it would only wait longer.


def keep_pace(
    reports: Sequence[Device], what_if: Sequence[list[WhatIf]], waited: Sequence[int], share: float
) -> list[list[WhatIf]]:
    """Correct the what-ifs (per rank) of ranks that waited for others, ns each.

    All ranks advance with the one that waits least, so its gain is everybody's if all change alike; a rank's own
    gain stays inside the interval. Ranks that wait less than ``share`` of their window are left alone.
    """
    first = min(range(len(waited)), key=waited.__getitem__)
    pace = {w.expr: w for w in what_if[first] if w.span_ns is not None}
    corrected = []
    for report, mine, wait in zip(reports, what_if, waited, strict=True):
        follows = wait >= share * report.window.span_ns
        corrected.append([_follow(w, report, pace.get(w.expr), reports[first]) if follows else w for w in mine])
    return corrected


def from_nothing(what_if: Sequence[WhatIf], *, every: bool = False) -> list[WhatIf]:
    """Let what faster transfers bring a rank begin at nothing: it may be waiting meanwhile for ranks not loaded.

    ``every``: what any change brings, as the rank may only wait longer for others.
    """
    return [
        replace(w, gain_ns_per_step=(0, w.gain_ns_per_step[1]), gain_pct_interval=(0.0, w.gain_pct_interval[1]))
        if (every or _OF_COMMUNICATION.search(w.expr))
        and w.gain_ns_per_step
        and w.gain_pct_interval
        and (w.gain_pct or 0) > 0
        else w
        for w in what_if
    ]


def _follow(own: WhatIf, report: Device, pace: WhatIf | None, pacing: Device) -> WhatIf:
    """Return what a change brings a rank that advances with another one."""
    if pace is None or pace.span_ns is None or own.gain_ns_per_step is None or pace.gain_ns_per_step is None:
        return own
    span, per = max(report.window.span_ns, 1), max(report.step_count, 1)
    saved = min(pacing.window.span_ns - pace.span_ns, span)
    least = min(own.gain_ns_per_step[0], pace.gain_ns_per_step[0])
    most = min(max(own.gain_ns_per_step[1], pace.gain_ns_per_step[1]), span // per)
    return replace(
        own,
        span_ns=span - saved,
        gain_pct=100 * saved / span,
        gain_ns_per_step=(least, most),
        gain_pct_interval=(100 * least * per / span, 100 * most * per / span),
    )


def may_bring_nothing(findings: Sequence[Finding], report: Device, waited: int, share: float) -> list[Finding]:
    """Let gains of a rank that waited for others, in all ``waited`` ns, begin at nothing."""
    if waited < share * report.window.span_ns:
        return [*findings]
    return [
        replace(f, gain_ns_per_step=(0, f.gain_ns_per_step[1]), gain_pct=(0.0, f.gain_pct[1]))
        if f.gain_ns_per_step and f.gain_pct
        else f
        for f in findings
    ]
