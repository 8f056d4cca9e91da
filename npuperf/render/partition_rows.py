"""The partition of a device's window as rows, for text and Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from npuperf.documents.analysis import Device, Partition
from npuperf.messages import NOTHING, Message, chain, ns, say
from npuperf.render.language import text
from npuperf.render.tables import Column, Row, Table
from npuperf.render.words import PARTS


@dataclass(frozen=True, slots=True)
class Part:
    """One row: its name, its time, its share of the span, and a bar as long as that."""

    title: Message
    depth: int
    ns: int
    share: float | None
    bar: str


#: What the two numbers and the gaps take of a row.
_NUMBERS: Final = 28

PARTITION_TABLE: Final = Table(
    "",
    say("where the time goes"),
    lambda device: partition_rows(device, 0),
    (
        Column("part", say("part"), get=lambda part: "  " * part.depth + text(part.title), weight=0),
        Column("ns", say("ms"), "duration", weight=0),
        Column("share", say("% of span"), "share", weight=0),
        Column("bar", NOTHING, get=lambda part: part.bar or " "),
    ),
)


def partition_rows(device: Device, width: int) -> list[Row]:
    """Return the parts that there are, with bars that fit a screen so wide."""
    whole = device.partition
    found = [(getattr(whole, field), title, depth) for field, title, depth in PARTS if _is_shown(whole, field, depth)]
    room = max(width - _NUMBERS - max(2 * depth + len(text(title)) for _, title, depth in found), 0)
    rows: list[Row] = []
    for time, title, depth in found:
        share = time / whole.span_ns if whole.span_ns else None
        bar = "█" * round(room * (share or 0)) if depth else ""
        rows.append((Part(title, depth, time, share, bar),))
    return rows


def _is_shown(whole: Partition, field: str, depth: int) -> bool:
    return bool(getattr(whole, field)) or not (depth == 2 or field == "other_exposed_ns")


def check_line(device: Device) -> Message:
    """Say that the parts add up, and what the launches were calibrated with."""
    p, clock = device.partition, device.clock
    parts = p.compute_ns + p.comm_exposed_ns + p.other_exposed_ns + p.idle_ns
    calibrated = say(
        "launch latency {latency}, clock skew ≥ {skew}", latency=ns(clock.launch_latency_ns), skew=ns(clock.skew_ns)
    )
    off = say("check: the parts add up, {off} ns off", off=abs(p.span_ns - parts))
    return chain(off, calibrated if clock.launches else None)
