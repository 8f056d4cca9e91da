"""``npuperf profile --pid``: a program that runs already is recorded, and goes on; ``--more`` makes that longer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pretended import ROOT
from waiting import Waiting, is_root, state_of

from npuperf.base.errors import ExitCode, NpuperfError, UsageError
from npuperf.base.messages import Message, say
from npuperf.base.process import Detached
from npuperf.model.recorded import ProcessStatus, Recorded, RecordingPlan, Way
from npuperf.record import attach, running
from npuperf.record.agent import standby
from npuperf.record.folder import RunFolder
from npuperf.record.request import ProfileRequest, read_request
from npuperf.record.run import run


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    made = Waiting(tmp_path)
    yield made
    made.clean()


@contextmanager
def started(call: list[str], environment: Mapping[str, str] = os.environ) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is killed at the end."""
    with subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as program:
        try:
            yield program
        finally:
            program.kill()


def asked(waiting: Waiting, **words: object) -> Recorded | RecordingPlan:
    """What ``npuperf profile`` answers, run in this process; what it says goes to ``said``."""
    words = {"output": waiting.root / "result", **words}
    request = read_request(words, words)
    told: list[Message] = []
    return run(request, waiting.environment, told.append).document


def test_it_is_recorded_and_goes_on(waiting: Waiting) -> None:
    """Any number of times; the run says what it was; nothing of npuperf stays."""
    program = waiting.serve()
    for name in ("result", "result.1"):
        done = waiting.start("--pid", program.pid, "--active", 25)
        assert done.wait(120) == 0, waiting.said
        folder = RunFolder(waiting.root / name)
        rows = waiting.rows(folder)
        assert len(rows) == 25 and waiting.exported(folder) == rows
        known = json.loads(folder.manifest.read_text())
        assert known["attached"] == {
            "pid": program.pid, "argv": [sys.executable, "-S", "serve.py"], "way": "agent", "pids": [program.pid],
        }  # fmt: skip
        assert known["command"] == known["attached"]["argv"] and known["cwd"] == str(waiting.root)
        assert known["inputs"][0]["file"] == str(waiting.root / "serve.py")
        assert known["stages"]["run"]["status"] == "done"
    assert not list(waiting.standby.iterdir())
    assert {p.pid for p in waiting.processes()} == {program.pid}
    assert waiting.ended(program) == (0, "ended by itself\n")


def test_a_launchers_ranks(waiting: Waiting) -> None:
    """The pid of what started them stands for all; ``--ranks`` chooses."""
    launcher = waiting.serve(0, 1)
    document = asked(waiting, pid=launcher.pid, active=5)
    assert isinstance(document, Recorded) and document.problem is None, document.problem
    assert [p.rank for p in document.processes] == [0, 1]
    assert [len(p.recorded) for p in document.processes] == [5, 5]
    document = asked(waiting, pid=launcher.pid, active=5, ranks="1", output=waiting.root / "one")
    assert isinstance(document, Recorded)
    assert [(p.rank, p.state, len(p.recorded)) for p in document.processes] == [(0, "left out", 0), (1, "recorded", 5)]
    none = asked(waiting, pid=launcher.pid, active=5, ranks="7", output=waiting.root / "none")
    assert none.exit_code == ExitCode.CHILD_FAILED and "requested ranks" in str(none.problem)
    assert waiting.ended(launcher) == (0, "ended by itself\n" * 2)


def test_for_some_time(waiting: Waiting) -> None:
    program = waiting.serve()
    document = asked(waiting, pid=program.pid, duration="300ms")
    assert isinstance(document, Recorded) and document.exit_code == 0
    assert 0 < len(document.processes[0].recorded) <= 30


def test_progress_is_told_meanwhile(waiting: Waiting) -> None:
    """The window ends as soon as it is."""
    (waiting.root / "hold").touch()
    program, folder, heard = waiting.serve(), RunFolder(waiting.root / "result"), list[str]()

    def hear(news: Message) -> None:
        heard.append(str(news))
        if "recording" in heard[-1]:
            folder.stop.touch()

    words = {"output": folder.path, "pid": program.pid, "duration": "1m"}
    run(read_request(words, words), waiting.environment, print, hear)
    assert any(news.startswith("recording: step 10") for news in heard)


