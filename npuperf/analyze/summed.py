"""Ranks of which only the exporter's sums of steps are known, side by side: stages, bubbles, and who waits.

One rank's sums tell no transfer from waiting, and which side of a threshold it is on is chance. All of them together
tell more: ranks in the same state get one verdict, and what one rank communicates beyond another, which has the same
transfers, is waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import fsum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.messages import Message, chain, factor, ns, say, say_n, series, share
from npuperf.device.partition import add
from npuperf.device.verdict import NO_PACE, give_verdict
from npuperf.model.device import VendorStep
from npuperf.model.result import Device, Partition, Verdict
from npuperf.model.thresholds import Thresholds

#: Less of the time is not worth a sentence.
_NOTABLE: Final = 0.01


class RankSums(Struct, frozen=True):
    """What the exporter sums of one rank, ns, and its pipeline stage where a file names it.

    ``communication``: all of it, hidden or not, None where that is not told; ``bubble``: in receives.
    """

    stage: int | None
    span: int
    compute: int
    communication: int | None
    bubble: int

    @classmethod
    def of(cls, steps: Sequence[VendorStep], stage: int | None) -> RankSums:
        """Add a rank's steps up."""
        every = [step.comm for step in steps]
        return cls(
            stage=stage,
            span=sum(step.span for step in steps),
            compute=sum(step.compute for step in steps),
            communication=sum(comm for comm in every if comm is not None) if None not in every else None,
            bubble=sum(step.bubble or 0 for step in steps),
        )


def in_one_state(devices: Sequence[Device], sums: Sequence[RankSums], thresholds: Thresholds) -> list[Device]:
    """Give ranks of one stage that split their time alike one verdict, that of all of them together."""
    stages: dict[int | None, list[int]] = defaultdict(list)
    for place, one in enumerate(sums):
        stages[one.stage].append(place)
    judged = [*devices]
    for places in stages.values():
        shares = [_shares(devices[place].partition) for place in places]
        middle = [sorted(part)[len(part) // 2] for part in zip(*shares, strict=True)]
        alike = [
            place
            for place, own in zip(places, shares, strict=True)
            if all(abs(mine - usual) <= thresholds.idle_share for mine, usual in zip(own, middle, strict=True))
        ]
        if len(alike) < 2:
            continue
        found = give_verdict(add([devices[place].partition for place in alike]), NO_PACE, thresholds)
        why = say_n("{n} rank in this state: {reason}", "{n} ranks in this state: {reason}",
                    len(alike), reason=found.reason)  # fmt: skip
        verdict = Verdict(bound=found.bound, basis=found.basis, reason=why, evidence=found.evidence)
        for place in alike:
            judged[place] = replace(devices[place], verdict=verdict)
    return judged


def _shares(whole: Partition) -> tuple[float, float, float]:
    span = max(whole.span_ns, 1)
    return whole.compute_ns / span, whole.comm_exposed_ns / span, whole.idle_ns / span


def together(ranks: Sequence[int | None], sums: Sequence[RankSums]) -> Message | None:
    """Say what sums of several ranks tell that those of one do not: the bubble, uneven stages, and waiting."""
    span = sum(one.span for one in sums)
    if not span:
        return None
    said = [_bubble(sums, span), _stages(sums), _waits(ranks, sums, span)]
    return chain(*said, by="; ") if any(said) else None


def _stage_of(sums: Sequence[RankSums]) -> dict[int, list[RankSums]]:
    found: dict[int, list[RankSums]] = defaultdict(list)
    for one in sums:
        if one.stage is not None:
            found[one.stage].append(one)
    return dict(sorted(found.items())) if len(found) > 1 else {}


def _bubble(sums: Sequence[RankSums], span: int) -> Message | None:
    part = sum(one.bubble for one in sums) / span
    if part < _NOTABLE:
        return None
    stages = {stage: sum(o.bubble for o in own) / max(sum(o.span for o in own), 1)
              for stage, own in _stage_of(sums).items()}  # fmt: skip
    said = say("{share} of the ranks' time is in receives from other pipeline stages (the exporter's Bubble)",
               share=share(part))  # fmt: skip
    if not stages:
        return said
    each = series(say("stage {stage}: {share}", stage=stage, share=share(own)) for stage, own in stages.items())
    return say("{said}: {each}", said=said, each=each)


def _stages(sums: Sequence[RankSums]) -> Message | None:
    compute = {stage: sum(o.compute for o in own) / len(own) for stage, own in _stage_of(sums).items()}
    mean = fsum(compute.values()) / max(len(compute), 1)
    if not mean:
        return None
    longest = max(compute, key=compute.__getitem__)
    if compute[longest] / mean - 1 < _NOTABLE:
        return say_n("all {n} stages compute equally long", "all {n} stages compute equally long", len(compute))
    return say("stage {stage} computes {time}, {factor} times the stages' mean",
               stage=longest, time=ns(round(compute[longest])), factor=factor(compute[longest] / mean))  # fmt: skip


def _waits(ranks: Sequence[int | None], sums: Sequence[RankSums], span: int) -> Message | None:
    """Say how much of the communication is waiting: ranks of one stage transfer the same, so what is beyond the least.

    Receives, in which stages wait for each other, are left out.
    """
    stages: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
    for rank, one in zip(ranks, sums, strict=True):
        if one.communication is None or rank is None:
            return None
        stages[one.stage].append((max(one.communication - one.bubble, 0), rank))
    waits = sum(own - min(stage)[0] for stage in stages.values() for own, _ in stage)
    if waits < _NOTABLE * span:
        return None
    uneven = max(stages.values(), key=lambda stage: max(stage)[0] - min(stage)[0])
    (least, last), (most, waiter) = min(uneven), max(uneven)
    return say(
        "at least {share} of their time is waiting for other ranks, if ranks of one stage transfer the same: rank "
        "{waiter} communicates for {most}, rank {last} for {least}",
        share=share(waits / span), waiter=waiter, most=ns(most), last=last, least=ns(least),
    )  # fmt: skip
