"""What ``npuperf profile`` says of each recording: whose it is, and which steps are in it."""

from __future__ import annotations

import pytest

from npuperf.model.recorded import ProcessStatus, Proof, Recorded
from npuperf.show.formats import View
from npuperf.show.verb_reports import recorded


def process(pid: int, steps: tuple[int, ...], *times: int, rank: int | None = None) -> ProcessStatus:
    folders = tuple(f"/before/it/was/moved/{pid}_{time}.pt.trace.json" for time in reversed(times))
    return ProcessStatus(state="recorded", pid=pid, host="h", recorded=steps, folders=folders, rank=rank, engine="cpu")


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        ([process(7, (4, 5, 10, 11), 1, 2)], ["host: 9 host events, steps 4–5", "host: 9 host events, steps 10–11"]),
        ([process(7, (4, 5, 6, 7), 1, 2)], ["host: 9 host events", "host: 9 host events"]),
        ([process(7, (4, 6, 7), 1)], ["host: 9 host events, 3 steps from 4 to 7"]),
        (
            [process(7, (4,), 1), process(8, (30, 31), 1)],
            ["pid 7 · host: 9 host events, step 4", "pid 8 · host: 9 host events, steps 30–31"],
        ),
        (
            [process(7, (4,), 1, rank=0), process(8, (6, 9), 1, 2, rank=1)],
            ["rank 0 · host: 9 host events, step 4", "rank 1 · host: 9 host events, step 6",
             "rank 1 · host: 9 host events, step 9"],
        ),
    ],
    ids=["two windows", "two that one run of steps holds", "one window", "two processes", "two ranks"],
)  # fmt: skip
def test_each_recording_is_told_with_its_own_steps(processes: list[ProcessStatus], said: list[str]) -> None:
    files = [f"result/raw/{folder.rpartition('/')[2]}" for p in processes for folder in sorted(p.folders)]
    proofs = tuple(Proof(path=file, events=9) for file in files)
    sheet = recorded(Recorded(folder="result", processes=tuple(processes), proofs=proofs), View())
    lines = [str(line.content) for line in sheet.lines]
    assert [line.strip() for line in lines if "host events" in line] == said


@pytest.mark.parametrize(("steps", "said"), [(1, ["1 step shows"]), (4, ["4 steps show"]), (5, [])])
def test_the_fewest_steps_of_those_that_recorded_are_enough_to_compare_or_not(steps: int, said: list[str]) -> None:
    """One more process recorded more of them, and another nothing."""
    processes = process(7, tuple(range(steps)), 1), process(8, tuple(range(9)), 1), process(9, ())
    sheet = recorded(Recorded(folder="result", processes=processes, proofs=(Proof(path="7_1", events=9),)), View())
    lines = [str(line.content).strip() for line in sheet.lines]
    assert [line.partition(" where")[0] for line in lines if "--for-compare" in line] == said