@pytest.mark.parametrize(
    ("said", "is_final"),
    [
        ({"state": "recording", "recorded": (4, 5)}, False),
        ({"state": "recorded", "recorded": (4,)}, False),
        ({"state": "recorded", "recorded": (4, 5)}, True),
        ({"state": "recorded", "recorded": (4,), "early": True}, True),
        ({"state": "recorded", "recorded": (4,), "stopped": 5}, True),
        ({"state": "aside"}, False),
        ({"state": "aside", "early": True}, True),
        ({"state": "left out"}, True),
    ],
)
def test_what_is_waited_for(said: dict[str, Any], is_final: bool) -> None:
    process = ProcessStatus(pid=1, host="h", **said)
    assert attach._is_final(process, ProfileRequest(pid=1, active=2)) == is_final
    assert attach._is_final(process, ProfileRequest(pid=1, duration=1.0)) == (is_final or said["state"] == "recorded")


def test_a_process_of_another_machine_with_the_same_pid_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It records, and is not waited for; the one that was asked says nothing."""
    monkeypatch.setattr(attach, "PATIENCE", -1.0)
    monkeypatch.setattr(attach, "_STRAGGLING", -1.0)
    folder, ticks = RunFolder(tmp_path), iter(range(3))
    folder.status.mkdir(parents=True)
    (folder.status / "other_7.json").write_text('{"state": "recording", "pid": 7, "host": "other"}')
    one = SimpleNamespace(process=SimpleNamespace(pid=7, alive=lambda: True))
    job: Any = SimpleNamespace(request=ProfileRequest(pid=7))
    program: Any = SimpleNamespace(reachable=(one,))
    way: Any = SimpleNamespace(look=lambda: None)
    assert attach._wait(program, job, folder, way, lambda: next(ticks) < 0, print) == (False, ())


def test_what_a_process_says_is_why_nothing_came() -> None:
    followed = attach.Followed(1.0, False, (), ())
    process = ProcessStatus(state="failed", pid=7, host="h", problem=say("no {what}", what="NPU"))
    program: Any = SimpleNamespace(way="agent", reachable=(7,))
    problem = attach.why_nothing_came(program, followed, [process], ProfileRequest(pid=7))
    assert str(problem.what).endswith(": no NPU") and problem.exit_code == ExitCode.CHILD_FAILED


def test_ctrl_c_ends_the_window_and_not_the_program(waiting: Waiting) -> None:
    program = waiting.serve()
    command = waiting.start("--pid", program.pid, "--duration", "1h")
    folder = RunFolder(waiting.root / "result")
    waiting.until(lambda: state_of(folder) == ["recording"])
    waiting.until(lambda: len(waiting.rows(folder)) > 3)
    command.send_signal(signal.SIGINT)
    assert command.wait(120) == 0, waiting.said
    assert "ending the recording; the program goes on" in waiting.said
    assert waiting.exported(folder) == waiting.rows(folder)
    assert waiting.ended(program) == (0, "ended by itself\n")


def test_a_killed_npuperf_leaves_no_request(waiting: Waiting) -> None:
    """What was not taken is not taken later."""
    (waiting.root / "deaf").touch()
    program = waiting.serve()
    command = waiting.start("--pid", program.pid, "--duration", "1h")
    waiting.until(lambda: list(waiting.standby.glob("*.json")))
    command.kill()
    command.wait()
    waiting.until(lambda: not list(waiting.standby.iterdir()))
    waiting.until(lambda: {p.pid for p in waiting.processes()} == {program.pid})
    assert waiting.ended(program) == (0, "ended by itself\n")


def test_a_killed_npuperf_s_window_ends_by_itself(waiting: Waiting) -> None:
    (waiting.root / "hold").touch()  # or it might be over before it is seen
    program = waiting.serve()
    command = waiting.start("--pid", program.pid, "--active", 60)
    folder = RunFolder(waiting.root / "result")
    waiting.until(lambda: state_of(folder) == ["recording"])
    command.kill()
    command.wait()
    (waiting.root / "hold").unlink()
    waiting.until(lambda: state_of(folder) == ["recorded"])
    waiting.until(lambda: {p.pid for p in waiting.processes()} == {program.pid})
    assert waiting.start("--export", folder.path).wait(120) == 0, waiting.said
    assert waiting.exported(folder) == waiting.rows(folder) and len(waiting.rows(folder)) == 60
    assert waiting.ended(program) == (0, "ended by itself\n")


def test_the_program_ends_meanwhile(waiting: Waiting) -> None:
    program = waiting.serve()
    command = waiting.start("--pid", program.pid, "--duration", "1h")
    folder = RunFolder(waiting.root / "result")
    waiting.until(lambda: len(waiting.rows(folder)) > 3)
    (waiting.root / "crash").touch()
    assert program.wait(120) == 7
    assert command.wait(120) == ExitCode.CHILD_FAILED, waiting.said
    assert "the program ended at step" in waiting.said and "npuperf analyze result shows what was kept" in waiting.said
    assert waiting.exported(folder) == waiting.rows(folder)


def test_nothing_happens(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "PATIENCE", 0.5)
    (waiting.root / "deaf").touch()
    program = waiting.serve()
    document = asked(waiting, pid=program.pid)
    assert document.exit_code == ExitCode.CHILD_FAILED
    assert "no step ended within" in str(document.problem and document.problem.what)
    assert not list(waiting.standby.iterdir())
    program.kill()
    program.wait()
    with pytest.raises(UsageError, match="no such process"):
        asked(waiting, pid=program.pid)


def test_one_recording_at_a_time(waiting: Waiting) -> None:
    """Who records is named; so is who has asked and waits."""
    program = waiting.serve()
    command = waiting.start("--pid", program.pid, "--duration", "1h")
    folder = RunFolder(waiting.root / "result")
    waiting.until(lambda: len(waiting.rows(folder)) > 3)
    with pytest.raises(running.UnreachableError, match=f"is being recorded already, into {folder.shown}"):
        asked(waiting, pid=program.pid, output=waiting.root / "other")
    assert not (waiting.root / "other").exists()
    command.send_signal(signal.SIGINT)
    assert command.wait(120) == 0
    (waiting.root / "deaf").touch()
    command = waiting.start("--pid", program.pid, "-o", "deaf-result")
    waiting.until(lambda: list(waiting.standby.glob("*.json")))
    with pytest.raises(running.UnreachableError, match=r"is being recorded already, into .*deaf-result"):
        asked(waiting, pid=program.pid, output=waiting.root / "other")
    command.send_signal(signal.SIGINT)
    assert command.wait(120) == ExitCode.INTERRUPTED
    assert "interrupted before anything was recorded" in waiting.said


def test_a_program_under_npuperf_profile_is_recorded_by_that(waiting: Waiting) -> None:
    """Without --standby it takes no requests."""
    plan = json.loads(waiting.standing.plan.read_text())
    program = waiting.serve()
    waiting.standing.plan.write_text(json.dumps({"status": plan["status"]}))
    with pytest.raises(running.UnreachableError, match=f"being recorded already, into {waiting.standing.shown}"):
        asked(waiting, pid=program.pid)


def test_what_would_be_asked(waiting: Waiting) -> None:
    program = waiting.serve(3)
    document = asked(waiting, pid=program.pid, dry_run=True, duration="2s")
    assert isinstance(document, RecordingPlan)
    assert document.attached is not None and document.attached.way == "agent" and document.attached.pid == program.pid
    assert document.duration == 2.0 and document.window is None
    assert not (waiting.root / "result").exists() and not list(waiting.standby.iterdir())
    shown = waiting.start("--pid", program.pid, "--dry-run", "--active", 4)
    assert shown.wait(120) == 0
    (rank,) = document.attached.pids
    assert f"asks: pid {rank}, through npuperf's agent, which waits in it" in waiting.said
    assert "records: 4 steps, after the next 2" in waiting.said


# ---- what is planted ----


@pytest.mark.parametrize("how", ["open folder", "folder is a link", "plan is a link", "plan is huge", "plan is no JSON",
                                 "plan is open", "a stranger's plan", "a stranger's folder"])  # fmt: skip
def test_what_others_may_have_written_is_refused(waiting: Waiting, how: str) -> None:
    program, plan = waiting.serve(), waiting.standing.plan
    if how == "open folder":
        waiting.standby.chmod(0o777)
    elif how == "folder is a link":
        waiting.standby.rename(waiting.root / "elsewhere")
        waiting.standby.symlink_to(waiting.root / "elsewhere")
    elif how == "plan is a link":
        plan.rename(waiting.root / "elsewhere")
        plan.symlink_to(waiting.root / "elsewhere")
    elif how == "plan is huge":
        plan.write_text(plan.read_text() + " " * (1 << 21))
    elif how == "plan is no JSON":
        plan.write_text("[1")
    elif how == "plan is open":
        plan.chmod(0o666)
    elif not is_root():
        pytest.skip("needs root, to give files away")
    else:
        os.chown(plan if how == "a stranger's plan" else waiting.standby, 12345, 12345)
    with pytest.raises(NpuperfError) as raised:
        asked(waiting, pid=program.pid)
    assert raised.value.exit_code == ExitCode.INPUT
    assert not list(waiting.standby.iterdir()) and not (waiting.root / "result").exists()


def test_a_planted_request_is_left_alone(waiting: Waiting) -> None:
    """A link in the place of a request is not written through, and what is not ours is not removed."""
    (waiting.root / "deaf").touch()
    program, target = waiting.serve(), waiting.root / "target"
    link = waiting.standby / f"{program.pid}.json"
    link.symlink_to(target)
    with pytest.raises(running.UnreachableError, match="being recorded already"):
        asked(waiting, pid=program.pid)
    assert link.is_symlink() and not target.exists()


# ---- what cannot be reached ----


@pytest.mark.parametrize("pid", [1 << 31, 4_194_305, None])
def test_no_such_process(waiting: Waiting, pid: int | None) -> None:
    with pytest.raises(UsageError):
        asked(waiting, pid=pid or os.getpid())


@pytest.mark.parametrize("typed", ["0", "-1", "x", "1.5", ""])
def test_no_number(typed: str) -> None:
    call = [sys.executable, "-m", "npuperf", "profile", "--pid", typed]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE and "--pid" in done.stderr


@pytest.mark.parametrize(
    ("source", "variables", "why", "hint"),
    [
        (None, {}, "is no Python program", "--engine msprof"),
        ("", {}, "has imported torch", "--standby -- "),
        ("", {"NPUPERF_PLAN": "own"}, "has not imported torch", "try again"),
    ],
)
def test_why_not(waiting: Waiting, source: str | None, variables: dict[str, str], why: str, hint: str) -> None:
    if variables:
        variables = {"NPUPERF_PLAN": str(waiting.standing.plan)}
    script = f"{source}\nprint(flush=True)\nimport time\ntime.sleep(600)"
    call = ["sleep", "600"] if source is None else [sys.executable, "-S", "-c", script]
    with started(call, {**waiting.environment, **variables}) as program:
        if source is not None:
            assert program.stdout is not None and program.stdout.readline()
        else:
            waiting.until(lambda: Path(f"/proc/{program.pid}/comm").read_text() == "sleep\n")
        with pytest.raises(running.UnreachableError, match=why) as raised:
            asked(waiting, pid=program.pid)
        assert hint in str(raised.value.hint) and raised.value.exit_code == ExitCode.CHILD_FAILED


TORCH = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    ("variables", "why", "hint"),
    [
        ({}, "nothing in it can be asked to record", "start it with: npuperf profile --standby -- "),
        ({"PROFILING_MODE": "dynamic"}, "PROFILING_MODE=dynamic", "--standby"),
        ({"MSMONITOR_USE_DAEMON": "1"}, "msMonitor's daemon", "dyno --certs-dir DIR nputrace"),
        ({"KINETO_USE_DAEMON": "1"}, "msMonitor's daemon", "dyno --certs-dir DIR nputrace"),
        ({"PROF_CONFIG_PATH": "/nowhere"}, "has not begun there", "first import"),
    ],
)
def test_why_not_though_it_has_torch(waiting: Waiting, variables: dict[str, str], why: str, hint: str) -> None:
    """A library of torch's name stands for torch."""
    empty = waiting.root / "libtorch_cpu.so"
    if subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", str(empty)], check=False).returncode:
        pytest.skip("needs a C compiler")
    call = [sys.executable, "-S", "-c", TORCH, str(empty)]
    with started(call, {**waiting.environment, **variables}) as program:
        assert program.stdout is not None and program.stdout.readline()
        with pytest.raises(running.UnreachableError, match=why) as raised:
            asked(waiting, pid=program.pid)
        assert hint in str(raised.value.hint)


