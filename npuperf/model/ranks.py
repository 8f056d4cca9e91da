"""Lists of ranks as users write them."""

from __future__ import annotations

import re

from npuperf.errors import UsageError
from npuperf.messages import say


def rank_list(text: str) -> tuple[int, ...]:
    """Read ``--ranks``: ``0,8`` or ``0-3``."""
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,6})(?:-([0-9]{1,6}))?\s*", part)
        if not ends or int(ends[2] or ends[1]) < int(ends[1]):
            what = say("--ranks {text}: {part} is not a rank", text=repr(text), part=repr(part))
            raise UsageError(what, hint=say("give numbers: 0,8 or 0-3"))
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return tuple(found)
