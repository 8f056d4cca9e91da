"""The agent of ``npuperf profile``, without torch."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_undisturbed_starts import TORCH

from npuperf.base.messages import recall
from npuperf.record.agent.session import Session
from npuperf.record.agent.sources import Listening, Turns
from npuperf.record.folder import RunFolder
from npuperf.record.manifest import read_all
from npuperf.record.plan import plan_of, torch_arguments
from npuperf.record.request import ProfileRequest, read_request

ROOT = Path(__file__).resolve().parents[2]


def test_the_window_by_brute_force() -> None:
    """Against a list of what every step of every cycle does."""
    sys.path.insert(0, str(ROOT))
    from npuperf.record.agent.sources import Window

    for wait, warmup, active, repeat, delay in itertools.product((1, 3), (0, 2), (1, 2), (1, 2), (0, 4)):
        schedule = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}
        window = Window({"whole_run": False, "schedule": schedule})
        window.delay = delay
        cycle = ["wait"] * wait + ["warm up"] * warmup + ["record"] * active
        expected = ["wait"] * delay + cycle * repeat + ["over"] * 5
        assert [window.phase(step) for step in range(len(expected))] == expected
        begins = [delay + wait + n * len(cycle) for n in range(repeat)]
        assert [step for step in range(len(expected)) if window.begins(step)] == begins


@pytest.mark.parametrize(
    ("events", "steps"),
    [
        ("AAAA", [0, 1, 2, 3]),  # one optimizer
        ("ABABAB", [0, 2, 4]),  # two that take turns
        ("DDDGDDDG", [0, 1, 2, 4, 5, 6]),  # one that steps several times a round
        ("AABBB", [0, 1, 3, 4]),  # A is given up for B
        ("ABCABC", [0, 3]),  # one per layer
    ],
)
def test_a_step_ends_when_an_optimizer_comes_round_again(events: str, steps: list[int]) -> None:
    from npuperf.record.agent.sources import Turn, once_per_round

    objects = {name: object() for name in set(events)}
    ended: list[int] = []
    now, turn = [0], Turn()
    event = once_per_round(lambda: ended.append(now[0]))
    for now[0], name in enumerate(events):
        event(objects[name], turn)
    assert ended == steps
    assert made_by_steps_that_only_count(events) == len(steps)


def made_by_steps_that_only_count(events: str) -> int:
    """Count as far as can be without telling anybody."""
    from types import SimpleNamespace

    from npuperf.record.agent.sources import Source, Turns, once_per_round

    class Optimizer:
        def step(self) -> None:
            pass

    turns = Turns()
    turn, told, times = turns[threading.get_ident()], [0], list[int]()

    def ended() -> None:
        told[0] += 1
        turn.step += 1

    source = Source(SimpleNamespace(), once_per_round(ended), turns)
    source.replace(Optimizer, "step")
    turn.quiet_until, turn.tell_at, turn.note = 1000, 1 << 70, times.append
    objects = {name: Optimizer() for name in set(events)}
    for name in events:
        objects[name].step()
    assert told[0] + len(times) == turn.step and (len(events) < 3 or times)
    return int(turn.step)


def test_nested_steps_count_once() -> None:
    """Subclasses call their parents' step; wrappers call the optimizer they wrap."""
    from types import SimpleNamespace

    from npuperf.record.agent.sources import Optimizers, Turns

    class Optimizer:
        def __init__(self) -> None:
            self.calls = 0

        def step(self) -> str:
            self.calls += 1
            return "done"

    class Derived(Optimizer):
        def step(self) -> str:
            return super().step()

    seen: list[object] = []

    def event(of: object, _: object) -> None:
        seen.append(of)

    source = Optimizers(SimpleNamespace(optim=SimpleNamespace(Optimizer=Optimizer)), event, Turns())
    source.begin(event)
    plain, derived = Optimizer(), Derived()
    assert (plain.step(), derived.step(), derived.step()) == ("done", "done", "done")
    assert seen == [plain, derived, derived]
    source.end()
    Derived().step()
    assert len(seen) == 3 and Optimizer.step.__qualname__.endswith("Optimizer.step")
    assert Derived.step.__code__.co_name == "step"


