"""What is said of memory: the peak as a sum, what lies beside it, what changes over steps, and between ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace
from rich.console import RenderableType

from npuperf.base.messages import Message, chain, mib, ns, say, say_n, series, share
from npuperf.model.memory_result import Alive, Memory
from npuperf.model.result import Device, Finding, Result, highest_peak
from npuperf.show.analysis_tables import NAMED
from npuperf.show.formats import View
from npuperf.show.tables import Column, filled
from npuperf.show.terminal import Fitted, cut, line, rows_of, section
from npuperf.show.words import WORDS, Line, device_name, sure


def _place(group: Alive) -> str | None:
    """Return who asked for blocks: the module, which tells layers apart that share a line, and the line."""
    return ", ".join(filter(None, (group.module, group.where))) or None


def _class(group: Alive) -> str:
    return sure(group.class_, "inferred" if group.inferred else "measured")


#: Blocks that lived at the peak, and modules, that one screen names.
_GROUPS, _MODULES = 5, 3
_ALIVE: Final = NAMED["memory_peak"].only(
    Column("class", say("class"), "word", lambda _, memory, group: _class(group) if memory.steps else None, 0),
    Column("operator", say("operator"), get=lambda _, memory, group: group.operator, weight=0),
    Column("count", say("n"), "id", lambda _, memory, group: group.count),
    Column("bytes", say("MiB"), "bare_mib", lambda _, memory, group: group.bytes, 0),
    Column("share", say("% of peak"), "share", lambda _, memory, group: group.bytes / memory.peak_bytes),
    Column("where", say("where"), "code", lambda _, memory, group: _place(group), 0),
)


def only_memory(result: Result) -> bool:
    """Tell whether nothing but memory was recorded: nothing can be said of time."""
    return bool(result.devices) and all(d.memory is not None and not d.window.span_ns for d in result.devices)


def memory_lines(result: Result, *, brief: bool = False) -> list[Line]:
    """Return what is said of memory, of several devices of the one with the highest peak: none where none is known.

    ``brief``: only how high it is, what it is made of, and how far the others are.
    """
    device = highest_peak(result.devices)
    if device is None or device.memory is None:
        return []
    memory = device.memory
    beside = () if brief else (_beside(memory), _outside(memory), _steps(memory, result.findings), _planned(memory))
    parts = (peak_sum(memory), *beside, _between(result.devices, device))
    return [
        Line(said, "bold" if not place else "") for place, said in enumerate((_peak(device, memory), *parts)) if said
    ]


def memory_sections(result: Result, view: View, *, brief: bool = False) -> Iterator[RenderableType]:
    """Show it, unless ``brief`` with the largest groups of blocks that lived at the peak."""
    device, said = highest_peak(result.devices), memory_lines(result, brief=brief)
    if device is None or device.memory is None or not said:
        return
    memory = device.memory
    body: list[RenderableType] = [line(one.content) for one in said[1:]]
    if memory.alive and not brief and not view.full:  # where it is among the tables
        groups = memory.alive if memory.steps else _of_any_class(memory.alive)
        shown = groups[: rows_of(view, _GROUPS)]
        body.append(Fitted(filled(_ALIVE, [(device, memory, group) for group in shown])))
        body += cut(len(shown), len(groups),
                    lambda few: say("{shown} groups of blocks; --table memory_peak shows all", shown=few))  # fmt: skip
    content = said[0].content
    assert isinstance(content, Message)
    yield section(content, *body)


def _of_any_class(alive: Sequence[Alive]) -> list[Alive]:
    """Sum up blocks of one line whatever their class: without steps it only tells whether they were given back."""
    found = dict[tuple[str | None, ...], list[Alive]]()
    for group in alive:
        found.setdefault((group.operator, group.module, group.where), []).append(group)
    summed = [replace(of[0], count=sum(g.count for g in of), bytes=sum(g.bytes for g in of)) for of in found.values()]
    return sorted(summed, key=lambda group: -group.bytes)


def _peak(device: Device, memory: Memory) -> Message:
    """Say how high the peak is, when, and what asked for the block with which it is reached."""
    who = device_name(device)
    if memory.peak_bytes is None:
        return say("memory of {device}: {why}", device=who, why=memory.reason)
    when = [say("at {time}", time=ns(memory.peak_at_ns)) if memory.timed else say("its events have no times")]
    if memory.peak_step is not None:
        step = say("step {step}", step=memory.peak_step)
        when.append(say("{part} (inferred)", part=step) if memory.peak_step_inferred else step)
    if memory.peak_part is not None:
        when.append(WORDS[memory.peak_part])
    if memory.peak_operator is not None:
        when.append(say("in {operator}", operator=memory.peak_operator))
    return say("memory: peak {peak} on {device} ({when})", peak=mib(memory.peak_bytes), device=who, when=series(when))


def peak_sum(memory: Memory) -> Message | None:
    """Say what the peak is made of."""
    if memory.peak_bytes is None:
        return None
    if memory.split == "cannot_tell":
        return say("what it is made of: cannot tell ({why})", why=memory.reason)
    freed = say("{freed} of that given back", freed=mib(memory.freed_bytes)) if memory.freed_bytes else None
    before = chain(say("{before} from before the window", before=mib(memory.before_bytes)), freed, by=" - ")
    alive = say("{alive} in blocks of the window", alive=mib(memory.alive_bytes))
    return say(
        "{peak} = {parts} (residual {residual} bytes)",
        peak=mib(memory.peak_bytes),
        parts=chain(before if memory.before_bytes else None, alive, by=" + "),
        residual=memory.residual_bytes,
    )


def _beside(memory: Memory) -> Message | None:
    """Say what PyTorch has reserved at the peak, and why that is more."""
    if memory.reserved_bytes is None:
        return None
    parts = [say("{size} cached", size=mib(memory.cached_bytes))] if memory.cached_bytes else []
    if memory.waiting_bytes:
        parts.append(say("{size} given back, a stream may still use it", size=mib(memory.waiting_bytes)))
    if not parts:
        return say("PyTorch reserves {reserved} then", reserved=mib(memory.reserved_bytes))
    return say("PyTorch reserves {reserved} then ({parts})", reserved=mib(memory.reserved_bytes), parts=series(parts))


def _outside(memory: Memory) -> Message | None:
    """Say what the process has beside PyTorch, and how much is left."""
    if memory.process_bytes is None:
        return None
    named = [say("{module} {size}", module=m.name, size=mib(m.bytes)) for m in memory.modules[:_MODULES] if m.bytes]
    rest = sum(m.bytes for m in memory.modules[_MODULES:])
    if rest:
        named.append(say("other modules {size}", size=mib(rest)))
    if memory.modules and memory.unnamed_bytes is not None:
        named.append(say("of no module {size}", size=mib(memory.unnamed_bytes)))
    what = say("the process has {process}", process=mib(memory.process_bytes))
    if memory.outside_bytes is not None:
        outside = say("{outside} outside of PyTorch", outside=mib(memory.outside_bytes))
        what = chain(what, say("{outside}: {parts}", outside=outside, parts=series(named)) if named else outside)
    if memory.headroom_bytes is None or memory.hbm_bytes is None:
        return what
    left = say("{left} of the device's {hbm} left", left=mib(memory.headroom_bytes), hbm=mib(memory.hbm_bytes))
    return chain(what, left, by="; ")


def _steps(memory: Memory, findings: Sequence[Finding]) -> Message | None:
    """Say what steps keep, unless that is a finding, or how unlike their peaks are."""
    found = any(finding.rule == "memory_leak" and finding.status == "problem" for finding in findings)
    if memory.leak_bytes_per_step and not found:
        first = memory.leaks[0]
        where = say("{operator}, {where}", operator=first.operator, where=first.where) if first.where else None
        return say_n(
            "every step keeps {size}: {n} block of {operator} that is not given back",
            "every step keeps {size}: {n} blocks of {operator} that are not given back",
            first.count,
            size=mib(memory.leak_bytes_per_step),
            operator=where or first.operator,
        )
    peaks = [step.peak_bytes for step in memory.steps]
    if len(peaks) < 2 or min(peaks) == max(peaks):
        return None
    least, most = (min(memory.steps, key=lambda s: s.peak_bytes), max(memory.steps, key=lambda s: s.peak_bytes))
    return say(
        "peaks of the steps: {least} (step {first}) to {most} (step {last})",
        least=mib(least.peak_bytes),
        first=least.step,
        most=mib(most.peak_bytes),
        last=most.step,
    )


def _planned(memory: Memory) -> Message | None:
    """Say what graphs plan, of the one that plans most."""
    if not memory.graphs:
        return None
    first = memory.graphs[0]
    return say_n(
        "{n} graph plans memory: graph {graph} {peak}, most of it for {operators}",
        "{n} graphs plan memory, the most of them graph {graph}: {peak}, most of it for {operators}",
        len(memory.graphs),
        graph=str(first.graph if first.model is None else first.model),
        peak=mib(first.peak_bytes),
        operators=series(one.operator or "N/A" for one in first.largest[:_MODULES]),
    )


def _between(devices: Sequence[Device], first: Device) -> Message | None:
    """Say how far apart the peaks of several devices are, and in which part of the sum most."""
    known = [d for d in devices if d.memory is not None and d.memory.peak_bytes is not None]
    if len(known) < 2 or first.memory is None:
        return None
    last = min(known, key=lambda d: (d.memory and d.memory.peak_bytes) or 0)
    high, low = first.memory, last.memory
    assert low is not None and high.peak_bytes is not None and low.peak_bytes is not None
    apart = high.peak_bytes - low.peak_bytes
    if not apart:
        return say("{n} devices with memory have the same peak", n=len(known))
    less = share(apart / max(high.peak_bytes, 1))
    said = say("lowest of {n} devices with memory: {device}, {peak} ({less} less)", n=len(known),
               device=device_name(last), peak=mib(low.peak_bytes), less=less)  # fmt: skip
    if "cannot_tell" in (high.split, low.split):
        return said
    parts = (
        (say("what was there before the window"), (high.before_bytes or 0) - (low.before_bytes or 0)),
        (say("what of that was given back"), (low.freed_bytes or 0) - (high.freed_bytes or 0)),
        (say("blocks of the window"), (high.alive_bytes or 0) - (low.alive_bytes or 0)),
    )
    title, most = max(parts, key=lambda part: abs(part[1]))
    return chain(said, say("they differ most in {part}, by {size}", part=title, size=mib(abs(most))))
