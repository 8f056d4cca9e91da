"""What a page draws, as little text: JSON, compressed, in base64, which the page's script takes apart again.

Of columns that hardly compress, whole numbers of slices take 7 % less as JSON's own numbers than as bytes in base64,
and shares 14 % less as bytes (measured after gzip); so each is written in its way. All times stay exact: they are below
2^53 ns, which is a hundred days, and so whole in JavaScript's numbers, too.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from npuperf.documents.picture import COLOURS, Exact, Lane, LaneSlices, Picture
from npuperf.escape import visible, without_halves
from npuperf.render.language import text

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

#: What JSON has.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
#: Names are cut to so many characters.
LONGEST_NAME: Final = 200


def pack_pictures(pictures: Sequence[Picture]) -> list[Json]:
    """Return pictures as plain values, in their order.

    Per picture: ``span`` in ns, ``at``: when it begins, ns after the first one does on the job's clock, and its
    ``lanes``, whose ``slices`` have a column of numbers each: ``start`` as differences between one and the next,
    ``length``, ``lag`` from the launch to the start, -1 for what is unknown, ``null`` for a lag that is; a column in
    which nothing is known is left out. ``shares`` are bytes in base64 by the name of their colour, ``places`` rows of
    kind, name, start and end.
    """
    first = min((one.origin_ns + one.offset_ns for one in pictures), default=0)
    return [_picture(one, one.origin_ns + one.offset_ns - first) for one in pictures]


def packed(data: Mapping[str, Json]) -> str:
    """Return JSON-able data compressed, in base64; the same data give the same text."""
    written = json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii")
    compressed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=compressed, mtime=0) as file:
        file.write(written)
    return base64.b64encode(compressed.getvalue()).decode("ascii")


def shown_name(name: str) -> str:
    """Return a name of a profile as the page's scripts show it: in one line, all of it visible, and not too long."""
    cut = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return str(without_halves(visible(cut)))


def _picture(picture: Picture, at: int) -> Json:
    places = sorted((kind, shown_name(name), *stretch) for (kind, name), stretch in picture.places.items())
    return {
        "rank": picture.rank,
        "device": picture.device,
        "source": shown_name(picture.source),
        "why": visible(text(picture.why)) if picture.why else None,
        "span": picture.span_ns,
        "at": at,
        "colours": list(COLOURS),
        "names": [shown_name(name) for name in picture.names],
        "lanes": [_lane(lane) for lane in picture.lanes],
        "exact": [_exact(stretch) for stretch in picture.exact],
        "places": places,
    }


def _lane(lane: Lane) -> Json:
    return {
        "kind": lane.kind,
        "title": visible(text(lane.title)),
        "shares": {name: base64.b64encode(share.tobytes()).decode("ascii") for name, share in lane.shares.items()},
        "cut": list(lane.cut),
        "slices": _slices(lane.slices),
    }


def _exact(stretch: Exact) -> Json:
    why = visible(text(stretch.why))
    return {
        "start": stretch.start,
        "end": stretch.end,
        "step": stretch.step,
        "why": why,
        "cut": stretch.cut,
        "typical": stretch.typical,
    }


def _slices(slices: LaneSlices) -> Json:
    starts = slices.start.tolist()
    steps = [now - before for now, before in zip(starts, [0, *starts], strict=False)]
    columns: dict[str, Json] = {
        "start": steps,
        "length": (slices.end - slices.start).tolist(),
        "depth": slices.depth.tolist() if slices.depth.any() else None,
        "colour": slices.colour.tolist(),
        "name": slices.name.tolist(),
        "where": _known(slices.where),
        "cause": _known(slices.cause),
        "lag": _lags(slices),
        "cube": _known(slices.cube),
        "vector": _known(slices.vector),
    }
    return {name: column for name, column in columns.items() if column is not None}


def _known(column: NDArray[int64]) -> Json:
    """Return a column of numbers of which -1 says "unknown"; None where that is all it says."""
    return column.tolist() if (column >= 0).any() else None


def _lags(slices: LaneSlices) -> Json:
    """Return how long after its launch each slice starts: less than nothing where the clocks disagree."""
    if not (slices.launch >= 0).any():
        return None
    lags = zip((slices.start - slices.launch).tolist(), (slices.launch >= 0).tolist(), strict=True)
    return [lag if known else None for lag, known in lags]