def test_who_keeps_a_step_is_heard_and_finds_it_as_it_was() -> None:
    """By its function, whatever cells and defaults that has, again and again; threads call it meanwhile."""
    from types import SimpleNamespace

    from npuperf.record.agent.sources import Optimizers, Turns

    def hook(step: Any, of: str, twice: str) -> Any:
        def wrapper(self: Any, *words: str, by: str = "keyword") -> list[str]:
            return [*step(self, *words), of, twice, by]

        wrapper.hooked = True  # type: ignore[attr-defined]
        return wrapper

    class Optimizer:
        def step(self, word: str = "default") -> list[str]:
            return [word]

    class Kept(Optimizer):
        step = hook(Optimizer.step, "cell", "another")

    kept, of = Kept.step, Kept()
    own, facts = kept.__code__, (kept.__kwdefaults__, dict(vars(kept)))
    seen: list[object] = []
    source = Optimizers(SimpleNamespace(optim=SimpleNamespace(Optimizer=Optimizer)), lambda *_: None, Turns())
    ended, wrong = threading.Event(), list[object]()

    def call() -> None:
        while not ended.is_set():
            if kept(of, "x") != ["x", "cell", "another", "keyword"]:
                wrong.append(1)

    thread = threading.Thread(target=call)
    thread.start()
    main, codes = threading.get_ident(), set[object]()
    for n in range(50):
        assert kept(of) == ["default", "cell", "another", "keyword"] and len(seen) == n
        source.begin(lambda of, _: seen.append(of) if threading.get_ident() == main else None)
        codes.add(kept.__code__)
        assert kept(of, by="it") == ["default", "cell", "another", "it"] and len(seen) == n + 1
        source.end()
        assert kept.__code__ is own and (kept.__kwdefaults__, vars(kept)) == facts
    ended.set()
    thread.join()
    assert not wrong and len(codes) == 1 and own not in codes


