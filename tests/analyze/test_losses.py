"""A verdict says how much was lost, and is none where that is most of it."""

from __future__ import annotations

import pytest

from npuperf.analyze.losses import with_losses
from npuperf.documents.analysis import Verdict
from npuperf.messages import say, text
from npuperf.readers.log import ReadLog

HOST = Verdict(bound="host", basis="measured", reason=say("so it is"))


def log(lost: int, events: int = 0) -> ReadLog:
    made = ReadLog(events=events)
    for part in (lost - lost // 2, lost // 2):
        made.lose("a file", part, say("no reason"))
    return made


@pytest.mark.parametrize(
    ("lost", "events", "tasks", "bound", "said"),
    [
        (0, 0, 30, "host", "so it is"),
        (3, 0, 30, "host", "so it is"),
        (4, 0, 30, "host", "so it is; 4 rows or events could not be read, beside 30 that could"),
        (30, 0, 30, "host", "so it is; 30 rows or events could not be read, beside 30 that could"),
        (31, 0, 30, "unknown", "31 rows or events could not be read, beside 30 that could"),
        (1, 0, 0, "unknown", "1 row or event could not be read, beside 0 that could"),
        (31, 280, 30, "host", "so it is"),
    ],
)
def test_how_much_was_lost(lost: int, events: int, tasks: int, bound: str, said: str) -> None:
    found = with_losses(HOST, [log(lost), log(0, events)], tasks)
    assert (found.bound, text(found.reason)) == (bound, said)


def test_what_is_unknown_stays_as_it_is() -> None:
    unknown = Verdict(bound="unknown", basis="inferred", reason=say("nobody knows"))
    assert with_losses(unknown, [log(50)], 1) is unknown
