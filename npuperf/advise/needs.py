"""The data that rules need: what of it is recorded, and which option would supply the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from npuperf.documents.analysis import Precondition
from npuperf.host.causes import RUNTIME_CALL
from npuperf.host.mode import no_launches
from npuperf.messages import Message, chain, say, share
from npuperf.model.labels import Mask
from npuperf.scopes.view import DeviceView


class Need(Struct, frozen=True):
    """One kind of data, ``what`` as users call it.

    ``recorded``: the part of it that is, 0 (none) to 1 (all that matters); ``supply``: what is missing, and how to get
    it. A problem may be found in a part of the data; that there is none is said only where ``enough`` is recorded.
    ``vital``: without it no problem can be found at all.
    """

    what: Message
    recorded: Callable[[DeviceView], float]
    supply: Callable[[DeviceView], Message]
    vital: bool = True

    def missing(self, view: DeviceView) -> Message | None:
        """Say what is missing where nothing is recorded without which there is nothing to find."""
        return None if not self.vital or view.part(self.recorded) > 0 else self.supply(view)

    def check(self, view: DeviceView) -> Precondition:
        """Tell whether it is recorded; in part, that is not told."""
        part = view.part(self.recorded)
        holds = True if part >= view.thresholds.enough_data else None if part > 0 else False
        return Precondition(what=say("recorded: {data}", data=self.what), holds=holds)

    def scarce(self, view: DeviceView) -> Message | None:
        """Say what is missing where too little is recorded to rule a problem out."""
        part = view.part(self.recorded)
        if part >= view.thresholds.enough_data:
            return None
        return chain(
            self.supply(view),
            say("only {share} of what is needed is recorded", share=share(part)) if part > 0 else None,
        )


def where_host_bound(*needs: Need) -> tuple[Need, ...]:
    """Ask for data only where the device waits for the host: elsewhere the host's doings cost nothing."""
    return tuple(Need(need.what, _if_host_bound(need), need.supply, need.vital) for need in needs)


def to_rule_out(*needs: Need) -> tuple[Need, ...]:
    """Ask for data before a problem is ruled out; one may be found without it."""
    return tuple(Need(need.what, need.recorded, need.supply, vital=False) for need in needs)


def _if_host_bound(need: Need) -> Callable[[DeviceView], float]:
    return lambda view: view.part(need.recorded) if view.host_bound else 1.0


def first_missing(needs: Sequence[Need], view: DeviceView) -> Message | None:
    """Return what the first of the needs misses, if one of them finds nothing at all."""
    return next((text for need in needs if (text := need.missing(view))), None)


def first_scarce(needs: Sequence[Need], view: DeviceView) -> Message | None:
    """Return what the first of the needs misses to rule a problem out."""
    return next((text for need in needs if (text := need.scarce(view))), None)


def _by_time(view: DeviceView, known: Mask) -> float:
    """Return the part of compute time in tasks of which something is known."""
    compute = view.compute
    total = int(view.tasks.dur[compute].sum())
    return int(view.tasks.dur[compute & known].sum()) / total if total else float(known[compute].any())


def _launched(view: DeviceView) -> float:
    """Return the part of idle time whose launches are known; what is too short to matter counts as known."""
    if not view.launches.known.any():
        return 0.0
    partition = view.partition
    if partition.unattributed_ns <= view.thresholds.cause_share * partition.span_ns:
        return 1.0
    return 1 - partition.unattributed_ns / partition.idle_ns


def _explained(view: DeviceView) -> float:
    """Return the part of the wait for the host during which an event of the host was recorded."""
    if not len(view.profile.host.events):
        return 0.0
    waited = sum(b.ns for b in view.report.blame)
    unknown = view.blamed("unrecorded")
    return 1 - unknown / waited if waited and unknown < waited else 1.0


def _has_event(pattern: str) -> Callable[[DeviceView], float]:
    found = re.compile(pattern)
    return lambda view: float(view.profile.host.events.name.has(found))


def _again(view: DeviceView, npu: Message) -> Message:
    """Name the recording that supplies what a profile lacks, for the profiler that wrote it."""
    if view.profile.kineto:
        return say("record again with torch.profiler, activities CPU and CUDA, and export the whole trace")
    return npu


_COLLECTION: Final = _has_event(r"^(Python )?GC$")


def _watched(view: DeviceView) -> bool:
    return bool(view.profile.context.watches_gc) or _COLLECTION(view) > 0


def see_where(view: DeviceView) -> Message | None:
    """Say what would show lines of code, unless call stacks are recorded: then they lead to none of the user's."""
    if view.profile.context.stacks or view.profile.host.has_lines:
        return None
    return say("record with --stack to see where")


