"""What AOE's status codes mean. They were numbered anew between two versions of CANN, so none is read without it.

Facts: AOE's public headers of 2021–2022 and of 2023. Which versions of CANN go with them is inferred from those years:
5.x and 6.0 have the older numbers, 7.0 and later the newer ones; between them either may be meant.
"""

from __future__ import annotations

import re
from typing import Final

from npuperf.messages import Message, chain, say

_BOTH: Final = {
    -1: say("failed"),
    3: say("AOE is not initialised"),
    4: say("AOE was initialised twice"),
    2000: say("an operator could not be compiled"),
    3000: say("an operator could not be run"),
    3001: say("no space left"),
    3002: say("an operator failed while it ran"),
    3003: say("an operator reached beyond its memory"),
    3004: say("dynamic parameters could not be set"),
    3202: say("profiling took too long"),
    3203: say("profiling data could not be read"),
    3300: say("the network is down"),
    3301: say("the network cannot be reached"),
}
_NOTHING_TO_TUNE: Final = say("the graph has nothing to tune")
_DYNAMIC: Final = say("dynamic graphs cannot be tuned")
_OLDER: Final = {
    **_BOTH,
    1: say("unknown error"),
    10: say("invalid parameter"),
    11: say("invalid graph"),
    12: _NOTHING_TO_TUNE,
    13: say("the graph was tuned already"),
    14: _DYNAMIC,
    20: say("no device"),
    21: say("the model is not supported"),
    22: say("busy: called from several threads"),
    23: say("a parameter could not be read"),
    24: say("ranges of shapes cannot be tuned"),
    **dict.fromkeys((90, 91, 92, 93), say("a library of AOE could not be loaded")),
    **dict.fromkeys((400, 401, 402), say("memory could not be obtained")),
    500: say("no such session"),
    1001: say("the knowledge base was not changed"),
    1002: say("the knowledge base could not be changed"),
    **dict.fromkeys((4000, 4001), say("a plugin of AOE could not be loaded")),
    4100: say("an option has an invalid value"),
}
_NEWER: Final = {
    **_BOTH,
    1: say("memory could not be obtained"),
    2: say("invalid parameter"),
    5: say("no such session"),
    6: say("busy: called from several threads"),
    7: say("invalid graph"),
    8: _NOTHING_TO_TUNE,
    9: _DYNAMIC,
    10: say("ranges of shapes cannot be tuned"),
    11: say("an option has an invalid value"),
    **dict.fromkeys((12, 13, 201, 202), say("a library of AOE could not be loaded")),
    100: say("tuning failed"),
    **dict.fromkeys((203, 204), say("memory could not be obtained")),
    302: say("the model is not supported"),
    303: say("a parameter could not be read"),
    401: say("the graph was tuned already"),
    **dict.fromkeys((402, 403), say("a plugin of AOE could not be loaded")),
}
#: How the programs that call AOE print a status: TF Adapter "func failed[9]", others "failed. error code:9".
_PRINTED: Final = re.compile(
    r"aoe[^\r\n]{0,200}?\b(?:failed|success)\b[.,]? *(?:\[|(?:error code|status is)[: ]+)(-?\d+)", re.IGNORECASE
)


def printed(text: str) -> int | None:
    """Return the last status that is not 0 in the output of a program that calls AOE."""
    found = [int(code) for code in _PRINTED.findall(text)]
    return next((code for code in reversed(found) if code), None)


def meaning(code: int, cann: str | None) -> Message | None:
    """Say what a status means in a version of CANN, None where it has no meaning that is known."""
    older, newer = _OLDER.get(code), _NEWER.get(code)
    version = re.match(r"(\d+)\.(\d+)", cann or "")
    if version and (int(version[1]), int(version[2])) >= (7, 0):
        return newer
    if version and int(version[1]) >= 5 and (int(version[1]), int(version[2])) <= (6, 0):
        return older
    if older == newer:
        return older
    later = newer and say("CANN 7.0 or later: {what}", what=newer)
    before = older and say("CANN 6.0 or before: {what}", what=older)
    return chain(later, before)


def nothing_to_tune(code: int, cann: str | None) -> bool:
    """Tell whether a status surely means that there was nothing to tune."""
    return meaning(code, cann) == _NOTHING_TO_TUNE
