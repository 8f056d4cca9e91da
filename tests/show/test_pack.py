"""Pictures as the page's data: every number survives, names are fit to be shown, and it is little text."""

from __future__ import annotations

import base64
import gzip
import json
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from pictures import HOSTILE, MS, US, random_picture, small

from npuperf.base.messages import say
from npuperf.model.picture import COLOURS, LaneSlices, Picture
from npuperf.show.html import LONGEST_NAME, pack_pictures, packed

#: Of base64, for 24,000 slices and 20 lanes of 8,192 buckets that hardly compress.
BUDGET = 1_200_000


def unpacked(pictures: list[Picture]) -> list[Any]:
    """What a browser finds, by Python's own decoders."""
    written = packed({"pictures": pack_pictures(pictures)})
    return json.loads(gzip.decompress(base64.b64decode(written, validate=True)))["pictures"]


def columns(written: dict[str, Any]) -> dict[str, list[int]]:
    """A lane's slices as they were, read by what ``pack_pictures`` says of its columns."""
    start = list(accumulate(written["start"]))
    count = len(start)
    nothing = [-1] * count
    lag = written.get("lag", [None] * count)
    found = {name: written.get(name, nothing) for name in ("name", "where", "cause", "cube", "vector")}
    return {
        **found,
        "start": start,
        "end": [s + n for s, n in zip(start, written["length"], strict=True)],
        "depth": written.get("depth", [0] * count),
        "colour": written["colour"],
        "launch": [-1 if one is None else s - one for s, one in zip(start, lag, strict=True)],
    }


@pytest.mark.parametrize("picture", [small(rank=3, at=5 * US), random_picture(5, 2000, 6, 300)])
def test_every_number_survives(picture: Picture) -> None:
    (found,) = unpacked([picture])
    assert (found["rank"], found["device"], found["span"], found["at"]) == (picture.rank, 0, picture.span_ns, 0)
    assert found["colours"] == list(COLOURS)
    assert len(found["lanes"]) == len(picture.lanes) > 0
    for lane, written in zip(picture.lanes, found["lanes"], strict=True):
        assert written["kind"] == lane.kind and written["cut"] == list(lane.cut)
        assert list(written["shares"]) == list(lane.shares)
        for name, share in lane.shares.items():
            assert base64.b64decode(written["shares"][name]) == bytes(share.tolist())
        for name, column in columns(written["slices"]).items():
            assert column == getattr(lane.slices, name).tolist(), (lane.kind, name)
    for kept, exact in zip(found["exact"], picture.exact, strict=True):
        assert (kept["start"], kept["end"], kept["step"]) == (exact.start, exact.end, exact.step)
        assert (kept["cut"], kept["typical"], kept["why"]) == (exact.cut, exact.typical, str(exact.why))
    places = {(kind, name): (start, end) for kind, name, start, end in found["places"]}
    assert places == picture.places


def test_times_stay_whole_in_javascript() -> None:
    """Its numbers are whole up to 2^53, and read back from text as they were."""
    picture = random_picture(2, 400, 3, 50, days=100)
    ends = [int(lane.slices.end.max()) for lane in picture.lanes]
    assert max(ends) > 2**51 and picture.span_ns < 2**53
    assert all(int(float(end)) == end for end in ends)
    (found,) = unpacked([picture])
    assert [max(columns(lane["slices"])["end"]) for lane in found["lanes"]] == ends


def test_a_host_event_may_begin_before_the_picture() -> None:
    lane = random_picture(3, 40, 2, 10).lanes[0]
    early = LaneSlices(**{name: getattr(lane.slices, name)[:2] for name in LaneSlices.__struct_fields__})
    early.start[:] = [-700, 300]
    early.end[:] = [-100, 900]
    picture = small()
    moved = Picture(0, 0, "", 0, 1000, (type(lane)("host", say("host"), {}, early),), picture.names)
    found = columns(unpacked([moved])[0]["lanes"][0]["slices"])
    assert (found["start"], found["end"]) == ([-700, 300], [-100, 900])


def test_ranks_are_put_on_one_clock() -> None:
    """Epochs have no room in JavaScript's numbers; what is between two of them has."""
    ranks = [small(rank=r, at=at) for r, at in ((0, 0), (1, -20 * US), (2, 3 * MS))]
    clock = [one.origin_ns + one.offset_ns for one in ranks]
    assert [one["at"] for one in unpacked(ranks)] == [one - min(clock) for one in clock] == [13_000, 0, 3_027_000]


def test_names_can_be_seen_and_are_cut() -> None:
    picture = small()
    long = Picture(
        None,
        0,
        "s" * 999,
        0,
        10,
        (),
        (HOSTILE, "x" * 10_000, "\ud800", "x" * 200),
        (),
        {("operator", "y" * 300): (1, 2)},
    )
    assert HOSTILE in picture.names
    (found,) = unpacked([long])
    assert found["names"][0] == '<img src=x onerror="document.title=1">\\u202egnp.exe\\x00\\x1b[31m'
    assert found["names"][1] == "x" * (LONGEST_NAME - 1) + "…" and found["names"][3] == "x" * 200
    assert found["names"][2] == "\\ud800"
    assert found["places"] == [["operator", "y" * (LONGEST_NAME - 1) + "…", 1, 2]]
    assert len(found["source"]) == LONGEST_NAME


def test_the_same_gives_the_same_text() -> None:
    """Whenever it is packed: gzip has no time in it."""
    written = [packed({"pictures": pack_pictures([small()])}) for _ in range(2)]
    assert written[0] == written[1]
    assert base64.b64decode(written[0])[4:8] == b"\0\0\0\0"


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        packed({"share": float("nan")})


def test_the_budget_holds_for_what_hardly_compresses() -> None:
    picture = random_picture(1)
    assert sum(len(lane.slices) for lane in picture.lanes) == 24_000
    assert [len(share) for lane in picture.lanes for share in lane.shares.values()][:1] == [8192]
    assert len(picture.lanes) == 20
    size = len(packed({"pictures": pack_pictures([picture])}))
    print(f"{size:,} bytes of base64")
    assert 600_000 < size <= BUDGET


def test_nothing_is_nothing() -> None:
    assert pack_pictures([]) == []
    empty = LaneSlices(
        *(np.empty(0, np.uint8 if name == "colour" else np.int64) for name in LaneSlices.__struct_fields__)
    )
    picture = Picture(None, 0, "", 5, 1, (type(small().lanes[0])("cores", say("cores"), {}, empty),), ())
    (found,) = unpacked([picture])
    assert columns(found["lanes"][0]["slices"])["start"] == []