def start(tmp_path: Path, code: str, *flags: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that carries the agent, with a package called torch that does nothing."""
    package = tmp_path / "modules" / "torch"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(extra.pop("TORCH", "class optim:\n    class Optimizer: pass\n"))
    plan = tmp_path / "plan.json"
    (tmp_path / "status").mkdir(exist_ok=True)
    document = {
        "engine": extra.pop("ENGINE", "auto"),
        "status": str(tmp_path / "status"),
        "whole_run": False,
        "step_on": "optimizer",
    }
    schedule = {"wait": 1, "warmup": 0, "active": 1, "repeat": 1}
    standby = {"standby": extra.pop("STANDBY")} if "STANDBY" in extra else {}
    plan.write_text(json.dumps({**document, "schedule": schedule, "ranks": None, **standby}))
    inject = ROOT / "npuperf" / "record" / "agent" / "inject"
    search = os.pathsep.join(map(str, [inject, tmp_path / "modules"]))
    outside = {k: v for k, v in os.environ.items() if k != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    environment = {**outside, "PYTHONPATH": search, "NPUPERF_PLAN": str(plan), **extra}
    return subprocess.run(
        [sys.executable, *flags, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_agent_gives_way_to_the_sitecustomize_it_hides(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "sitecustomize.py").write_text("print('mine')")
    done = start(tmp_path, "import sys; print(sys.modules['sitecustomize'].__file__, '_npuperf_agent' in sys.modules)")
    assert done.stdout == f"mine\n{tmp_path / 'modules' / 'sitecustomize.py'} True\n", done.stderr


def test_imports_are_left_alone(tmp_path: Path) -> None:
    """Modules and their loaders are what they would be, and errors are the import's own."""
    code = "import torch; print(torch.__spec__.loader.exec_module.__qualname__, torch.__file__)"
    plain = start(tmp_path, code, NPUPERF_PLAN="")
    mine = start(tmp_path, code)
    assert plain.stdout == mine.stdout and plain.stdout.startswith("_LoaderBasics.exec_module ")
    (tmp_path / "modules" / "torch_npu.py").write_text("raise KeyError('its own')")
    assert "KeyError: 'its own'" in start(tmp_path, "import torch, torch_npu").stderr


def test_a_broken_import_is_told_and_raised(tmp_path: Path) -> None:
    torch = "raise ImportError('libhccl.so: cannot open shared object file')"
    done = start(tmp_path, "import torch", TORCH=torch)
    assert done.returncode == 1 and "libhccl.so" in done.stderr
    (status,) = read_all(tmp_path / "status")
    assert status.import_error == "torch: ImportError: libhccl.so: cannot open shared object file"


def test_a_library_that_goes_on_without_torch_npu_is_in_standby_on_the_cpu(tmp_path: Path) -> None:
    """Accelerate and Transformers try it, wherever it is installed; for the CPU it is not wanted."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "torch_npu.py").write_text("raise ImportError('libhccl.so')")
    code = "import torch\ntry: import torch_npu\nexcept ImportError as error: print(error)"
    done = start(tmp_path, code, ENGINE="cpu", STANDBY=str(tmp_path), TORCH=TORCH)
    assert (done.stdout, done.stderr) == ("libhccl.so\n", "")
    (status,) = (json.loads(file.read_text()) for file in (tmp_path / "status").iterdir())
    assert status["state"] == "standby" and "import_error" not in status, done.stderr


@pytest.mark.parametrize(
    ("engine", "variable", "folder", "seen"),
    [
        ("cpu", None, "empty", "0 None"),  # of the import alone
        ("cpu", "1", "empty", "1 1"),  # the user's own value stays
        ("cpu", None, "cann", "None None"),  # CANN is there
        ("auto", None, "empty", "None None"),  # who wants an NPU is to hear that it cannot be had
    ],
)
def test_a_recording_of_the_cpu_needs_no_cann(
    tmp_path: Path, engine: str, variable: str | None, folder: str, seen: str
) -> None:
    for made in ("empty", "cann", "modules"):
        (tmp_path / made).mkdir(exist_ok=True)
    (tmp_path / "cann" / "libhccl.so").touch()
    (tmp_path / "modules" / "torch_npu.py").touch()
    read = "import os; was = os.environ.get('TORCH_DEVICE_BACKEND_AUTOLOAD')"
    more = {} if variable is None else {"TORCH_DEVICE_BACKEND_AUTOLOAD": variable}
    code = f"import torch; {read}; print(torch.was, was)"
    done = start(tmp_path, code, TORCH=read, ENGINE=engine, LD_LIBRARY_PATH=str(tmp_path / folder), **more)
    assert done.stdout.split("\n")[0] == seen, done.stderr


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """One that has chosen an engine, in a window of one step of warm-up and one recorded."""
    folder = RunFolder(tmp_path)
    folder.status.mkdir(parents=True)
    made = Session(plan_of(ProfileRequest(engine="cpu", wait=20, warmup=1, active=1), folder))
    done = dict.fromkeys(("open", "close", "let_go", "step"), lambda *_: None)
    made.engine = SimpleNamespace(**done, name="cpu", said="", ready=lambda: True, facts=dict, can_stop=lambda: True,
                                  overtaken_by=set(), folders=lambda _: ["trace"], hears_all_threads=False)  # fmt: skip
    made._turn.step = 20
    return made


def test_a_profiler_that_cannot_start_is_told_once(session: Session) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("busy")

    session.engine.open = fails
    session._open()
    said = session.status.document
    assert (said["state"], said["warnings"], said["recorded"]) == ("failed", [], [])
    assert said["problem"]["parameters"] == {"call": "start()", "step": 20, "error": "RuntimeError: busy"}


def test_recording_after_the_programs_own_profiler_begins_with_its_first_step(session: Session) -> None:
    """Not with the step of warm-up."""
    session.status.document["state"] = "aside"
    session._open()
    for session._turn.step in (21, 22):
        session._advance()
    said = session.status.document
    assert said["recorded"] == [21]
    assert [(w["id"].partition(",")[0], w["parameters"]) for w in said["warnings"]] == [
        ("recording began at step {step}", {"step": 21})
    ]


def test_a_recording_that_is_to_stop_ends_with_the_step_under_way(session: Session) -> None:
    session._open()
    Path(session.plan["stop"]).touch()
    session._turn.step = 21
    session._advance()
    said = session.status.document
    assert (said["state"], said["stopped"], said["early"], said["recorded"]) == ("recorded", 21, True, [])


def test_a_window_grows_by_what_is_asked_for_meanwhile(session: Session) -> None:
    session._open()
    Path(session.plan["more"] + ".0").write_text('{"active": 2}')
    for session._turn.step in range(21, 25):
        session._advance()
    said = session.status.document
    assert (said["state"], said["recorded"], said["longer"]) == ("recorded", [21, 22, 23], 1)


def test_who_is_not_followed_any_more_is_not_heard() -> None:
    class Optimizer:
        def step(self) -> None:
            pass

    heard = list[int]()
    torch = SimpleNamespace(optim=SimpleNamespace(Optimizer=Optimizer))
    listening = Listening(torch, lambda: heard.append(1), heard.clear, Turns())
    listening.follow({"step_on": "optimizer"})
    optimizer = Optimizer()
    optimizer.step()
    assert heard == [1]
    listening.unfollow()
    optimizer.step()
    assert heard == [1]


def test_the_main_thread_s_steps_count_unless_another_is_eight_ahead(session: Session) -> None:
    session.engine = None
    session._forget_steps()

    def other(steps: int) -> int:
        thread = threading.Thread(target=lambda: [session._tick() for _ in range(steps)])
        thread.start()
        thread.join()
        return session.step

    session._tick()
    assert (session.step, other(8), other(9)) == (1, 1, 9)  # each time another thread
    for _ in range(8):
        session._tick()
    assert session.step == 9 and session._thread == threading.get_ident()


def test_an_error_of_the_agent_never_stops_the_program(tmp_path: Path) -> None:
    done = start(tmp_path, "import torch; print('goes on')", TORCH="pass")
    assert done.returncode == 0 and done.stdout == "goes on\n"
    assert "npuperf: not profiling this process: AttributeError" in done.stderr


class Version:
    """A torch_npu.profiler as an older release had it."""

    class ProfilerLevel:
        Level0 = 0
        Level1 = 1

    class AiCMetrics:
        PipeUtilization = 1

    @staticmethod
    def _ExperimentalConfig(profiler_level: int = 0, aic_metrics: int = 1, l2_cache: bool = False) -> None: ...

    @staticmethod
    def profile(activities: Any = None, schedule: Any = None, with_stack: bool = False) -> None: ...


def test_what_an_older_version_lacks() -> None:
    """Only what was asked for is a problem; defaults it does not know are left out."""
    from types import SimpleNamespace

    from npuperf.record.agent.engines import TorchNpu

    def problems(**values: Any) -> list[str]:
        plan = {"raw": "", "activities": ["CPU"], **torch_arguments(read_request(values, values))}
        return [str(recall(problem)) for problem in TorchNpu(plan, SimpleNamespace(profiler=Version)).problems()]

    assert problems() == [] and problems(l2_cache=True, stack=True) == []
    assert problems(level="2") == ["--level: this version has no Level2, only Level0, Level1"]
    assert problems(aic_metrics="L2Cache") == ["--aic-metrics: this version has no L2Cache, only PipeUtilization"]
    assert problems(mstx=True, export="db") == [
        "--export: this version has no export_type",
        "--mstx: this version has no mstx",
    ]
    assert problems(all_threads=True, execution_trace=True, metadata=["job=17", "user=me"]) == [
        "--execution-trace: this version has no execution_trace_observer",
        "--all-threads: this version has no enable_profiler_in_child_thread",
        "--metadata: this version has no add_metadata",
    ]
    assert problems(flops=True, host_sys="cpu") == [
        "--host-sys: this version has no host_sys",
        "--flops: this version has no with_flops",
    ]


def test_the_agent_runs_under_old_pythons() -> None:
    """Syntax of 3.7 and nothing but the standard library: the program's interpreter may be older than npuperf's."""
    import ast

    standard = {*sys.stdlib_module_names, "torch_npu", "sitecustomize"}
    for path in sorted((ROOT / "npuperf" / "record" / "agent").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 7))
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level}
        assert {n.split(".")[0] for n in names} <= standard, path
        assert any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body), path


def test_step_does_nothing_where_nobody_profiles() -> None:
    import npuperf as package

    package.step()
