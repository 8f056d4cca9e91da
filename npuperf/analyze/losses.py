"""What a verdict is worth where much of what it rests on could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from npuperf.documents.analysis import Verdict
from npuperf.messages import chain, say_n
from npuperf.readers.log import ReadLog

#: Losses of less than this part of what was read do not turn a verdict.
_NOTABLE: Final = 0.1


def with_losses(verdict: Verdict, logs: Sequence[ReadLog], tasks: int) -> Verdict:
    """Say it where many device tasks, or events of timelines, were lost; where most were, nobody can tell what limits.

    ``tasks``: how many device tasks are known in the end. What a table lost the timeline may have.
    """
    if verdict.bound == "unknown":
        return verdict
    tasks_lost, events_lost = sum(log.tasks_lost for log in logs), sum(log.events_lost for log in logs)
    events = sum(log.events for log in logs)
    told, evidence = [], dict(verdict.evidence)
    if tasks_lost > _NOTABLE * tasks:
        told.append(say_n("{n} row about device tasks could not be used, and {read} tasks are known",
                          "{n} rows about device tasks could not be used, and {read} tasks are known",
                          tasks_lost, read=tasks))  # fmt: skip
        evidence |= {"task_rows_lost": float(tasks_lost), "tasks_read": float(tasks)}
    if events_lost > _NOTABLE * events:
        told.append(say_n("{n} event of the timeline could not be used, beside {read} that could",
                          "{n} events of the timeline could not be used, beside {read} that could",
                          events_lost, read=events))  # fmt: skip
        evidence |= {"events_lost": float(events_lost), "events_read": float(events)}
    if not told:
        return verdict
    if tasks_lost > tasks or events_lost > events:
        return Verdict(bound="unknown", basis="inferred", reason=chain(*told), evidence=evidence)
    return structs.replace(verdict, reason=chain(verdict.reason, *told), evidence=evidence)
