"""The data that rules need: what of it is recorded, and which option would supply the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from npuperf.base.messages import Message, chain, say, series, share
from npuperf.device.cores import on_cores
from npuperf.device.host_events import RUNTIME_CALL
from npuperf.device.mode import Version, no_launches
from npuperf.device.view import DeviceView
from npuperf.model.labels import Mask
from npuperf.model.result import Excluded, Precondition


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

    def wanted(need: Need) -> Callable[[DeviceView], float]:
        return lambda view: view.part(need.recorded) if view.host_bound else 1.0

    return tuple(Need(need.what, wanted(need), need.supply, need.vital) for need in needs)


def to_rule_out(*needs: Need) -> tuple[Need, ...]:
    """Ask for data before a problem is ruled out; one may be found without it."""
    return tuple(Need(need.what, need.recorded, need.supply, vital=False) for need in needs)


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


def see_where(view: DeviceView) -> Message | None:
    """Say what would show lines of code, unless call stacks are recorded: then they lead to none of the user's."""
    if view.profile.context.stacks or view.profile.host.has_lines:
        return None
    return say("record with --stack to see where")


def _both(view: DeviceView) -> Message:
    return _again(view, say("record with npuperf profile --activities cpu,npu --level 1"))


def _level(view: DeviceView) -> Message:
    return _again(view, say("record with npuperf profile --level 1"))


