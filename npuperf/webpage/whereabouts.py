"""Where in the timeline lies what the page names: ``picture:start:end``, which a click goes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from npuperf.documents.analysis import Device, Finding, texts_in
from npuperf.documents.picture import Picture, place_name
from npuperf.render.tables import Row

#: What a name in a finding's evidence may be.
_KINDS: Final = ("operator", "sync", "wait")


class Whereabouts:
    """The places of all pictures of a page."""

    def __init__(self, pictures: Sequence[Picture], devices: Sequence[Device] = ()) -> None:
        """``devices``: those of the document; what names a device of which there are two alike leads nowhere."""
        self._pictures = pictures
        self._sources = {(p.rank, p.device, p.source): i for i, p in enumerate(pictures)}
        alike = Counter((device.rank, device.device) for device in devices)
        self._of = {(p.rank, p.device): i for i, p in enumerate(pictures) if alike[p.rank, p.device] <= 1}
        self._ranks = {p.rank: i for i, p in enumerate(pictures) if p.rank is not None}

    def row(self, table: str, row: Row) -> str:
        """Return where a table's row is, or nothing."""
        if not self._pictures:
            return ""
        what, on = row[-1], self._device(row[0])
        if table in ("operators", "counters"):
            return self._anywhere("operator", place_name(row[0].type, row[0].core))
        if table == "compared":
            return self._anywhere("operator", what.name) if what.kind == "operator" else ""
        if table == "ranks":
            return self._whole(self._ranks.get(what.rank))
        if on is None:
            return ""
        if table == "blame":
            return self._named(on, "wait", f"{what.cause}: {what.name}")
        if table == "syncs":
            return self._named(on, "sync", place_name(what.name, what.torch_op, what.where))
        if table in ("idle_kernels", "idle_types"):
            return self._named(on, "operator", place_name(what.type, what.core))
        return self._stretch(table, what, on)

    def of_finding(self, finding: Finding) -> str:
        """Return the place of the first thing that a finding's evidence names, on its device."""
        on = self._of.get((finding.rank, finding.device))
        if on is None:
            return ""
        told = finding.evidence
        if "call" in told:  # the line alone may have several calls, and the call may have several lines
            return self._named(on, "sync", place_name(told["call"], told.get("torch_op"), told.get("where")))
        found = (self._named(on, kind, name) for name in texts_in(told) for kind in _KINDS)
        return next(filter(None, found), "")

    def _anywhere(self, kind: str, name: str | None) -> str:
        found = (self._named(on, kind, name) for on in range(len(self._pictures)))
        return next(filter(None, found), "")

    def _named(self, on: int, kind: str, name: str | None) -> str:
        place = self._pictures[on].places.get((kind, name or ""))
        return "" if place is None else f"{on}:{place[0]}:{place[1]}"

    def _stretch(self, table: str, what: Any, on: int) -> str:
        if table not in ("phases", "steps", "kernels"):
            return self._whole(on) if table == "devices" else ""
        picture = self._pictures[on]
        start = what.start_ns - picture.begin_ns  # of one step alone the picture begins with it
        end = start + _length(table, what)
        return f"{on}:{start}:{end}" if start < picture.span_ns and end > 0 else ""

    def _whole(self, on: int | None) -> str:
        return "" if on is None else f"{on}:0:{self._pictures[on].span_ns}"

    def _device(self, part: Any) -> int | None:
        device, rank = getattr(part, "device", None), getattr(part, "rank", None)
        if device is None:
            return None
        if isinstance(part, Device):
            return self._sources.get((rank, device, part.source))
        return self._of.get((rank, device))


def _length(table: str, what: Any) -> int:
    """Return how long a row of phases, steps or kernels takes, ns."""
    if table == "phases":
        return int(what.end_ns - what.start_ns)
    return int(what.partition.span_ns if table == "steps" else what.dur_ns)
