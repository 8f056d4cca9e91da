"""Events of Chrome's trace format, as Perfetto, chrome://tracing and MindStudio Insight read them."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET, Struct, UnsetType, field

from npuperf.documents.analysis import Partition
from npuperf.model.labels import F64, I64

#: A time: µs as a number, or as the vendor's text with three decimals.
Moment = float | str


class LabelArgs(Struct, omit_defaults=True):
    """What a process or thread is called, or where it is shown."""

    name: str | UnsetType = UNSET
    labels: str | UnsetType = UNSET
    sort_index: int | UnsetType = UNSET


class LabelEvent(Struct, tag_field="ph", tag="M"):
    """Metadata of a process (``tid`` is its ``pid``) or thread: ``name`` says of what kind."""

    name: str
    pid: int
    tid: int
    args: LabelArgs


class EpochArgs(Struct):
    """What the times of a trace count from, as text: an epoch in ns has more digits than numbers of viewers have."""

    epoch_ns: str
    tool: str


class EpochEvent(Struct, tag_field="ph", tag="M"):
    """Metadata of the whole trace."""

    name: str
    pid: int
    tid: int
    args: EpochArgs


class TaskArgs(Struct, omit_defaults=True):
    """What is known of a device task."""

    core: str | None = field(default=None, name="Task Type")
    type: str | None = None
    step: int = -1
    block: int = field(default=-1, name="Block Dim")
    mix_block: int = field(default=-1, name="Mix Block Dim")
    moved: int = field(default=-1, name="size(B)")


class PartArgs(Struct, omit_defaults=True):
    """A step or a phase: its verdict, the shares of its time (0 to 1), and its time in ns."""

    verdict: str
    basis: str
    reason: str
    shares: dict[str, float]
    partition: Partition
    label: str | None = None
    where: str | None = None
    whole: bool | None = None


class WaitArgs(Struct, omit_defaults=True):
    """A wait: what it is for, what the host did meanwhile, where in the code, on which thread."""

    cause: str
    name: str
    where: str | None = None
    thread: int = -1


class RootArgs(Struct, omit_defaults=True):
    """A root of waiting: whose waiting it explains, in ns and as a share of all waiting."""

    kind: str
    why: str
    ranks: list[int]
    wait_ns: int
    share: float
    where: str | None = None
    gain_ns_per_step: tuple[int, int] | None = None
    next: str | None = None


class FindingArgs(Struct, omit_defaults=True):
    """A finding, in words, and what it would gain."""

    rule: str
    severity: str
    device: str
    gain_ns_per_step: tuple[int, int] | None = None
    gain_pct: tuple[float, float] | None = None
    next: str | None = None
    code: str | None = None


Args = TaskArgs | PartArgs | WaitArgs | RootArgs


class SliceEvent(Struct, tag_field="ph", tag="X", omit_defaults=True):
    """Something that lasts; ``dur`` in µs."""

    name: str
    pid: int
    tid: int
    ts: Moment
    dur: float
    args: Args | None = None


class MarkEvent(Struct, tag_field="ph", tag="I"):
    """A moment. Insight knows it by the capital letter only; ``s``: g for a line through all tracks."""

    name: str
    pid: int
    tid: int
    ts: Moment
    s: str
    args: FindingArgs


class CounterEvent(Struct, tag_field="ph", tag="C"):
    """Numbers from a time on."""

    name: str
    pid: int
    tid: int
    ts: Moment
    args: dict[str, int]


class FlowStart(Struct, tag_field="ph", tag="s"):
    """Where an arrow begins: in the innermost slice of its thread at that time."""

    name: str
    cat: str
    id: int
    pid: int
    tid: int
    ts: Moment


class FlowEnd(Struct, tag_field="ph", tag="f"):
    """Where an arrow ends: ``bp`` e is the slice around that time, not the next one."""

    name: str
    cat: str
    id: int
    pid: int
    tid: int
    ts: Moment
    bp: str


Event = (
    LabelEvent | EpochEvent | SliceEvent | MarkEvent | CounterEvent | FlowStart | FlowEnd
)  # what a trace consists of


def microseconds(time: I64) -> F64:
    """Return ns as µs, of which viewers make the same ns again, whether they round or cut off what is behind a ns.

    1.001 · 1000 is 1000.9999999999999: Perfetto cut that off until 2025. The next larger number comes out right.
    """
    found = time / 1000
    short = (found * 1000).astype(np.int64) < time
    return np.where(short, np.nextafter(found, np.inf), found)


def vendor_text(time: I64) -> list[str]:
    """Return epoch ns as torch_npu and msprof write them: µs with three decimals."""
    whole, rest = np.divmod(time, 1000)
    return [f"{us}.{ns:03d}" for us, ns in zip(whole.tolist(), rest.tolist(), strict=True)]
