"""One chart of a page, and the words that charts share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from npuperf.documents.analysis import Device, Partition, Result
from npuperf.escape import for_screen
from npuperf.messages import Message, Parameter, chain, say
from npuperf.render.cluster_rows import outliers_first, roots_by_gain
from npuperf.render.language import text
from npuperf.render.words import named
from npuperf.webpage.matrix import Matrix


@dataclass(frozen=True, slots=True)
class Chart:
    """``caption``: what is read off it, with numbers. ``svg``: the whole picture, with its texts and what says it to
    those who do not see it; else ``matrix``, for a canvas.
    """

    id: str
    title: Message
    caption: Message | None
    svg: Markup | None = None
    matrix: Matrix | None = None
    wide: bool = False


#: Parts of a step that add up to it: the field, its words, the class of its colour.
STEP_PARTS: Final = (
    ("compute_ns", say("compute"), "c-compute"),
    ("comm_transfer_ns", say("exposed transfer"), "c-transfer"),
    ("comm_wait_ns", say("waiting for other ranks"), "c-comm_wait"),
    ("comm_unknown_ns", say("exposed communication"), "c-communication"),
    ("other_exposed_ns", say("exposed copies and other work"), "c-other"),
    ("host_wait_ns", say("waiting for the host"), "c-host_wait"),
    ("launch_latency_ns", say("launch latency"), "c-launch_latency"),
    ("dependency_wait_ns", say("waiting for a dependency"), "c-dependency_wait"),
    ("unattributed_ns", say("unattributed (no launch recorded)"), "c-unattributed"),
)
#: What waiting for the host is called where the launch latency cannot be told from it.
WITH_LAUNCHES: Final = say("waiting for the host and launches")


def parts_of_step(partition: Partition) -> list[int]:
    """Return the parts of a window in the order of STEP_PARTS; they add up to its span."""
    return [getattr(partition, field) for field, _, _ in STEP_PARTS]


def words_of_part(device: Device, field: str, words: Message) -> Message:
    """Return what a part is called on this device: without a calibrated latency, launches count to the host."""
    if field == "host_wait_ns" and device.clock.latency_reason:
        return WITH_LAUNCHES
    return words


def chosen(result: Result) -> Device | None:
    """Return the device to be drawn: the only one, or the one to look at first: of the first cause of waiting."""
    cluster, devices = result.cluster, result.devices
    if not devices:
        return None
    if cluster is None or not cluster.ranks:
        return devices[0]
    causes = (r.ranks[0] for r in roots_by_gain(cluster) if r.kind in ("rank", "stage", "link", "group") and r.ranks)
    rank = next(causes, outliers_first(cluster)[0].rank)
    return next((d for d in devices if d.rank == rank), devices[0])


def of_device(result: Result, device: Device, title: Message) -> Message:
    """Put the device before a chart's title, where there are several."""
    return named(device, title, len(result.devices) > 1)


def plain(message: Parameter) -> str:
    """Return a message as a line of the page, in the current language."""
    return for_screen(text(message))


def sentences(*parts: Message | None) -> Message:
    """Return what is said below a chart, one after the other."""
    return chain(*parts)


def mean(values: Iterable[float]) -> float:
    """Return the mean, 0 of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0
