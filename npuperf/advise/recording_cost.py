"""Recording made the steps longer than they are, so that the profile does not show the program's usual pace."""

from __future__ import annotations

import re
from typing import Final

from npuperf.advise.needs import Need
from npuperf.advise.rule import Answer, Detected, Rule
from npuperf.escape import for_shell
from npuperf.messages import Message, factor, say, series
from npuperf.scopes.view import DeviceView

TITLE = say("cost of recording")
SOURCE = say("npuperf.json: median host time of steps inside and outside of the recorded window")

_LEVEL: Final = re.compile(r"(\d)$")
_OVERHEAD: Final = Need(
    say("overhead"),
    lambda view: float(view.traits.overhead is not None),
    lambda _: say(
        "what recording costs is not known: npuperf profile times steps outside of the recorded window, too (--wait)"
    ),
)


def judge(view: DeviceView) -> Answer:
    """Compare steps inside and outside of the recording."""
    overhead = view.traits.overhead
    if overhead is None or not view.traits.slowed(view.thresholds):
        return None
    return Detected(
        title=say("recording made steps {times} times as long: host times in this profile are not the program's own",
                  times=factor(overhead)),
        evidence={"overhead": overhead, "level": view.profile.context.level, "extras": [*view.profile.context.extras]},
        refute=say("steps outside of the recorded window were shorter for another reason: they did less work"),
        next=_next(view),
        severity="high",
    )  # fmt: skip


def _next(view: DeviceView) -> Message:
    """Name the recording that records less: without the extras first, then on a lower level."""
    context = view.profile.context
    found = _LEVEL.search(context.level or "")
    level = int(found.group(1)) if found else 1
    if context.extras:
        return say(
            "record again with less: {command} (without {options})",
            command=_command(view, min(level, 1)),
            options=series(f"--{name.replace('_', '-')}" for name in context.extras),
        )
    if level > 1:
        return say("record again with less: {command}", command=_command(view, level - 1))
    if level == 1:
        return say(
            "record again with less: {command} (level 0 has fewer events, and no operator types or shapes)",
            command=_command(view, 0),
        )
    return say(
        "take host times from elsewhere: the recording has nothing left to leave out but the host's operators "
        "(--activities npu)"
    )


def _command(view: DeviceView, level: int) -> str:
    program = for_shell(*view.profile.context.command)
    return f"npuperf profile --level {level}{' -- ' + program if program else ''}"


RULE = Rule("recording_cost", TITLE, SOURCE, (_OVERHEAD,), judge)