def test_another_user_s_and_another_container_s(waiting: Waiting) -> None:
    """Both are named with what to type; neither is touched."""
    if not is_root():
        pytest.skip("needs root, to be somebody else")
    loop = "import time; print(flush=True); time.sleep(600)"
    other = [sys.executable, "-S", "-c", f"import os; os.setresuid(12345, 12345, 12345); {loop}"]
    with started(other) as program:
        assert program.stdout is not None and program.stdout.readline()
        with pytest.raises(NpuperfError, match="npuperf reaches only programs of the user that runs it") as raised:
            asked(waiting, pid=program.pid)
        assert raised.value.exit_code == ExitCode.INPUT
        assert f"npuperf profile --pid {program.pid}" in str(raised.value.hint)
    inside = ["unshare", "--mount", sys.executable, "-S", "-c", loop]
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs namespaces")
    with started(inside) as program:
        assert program.stdout is not None and program.stdout.readline()
        with pytest.raises(NpuperfError, match="runs in another container") as raised:
            asked(waiting, pid=program.pid)
        assert raised.value.exit_code == ExitCode.INPUT and "docker exec" in str(raised.value.hint)


# ---- what is typed ----


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"pid": 1, "command": ("train.py",)}, "leave out train.py"),
        ({"pid": 1, "module": "a.b"}, "leave out -m a.b"),
        ({"pid": 1, "whole_run": True}, "use --duration"),
        ({"pid": 1, "stop_after": True}, "has not started"),
        ({"pid": 1, "export_early": True}, "as soon as it is recorded"),
        ({"pid": 1, "snapshot": True}, "--standby"),
        ({"pid": 1, "more": Path("result")}, "only one of them"),
        ({"pid": 1, "export": ["."]}, "only one of them"),
        ({"pid": 1, "duration": "5s", "active": 3}, "not together"),
        ({"pid": 1, "duration": "soon"}, "not a time"),
        ({"more": Path("result")}, "add --active 2 or --duration 5s"),
        ({"more": Path("result"), "active": 2, "level": "2"}, "--level: not with --more"),
    ],
)
def test_what_excludes_each_other(words: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_request(words, words)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5), ("500ms", 0.5), ("2m", 120), ("1h", 3600), ("3", 3), ("0.5s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert read_request({"pid": 1, "duration": text}, ["pid", "duration"]).duration == pytest.approx(seconds)


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize(
    ("words", "steps", "advised"),
    [
        ({"active": 2}, 0, True),
        ({"active": 2}, 3, False),
        ({"duration": "5s"}, 0, False),
        ({"start_on": "a"}, 0, False),
    ],
)
def test_a_program_without_steps_is_told_what_needs_none(
    interrupted: bool, words: dict[str, object], steps: int, advised: bool
) -> None:
    """Also where nobody waited until npuperf gave up; where steps were made, or not waited for, it would mislead."""
    process = ProcessStatus(state="waiting", pid=1, host="h", step=steps, threads=(steps,) if steps else ())
    reachable = (running.Reachable(Detached(1, 0.0), Path()),)
    one = running.Running(1, ("python",), Path(), {}, "agent", reachable)
    followed = attach.Followed(9.0, interrupted, () if interrupted else (1,), ())
    problem = attach.why_nothing_came(one, followed, [process], read_request({"pid": 1, **words}, ["pid", *words]))
    hint = "--step-on forward counts module calls; --duration 5s needs no steps"
    assert str(problem.hint or "") == (hint if advised else "")


# ---- a window that is under way ----


def test_a_window_is_made_longer(waiting: Waiting) -> None:
    """By steps where steps are counted; twice adds up."""
    (waiting.root / "hold").touch()
    program = waiting.serve()
    command = waiting.start("--pid", program.pid, "--active", 10)
    folder = RunFolder(waiting.root / "result")
    waiting.until(lambda: len(waiting.rows(folder)) == 5)
    for active, last in ((20, 129), (5, 134)):
        assert longer(folder, active=active) == f"{folder.shown}: recorded until the end of step {last}"
    with pytest.raises(UsageError, match="it is recorded by steps") as caught:
        longer(folder, duration="1s")
    assert str(caught.value.hint) == "--active 2"
    (status,) = folder.status.glob("*.json")
    told = status.read_text()
    status.write_text(told.replace('"recording"', '"saving"'))
    with pytest.raises(UsageError, match="its recording is over, with step 104"):
        longer(folder, active=5)
    status.write_text(told)
    (waiting.root / "hold").unlink()
    assert command.wait(120) == 0
    assert len(waiting.rows(folder)) == 35 and waiting.exported(folder) == waiting.rows(folder)
    with pytest.raises(UsageError, match="its recording is over, with step 134"):
        longer(folder, active=5)
    with pytest.raises(NpuperfError, match="not a run of npuperf") as raised:
        longer(waiting.standing, active=5)
    assert raised.value.exit_code == ExitCode.INPUT


def test_a_window_by_the_clock_is_made_longer(waiting: Waiting) -> None:
    program = waiting.serve()
    command = waiting.start("--pid", program.pid, "--duration", "1h")
    folder = RunFolder(waiting.root / "result")
    waiting.until(lambda: waiting.rows(folder))
    with pytest.raises(UsageError, match="it is recorded by time") as caught:
        longer(folder, active=5)
    assert str(caught.value.hint) == "--duration 5s"
    assert longer(folder, duration="2s") == f"{folder.shown}: recorded 2.00 s longer"
    command.send_signal(signal.SIGINT)
    assert command.wait(120) == 0


def test_what_comes_too_late_is_refused(tmp_path: Path) -> None:
    """The profiler had begun to stop when the request was left; one that was taken notice of holds."""
    folder = RunFolder(tmp_path)
    folder.status.mkdir(parents=True)
    lasts = {"recording", "warming up"}
    for state, heard, late in (("saving", 0, True), ("recorded", 1, False), ("recording", 1, False)):
        (folder.status / "h_1.json").write_text(json.dumps({"state": state, "pid": 1, "host": "h", "longer": heard}))
        assert running._is_too_late(folder, lasts, 1) is late, state


def longer(folder: RunFolder, **words: object) -> str:
    """What ``npuperf profile --more`` says."""
    words = {"more": folder.path, **words}
    return str(running.extend(read_request(words, words)))


# ---- msprof ----

#: CANN's msprof in its interactive mode: a row with "start", and one every 10 ms until "stop"; it keeps what it hears.
DYNAMIC = """
if "--dynamic=on" in sys.argv:
    import os, select
    (pid,) = (w.partition("=")[2] for w in sys.argv if w.startswith("--pid="))
    (output,) = (w.partition("=")[2] for w in sys.argv if w.startswith("--output="))
    said, rows = [], None
    while "quit" not in said:
        if select.select([sys.stdin], [], [], 0.01)[0]:
            heard = os.read(0, 100).decode().split() or ["quit"]
            said += heard
            if "start" in heard:
                raw = Path(output, f"PROF_000001_20260101000000000_{pid}")
                raw.mkdir()
                rows = (raw / "rows").open("w", buffering=1)
                rows.write("k\\n")
        if rows and "stop" not in said:
            rows.write("k\\n")
    (raw / "heard").write_text(" ".join(said))
    sys.exit()
raw ="""
WITH_A_SOCKET = """
import os, socket
listening = socket.socket(socket.AF_UNIX)
os.chdir(os.environ["HOME"])  # names of sockets are short
listening.bind(f"dynamic_profiling_socket_{os.getpid()}")
print(flush=True)
print(input())
"""


def test_through_msprof(waiting: Waiting) -> None:
    """It needs a time; the exporter finds what it has left."""
    msprof = waiting.root / "bin" / "msprof"
    msprof.write_text(msprof.read_text().replace("\nraw =", DYNAMIC, 1))
    dynamic = {**waiting.environment, "PROFILING_MODE": "dynamic", "HOME": str(waiting.root)}
    with started([sys.executable, "-S", "-c", WITH_A_SOCKET], dynamic) as program:
        assert program.stdout is not None and program.stdout.readline()
        with pytest.raises(UsageError, match="say how long"):
            asked(waiting, pid=program.pid)
        plan = asked(waiting, pid=program.pid, duration="300ms", dry_run=True)
        assert isinstance(plan, RecordingPlan) and plan.attached is not None and plan.attached.way == "msprof"
        assert waiting.start("--pid", program.pid, "--duration", "300ms").wait(120) == 0, waiting.said
        folder = RunFolder(waiting.root / "result")
        (heard,) = folder.raw.glob(f"*_{program.pid}/PROF_*/heard")
        assert heard.read_text() == "start stop quit"
        (table,) = heard.parent.glob("mindstudio_profiler_output/op_summary*.csv")
        rows = (heard.parent / "rows").read_text().split()
        assert len(table.read_text().splitlines()) - 1 == len(rows) > 0
        assert program.communicate(b"still here\n", timeout=120)[0] == b"still here\n"


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("torch_npu", {"duration": "5s"}),
        ("torch_npu", {"start_on": "range"}),
        ("torch_npu", {"delay": "5s"}),
        ("torch_npu", {"metadata": ("a=1",)}),
        ("msprof", {"duration": "5s", "shapes": True}),
        ("msprof", {"active": 2}),
        ("msprof", {"stack": True, "duration": "5s"}),
    ],
)
def test_what_a_way_does_not_have(way: Way, words: dict[str, object]) -> None:
    """It is refused, not passed over; an agent has it."""
    words = {"pid": 1, **words}
    request = read_request(words, words)
    with pytest.raises(UsageError, match="does not have it"):
        attach._WAYS[way].check(request)
    attach._WAYS["agent"].check(request)


