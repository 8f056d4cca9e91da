"""What a rule is and how it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, TypedDict

import numpy as np
import yaml
from msgspec import Struct, field

from npuperf.advise.needs import OPERATIONS, WHOLE_TABLE, Choice, Need, Option, Requirement, choose
from npuperf.base.messages import Message, Series, chain, factor, ns, say, series
from npuperf.base.units import short_names
from npuperf.device.memory_study import MemoryStudy
from npuperf.device.mode import Traits
from npuperf.device.rank_summary import RankSummary
from npuperf.device.study import Study
from npuperf.device.view import DeviceView
from npuperf.model.device import DeviceProfile
from npuperf.model.job_result import Cluster
from npuperf.model.labels import Mask
from npuperf.model.memory_result import Memory
from npuperf.model.result import Bound, Finding, Precondition, Severity
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.job.job_study import JobStudy  # loaded where there is a job


class TypeRow(TypedDict):
    """An operator type in the evidence: None where it is not recorded."""

    type: str | None
    count: int
    total_ns: int


class Detected(Struct, frozen=True, kw_only=True):
    """What takes time, or memory. ``refute``: what would show that this is not the cause; ``gain``: ns per step, min
    and max; ``gain_bytes``: likewise of memory.

    ``next``: what to do, or options in the order of preference, of which those are advised that fit the run; what the
    first of them saves by itself takes the place of ``gain``, where it is known;
    ``severity``: where it does not follow from the gain; ``rank`` and ``device``: of a job, where to look first;
    ``percent``: the gain's part of a step, where that is known; ``gained``: what is gained, where that is no number.
    """

    title: Message
    refute: Message
    next: Message | tuple[Option, ...] | None
    evidence: dict[str, Any]
    gain: tuple[int, int] | None = None
    gain_bytes: tuple[int, int] | None = None
    code: str | None = None
    severity: Severity | None = None
    rank: int | None = None
    device: int = 0
    percent: tuple[float, float] | None = None
    gained: Message | None = None


class Untold(Struct, frozen=True):
    """Why a rule cannot tell: what is missing, and how to get it."""

    needs: Message
    evidence: dict[str, Any] = field(default_factory=dict)


#: None: there is no problem.
Answer = Detected | Untold | None
#: What every finding about memory presupposes.
_RECORDED: Final = Precondition(what=say("recorded: {data}", data=say("memory")), holds=True)
#: What every finding about several ranks presupposes; without it there is no job to ask about.
_MATCHED: Final = Precondition(what=say("operations of several ranks that are one and the same"), holds=True)


def _functions_in(value: Any) -> Iterator[FunctionType]:
    """Yield npuperf's own functions in a value of a rule's module: itself, a property's, those of a table's rows."""
    if isinstance(value, property | cached_property):
        value = value.fget if isinstance(value, property) else value.func
    if isinstance(value, FunctionType):
        if value.__module__.startswith("npuperf."):
            yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _functions_in(part)
    elif isinstance(value, Struct) and not isinstance(value, Rule):
        for name in value.__struct_fields__:
            yield from _functions_in(getattr(value, name))


class Rule(Struct, frozen=True):
    """A question to the data of one device (``on_device``), of a job (``on_job``), or of both.

    ``on_device`` is asked only where something of all ``needs`` is recorded. That there is no problem is said only
    where enough of it is. ``on_rank`` is asked in its place where the device communicates; its answers stand only where
    no job was found. ``on_job`` has answers only where there is a problem. ``on_memory``: asked only where memory was
    recorded, also of a device without kernels.
    ``requires``: in runs of another kind the problem cannot exist. ``any_device``: it asks nothing that only an NPU
    has; ``relieves``: the limit that its problem is about.
    """

    name: str
    title: Message
    source: Message
    needs: tuple[Need, ...] = (WHOLE_TABLE, OPERATIONS)
    on_device: Callable[[DeviceView], Answer] | None = None
    any_device: bool = False
    relieves: Bound | None = None
    requires: tuple[Requirement, ...] = ()
    on_rank: Callable[[DeviceView, RankSummary], Answer] | None = None
    on_job: Callable[[JobView], list[Detected]] | None = None
    on_memory: Callable[[MemoryView], Answer] | None = None

    def ask(self, view: DeviceView, summary: RankSummary | None = None) -> Finding:
        """Return the answer for a device; the gain's share of the step sets the severity.

        ``summary``: its communication, if it has any.
        """
        answer = self._answer(view, summary)
        problem = answer if isinstance(answer, Detected) else None
        untold = answer.needs if isinstance(answer, Untold) else None
        choice = Choice(None if problem is None or isinstance(problem.next, tuple) else problem.next)
        if problem and isinstance(problem.next, tuple):
            choice = choose(problem.next, view)
        step = view.per_step(view.partition.span_ns)
        gain = choice.gain or (problem.gain if problem else None)  # that of the advice is what its change saves
        withheld = self._withheld(view) if gain else None
        if gain:  # nothing at least, the step at most
            most = min(max(gain[1], 0), step)
            gain = (min(max(gain[0], 0), most), most) if withheld is None else None
        percent = (100 * gain[0] / step, 100 * gain[1] / step) if gain and step else None
        presupposed = [r.check(view) for r in self.requires] + [need.check(view) for need in self.needs]
        return Finding(
            rule=self.name,
            status="problem" if problem else "cannot_tell" if untold else "ok",
            severity=(problem and problem.severity) or severity(percent[1] / 100 if percent else 0.0, view.thresholds),
            title=problem.title if problem else self.title,
            evidence=answer.evidence if answer else {},
            gain_ns_per_step=gain,
            gain_pct=percent,
            gain_per="step" if view.steps else "window",
            refute=(choice.refute or problem.refute) if problem else None,
            next=choice.next if problem else untold,
            code=problem.code if problem else None,
            needs=untold,
            source=chain(*dict.fromkeys((self.source, *choice.sources))),
            relieves=self.relieves,
            rank=view.profile.rank,
            device=view.profile.device,
            preconditions=[*dict.fromkeys((*presupposed, *choice.preconditions))],
            alternatives=choice.alternatives,
            excluded=choice.excluded,
            gain_withheld=withheld,
        )

    def ask_memory(self, view: MemoryView) -> Finding:
        """Return the answer for a device's memory; of a gain in time the least is nothing and the most the step."""
        assert self.on_memory is not None
        answer = self.on_memory(view)
        problem = answer if isinstance(answer, Detected) else None
        assert problem is None or not isinstance(problem.next, tuple), "of memory there is one advice"
        untold = answer.needs if isinstance(answer, Untold) else None
        gain, step = problem.gain if problem else None, view.step_ns
        return Finding(
            rule=self.name,
            status="problem" if problem else "cannot_tell" if untold else "ok",
            severity=(problem and problem.severity) or "low",
            title=problem.title if problem else self.title,
            evidence=answer.evidence if answer else {},
            gain_ns_per_step=gain,
            gain_pct=(100 * gain[0] / step, 100 * gain[1] / step) if gain and step else None,
            gain_per="step" if step else "window",
            gain_bytes=problem.gain_bytes if problem else None,
            refute=problem.refute if problem else None,
            next=problem.next if problem and isinstance(problem.next, Message) else untold,
            code=problem.code if problem else None,
            needs=untold,
            source=self.source,
            rank=view.profile.rank,
            device=view.profile.device,
            preconditions=[_RECORDED],
            gain_withheld=problem.gained if problem else None,
        )

    def ask_job(self, job: JobView) -> list[Finding]:
        """Return the problems of several ranks, none where it is not asked about these."""
        return [self._of_job(problem, job) for problem in (self.on_job(job) if self.on_job else ())]

    def _of_job(self, problem: Detected, job: JobView) -> Finding:
        assert problem.gain is not None and not isinstance(problem.next, tuple), "of a job both are known"
        percent = problem.percent or (0.0, 100 * (problem.gain[1] / max(job.cluster.step_ns, 1)))
        return Finding(
            rule=self.name,
            status="problem",
            severity=severity(percent[1] / 100, job.thresholds),
            title=problem.title,
            evidence=problem.evidence,
            gain_ns_per_step=problem.gain,
            gain_pct=percent,
            gain_per="step",
            refute=problem.refute,
            next=problem.next,
            code=problem.code,
            needs=None,
            source=self.source,
            rank=problem.rank,
            device=problem.device,
            preconditions=[_MATCHED],
        )

    @property
    def asks(self) -> str | None:
        """What it looks for, in the words of who wrote it."""
        look = self.on_job or self.on_device or self.on_memory or self.on_rank
        said = (getattr(look, "__doc__", None) or "").partition("\n\n")[0]
        return " ".join(said.partition("; see :")[0].split()).rstrip(".") or None

    @property
    def limits(self) -> list[str]:
        """The names of the thresholds that it judges by: those that its functions read, and what these call or name.

        How grave a problem is, and when enough is recorded, is judged alike for all.
        """
        known, found, seen = set(Thresholds.__struct_fields__), set[str](), set[CodeType]()
        todo: list[Any] = [severity, *([Need.check] if self.needs else [])]
        todo += [self.on_device, self.on_rank, self.on_job, self.on_memory, self.needs, self.requires]
        while todo:
            for function in _functions_in(todo.pop()):
                codes = [function.__code__]
                for code in codes:  # which grows by what is defined in it
                    if code in seen:
                        continue
                    seen.add(code)
                    names = {*code.co_names}
                    if "thresholds" in names | {*code.co_varnames}:
                        found |= known & names
                    codes += [part for part in code.co_consts if isinstance(part, CodeType)]
                    todo += [function.__globals__.get(name) for name in names]
                    todo += [vars(kind)[name] for kind in (DeviceView, Traits) for name in names & vars(kind).keys()]
                todo += [cell.cell_contents for cell in function.__closure__ or ()]
        return sorted(found)

    def _answer(self, view: DeviceView, summary: RankSummary | None) -> Answer:
        if any(condition.test(view) is False for condition in self.requires):
            return None
        if self.on_rank is not None and summary is not None:
            return self.on_rank(view, summary)
        if missing := next((text for need in self.needs if (text := need.missing(view))), None):
            return Untold(missing)
        answer = self.on_device(view) if self.on_device is not None else None
        if answer is None and (scarce := next((text for need in self.needs if (text := need.scarce(view))), None)):
            return Untold(scarce)
        return answer

    def _withheld(self, view: DeviceView) -> Message | None:
        """Say why the host's part in a step is not told: much of it may be the recording's own."""
        if self.relieves != "host":
            return None
        if view.traits.blocking:
            return say("the gain is withheld: ASCEND_LAUNCH_BLOCKING made the host wait for every kernel")
        overhead = view.traits.overhead
        if overhead is None or not view.traits.slowed(view.thresholds):
            return None
        return say(
            "the gain is withheld: recording made steps {times} times as long, so the host's part in them is not known",
            times=factor(overhead),
        )


