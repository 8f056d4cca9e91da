"""Words that every format uses for the same thing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import fsum
from statistics import median
from typing import Final, Literal

from msgspec import Struct

from npuperf.base.messages import NOTHING, Message, Parameter, chain, mib, ns, say, say_n, series, share
from npuperf.base.messages import size as in_bytes
from npuperf.base.units import spread
from npuperf.model.result import Device, Finding, Result, Verdict, WhatIf
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


def date(at: str) -> Parameter:
    """Return a time of a document (``2026-11-26T18:45:00Z``) to the minute."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ", at)
    return say("{date} UTC", date=f"{found[1]} {found[2]}") if found else at


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

#: What evidence is called where people read it, by its names in JSON; what has no word there stands in JSON alone.
EVIDENCE: Final[Mapping[str, Message]] = {
    "compute_share": say("compute"),
    "comm_exposed_share": say("exposed communication"),
    "other_exposed_share": say("exposed copies and other work"),
    "idle_share": say("idle"),
    "host_wait_share": say("waiting for the host"),
    "launch_latency_share": say("launch latency"),
    "dependency_wait_share": say("waiting for a dependency"),
    "unattributed_share": say("unattributed (no launch recorded)"),
    "host_paced_share": say("kernels that start at the host's pace"),
    "after_gap_share": say("kernels that start after a gap"),
    "host_elasticity": say("elasticity of host time"),
    "compute_elasticity": say("elasticity of compute"),
    "communication_elasticity": say("elasticity of transfers"),
    "other_elasticity": say("elasticity of other work"),
    "wait_share": say("waiting for other ranks"),
    "aclnn_call_ns": say("in aclnn calls"),
    "asked": say("asked by"),
    "awaited": say("awaited"),
    "buffer_mb": say("buffer (MB)"),
    "by": say("by"),
    "bytes": say("bytes"),
    "call": say("call"),
    "calls": say("calls"),
    "casts": say("casts"),
    "cause": say("cause"),
    "causes": say("causes"),
    "communicators": say("communicators"),
    "compiled": say("compiled"),
    "compiler": say("compiler"),
    "contention": say("contention"),
    "conversions": say("conversions"),
    "copies": say("copies"),
    "costs": say("costs"),
    "count": say("count"),
    "cube": say("cube cores"),
    "dtypes": say("dtypes"),
    "dynamic_share_of_compute": say("dynamic shapes, of compute"),
    "even_gb_per_s": say("others (GB/s)"),
    "excess_ns": say("longer by"),
    "excess_ns_per_step": say("longer per step by"),
    "compute_excess_ns_per_step": say("more compute per step"),
    "host_excess_ns_per_step": say("more host time per step"),
    "unknown_excess_ns_per_step": say("more unknown time per step"),
    "exposed_ns": say("exposed"),
    "factor": say("factor"),
    "gb_per_s": say("GB/s"),
    "group": say("group"),
    "growth_bytes_per_step": say("growth per step"),
    "hccl_bytes": say("for HCCL"),
    "held_by": say("held by"),
    "held_up": say("held up"),
    "holders": say("holders"),
    "host_ns": say("host time"),
    "host_wait_ns": say("waiting for the host"),
    "idle_after_ns": say("idle afterwards"),
    "idle_share_of_busy_core_time": say("idle cores, of busy time"),
    "imbalance": say("imbalance"),
    "in_vain": say("in vain"),
    "kernels": say("kernels"),
    "kind": say("kind"),
    "kinds": say("kinds"),
    "launch_wait_ns": say("waiting for launches"),
    "launch_and_memory_wait_ns": say("waiting for launches and memory calls"),
    "largest": say("largest"),
    "largest_free_block_bytes": say("largest free block"),
    "layer": say("layer"),
    "layers": say("layers"),
    "leak_bytes_per_step": say("never freed, per step"),
    "leaks": say("never freed"),
    "least_ns": say("least"),
    "least_ns_per_step": say("least per step"),
    "left_ns": say("left"),
    "level": say("level"),
    "limits": say("limits"),
    "link": say("link"),
    "links": say("links"),
    "longest_compile_ns": say("longest compilation"),
    "longest_ns": say("longest"),
    "lost_ns": say("lost"),
    "lost_ns_by_rank": say("lost by rank"),
    "most_launches": say("most launches"),
    "most_moved_bytes": say("moved at most"),
    "most_ns": say("most"),
    "most_ns_per_step": say("most per step"),
    "most_shapes": say("most shapes"),
    "move": say("move"),
    "name": say("name"),
    "names": say("names"),
    "next_bytes": say("next"),
    "ns": say("time"),
    "ns_per_step": say("time per step"),
    "odd": say("no multiple of 512 bytes"),
    "odd_gb_per_s": say("of those (GB/s)"),
    "operator": say("operator"),
    "operators": say("operators"),
    "other_bytes": say("other"),
    "other_stay": say("the others' stay"),
    "overhead": say("overhead"),
    "packets": say("packets"),
    "padded": say("padded"),
    "padding_ns": say("in padding"),
    "pairs": say("pairs"),
    "pauses": say("pauses"),
    "peak_bytes": say("peak"),
    "pinned": say("pinned"),
    "places": say("places"),
    "problem": say("problem"),
    "process_bytes": say("of the process"),
    "product": say("product"),
    "products": say("products"),
    "program": say("program"),
    "purpose": say("purpose"),
    "queued": say("task queue in use"),
    "rank": say("rank"),
    "ranks": say("ranks"),
    "rates": say("rates"),
    "recorded_bytes": say("recorded"),
    "reduced_bytes_per_step": say("reduced per step"),
    "reference_gb_per_s": say("compared with (GB/s)"),
    "replacements": say("replacements"),
    "reserved_bytes": say("reserved"),
    "row_bytes": say("bytes of a row"),
    "scopes": say("scopes"),
    "segments": say("segments"),
    "set": say("set"),
    "settings": say("settings"),
    "shape": say("shape"),
    "shapes": say("shapes"),
    "shapes_known": say("shapes known"),
    "shapes_seen_before": say("shapes seen before"),
    "share_of_compute": say("of compute"),
    "share_of_kernels": say("of kernels"),
    "short_bytes": say("missing"),
    "slow": say("slow"),
    "slower": say("slower"),
    "source": say("source"),
    "split_bytes": say("in pieces"),
    "stage": say("stage"),
    "stay": say("stay"),
    "steps": say("steps"),
    "stream": say("stream"),
    "streams": say("streams"),
    "target": say("target"),
    "threads": say("threads"),
    "tiling_wait_ns": say("waiting for tiling"),
    "time_ns": say("time"),
    "tokens": say("tokens"),
    "torch_op": say("torch operator"),
    "total_ns": say("total"),
    "transfer_ns": say("transfer"),
    "transfer_by_kind_ns": say("transfer by kind of group"),
    "transfer_least_ns": say("transfer, least"),
    "transfer_most_ns": say("transfer, most"),
    "transport": say("transport"),
    "transposes": say("transposes"),
    "type": say("type"),
    "types": say("types"),
    "unchecked": say("unchecked"),
    "unfilled_bytes": say("unfilled"),
    "unknown_ns": say("unknown"),
    "value": say("value"),
    "vector": say("vector cores"),
    "wait_ns": say("waiting"),
    "wait_by_kind_ns": say("waiting by kind of group"),
    "waited_ns": say("waited for it"),
    "where": say("code"),
    "worst": say("worst"),
    "active_bytes": say("in use"),
    "allocated_bytes": say("allocated"),
    "asked_bytes": say("asked for"),
    "cached_bytes": say("cached"),
    "clock_mhz": say("clock (MHz)"),
    "device_free_bytes": say("free on the device"),
    "device_had_room": say("the device had room"),
    "expandable_bytes": say("expandable segments"),
    "failures": say("failures"),
    "filled_bytes": say("filled"),
    "fills": say("fills"),
    "free_bytes": say("free"),
    "hbm_bytes": say("HBM"),
    "headroom_bytes": say("headroom"),
    "collectives": say("collectives"),
    "batch": say("batch"),
    "class": say("class"),
    "follows": say("follows"),
    "extras": say("extras"),
    "compute": say("compute"),
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
    "graph_pool": say("pool of a graph"),
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
    if finding.gain_bytes is not None and not finding.gain_bytes[0]:
        return say("saves up to {bytes} of memory", bytes=in_bytes(finding.gain_bytes[1]))
    if finding.gain_bytes is not None:
        return say("saves {bytes} of memory", bytes=in_bytes(*finding.gain_bytes))
    if finding.gain_ns_per_step is None or finding.gain_pct is None:
        return say("the gain cannot be computed from this data")
    return saving(finding.gain_ns_per_step, finding.gain_pct, per=finding.gain_per)


def at_most(least: float, most: float) -> Message:
    """Say an estimate of time (ns), least and most; of what may be nothing only the most."""
    return say("{time}", time=ns(least, most)) if least > 0 else say("up to {time}", time=ns(most, most))


def saving(
    times: tuple[int, int], percents: tuple[float, float], *, per: Literal["step", "window"] = "step"
) -> Message:
    """Say what a change saves, least and most, as time (ns) and in percent of a step or window: the one way to say so.

    Of what may be nothing only the most is said; what costs time saves less than nothing.
    """
    (least, most), (low, high) = times, (percent / 100 for percent in percents)
    if most <= 0 and least < 0:
        saved, part = ns(-most, -least), share(-high, -low)
        if per == "step":
            return say("costs {saved} per step ({share})", saved=saved, share=part)
        return say("costs {saved} in all ({share})", saved=saved, share=part)
    if not most:
        return say("saves nothing")
    if least > 0 and round(100 * low, 1) > 0:
        saved, part = ns(least, most), share(low, high)
        if per == "step":
            return say("saves {saved} per step ({share})", saved=saved, share=part)
        return say("saves {saved} in all ({share})", saved=saved, share=part)
    saved, part = ns(most, most), share(high, high)
    if per == "step":
        return say("saves up to {saved} per step ({share})", saved=saved, share=part)
    return say("saves up to {saved} in all ({share})", saved=saved, share=part)


#: Of one question so many devices have a line each.
_ANSWERS: Final = 3


def asked_lines(result: Result) -> list[Line]:
    """Return what the user's own what-ifs bring, a line each; of several devices those that it brings most."""
    found: list[Line] = []
    several, off = len(result.devices) > 1, missed(result)
    told = say("replayed, {off}", off=off) if off is not None else None
    asked = [w for w in result.what_if if w.asked]
    for expr in dict.fromkeys(w.expr for w in asked):
        answers: dict[Message, list[WhatIf]] = {}
        for w in sorted((w for w in asked if w.expr == expr), key=_order):
            off, told = (told, None) if w.gain_ns_per_step is not None else (None, told)
            answers.setdefault(chain(_answer(w), off), []).append(w)
        for answer, of in [*answers.items()][:_ANSWERS]:
            change = say("{change}", change=expr)
            if several and of[0].device is not None:
                change = say("{change} on {device}", change=expr, device=device_name(of[0]))
            content = say("{change}: {note}", change=change, note=chain(answer, elsewhere(len(of))))
            found.append(Line(content, "bold", say("what if")))
        if (more := len(answers) - _ANSWERS) > 0:
            left = say_n("{n} more answer: --table what_if", "{n} more answers: --table what_if", more)
            found.append(Line(left, "dim"))
    return found


def _order(w: WhatIf) -> tuple[bool, float]:
    return w.device is not None, -(w.gain_pct or 0.0)


def missed(result: Result) -> Message | None:
    """Say by how much the replay misses what was measured, where anything was replayed."""
    replays = [d.replay for d in result.devices] if result.cluster is None else [result.cluster.replay]
    errors = [replay.error for replay in replays if replay and replay.usable]
    return say("{error} off the measured window", error=share(max(errors))) if errors else None


def _answer(w: WhatIf) -> Message:
    """Say what a change brings, or why that cannot be told."""
    if w.peak_of is not None:
        return _lower(w)
    if w.reason is not None or w.gain_ns_per_step is None or w.gain_pct_interval is None:
        return w.reason or NOTHING
    return chain(saving(w.gain_ns_per_step, w.gain_pct_interval, per=w.gain_per), w.title)


def _lower(w: WhatIf) -> Message:
    """Say how a peak of memory changes, from what can be to what is certain, and what that presupposes; or why not."""
    if w.gain_bytes is None:
        return w.reason or NOTHING
    least, most = w.gain_bytes
    lower = say("{bytes} less", bytes=mib(least, most))
    if w.recorded_bytes is not None:
        now, then = mib(w.recorded_bytes), mib(w.recorded_bytes - most, w.recorded_bytes - least)
        lower = (
            say("peak {now} → {then}", now=now, then=then)
            if any(w.gain_bytes)
            else say("the peak stays {now}", now=now)
        )
        if w.peak_of == "process":
            lower = say("the process's memory {now} → {then}", now=now, then=then)
    return chain(lower, *w.assumes)


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
    verdict, reason = result.verdict, reason_of(result.verdict)
    problems = [f for f in result.findings if f.status == "problem" and f.gain_pct]
    best = max(problems, key=lambda f: f.gain_pct[1] if f.gain_pct else 0, default=None)
    if best is None or best.relieves in (None, verdict.bound):
        return reason
    lever = say("largest lever: {finding}", finding=best.title)
    follows = any(d.window.comm_exposed_ns >= _FOLLOWS * d.window.span_ns for d in result.devices)
    if best.relieves == "communication" or not follows:
        return chain(reason, lever)
    return chain(reason, chain(lever, say("what one rank saves it may spend waiting for the others")))


def reason_of(verdict: Verdict) -> Message:
    """Say why a verdict is so, and how that is known."""
    if verdict.bound == "unknown":
        return verdict.reason
    return say("{basis}: {reason}", basis=WORDS[verdict.basis], reason=verdict.reason)


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
        lengths = [step.length_ns for host in result.hosts for step in host.steps]
        of_host = None
        if lengths:
            recorded = len({step.step for host in result.hosts for step in host.steps})
            of_host = chain(say_n("{n} step of the host", "{n} steps of the host", recorded), _each(lengths), by=" · ")
        outside = outside_lines(result.devices)  # of steps there are none, but earlier work may have run at first
        return chain(of_host or say("no steps recorded"), _in_all(result), *outside, devices, by=" · ")
    steps = say_n("{n} step", "{n} steps", max(device.step_count for device in result.devices))
    return chain(steps, _each(spans), *outside_lines(result.devices), devices, by=" · ")


def _each(spans: Sequence[int]) -> Message:
    """Say how long a step takes, and between which bounds."""
    usual = round(median(spans))
    if len(spans) == 1:
        return say("{median}/step", median=ns(usual))
    ends = spread(min(spans), max(spans), usual)
    return say("{median}/step ({ends})", median=ns(usual), ends=ends)


def step_length(result: Result) -> Message | None:
    """Say how long a step takes, of devices, else of the host, or all of it; None where that is unknown."""
    spans = [step.partition.span_ns for device in result.devices for step in device.whole_steps]
    spans = spans or [step.length_ns for host in result.hosts for step in host.steps]
    if result.runs:
        return None
    return say("{median}/step", median=ns(round(median(spans)))) if spans else _in_all(result)


def _in_all(result: Result) -> Message | None:
    whole = max((device.partition.span_ns for device in result.devices), default=None)
    return None if not whole else say("{span} in all", span=ns(whole))


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
    return [fsum(parts[i : i + each]) / each for i in range(0, len(parts), each)] if each else []


def any_of(marked: Sequence[bool], each: int) -> list[bool]:
    """Tell of every ``each`` values, in their order, whether one is marked."""
    return [any(marked[i : i + each]) for i in range(0, len(marked), each)]


def runs(signs: str) -> list[str]:
    """Return a text as pieces of the same sign."""
    return ["".join(run) for _, run in groupby(signs)]
