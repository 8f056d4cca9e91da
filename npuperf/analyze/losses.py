"""What a verdict is worth where much of the recording could not be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from npuperf.documents.analysis import Verdict
from npuperf.messages import chain, say_n
from npuperf.readers.log import ReadLog

#: Losses of less than this part of what was read do not turn a verdict.
_NOTABLE: Final = 0.1


def with_losses(verdict: Verdict, logs: Iterable[ReadLog], tasks: int) -> Verdict:
    """Say it where much was lost; nobody can tell what limits a step of which more was lost than read.

    ``tasks``: how many device tasks were read. What a table lost the timeline may have, so a verdict is kept as long as
    more was read.
    """
    lost, read = 0, tasks
    for log in logs:
        lost, read = lost + sum(loss.rows for loss in log.lost), read + log.events
    if lost <= _NOTABLE * read or verdict.bound == "unknown":
        return verdict
    beside = say_n("{n} row or event could not be read, beside {read} that could",
                   "{n} rows or events could not be read, beside {read} that could", lost, read=read)  # fmt: skip
    evidence = {**verdict.evidence, "rows_lost": float(lost), "rows_read": float(read)}
    if lost <= read:
        return structs.replace(verdict, reason=chain(verdict.reason, beside), evidence=evidence)
    return Verdict(bound="unknown", basis="inferred", reason=beside, evidence=evidence)
