"""What a device's memory says: an allocation that failed, and why.

A snapshot that is taken when memory runs out has the allocator's state at that instant. By then it has given back all
segments that were wholly free, so what is cached lies in pieces between blocks in use.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from npuperf.advise.rule import Answer, Detected, MemoryView, Rule, Untold, severity
from npuperf.base.messages import Message, chain, say, series, share, size
from npuperf.model.device import DeviceProfile
from npuperf.model.device_memory import DeviceMemory, OutOfMemory, Segments

#: Lines of code that are named, by what they hold.
_HOLDERS: Final = 3
_LOWER: Final = say("lower the peak: a smaller micro-batch, activations recomputed, optimizer state sharded (--what-if "
                    "says by how much)")  # fmt: skip
_NO_SNAPSHOT: Final = say("only a snapshot of memory tells: record with npuperf profile --snapshot")
_LIMIT: Final = say("raise torch.npu.set_per_process_memory_fraction, or do not call it; where it is not called, the "
                    "driver has no such piece: free memory early in the program, or use fewer processes on the "
                    "device")  # fmt: skip
_CONF: Final = "PYTORCH_NPU_ALLOC_CONF"


def run_out(view: MemoryView) -> Answer:
    """Tell why the last allocation that failed did: pieces too small for it, or too little altogether."""
    memory, profile = view.study.memory, view.profile
    if not memory.failures:
        return None if len(memory.segments) else Untold(_NO_SNAPSHOT)
    failure = memory.failures[-1]
    counters = memory.counters
    at = int(np.searchsorted(counters.time, failure.time, side="right")) - 1
    # the state is that of the failure unless the program went on
    segments = memory.segments if at == len(counters) - 1 else Segments.empty()
    allocated, active, reserved = (
        int(column[at]) if at >= 0 else None for column in (counters.allocated, counters.active, counters.reserved)
    )
    cached = None if reserved is None or active is None else reserved - active
    free = segments.state.flag([state == "inactive" for state in segments.state.names])
    own = free if failure.stream is None else free & (segments.stream == failure.stream)
    largest = int(segments.size[own].max(initial=0)) if len(segments) else None
    holders = _holders(segments)
    short = None if cached is None or failure.free is None else failure.asked - cached - failure.free
    # with room for a segment the device would have given one: something else refused it
    from npuperf.device.allocator import segment_bytes  # which only snapshots need

    refused = failure.free is not None and failure.free >= segment_bytes(failure.asked)
    evidence: dict[str, Any] = {
        "asked_bytes": failure.asked,
        "device_free_bytes": failure.free,
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
        "cached_bytes": cached,
        "largest_free_block_bytes": largest,
        "short_bytes": short,
        "device_had_room": None if failure.free is None else refused,
        "failures": len(memory.failures),
        "holders": [{"where": where, "count": count, "bytes": held} for where, count, held in holders],
    }
    return Detected(
        title=_title(failure, cached, largest, short, refused=refused),
        refute=say("the same allocation succeeds with as much free memory in the same pieces"),
        next=_LIMIT if refused else _advice(memory, profile, short, holders),
        evidence=evidence,
        code=failure.where,
        severity="high",
        gained=say("the gain is that the program goes on"),
    )


def _title(
    failure: OutOfMemory, cached: int | None, largest: int | None, short: int | None, *, refused: bool
) -> Message:
    """Say what was asked for, and what there was."""
    asked = say("ran out of memory: {asked} were asked for", asked=size(failure.asked))
    if failure.where is not None:
        asked = say(
            "ran out of memory at {line}: {asked} were asked for", line=failure.where, asked=size(failure.asked)
        )
    free = None if failure.free is None else say("the device had {bytes}", bytes=size(failure.free))
    pieces = None if cached is None else say("PyTorch had {bytes} cached", bytes=size(cached))
    if cached == 0:
        pieces = say("PyTorch had nothing cached")
    elif cached is not None and largest is not None:
        pieces = say(
            "PyTorch had {bytes} cached, in pieces of at most {largest}", bytes=size(cached), largest=size(largest)
        )
    why = None
    if refused:
        why = say("the device had enough for a new segment, so a limit of the process refused it (inferred)")
    elif short is not None:
        why = (
            say("{bytes} too little", bytes=size(short))
            if short > 0
            else say("enough, but in pieces that are too small")
        )
    return chain(asked, free, pieces, why)


def _advice(
    memory: DeviceMemory, profile: DeviceProfile, short: int | None, holders: list[tuple[str | None, int, int]]
) -> Message:
    """Say what would help: whole pieces, or less that is held; what holds most is named."""
    named = [say("{line} holds {bytes}", line=where, bytes=size(held)) for where, _, held in holders if where]
    most = say("most is held by: {lines}", lines=series(named)) if named else None
    if short is None or short > 0:
        return chain(_LOWER, most)
    if _is_expandable(memory, profile):
        return chain(say("allocate large blocks early, and free what is not needed before them"), most)
    return chain(
        say("{name}=expandable_segments:True, which lets segments grow in place of new ones", name=_CONF), most
    )


def _is_expandable(memory: DeviceMemory, profile: DeviceProfile) -> bool:
    """Tell whether segments are expandable already: they were mapped, or settings say so."""
    mapped = "segment_map" in memory.segment_events.name.compact().names
    told = (memory.settings or "", profile.context.environment.get(_CONF) or "")
    return mapped or any("expandable_segments:true" in text.lower() for text in told)


def _holders(segments: Segments) -> list[tuple[str | None, int, int]]:
    """Return which lines of code hold most: line, blocks, bytes; None for those of which none is recorded."""
    used = segments.filter(segments.state.flag([state != "inactive" for state in segments.state.names]))
    codes = used.where.codes
    found = [
        (used.where.names[code] if code >= 0 else None, int((codes == code).sum()), int(used.size[codes == code].sum()))
        for code in np.unique(codes).tolist()
    ]
    return sorted(found, key=lambda one: (-one[2], one[0] or ""))[:_HOLDERS]


out_of_memory: Final = Rule(
    "out_of_memory",
    say("an allocation failed"),
    say("torch_npu, caching allocator: snapshot with an oom event"),
    needs=(),
    on_memory=run_out,
)


def reserve_less(view: MemoryView) -> Answer:
    """Tell with which settings the allocator would reserve less, where a replay gives what it did reserve."""
    thresholds = view.thresholds
    if not len(view.study.memory.segment_events):
        return Untold(_NO_SNAPSHOT)
    from npuperf.device.allocator import replay_allocator

    found = replay_allocator(view.study.memory)
    if found is None:
        return Untold(say("a replay does not give the recorded segments again: events are missing, or it was recorded "
                          "with other settings"))  # fmt: skip
    split = min(found.split, key=lambda mb: (found.split[mb], -mb))
    least = min(found.expandable, found.split[split])
    saved = found.recorded - least
    if saved < thresholds.severity_medium * found.recorded:
        return None
    # the two exclude each other; of equal ones that which leaves no pieces behind is named
    setting = "expandable_segments:True" if least == found.expandable else f"max_split_size_mb:{split}"
    recorded, smaller, part = size(found.recorded), size(least), share(saved / found.recorded)
    title = say("PyTorch reserves {recorded} at most; with {setting} it would be {bytes} ({share} less), as the "
                "allocator's rules have it",
                recorded=recorded, setting=setting, bytes=smaller, share=part)  # fmt: skip
    if found.older:
        title = say("PyTorch reserves {recorded} at most; with {setting} it would be {bytes} or more (at best {share} "
                    "less), as the allocator's rules have it: {older} were in use before the history begins",
                    recorded=recorded, setting=setting, bytes=smaller, share=part, older=size(found.older))  # fmt: skip
    return Detected(
        title=title,
        refute=say("Reserved is as high with {setting}", setting=setting),
        next=say("{name}={setting}", name=_CONF, setting=setting),
        evidence={
            "recorded_bytes": found.recorded,
            "older_bytes": found.older,
            "expandable_bytes": found.expandable,
            "split_bytes": {str(mb): held for mb, held in found.split.items()},
        },
        severity=severity(saved / found.recorded, thresholds),
        gain_bytes=(0 if found.older else saved, saved),
    )


segment_settings: Final = Rule(
    "segment_settings",
    say("segments and their settings"),
    say("torch_npu, PYTORCH_NPU_ALLOC_CONF"),
    needs=(),
    on_memory=reserve_less,
)
