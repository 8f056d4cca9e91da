"""What recording itself did to the steps that were judged, said where it matters, and the run's environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from npuperf.documents.analysis import Device, RecordedVariable, Verdict
from npuperf.host.traits import Traits, is_slowed
from npuperf.messages import Message, chain, factor, say
from npuperf.model.environment import Environment
from npuperf.model.thresholds import Thresholds


def with_recording_cost(verdict: Verdict, overhead: float | None, thresholds: Thresholds) -> Verdict:
    """Add to a verdict what recording cost, where that is notable: it slows the host, hardly ever the device."""
    if overhead is None or not is_slowed(overhead, thresholds):
        return verdict
    cost = say(
        "recording made steps {times} times as long: host times, and the device's waiting for the "
        "host, may be its own doing",
        times=factor(overhead),
    )
    evidence = {**verdict.evidence, "recording_overhead": overhead}
    return structs.replace(verdict, reason=chain(verdict.reason, cost), evidence=evidence)


def with_costliest(verdict: Verdict, devices: Sequence[Device], thresholds: Thresholds) -> Verdict:
    """Add to the verdict over several devices what recording cost the one that it cost most."""
    if len(devices) < 2:
        return verdict
    known = [d.recording_overhead for d in devices if d.recording_overhead is not None]
    return with_recording_cost(verdict, max(known, default=None), thresholds)


#: Changes of the host's part in a step begin so.
_HOSTS: Final = ("host", "launches", "latency", "sync")


def at_own_pace(rows: list[tuple[str, Message]], traits: Traits, thresholds: Thresholds) -> list[tuple[str, Message]]:
    """Leave out what-ifs of the host where its times are the recording's own, or those of blocking launches."""
    if not (traits.blocking or traits.slowed(thresholds)):
        return rows
    return [row for row in rows if not row[0].startswith(_HOSTS)]


def variables(environment: Environment) -> list[RecordedVariable]:
    """List the recorded environment."""
    return [RecordedVariable(name=name, value=value, recorded_by=by) for name, value, by in environment.recorded()]
