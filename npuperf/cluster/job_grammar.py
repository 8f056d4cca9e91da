"""What may be asked of a whole job: a small language for its changes.

    expression = change {"," change}
    change     = "rank:" N "=median" | "rank:" N [":" part] "*" factor | "stage:" N "*" factor
               | "link:" A "-" B "=peers" | ("comm" | "host" | "compute") "*" factor
    part       = "host" | "compute"

``rank:3=median`` lets a rank work like the median of its peers (of its stage, if there are stages);
``link:0-1=peers`` lets a link carry what the median of its peers does; ``comm`` scales transfers only, because waiting
for others is not sped up by a faster network.
"""

from __future__ import annotations

import re
from typing import Final

from npuperf.errors import UsageError
from npuperf.messages import say

_NUMBER: Final = r"(?P<factor>\d+\.?\d*|\.\d+)"
_RANK: Final = re.compile(rf"^rank:(?P<rank>\d{{1,9}})(?:=(?P<median>median)|(?::(?P<part>host|compute))?\*{_NUMBER})$")
_STAGE: Final = re.compile(rf"^stage:(?P<stage>\d{{1,9}})\*{_NUMBER}$")
_LINK: Final = re.compile(r"^link:(?P<a>\d{1,9})-(?P<b>\d{1,9})=peers$")
_ALL: Final = re.compile(rf"^(?P<part>comm|host|compute)\*{_NUMBER}$")
GRAMMAR: Final = say(
    "over several ranks: rank:N=median, rank:N*FACTOR, rank:N:host*FACTOR, rank:N:compute*FACTOR, stage:N*FACTOR, "
    "link:A-B=peers, comm*FACTOR, host*FACTOR, compute*FACTOR, joined by commas"
)


def names_ranks(expression: str) -> bool:
    """Tell whether an expression speaks of ranks, stages or links: only a job can answer it."""
    return any(part.strip().startswith(("rank:", "stage:", "link:")) for part in expression.split(","))


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