def _watch(view: DeviceView) -> Message:
    if view.profile.kineto:
        return say(
            "garbage collections are not recorded: record again with torch.profiler and "
            "experimental_config=_ExperimentalConfig(record_python_gc_info=True)"
        )
    return say("garbage collections are not recorded: record with npuperf profile --gc-threshold 1")


def _both(view: DeviceView) -> Message:
    return _again(view, say("record with npuperf profile --activities cpu,npu --level 1"))


def _level(view: DeviceView) -> Message:
    return _again(view, say("record with npuperf profile --level 1"))


WHOLE_TABLE: Final = Need(
    say("whole table"),
    lambda view: float(not view.profile.excerpt),
    lambda _: say("rows are missing from the kernel table: analyze the file as it was exported"),
)
#: A problem among the rows that are there is one; that there is none among those that are missing is not known.
(ALL_ROWS,) = to_rule_out(WHOLE_TABLE)
LAUNCHES: Final = Need(say("launches"), _launched, lambda view: _no_launches(view))
HOST_EVENTS: Final = Need(
    say("host events"),
    _explained,
    lambda view: say("host events are not recorded: {again}", again=_both(view)),
)
RUNTIME_CALLS: Final = Need(
    say("runtime calls"),
    _has_event(RUNTIME_CALL.pattern),
    lambda view: say("calls of the runtime are not recorded: {again}", again=_level(view)),
)
#: Also of code that only torch names: its loader, its compiler, the operator that waits.
TORCH_OPERATORS: Final = Need(
    say("torch operators"),
    lambda view: float(len(view.profile.host.ops) > 0),
    lambda view: say("torch operators are not recorded: {again}", again=_both(view)),
)
COLLECTIONS: Final = Need(say("garbage collections"), lambda view: float(_watched(view)), lambda view: _watch(view))
CORE_TYPES: Final = Need(
    say("core types"),
    lambda view: _by_time(view, view.tasks.core.known()),
    lambda _: say("core types are not recorded: record with npuperf profile --level 1"),
)
OPERATIONS: Final = Need(
    say("communication operations"),
    lambda view: float(view.profile.kineto or view.tasks.core.known().any()),
    CORE_TYPES.supply,
)
OPERATOR_TYPES: Final = Need(
    say("operator types"),
    lambda view: _by_time(view, view.tasks.type.known()),
    lambda _: say("operator types are not recorded: record with npuperf profile --level 1"),
)
SHAPES: Final = Need(
    say("input shapes"),
    lambda view: _by_time(view, view.tasks.shapes.known()),
    lambda _: say("input shapes are not recorded: record with npuperf profile --level 1 --shapes"),
)
STATES: Final = Need(
    say("OP State"),
    lambda view: _by_time(view, view.tasks.state.known()),
    lambda _: say("OP State is not recorded: recording it needs CANN 8 or newer and npuperf profile --level 1"),
)
BLOCKS: Final = Need(
    say("block counts"),
    lambda view: _by_time(view, view.tasks.block > 0),
    lambda _: say("Block Dim is not recorded: record with npuperf profile --level 1"),
)
CORE_COUNTS: Final = Need(
    say("core counts"),
    lambda view: float(view.cores.cube is not None),
    lambda _: say("core counts are unknown: analyze the whole folder with its PROF_*/device_*/info.json.*, "
                  "or give --cores or --soc"),
)  # fmt: skip
STEPS: Final = Need(
    say("steps"),
    lambda view: float(bool(view.steps)),
    lambda view: say("steps are not recorded: {again}",
                     again=say("call the profiler's step() at the end of each step") if view.profile.kineto
                     else say("npuperf profile records them (--step-on)")),
)  # fmt: skip


def variable(name: str) -> Need:
    """Return the need to know whether an environment variable was set."""
    return Need(
        say("the value of {name}", name=name),
        lambda view: float(view.traits.environment.get(name) is not None),
        lambda _: say(
            "whether {name} was set is not recorded: record with npuperf profile, or analyze the whole *_ascend_pt "
            "folder with its profiler_metadata.json",
            name=name,
        ),
    )


def _no_launches(view: DeviceView) -> Message:
    if view.profile.kineto:
        return say("launches are not recorded: {again}", again=_level(view))
    return no_launches(view.mode, timeline=len(view.profile.host.events) > 0)


#: What rules about waiting for the host need; those about what the host was doing need its events where it matters.
HOST_WAITS: Final = (LAUNCHES, WHOLE_TABLE)
HOST_DOINGS: Final = (*HOST_WAITS, *where_host_bound(HOST_EVENTS))
#: What rules need to rule out what calls of the runtime or torch operators show; one of them is enough to find it.
CALLS_AND_OPERATORS: Final = (*HOST_DOINGS, *where_host_bound(*to_rule_out(RUNTIME_CALLS, TORCH_OPERATORS)))