# ---- the other side: what an agent takes ----


@pytest.mark.parametrize(
    "how", ["good", "request is a link", "plan is a link", "open folder", "open plan", "huge", "no JSON", "a list"]
)
def test_what_an_agent_takes(tmp_path: Path, how: str) -> None:
    """A request that others may have left is taken away and not carried out."""
    folder, plan = tmp_path / "standby", tmp_path / "plan.json"
    folder.mkdir(mode=0o777 if how == "open folder" else 0o700)
    folder.chmod(0o777 if how == "open folder" else 0o700)
    plan.write_text(json.dumps({"raw": "here"}) + " " * ((1 << 20) * (how == "huge")))
    plan.chmod(0o666 if how == "open plan" else 0o600)
    if how in ("no JSON", "a list"):
        plan.write_text("[" if how == "no JSON" else "[1]")
    if how == "plan is a link":
        plan.rename(tmp_path / "elsewhere")
        plan.symlink_to(tmp_path / "elsewhere")
    asked_by = folder / f"{os.getpid()}.json"
    content = json.dumps({"plan": str(plan)})
    if how == "request is a link":
        (tmp_path / "request").write_text(content)
        asked_by.symlink_to(tmp_path / "request")
    else:
        asked_by.write_text(content)
        asked_by.chmod(0o600)
    assert standby.take(str(folder)) == ({"raw": "here"} if how == "good" else None)
    assert not asked_by.exists() and standby.take(str(folder)) is None
