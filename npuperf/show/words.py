"""Words that every format uses for the same thing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import Final

from msgspec import Struct

from npuperf.base.messages import Message, Parameter, chain, ns, say, say_n, series, share
from npuperf.base.messages import size as in_bytes
from npuperf.base.units import spread
from npuperf.model.result import Device, Finding, Result, WhatIf
from npuperf.show.language import lines_of


class Line(Struct, frozen=True):
    """One line of a sheet. ``label`` stands before it, in its style; without one the whole line has it.

    Styles: bold, dim, good, bad, warning, or code, which is to be pasted and never wrapped nor shortened.
    """

    content: Parameter
    style: str = ""
    label: Message | None = None

    @property
    def lines(self) -> list[str]:
        """The content as the lines that it makes of itself."""
        return lines_of(self.content)


#: Verdicts as headlines.
BOUND: Final = {
    "host": say("HOST-BOUND"),
    "compute": say("COMPUTE-BOUND"),
    "communication": say("COMMUNICATION-BOUND"),
    "unknown": say("CANNOT TELL"),
}
GATE: Final = {"pass": say("PASS"), "fail": say("FAIL"), "cannot_tell": say("CANNOT TELL")}
#: Of a gate that fails, and only warns.
WARNS: Final = say("WARN")
#: Verdicts on a difference.
OUTCOME: Final = {
    "better": say("BETTER"),
    "same": say("SAME"),
    "worse": say("WORSE"),
    "cannot_tell": say("CANNOT TELL"),
}

#: Causes of host wait.
CAUSE: Final = {
    "sync": say("waiting for the device"),
    "data_loading": say("data loading"),
    "capture": say("capturing a graph"),
    "compile": say("compiling"),
    "gc": say("garbage collection"),
    "communication": say("communication calls"),
    "tiling": say("shapes and tiling"),
    "launch": say("launching"),
    "aclop": say("aclopCompileAndExecute calls"),
    "execute": say("aclnn/aclop calls"),
    "memory": say("memory calls"),
    "runtime": say("runtime calls"),
    "queue": say("task queue"),
    "optimizer": say("optimizer"),
    "autograd": say("autograd"),
    "torch_op": say("torch operators"),
    "compiled": say("code that torch.compile made"),
    "python": say("Python"),
    "range": say("user range"),
    "profiler": say("the profiler itself"),
    "start_up": say("start-up work"),
    "unrecorded": say("nothing recorded"),
}

#: What waiting for the host is called where the launch latency cannot be told from it.
WITH_LAUNCHES: Final = say("waiting for the host and launches")
#: What a device may wait for once its task was launched.
WAITED_FOR: Final = {
    "stream": say("another stream"),
    "communication": say("communication"),
    "copy": say("a copy"),
    "event": say("an event"),
    "launch": say("the launch on its way"),
    "switch": say("the next task of a stream"),
    "host_call": say("a call of the host"),
    "unrecorded": say("nothing recorded"),
}

#: Values that a field may have, for people. Most are the word itself.
WORDS: Final = {
    "cannot_tell": say("cannot tell"),
    "warn": say("warning"),
    "nothing_to_tune": say("nothing to tune"),
    "htod": say("copy to the device"),
    "dtoh": say("value from the device"),
    "dtod": say("copy on the device"),
    "step_end": say("end of a step"),
    "profiler": say("the profiler's own"),
    "capture": say("capturing a graph"),
    "compile": say("compiling"),
    "host_call": say("host call"),
    "limit": say("limiting"),
    "kv_cache": say("KV cache"),
} | {
    word.id: word
    for word in (
        say("host"), say("compute"), say("communication"), say("unknown"), say("memory"), say("scalar"),
        say("conflict"), say("measured"), say("inferred"), say("problem"), say("ok"), say("high"), say("medium"),
        say("low"), say("pass"), say("fail"), say("violated"), say("yes"), say("no"), say("proposed"), say("cube"),
        say("vector"), say("better"), say("same"), say("worse"), say("added"), say("removed"), say("changed"),
        say("updated"), say("operator"), say("subgraph"), say("model"), say("step"), say("successful"), say("failed"),
        say("incomplete"), say("others"), say("nothing recorded"),
        say("rank"), say("stage"), say("link"), say("group"), say("schedule"), say("jitter"),
        say("leading"), say("shared"), say("waiting"),
        say("device"), say("stream"), say("event"), say("copy"), say("launch"), say("switch"),
        say("forward"), say("backward"), say("gradients"), say("optimizer"), say("copies"), say("lasting"),
        say("activation"), say("gradient"), say("temporary"), say("unreleased"), say("workspace"),
        say("different"), say("percent"), say("count"), say("cores"), say("bytes"),
    )
}  # fmt: skip


def gain(finding: Finding) -> Message:
    """Say what a finding expects to save, an interval per step."""
    if finding.gain_withheld is not None:
        return finding.gain_withheld
    if finding.gain_bytes is not None:
        return say("saves {bytes} of memory", bytes=in_bytes(*finding.gain_bytes))
    if finding.gain_ns_per_step is None or finding.gain_pct is None:
        return say("the gain cannot be computed from this data")
    saved = ns(*finding.gain_ns_per_step)
    part = share(*(percent / 100 for percent in finding.gain_pct))
    if finding.gain_per == "step":
        return say("saves {saved} per step ({share})", saved=saved, share=part)
    return say("saves {saved} in all ({share})", saved=saved, share=part)


def device_name(device: Device | WhatIf) -> Message:
    """Name a device and its rank, and its run where there are several."""
    name = say("device {device}", device=device.device)
    if device.rank is not None:
        name = say("rank {rank}, device {device}", rank=device.rank, device=device.device)
    return name if device.run is None else say("{run}, {device}", run=device.run, device=name)


def named(device: Device, title: Message, several: bool) -> Message:
    """Put the device before a title, where there are several."""
    return say("{device}: {title}", device=device_name(device), title=title) if several else title


#: Share of the time in exposed communication from which what is saved elsewhere may be waited there instead.
_FOLLOWS: Final = 0.02


def verdict_of(result: Result) -> Message:
    """Say what limits the run, how that is known, and what would save the most, if anything was found.

    That is named where it is about another limit than the verdict: the one is about a tenth less of each, the other
    about doing without a problem.
    """
    verdict = result.verdict
    reason = verdict.reason
    if verdict.bound != "unknown":
        reason = say("{basis}: {reason}", basis=WORDS[verdict.basis], reason=reason)
    problems = [f for f in result.findings if f.status == "problem" and f.gain_pct]
    best = max(problems, key=lambda f: f.gain_pct[1] if f.gain_pct else 0, default=None)
    if best is None or best.relieves in (None, verdict.bound):
        return reason
    lever = say("largest lever: {finding}", finding=best.title)
    follows = any(d.window.comm_exposed_ns >= _FOLLOWS * d.window.span_ns for d in result.devices)
    if best.relieves == "communication" or not follows:
        return chain(reason, lever)
    return chain(reason, chain(lever, say("what one rank saves it may spend waiting for the others")))


def sure(value: str, basis: str) -> str:
    """Return a verdict with a question mark where it is inferred."""
    return f"{value}?" if basis == "inferred" else value


def steps_line(result: Result) -> Message:
    """Say how many steps there are, how long one takes, and between which bounds."""
    spans = [step.partition.span_ns for device in result.devices for step in device.whole_steps]
    devices = say_n("{n} device", "{n} devices", len(result.devices)) if len(result.devices) != 1 else None
    if result.runs:  # none of them has these steps
        return chain(devices, say_n("{n} run", "{n} runs", len(result.runs)), by=" · ")
    if not spans:
        recorded = result.digest.steps if result.digest is not None and not result.devices else []
        of_host = say_n("{n} step of the host", "{n} steps of the host", len(recorded)) if recorded else None
        whole = max((device.partition.span_ns for device in result.devices), default=None)
        in_all = None if whole is None else say("{span} in all", span=ns(whole))
        outside = outside_lines(result.devices)  # of steps there are none, but earlier work may have run at first
        return chain(of_host or say("no steps recorded"), in_all, *outside, devices, by=" · ")
    steps = say_n("{n} step", "{n} steps", max(device.step_count for device in result.devices))
    usual = round(median(spans))
    length = say("{median}/step", median=ns(usual))
    if len(spans) > 1:
        ends = spread(min(spans), max(spans), usual)
        length = say("{median}/step ({ends})", median=ns(usual), ends=ends)
    return chain(steps, length, *outside_lines(result.devices), devices, by=" · ")


def outside_lines(devices: Sequence[Device]) -> Iterator[Message]:
    """Say what was recorded outside of the steps that are judged, of the device where it is most."""
    judged = [(device, device.judged) for device in devices if device.judged]
    cut = max((sum(not s.whole for s in device.steps) for device, _ in judged), default=0)
    if cut:
        yield say_n("{n} step cut by the recording is left out", "{n} steps cut by the recording are left out", cut)
    before, after = (max((getattr(j, side) for _, j in judged), default=0) for side in ("before_ns", "after_ns"))
    if before and after:
        yield say("not counted: {before} before and {after} after", before=ns(before), after=ns(after))
    elif before:
        yield say("not counted: {before} before", before=ns(before))
    elif after:
        yield say("not counted: {after} after", after=ns(after))


#: Thresholds of questions that are asked about NPUs only.
_OF_NPUS: Final = frozenset({"ai_cpu_share", "tiling_cache_entries", "idle_core_share", "layout_share",
                             "dynamic_share", "clock_ratio", "conflict_share", "pmu_share", "pmu_lead_share",
                             "pmu_busy_share"})  # fmt: skip

#: Thresholds of questions that are asked where memory was recorded.
_OF_MEMORY: Final = frozenset({"fragments_share", "memory_share", "leak_steps", "leak_share", "short_peak_share",
                               "short_peak_drop", "late_share", "headroom_share"})  # fmt: skip


def thresholds_line(result: Result) -> Message:
    """Say which thresholds were used."""
    unused = _OF_NPUS if result.input.kind == "kineto" else frozenset[str]()
    if all(device.memory is None for device in result.devices):
        unused |= _OF_MEMORY
    used = {name: value for name, value in result.thresholds.items() if name not in unused}
    return say("thresholds: {limits}", limits=series(f"{name} {value}" for name, value in used.items()))


def lost_lines(result: Result) -> list[Message]:
    """Say what of the input could not be used."""
    lost = result.input.lost
    return [say("lost {rows} in {file}: {reason}", rows=x.rows, file=x.file, reason=x.reason) for x in lost]


def folded(findings: list[Finding], status: str) -> list[tuple[Finding, int]]:
    """Fold the same rule's answer on many devices into one: the gravest, and how many."""
    by_rule: dict[tuple[str, Message | None], list[Finding]] = {}
    for f in findings:
        if f.status == status:
            by_rule.setdefault((f.rule, f.needs), []).append(f)
    return [(group[0], len(group)) for group in by_rule.values()]


