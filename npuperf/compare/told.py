"""What a comparison says in a sentence: the verdict's reason, and the parts that make it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from npuperf.compare.noise import Judged
from npuperf.documents.comparison import Difference, WaterfallPart
from npuperf.documents.comparison_names import worded
from npuperf.documents.digest import Part
from npuperf.messages import Message, chain, ns, ns_change, say, series, share

#: Parts that a sentence names, and the least share of the difference of such a part.
_NAMED: Final = 3
_LEAST: Final = 0.1
#: What is checked before anything else is blamed.
FIRST: Final = ("AI Core frequency", "recording overhead")

_PARTS: Final[dict[Part, Message]] = {
    "compute": say("compute"),
    "transfer": say("transfer"),
    "wait": say("waiting for other ranks"),
    "comm_unknown": say("communication"),
    "host_wait": say("waiting for the host"),
    "launch_latency": say("launch latency"),
    "dependency": say("waiting between streams"),
    "unattributed": say("unattributed idle time"),
    "other": say("other tasks"),
}


class Grounds(Struct, frozen=True):
    """What the sentence is made of: mean and median steps (old, new), ns, and why they differ.

    ``stepped``: whether both sides have steps.
    """

    means: tuple[int | None, int | None]
    medians: tuple[int | None, int | None]
    judged: Judged
    parity: Sequence[Difference]
    waterfall: Sequence[WaterfallPart]
    note: Message | None = None
    stepped: bool = True


def reason_of(grounds: Grounds) -> Message:
    """Say how the steps differ, what sets the sides apart before anything else, and which parts make the difference."""
    return chain(_mismatch(grounds), _first(grounds), _verdict(grounds), _parts(grounds), grounds.note)


def _mismatch(grounds: Grounds) -> Message | None:
    names = [worded(difference.what) for difference in grounds.parity if difference.mismatch]
    return say("not of one workload ({differences})", differences=series(names)) if names else None


def _first(grounds: Grounds) -> Message | None:
    """Return what clock and recording have to do with it, where there are times for them to change."""
    if None in grounds.medians:
        return None
    reasons = [d.reason for d in grounds.parity if d.what in FIRST and d.reason is not None]
    return chain(*reasons) if reasons else None


def _verdict(grounds: Grounds) -> Message:
    judged, (old, new) = grounds.judged, grounds.medians
    if old is None or new is None:
        return judged.method
    if judged.verdict in ("worse", "better") and judged.estimate is not None and old:
        changed = share(abs(judged.estimate) / old)
        longer, shorter = (
            say("the step is {share} longer", share=changed),
            say("the step is {share} shorter", share=changed),
        )
        how = longer if judged.verdict == "worse" else shorter
        return say("{how} ({numbers})", how=how, numbers=_numbers(grounds))
    if judged.verdict == "same" and not grounds.stepped:
        return say("both recordings are equally long ({numbers})", numbers=_numbers(grounds))
    if judged.verdict == "same":
        return say("the steps are equally long ({numbers})", numbers=_numbers(grounds))
    untold = say("whether the step changed cannot be told ({numbers})", numbers=_numbers(grounds))
    return chain(untold, judged.method if judged.interval is None else None, judged.needs)


def _numbers(grounds: Grounds) -> Message:
    """Say both medians, and between what their difference lies."""
    old, new = grounds.medians
    both = say("{old} to {new}", old=ns(old), new=ns(new))
    judged = grounds.judged
    if judged.interval is None:
        return both
    if judged.confidence is None:
        return judged.method
    low, high = judged.interval
    between = say("{interval} at {confidence}", interval=ns_change(low, high), confidence=share(judged.confidence))
    return chain(both, between)


def _parts(grounds: Grounds) -> Message | None:
    """Name the parts that make most of the difference of the mean steps, where it goes the way of the verdict."""
    old, new = grounds.means
    if old is None or new is None or grounds.judged.verdict not in ("worse", "better"):
        return None
    delta = new - old
    if delta * (1 if grounds.judged.verdict == "worse" else -1) <= 0:
        return say("a few steps are of other length: the mean step changed by {change}", change=ns_change(delta))
    most = [p for p in grounds.waterfall if p.delta_ns * delta > 0 and abs(p.delta_ns) >= _LEAST * abs(delta)][:_NAMED]
    return say("of the mean step: {parts}", parts=series(map(part_sentence, most))) if most else None


def part_sentence(part: WaterfallPart) -> Message:
    """Say in a few words what a part changed, and by how much per mean step."""
    change = ns_change(part.delta_ns)
    what = _PARTS[part.part]
    if part.key is not None:
        cause, _, name = part.key.partition(": ")
        key = name or cause if part.part == "host_wait" else part.key
        what = say("{part} ({key})", part=what, key=key)
    if part.part == "compute" and part.key is not None:
        what = say("{key}", key=part.key)
    if part.instead_of:
        more = len(part.instead_of) - _NAMED
        old = series([*part.instead_of[:_NAMED], *([say("and {n} more", n=more)] if more > 0 else [])])
        return say("{what} instead of {old} {change}", what=what, old=old, change=change)
    if part.change == "added":
        return say("{what} is new {change}", what=what, change=change)
    if part.change == "removed":
        return say("{what} is gone {change}", what=what, change=change)
    return say("{what} {change}", what=what, change=change)