WHOLE_TABLE: Final = Need(
    say("whole table"),
    lambda view: float(not view.profile.excerpt),
    lambda view: view.profile.excerpt or say("rows are missing from the kernel table"),
)
#: A problem among the rows that are there is one; that there is none among those that are missing is not known.
(ALL_ROWS,) = to_rule_out(WHOLE_TABLE)
LAUNCHES: Final = Need(
    say("launches"),
    _launched,
    lambda view: say("launches are not recorded: {again}", again=_level(view)) if view.profile.kineto
    else no_launches(view.mode, timeline=len(view.profile.host.events) > 0),
)  # fmt: skip
HOST_EVENTS: Final = Need(
    say("host events"), _explained, lambda view: say("host events are not recorded: {again}", again=_both(view))
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
_COLLECTION: Final = _has_event(r"^(Python )?GC$")
COLLECTIONS: Final = Need(
    say("garbage collections"),
    lambda view: float(bool(view.profile.context.watches_gc) or _COLLECTION(view) > 0),
    lambda view: say("garbage collections are not recorded: record again with torch.profiler and "
                     "experimental_config=_ExperimentalConfig(record_python_gc_info=True)") if view.profile.kineto
    else say("garbage collections are not recorded: record with npuperf profile --gc-threshold 1"),
)  # fmt: skip
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


def _with_blocks(view: DeviceView) -> float:
    """Return the part of the time on AI cores that has blocks; tasks of other engines (DSA, AI CPU) have none.

    Where no core type is recorded any kernel may be on AI cores.
    """
    chosen = view.compute & on_cores(view.tasks)
    if not chosen.any():
        chosen = view.compute & ~view.tasks.core.known()
    total = int(view.tasks.dur[chosen].sum())
    known = chosen & (view.tasks.block > 0)
    return int(view.tasks.dur[known].sum()) / total if total else float(known.any())


BLOCKS: Final = Need(
    say("block counts"),
    _with_blocks,
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


#: What rules about waiting for the host need; those about what the host was doing need its events where it matters.
HOST_WAITS: Final = (LAUNCHES, WHOLE_TABLE)
HOST_DOINGS: Final = (*HOST_WAITS, *where_host_bound(HOST_EVENTS))
#: What rules need to rule out what calls of the runtime or torch operators show; one of them is enough to find it.
CALLS_AND_OPERATORS: Final = (*HOST_DOINGS, *where_host_bound(*to_rule_out(RUNTIME_CALLS, TORCH_OPERATORS)))


# -- What advice presupposes, held against the run, and the choice among pieces of advice.


class Requirement(Struct, frozen=True):
    """A presupposition: ``test`` gives None where the profile does not tell.

    ``evident``: advice need not name it then, as "set X" presupposes that X is not set.
    """

    what: Message
    test: Callable[[DeviceView], bool | None]
    evident: bool = False

    def check(self, view: DeviceView) -> Precondition:
        """Hold it against a run."""
        return Precondition(what=self.what, holds=self.test(view))


#: What is saved per step, ns: least and most.
Gain = tuple[int, int]


class Option(Struct, frozen=True):
    """A piece of advice with what it presupposes and where that is documented.

    ``gain``: what the change that it stands for saves, None where that cannot be told; without it what its rule says.
    ``refute``: what would show that it does not, and what that gain assumes.
    """

    text: Message
    source: Message
    requires: tuple[Requirement, ...] = ()
    gain: Callable[[DeviceView], Gain | None] | None = None
    refute: Message | None = None


class Choice(Struct, frozen=True):
    """The advice that applies, what it presupposes, what does not apply and why, and where each is documented.

    ``gain``: of ``next`` by itself, with its ``refute``; None where only its rule tells what it saves.
    """

    next: Message | None = None
    gain: Gain | None = None
    refute: Message | None = None
    alternatives: list[Message] = []
    preconditions: list[Precondition] = []
    excluded: list[Excluded] = []
    sources: tuple[Message, ...] = ()


def choose(options: Sequence[Option], view: DeviceView, most: int = 3) -> Choice:
    """Take what nothing excludes, at most ``most``: what saves most first, where options tell it, else as preferred.

    What is not recorded does not exclude, but the advice then names it as a condition.
    """
    excluded: list[Excluded] = []
    fitting: list[tuple[Option, list[Precondition], Gain | None]] = []
    for option in options:
        checked = [condition.check(view) for condition in option.requires]
        broken = [c.what for c in checked if c.holds is False]
        gain = option.gain(view) if option.gain is not None and not broken else None
        if broken:
            excluded.append(Excluded(advice=option.text, because=say("needs {conditions}", conditions=series(broken))))
        elif gain is not None and gain[1] <= 0:
            excluded.append(Excluded(advice=option.text, because=say("would save nothing here")))
        else:
            fitting.append((option, checked, gain))
    fitting.sort(key=lambda fits: 0 if fits[2] is None else -fits[2][1])
    taken: list[Message] = []
    sources: dict[Message, None] = {}
    held: list[Precondition] = []
    for option, checked, _ in fitting[:most]:
        told = zip(option.requires, checked, strict=True)
        unknown = [c.what for condition, c in told if c.holds is None and not condition.evident]
        given = say("{advice} (given {unknown}, which the profile does not tell)",
                    advice=option.text, unknown=series(unknown))  # fmt: skip
        taken.append(given if unknown else option.text)
        sources.setdefault(option.source)
        held += [c for c in checked if c not in held]
    if not taken:
        return Choice(excluded=excluded)
    first, _, gain = fitting[0]
    return Choice(taken[0], gain, first.refute if gain else None, taken[1:], held, excluded, tuple(sources))


def bare(advice: Message) -> Message:
    """Return the change that is advised, without its conditions and reasons: the innermost ``{advice}``."""
    inner = advice.parameters.get("advice")
    return bare(inner) if isinstance(inner, Message) else advice


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _mode(*modes: str) -> Callable[[DeviceView], bool | None]:
    return lambda view: None if view.mode == "unknown" else view.mode in modes


ON_NPU: Final = Requirement(say("an NPU"), lambda view: view.traits.platform == "npu")
ON_GPU: Final = Requirement(say("a GPU"), lambda view: view.traits.platform == "gpu")
EAGER: Final = Requirement(say("eager execution"), _mode("eager"))
INFERENCE: Final = Requirement(say("no backward pass"), lambda view: _not(view.traits.training))
TRAINING: Final = Requirement(say("training"), lambda view: view.traits.training)
NOT_RANDOM: Final = Requirement(say("no operators that draw random numbers"), lambda view: _not(view.traits.random))
COMPILED: Final = Requirement(say("code that torch.compile made"), lambda view: view.traits.compiled)
NOT_COMPILED: Final = Requirement(say("no code that torch.compile made"), lambda view: _not(view.traits.compiled))
DYNAMIC_GRAPH: Final = Requirement(say("a graph of GE that is scheduled by the host"), _mode("ge", "ge_dynamic"))
DYNAMIC_SHAPES: Final = Requirement(say("kernels of dynamic shape"), lambda view: view.traits.dynamic)


#: Values of CPU_AFFINITY_CONF that bind nothing: ``MODE,…`` or ``mode:MODE,…`` with mode 0.
_UNBOUND: Final = re.compile(r"^\s*(mode:)?0?\s*(,|$)")


def _unbound(view: DeviceView) -> bool | None:
    have = view.traits.environment.get("CPU_AFFINITY_CONF")
    return None if have is None else bool(_UNBOUND.match(have))


UNBOUND: Final = Requirement(say("threads that CPU_AFFINITY_CONF does not bind yet"), _unbound, evident=True)


def at_least(package: str, *wanted: int) -> Requirement:
    """Require a version of ``torch``, ``torch_npu`` or ``cann``."""

    def test(view: DeviceView) -> bool | None:
        have: Version | None = getattr(view.traits, package)
        return None if have is None else have >= wanted

    return Requirement(say("{package} {version} or newer", package=package, version=".".join(map(str, wanted))), test)


def still_unset(name: str, *values: str) -> Requirement:
    """Require that an environment variable does not already have one of these values.

    Advice to set it need not say so where that is not recorded.
    """

    def test(view: DeviceView) -> bool | None:
        have = view.traits.environment.get(name)
        return None if have is None else have not in values

    return Requirement(say("{name} other than {values}", name=name, values=series(values)), test, evident=True)