def rule(
    title: Message,
    source: Message,
    needs: tuple[Need, ...],
    *,
    any_device: bool = False,
    relieves: Bound | None = None,
    requires: tuple[Requirement, ...] = (),
) -> Callable[[Callable[[DeviceView], Answer]], Rule]:
    """Make a function that looks at one device the rule of its name."""
    return lambda look: Rule(look.__name__, title, source, needs, look, any_device, relieves, requires)


class MemoryView(Struct, frozen=True):
    """A device's memory as rules see it: what is worked out of it, and its part of the document.

    ``device``: the study of its tasks, None where there are none.
    """

    study: MemoryStudy
    memory: Memory
    profile: DeviceProfile
    device: Study | None
    thresholds: Thresholds

    @property
    def step_ns(self) -> int:
        """How long a step takes in the middle, 0 where none is recorded."""
        steps = None if self.device is None else self.device.steps
        return int(np.median(steps.end - steps.start)) if steps is not None and len(steps) else 0


class JobView(Struct, frozen=True):
    """A job as rules see it: its part of the document, and what that was made of."""

    study: JobStudy
    cluster: Cluster
    thresholds: Thresholds

    def device(self, rank: int) -> int:
        """Return the device of a rank."""
        return next((r.device for r in self.cluster.ranks if r.rank == rank), 0)

    def gain(self, lost_ns: float) -> tuple[int, int]:
        """Return what a step gains at most if nothing of ``lost_ns``, of all steps, is lost: the step at most."""
        return 0, min(int(lost_ns) // max(self.cluster.steps, 1), self.cluster.step_ns)

    def price(self, gain: tuple[int, int]) -> Message:
        """Return in words what a gain is of a step."""
        return say("up to {lost} of a step of {step}", lost=ns(gain[1]), step=ns(self.cluster.step_ns))


def severity(most: float, thresholds: Thresholds) -> Severity:
    """Return how grave a problem is whose repair saves at most this part of a step."""
    if most >= thresholds.severity_high:
        return "high"
    return "medium" if most >= thresholds.severity_medium else "low"


def notable_wait(view: DeviceView) -> float:
    """Return the wait, ns, from which a cause is worth a finding."""
    return max(view.thresholds.cause_share * view.partition.span_ns, 1)


def at_most(gain: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return a modelled gain of which nothing is certain."""
    return (0, gain[1]) if gain else None


def top_types(view: DeviceView, chosen: Mask, count: int = 3) -> list[TypeRow]:
    """Return the operator types that ``chosen`` tasks spend most time in, for the evidence."""
    codes = view.types.codes[chosen]
    dur = view.tasks.dur[chosen]
    totals = np.bincount(codes + 1, weights=dur, minlength=1)
    counts = np.bincount(codes + 1, minlength=1)
    order = np.argsort(-totals, kind="stable")[:count].tolist()
    names = (None, *view.types.names)
    return [{"type": names[i], "count": int(counts[i]), "total_ns": int(totals[i])} for i in order if counts[i]]


def quote(rows: list[TypeRow]) -> Series:
    """Return types as a list to show, e.g. ``TransData ×12, Cast ×3``."""
    short = short_names(row["type"] or "N/A" for row in rows)
    return series(say("{type} ×{count}", type=short[row["type"] or "N/A"], count=row["count"]) for row in rows)


#: The one in C is ten times as fast; not every PyYAML has it.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_shipped(name: str) -> Any:
    """Read a YAML file that ships beside the rules: facts with their sources."""
    return yaml.load(Path(__file__).with_name(name).read_text("utf-8"), Loader=_LOADER)
