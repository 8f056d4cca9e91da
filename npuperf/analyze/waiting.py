"""What the device waited for once its next task was launched: added to a device's report, whole and by phase."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from npuperf.documents.analysis import Dependency, Device
from npuperf.host.dependencies import find_dependencies
from npuperf.host.dependency_sums import Namer
from npuperf.messages import Message, say
from npuperf.model.device import DeviceProfile
from npuperf.model.thresholds import Thresholds
from npuperf.replay.study import Study

#: Names of a list beyond this one are summed by kind.
_NAMES: Final = 12


def with_dependencies(report: Device, study: Study, span: tuple[int, int], thresholds: Thresholds) -> Device:
    """Add what the device waited for within ``span``, and within each phase."""
    profile, nesting, origin = study.profile, study.nesting, study.timeline.span[0]
    waits = find_dependencies(profile.tasks, study.launches, study.timeline.idle, study.threads, nesting, thresholds)
    namer = Namer(profile.tasks, study.types, profile.host, nesting)
    needs = _needs(profile)

    def summed(start: int, end: int) -> list[Dependency]:
        lines = namer.sums(waits.within(start, end), _NAMES)
        return [structs.replace(d, needs=needs) if d.kind == "unrecorded" else d for d in lines]

    phases = [structs.replace(p, dependencies=summed(p.start_ns + origin, p.end_ns + origin)) for p in report.phases]
    return structs.replace(report, dependencies=summed(*span), phases=phases)


def _needs(profile: DeviceProfile) -> Message:
    """Say which recording might tell what a device waited for."""
    if profile.kineto:
        return say(
            "no task of another stream and no call of the host explains these waits; which events streams wait for "
            "is not read from GPU traces"
        )
    if not len(profile.host.events):
        return say(
            "no event and no task of another stream explains these waits, and calls of the host are not recorded: "
            "record with npuperf profile --level 1"
        )
    if profile.context.level == "Level2":
        return say("no event, no task of another stream and no call of the host explains these waits")
    return say(
        "no event, no task of another stream and no call of the host explains these waits: npuperf profile --level 2 "
        "records the calls of the runtime, too"
    )
