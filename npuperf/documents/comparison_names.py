"""What a comparison calls the things it compares: a machine reads these names as they are, people in their language."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from npuperf.messages import Message, say, series

#: Names and values that are a few words.
_KNOWN: Final = {
    word.id: word
    for word in (
        # what may differ between two set-ups
        say("AI Core frequency"), say("recording overhead"), say("world size"), say("operators of training"),
        say("launches per step"), say("launches"), say("command"), say("process groups"), say("table of kernels"),
        say("launches of kernels"), say("calls of the runtime"), say("cores"), say("devices"), say("recorded with"),
        say("profiler level"), say("profiler options"), say("environment"), say("git commit"),
        say("rows lost in reading"), say("operators told apart by"), say("steps"),
        # values of these
        say("yes"), say("none by their names"), say("whole"), say("rows are missing"), say("recorded"), say("none"),
        say("shapes"), say("type"), say("core"),
        # what is counted
        say("synchronizations"), say("copies"), say("AI CPU operators"), say("compilations"), say("collectives"),
        say("graph replays"), say("allocator calls"), say("host operators"),
        # what caused waiting
        say("rank"), say("stage"), say("link"), say("group"), say("schedule"), say("jitter"), say("host"),
        say("compute"), say("communication"), say("cube"), say("vector"),
    )
}  # fmt: skip
_COUNTS: Final = "|".join(
    ("launches", "synchronizations", "copies", "AI CPU operators", "compilations", "collectives", "graph replays",
     "allocator calls", "host operators")
)  # fmt: skip
#: Names with a number or a name in them; what was found in the parentheses is handed on.
_FORMS: Final[tuple[tuple[str, Callable[..., Message]], ...]] = (
    (r"step of rank (\d+)", lambda rank: say("step of rank {rank}", rank=rank)),
    (r"waiting of rank (\d+)", lambda rank: say("waiting of rank {rank}", rank=rank)),
    (r"transfer in (.+)", lambda group: say("transfer in {group}", group=group)),
    (r"occupancy of (cube|vector) cores", lambda side: say("occupancy of {side} cores", side=_KNOWN[side])),
    (rf"({_COUNTS}) per step", lambda name: say("{name} per step", name=_KNOWN[name])),
    (rf"({_COUNTS}): (.+)", lambda name, key: say("{name}: {key}", name=_KNOWN[name], key=key)),
    (r"waiting(?: of unknown cause| caused by (\w+))(?: ([\d,]+))?(?: \((\w+)\))?", lambda *of: _waiting(*of)),
    (r"((?:\d+|none)(?: \+ (?:\d+|none))+)", lambda runs: say("{n}", n=series(map(worded, runs.split(" + ")), " + "))),
)


def worded(name: str) -> Message | str:
    """Return a name or a value of a comparison for people; what is none of ours, such as a command, stays as it is."""
    if name in _KNOWN:
        return _KNOWN[name]
    for form, made in _FORMS:
        found = re.fullmatch(form, name, re.DOTALL)
        if found is not None:
            return made(*found.groups())
    return name


def _waiting(kind: str | None, about: str | None, why: str | None) -> Message:
    """Say which waiting: ``about``: which ranks or which stage caused it; ``why``: by what."""
    if kind is None:
        by = say("waiting of unknown cause {about}", about=about) if about else say("waiting of unknown cause")
    elif about:
        by = say("waiting caused by {kind} {about}", kind=worded(kind), about=about)
    else:
        by = say("waiting caused by {kind}", kind=worded(kind))
    return say("{waiting} ({why})", waiting=by, why=worded(why)) if why else by