def elsewhere(devices: int) -> Message | None:
    """Say on how many more devices a finding is the same."""
    return say_n("also on {n} more device", "also on {n} more devices", devices - 1) if devices > 1 else None


# -- Pictures of numbers within a line of text: bars of letters, sparklines, meters; digits where signs are lacking.
#
# Nothing here knows of terminals: strings and numbers come out, which others colour.

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_DIGITS: Final = " 12345678"
_FULL, _EMPTY = "█", "░"


class Spark(Struct, frozen=True):
    """A series as signs: each of them the greatest of ``each`` values, the last one that of the rest."""

    signs: str
    each: int


def widths(sizes: Sequence[int], room: int) -> list[int]:
    """Return how many of ``room`` places each size gets: in proportion, and together all of them (largest remainder).

    Sizes are not negative. Of nothing at all nobody gets any.
    """
    whole = sum(sizes)
    if whole <= 0 or room <= 0:
        return [0] * len(sizes)
    places = [size * room // whole for size in sizes]
    by_rest = sorted(range(len(sizes)), key=lambda i: -(sizes[i] * room % whole))
    for i in by_rest[: room - sum(places)]:
        places[i] += 1
    return places


def in_letters(pieces: Iterable[tuple[str, int]], room: int) -> str:
    """Return letters, each as often as its size asks for, ``room`` of them in all; sizes below 0 count for nothing."""
    letters, sizes = zip(*((letter, max(size, 0)) for letter, size in pieces), strict=True)
    return "".join(letter * n for letter, n in zip(letters, widths(sizes, room), strict=True))


def meter(part: float | None, places: int = 10) -> str:
    """Return a share of one as a bar of so many places, e.g. ``████░░░░░░``; nothing where it is unknown."""
    if part is None:
        return ""
    full = int(min(max(part, 0.0), 1.0) * places + 0.5)
    return _FULL * full + _EMPTY * (places - full)


def level(part: float) -> int:
    """Return the height of a share of one in eighths; anything but nothing is seen."""
    return max(round(min(part, 1.0) * 8), 1 if part > 0 else 0)


def heights(parts: Sequence[float], blocks: bool) -> str:
    """Return shares of one as signs from bottom to top, in digits where there are no ``blocks``."""
    signs = _BLOCKS if blocks else _DIGITS
    return "".join(signs[level(part)] for part in parts)


def spark(values: Sequence[int], room: int, blocks: bool) -> Spark:
    """Return values that are not negative as signs from 0 to the greatest, ``room`` (1 or more) of them at most."""
    each = -(-len(values) // room)
    most = max(values, default=0) or 1
    return Spark(heights([value / most for value in grouped(values, each)], blocks), each)


def grouped(values: Sequence[int], each: int) -> list[int]:
    """Return the greatest of every ``each`` values, in their order."""
    return [max(values[i : i + each]) for i in range(0, len(values), max(each, 1))]


def thinned(parts: Sequence[float], room: int) -> list[float]:
    """Return means of equal numbers of neighbours, so that ``room`` of them are enough; nothing where none are."""
    each = next((n for n in range(1, len(parts) + 1) if len(parts) % n == 0 and len(parts) // n <= room), None)
    return [sum(parts[i : i + each]) / each for i in range(0, len(parts), each)] if each else []


def any_of(marked: Sequence[bool], each: int) -> list[bool]:
    """Tell of every ``each`` values, in their order, whether one is marked."""
    return [any(marked[i : i + each]) for i in range(0, len(marked), each)]


def runs(signs: str) -> list[str]:
    """Return a text as pieces of the same sign."""
    return ["".join(run) for _, run in groupby(signs)]
