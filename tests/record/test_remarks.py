"""What is said of a recording: while it goes on, of what was recorded, and why there is nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npuperf.base.messages import Message, say
from npuperf.model.recorded import Overhead, ProcessStatus, Proof, Recorded, StepTimes
from npuperf.record.evidence import overhead_of, remarks, why_nothing
from npuperf.record.folder import create
from npuperf.record.manifest import read_all
from npuperf.record.plan import RecordingJob, Tell
from npuperf.record.request import ProfileRequest
from npuperf.record.run import Watch
from npuperf.show.formats import render


def process(**news: Any) -> ProcessStatus:
    return ProcessStatus(**{"state": "recorded", "pid": 7, "host": "h", "folders": ("f",), **news})


def test_what_a_recording_is_enough_for() -> None:
    """Fewer than five steps a side never decide; of tiny steps the cost of recording is no percentage."""
    proof = Proof(path="raw", kernels=5, launched=5)

    def said(steps: int, inside_ns: int) -> str:
        cost = Overhead(inside_ns=inside_ns, outside_ns=40_000, inside=2, outside=9)
        one = process(recorded=tuple(range(11, 11 + steps)), folders=("raw",))
        return render(Recorded(folder="result", proofs=(proof,), processes=(one,), overhead=cost), "text")

    tiny = said(2, 4_300_000)
    assert "most of it is the cost of recording, so its times say little of the program" in tiny and "+10" not in tiny
    assert "2 steps show where the time goes, not whether a change made them faster: --for-compare records 10" in tiny
    assert "(median of 9): +10.0 %" in said(5, 44_000) and "--for-compare" not in said(5, 44_000)
    assert "1 step shows where" in said(1, 44_000)


def test_overhead_by_hand() -> None:
    """Of the steps before the window the later half counts: 30, 20 and 10 with those after it, 12: median 16."""
    times = StepTimes(before=(900, 800, 30, 20), inside=(40, 32), after=(10, 12))
    found = overhead_of([process(step_ns=times)])
    assert found is not None
    assert (found.inside_ns, found.outside_ns, found.inside, found.outside) == (36, 16, 2, 4)
    assert found.share == 1.25
    assert overhead_of([process()]) is None


def test_remarks() -> None:
    world = [process(rank=0, world_size=4), process(rank=1, world_size=4, folders=(), state="waiting", step=5)]
    found = list(map(str, remarks(world, ProfileRequest(), 0)))
    assert "rank 1 recorded nothing: waiting at step 5" in found
    assert any(r.startswith("ranks 2, 3 did not report") for r in found)
    assert remarks([process(rank=0, world_size=4)], ProfileRequest(ranks=(0,)), 0) == []
    lost = {status: str(*remarks([process(state="recording")], ProfileRequest(), status)) for status in (139, 143, 7)}
    assert lost[143].startswith("SIGTERM ended the program while pid 7 was recording")
    assert lost[139] == lost[7] and "pid 7: the process died while recording" in lost[7]
    loud, ignored = remarks([process(engine="cpu", why_cpu=say("no torch_npu"))], ProfileRequest(given=("level",)), 0)
    assert "NO NPU (no torch_npu)" in str(loud) and "--level" in str(ignored)


@pytest.mark.parametrize(
    ("processes", "asked", "words"),
    [
        ([], ProfileRequest(), "imported torch"),
        (
            [{"state": "failed", "import_error": "torch: ImportError: libascendcl.so: cannot open"}],
            ProfileRequest(),
            "source ",
        ),
        ([{"state": "waiting", "step": 0}], ProfileRequest(step_on="forward"), "never called a module"),
        ([{"state": "waiting", "step": 12}], ProfileRequest(active=5), "--wait 6 "),
        ([{"state": "waiting", "step": 2}], ProfileRequest(), "--wait 1 --warmup 0 --active 1 records its last step"),
        ([{"state": "waiting", "step": 1}], ProfileRequest(), "--whole-run records everything"),
        (
            [{"state": "recorded", "step": 10, "threads": [10, 20, 30]}],
            ProfileRequest(),
            "3 threads of the program made 60 steps, the one whose steps count 10; recording begins at its step 11",
        ),
        (
            [{"state": "recorded", "step": 10, "threads": [10, 20, 30], "engine": "cpu"}],
            ProfileRequest(engine="cpu"),
            "torch.profiler hears one thread only",
        ),
        ([{"state": "waiting for the NPU", "step": 12}], ProfileRequest(), "never used an NPU"),
        ([{"state": "saving", "step": 12}], ProfileRequest(), "died while saving"),
        ([{"state": "left out", "step": 9, "rank": 3}], ProfileRequest(ranks=(8,)), "there were: 3"),
    ],
)
def test_why_there_is_nothing(processes: list[dict[str, Any]], asked: ProfileRequest, words: str) -> None:
    statuses = [process(**{"folders": (), **p}) for p in processes]
    problem = why_nothing(statuses, asked, {}, 0)
    assert words in f"{problem.what!s} {problem.hint!s}"


@pytest.mark.parametrize(
    ("processes", "command", "words"),
    [
        ([{"state": "waiting"}], ("train.py", "--lr", "1"), "the program failed before its first step"),
        ([{"state": "waiting"}], ("train.py", "--active=2"), "--active was given to the program"),
        ([], ("train.py", "--stop-after"), "--stop-after was given to the program"),
        ([], ("--active", "x"), "--python chooses"),
    ],
)
def test_a_program_that_fails_at_once_is_not_an_npu_s_fault(
    processes: list[dict[str, Any]], command: tuple[str, ...], words: str
) -> None:
    problem = why_nothing([process(folders=(), **p) for p in processes], ProfileRequest(command=command), {}, 1)
    assert words in f"{problem.what!s} {problem.hint!s}" and "davinci" not in str(problem.hint)


def job(request: ProfileRequest, said: Tell | None = None) -> RecordingJob:
    return RecordingJob(request, {}, said or (lambda _: None), said, keep_recording=False)


def test_progress_is_told_once_per_phase(tmp_path: Path) -> None:
    folder, _ = create(tmp_path / "result", force=False)
    said: list[Message] = []
    watch = Watch(folder, job(ProfileRequest(), said.append))
    states = [
        ("waiting", 4, []),
        ("waiting", 5, []),
        ("warming up", 10, []),
        ("recording", 11, [11]),
        ("recording", 12, [11, 12]),
        ("recorded", 13, [11, 12]),
    ]
    watch.tick()
    for state, step, recorded in states:
        document = {"state": state, "step": step, "recorded": recorded, "pid": 1, "host": "h", "rank": 0}
        (folder.status / "h_1.json").write_text(json.dumps(document))
        watch.tick()
        watch.tick()
    assert list(map(str, said)) == [
        "step 4 of 10 before recording (rank 0)",
        "warming up: step 10 (rank 0)",
        "recording: step 11, 1 of 2 (rank 0)",
        "recorded 2 steps; the program goes on (rank 0)",
    ]


def test_progress_names_the_repetition(tmp_path: Path) -> None:
    """Of ranks the first one's is told, else that of the process that is furthest; a launcher makes no steps."""
    folder, _ = create(tmp_path / "result", force=False)
    said: list[Message] = []
    watch = Watch(folder, job(ProfileRequest(wait=3, active=2, repeat=2), said.append))
    for pid, state in ((2, "launcher"), (3, "left out"), (4, "waiting"), (5, "forked")):
        document = {"state": state, "step": 1 if pid < 5 else 99, "pid": pid, "host": "h"}
        (folder.status / f"h_{pid}.json").write_text(json.dumps(document))
    steps = list[int]()
    for state, step, more in [
        ("warming up", 3, []), ("recording", 4, [4]), ("recording", 5, [5]), ("recorded", 6, []),
        ("warming up", 9, []), ("recording", 10, [10]), ("recording", 11, [11]), ("recorded", 12, []),
    ]:  # fmt: skip
        steps += more
        document = {
            "state": state,
            "step": step,
            "recorded": steps,
            "pid": 9,
            "host": "h",
            "rank": 1 if step > 8 else None,
        }
        (folder.status / "h_9.json").write_text(json.dumps(document))
        watch.tick()
    assert list(map(str, said)) == [
        "warming up: step 3, repetition 1 of 2",
        "recording: step 4, 1 of 2, repetition 1 of 2",
        "recorded 2 steps; the program goes on, repetition 1 of 2",
        "warming up: step 9 (rank 1), repetition 2 of 2",
        "recording: step 10, 1 of 2 (rank 1), repetition 2 of 2",
        "recorded 4 steps; the program goes on (rank 1), repetition 2 of 2",
    ]


