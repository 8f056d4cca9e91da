"""A verdict says how many tasks or events were lost, and is none where they are most; other losses do not turn it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from build import K, ascend_pt, events, kernel_details
from conversion import to_db

from npuperf.analyze.work import with_losses
from npuperf.base.messages import say, text
from npuperf.model.result import Verdict
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording

HOST = Verdict(bound="host", basis="measured", reason=say("so it is"))
TASKS = "{0} about device tasks could not be used, and 30 tasks are known"
EVENTS = "{0} of the timeline could not be used, beside {1} that could"


@pytest.mark.parametrize(
    ("tasks_lost", "events_lost", "events", "bound", "said"),
    [
        (0, 0, 0, "host", "so it is"),
        (3, 0, 0, "host", "so it is"),
        (4, 0, 0, "host", "so it is; " + TASKS.format("4 rows")),
        (30, 0, 0, "host", "so it is; " + TASKS.format("30 rows")),
        (31, 0, 280, "unknown", TASKS.format("31 rows")),
        (0, 28, 280, "host", "so it is"),
        (0, 29, 280, "host", "so it is; " + EVENTS.format("29 events", 280)),
        (0, 281, 280, "unknown", EVENTS.format("281 events", 280)),
        (4, 1, 1, "host", "so it is; " + TASKS.format("4 rows") + "; " + EVENTS.format("1 event", 1)),
    ],
)
def test_how_much_was_lost(tasks_lost: int, events_lost: int, events: int, bound: str, said: str) -> None:
    logs = [ReadLog(tasks_lost=tasks_lost, events=events), ReadLog(events_lost=events_lost)]
    found = with_losses(HOST, logs, 30)
    assert (found.bound, text(found.reason)) == (bound, said)


def test_what_is_unknown_stays_as_it_is() -> None:
    unknown = Verdict(bound="unknown", basis="inferred", reason=say("nobody knows"))
    assert with_losses(unknown, [ReadLog(tasks_lost=50)], 1) is unknown


KERNELS = [K(i * 10_000, 2_500, f"k{i}") for i in range(20)]


def log_of(path: Path) -> ReadLog:
    (log,) = open_recording(path).map(lambda reading: reading.log)
    total = ReadLog()
    total.add(log)  # as it comes to who gives the verdict
    return total


def test_rows_of_a_table_are_tasks(tmp_path: Path) -> None:
    path = kernel_details(tmp_path / "kernel_details.csv", KERNELS)
    lines = path.read_text().splitlines(keepends=True)
    damaged = [line.replace(",2.500,", ",soon,") for line in lines[1:8]]
    path.write_text("".join([lines[0], *damaged, *lines[8:]]))
    found = log_of(path)
    assert (found.tasks_lost, found.events_lost, found.events) == (7, 0, 0)


def test_events_of_a_timeline_are_events(tmp_path: Path) -> None:
    made = events([K(i * 10_000, 2_500, f"k{i}", launch=i * 10_000 - 5_000) for i in range(1, 20)])
    timed = [event for event in made if event["ph"] == "X"]
    for event in timed[:5]:
        event["ts"] = "soon"
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(made))
    found = log_of(path)
    assert (found.tasks_lost, found.events_lost, found.events) == (0, 5, len(timed) - 5)


def test_of_a_database_only_tasks_are(tmp_path: Path) -> None:
    """Counters, calls and operators that are lost do not make the tasks fewer."""
    folder = to_db(ascend_pt(tmp_path / "text", KERNELS, {1: (0, 300_000)}), tmp_path / "db")
    (path,) = folder.rglob("*.db")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE CANN_API SET startNs = 'soon'")
        database.execute("UPDATE TASK SET endNs = 'soon' WHERE rowid <= 6")
        calls = database.execute("SELECT count(*) FROM CANN_API").fetchone()[0]
    database.close()
    found = log_of(folder)
    assert found.tasks_lost == 6 and found.rows_lost >= 6 + calls