def test_data_that_is_found_too_large_only_at_the_end(tmp_path: Path) -> None:
    folder, _ = create(tmp_path / "result", force=False)
    (folder.raw / "data").write_bytes(bytes(3000))
    process = ProcessStatus(state="recorded", pid=1, host="h")
    assert Watch(folder, job(ProfileRequest(max_size=3000))).found([process]) == []
    (line,) = Watch(folder, job(ProfileRequest(max_size=2048))).found([process])
    assert str(line).startswith("the data has grown to 2.9 KiB, more than --max-size 2.0 KiB; recording had ended")


def test_data_that_is_found_too_large_in_time(tmp_path: Path) -> None:
    folder, _ = create(tmp_path / "result", force=False)
    (folder.raw / "data").write_bytes(bytes(3000))
    watch = Watch(folder, job(ProfileRequest(max_size=2048)))
    watch.tick()
    assert folder.stop.exists()
    (line,) = watch.found([ProcessStatus(state="recorded", pid=1, host="h", stopped=3)])
    assert (
        str(line) == "pid 1: recording stopped at step 3: the data has grown to 2.9 KiB, more than --max-size 2.0 KiB"
    )


def test_half_a_status_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "h_1.json").write_text(
        '{"state": "waiting", "pid": 1, "host": "h", "later": "unknown fields are fine"}'
    )
    (tmp_path / "h_2.json").write_text('{"state": "wai')
    assert [p.pid for p in read_all(tmp_path)] == [1]


def test_what_the_agent_says_stays_a_message(tmp_path: Path) -> None:
    from npuperf.record.agent.engines import say as told
    from npuperf.record.agent.session import Status

    status = Status(str(tmp_path))
    status.warn(told("{call} failed at step {step}", call="start()", step=3))
    status.write(state="failed", problem=told("no NPU"))
    (found,) = read_all(tmp_path)
    (warning,) = found.warnings
    assert (warning.id, warning.parameters) == ("{call} failed at step {step}", {"call": "start()", "step": 3})
    assert str(found.problem) == "no NPU"
