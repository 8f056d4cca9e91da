"""Programs under the agent, by how they are started and how they end, with a torch that only pretends.

What is compared with the bare run: output, errors, exit status, files, and what the program sees of its interpreter.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from test_undisturbed import LIBRARIES, RECORDED, SERVED, THREADED

from npuperf.record.folder import RunFolder
from npuperf.record.manifest import read_all
from npuperf.record.plan import INJECT, plan_of
from npuperf.record.request import ProfileRequest

#: As much of torch as the agent needs to record steps on the CPU.
TORCH = """
class optim:
    class Optimizer:
        def __init__(self): self.done = 0
        def step(self): self.done += 1
class nn:
    class Module: pass
class utils:
    class data:
        get_worker_info = staticmethod(lambda: None)
class autograd:
    class profiler:
        class record_function:
            def __enter__(self): return self
            def __exit__(self, *_): pass
class profiler:
    class ProfilerAction: NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)
    class ProfilerActivity: CPU = 0
    class _KinetoProfile:
        def __init__(self, **given): self.given = given
    class profile(_KinetoProfile):
        def __init__(self, schedule, on_trace_ready, **given):
            super().__init__(**given)
            self.schedule, self.ready, self.step_num = schedule, on_trace_ready, 0
        def start(self): pass
        def step(self): self.step_num += 1
        def stop(self): self.ready(self)
        def export_chrome_trace(self, path):
            with open(path, "w") as file: file.write("[]")
"""
#: It makes steps, and shows what it sees of itself and its interpreter.
PROGRAM = """
import atexit, os, signal, sys, threading
import torch
class Sgd(torch.optim.Optimizer):
    def step(self, inside=lambda: None): super().step(); inside()
def train(inside=lambda: None):
    optimizer = Sgd()
    for i in range(24):
        optimizer.step(inside if i == 8 else lambda: None)
    return optimizer.done
def show():
    print(sys.argv, __name__, globals().get("__file__"), os.getcwd(), sys.flags, sys.warnoptions, sys._xoptions)
    print([p for p in sys.path if "site-packages" not in p], sys.excepthook is sys.__excepthook__)
    print([getattr(f, "__name__", type(f).__name__) for f in sys.meta_path], len(sys.path_hooks))
    print(sys.gettrace(), sys.getprofile(), threading.active_count(), sys.getrecursionlimit(), sys.executable)
    print([signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)], sys.stdin and sys.stdin.closed)
"""
TRAIN = f"{PROGRAM}\nprint(train())\nshow()\n"
CHILD = "import subprocess, sys; print(subprocess.run([sys.executable, *{words}]).returncode)"
PROCESS = (
    PROGRAM
    + """
import multiprocessing
def work():
    sys.exit(train() - 20)
if __name__ == "__main__":
    child = multiprocessing.get_context("{how}").Process(target=work)
    child.start()
    child.join()
    print(child.exitcode)
"""
)


def inside(what: str) -> str:
    return f"{PROGRAM}\nprint(train(lambda: {what}), flush=True)\n"


@dataclass(frozen=True)
class Kind:
    """How a program is started; ``recording``: at least so many processes are recorded; ``until``: the 9th step."""

    words: list[str]
    source: str = TRAIN
    stdin: str = ""
    extra: dict[str, str] = field(default_factory=dict)
    recording: int = 1
    until: bool = False


ME = "{python}"
KINDS = {
    "a script": Kind([ME, "train.py", "--lr", "1"]),
    "python -c": Kind([ME, "-c", TRAIN, "x"]),
    "python -": Kind([ME, "-", "x"], stdin=TRAIN),
    "python < file": Kind([ME], stdin=TRAIN),
    "python -i": Kind([ME, "-i", "train.py"]),
    "python -m": Kind([ME, "-m", "package.train"]),
    "a folder": Kind([ME, "package"]),
    "runpy": Kind([ME, "-c", "import runpy; runpy.run_path('train.py', run_name='__main__')"]),
    "a shell script": Kind(["sh", "-c", "set -e; cd package; {python} ../train.py; echo $?"]),
    "closed stdin": Kind(["sh", "-c", "exec {python} train.py <&-"]),
    "closed stderr": Kind(["sh", "-c", "exec {python} train.py 2>&-"]),
    "os.execv": Kind(
        [ME, "train.py"],
        source=f"{TRAIN}\nif len(sys.argv) == 1:\n    sys.stdout.flush()\n    os.execv(sys.executable, "
        "[sys.executable, 'train.py', 'again'])\n",
    ),
    "a subprocess of a subprocess": Kind(
        [ME, "-c", CHILD.format(words=["-c", CHILD.format(words=["train.py"])])]
    ),
    "multiprocessing fork": Kind([ME, "train.py"], source=PROCESS.replace("{how}", "fork")),
    "multiprocessing spawn": Kind([ME, "train.py"], source=PROCESS.replace("{how}", "spawn")),
    "multiprocessing forkserver": Kind([ME, "train.py"], source=PROCESS.replace("{how}", "forkserver")),
    "-W error": Kind([ME, "-W", "error", "train.py"]),
    "-X dev": Kind([ME, "-X", "dev", "-bb", "train.py"]),
    "-O": Kind([ME, "-OO", "train.py"]),
    "-u": Kind([ME, "-u", "train.py"]),
    "-P": Kind([ME, "-P", "train.py"]),
    "-I": Kind([ME, "-I", "-c", "import sys; sys.path.insert(0, 'modules')\n" + TRAIN], recording=0),
    "-S": Kind([ME, "-S", "train.py"], source=f"{PROGRAM}\nprint(train())", recording=0),
    "PYTHONPATH of its own": Kind([ME, "train.py"], extra={"PYTHONPATH": "own"}),
    "a sitecustomize of its own": Kind([ME, "train.py"], extra={"PYTHONPATH": "customized"}),
    "another virtual environment": Kind(["venv/bin/python", "train.py"]),
    "sys.exit with words": Kind([ME, "train.py"], source=inside("sys.exit('words')"), until=True),
    "an exception": Kind([ME, "train.py"], source=f"{PROGRAM}\ntrain()\nraise ValueError('own')"),
    "an exception that is handled": Kind(
        [ME, "train.py"], source=f"{PROGRAM}\ntry: train(lambda: 1 / 0)\nexcept ZeroDivisionError as e: print(e)\n",
        until=True,
    ),
    "os.abort": Kind([ME, "train.py"], source=inside("os.abort()"), recording=0),
    "SIGKILL": Kind([ME, "train.py"], source=inside("os.kill(os.getpid(), signal.SIGKILL)"), recording=0),
    "reloaded modules": Kind([ME, "train.py"], source=f"{TRAIN}\nimport importlib; print(importlib.reload(torch))"),
    "atexit of its own": Kind([ME, "train.py"], source=inside("atexit.register(print, 'at exit')")),
    "a daemon thread": Kind(
        [ME, "train.py"], source=inside("threading.Thread(target=threading.Event().wait, daemon=True).start()")
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """What was printed, with which status it ended, the files that are there, and the steps of who was recorded."""

    out: str
    err: str
    code: int
    files: dict[str, bytes]
    recorded: list[tuple[int, ...]]


def run(folder: Path, kind: Kind, carried: bool) -> Ran:
    """Run a program in a folder of its own."""
    for path, text in {
        "train.py": kind.source,
        "package/train.py": kind.source,
        "package/__main__.py": kind.source,
        "modules/torch.py": TORCH,
        "own/other.py": "",
        "customized/sitecustomize.py": "print('customized')",
        "venv/pyvenv.cfg": f"home = {Path(sys.executable).resolve().parent}\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "venv/bin").mkdir()
    (folder / "venv/bin/python").symlink_to(Path(sys.executable).resolve())
    run = RunFolder(folder.with_name(f"{folder.name}.run"))
    for made in (run.raw, run.status):
        made.mkdir(parents=True)
    plan = ProfileRequest(engine="cpu", wait=6, warmup=1, active=4)
    run.plan.write_text(json.dumps(plan_of(plan, run)))
    search = [*kind.extra.get("PYTHONPATH", "").split(), "modules"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NPUPERF"))}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    if carried:
        environment["NPUPERF_PLAN"] = str(run.plan)
        search.insert(0, str(INJECT))
    environment["PYTHONPATH"] = os.pathsep.join(str(folder / place) for place in search)
    done = subprocess.run(
        [word.replace(ME, sys.executable) for word in kind.words], cwd=folder, env=environment, input=kind.stdin,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    there = (p for p in folder.rglob("*") if p.is_file())
    files = {str(p.relative_to(folder)): b"" if p.suffix == ".pyc" else p.read_bytes() for p in there}
    recorded = [p.recorded for p in read_all(run.status) if p.folders]
    return Ran(_anywhere(done.stdout, folder), _anywhere(done.stderr, folder), done.returncode, files, recorded)


def _anywhere(text: str, folder: Path) -> str:
    return re.sub(r"0x[0-9a-f]{8,}", "", text.replace(str(folder), "HERE"))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Ran, Ran]]:
    """Return what gives a program's runs, without the agent and with it; all are started at once."""
    folder = tmp_path_factory.mktemp("starts")
    pool = ThreadPoolExecutor(2 * (os.cpu_count() or 1))

    def both(name: str) -> tuple[Ran, Ran]:
        place = folder / re.sub(r"\W", "_", name)
        return run(place / "plain", KINDS[name], False), run(place / "mine", KINDS[name], True)

    under_way = {name: pool.submit(both, name) for name in KINDS}
    return lambda name: under_way[name].result()


@pytest.mark.parametrize("name", KINDS)
def test_however_it_is_started(ran: Callable[[str], tuple[Ran, Ran]], name: str) -> None:
    plain, mine = ran(name)
    assert (mine.out, mine.err) == (plain.out, plain.err)
    assert (mine.code, mine.files) == (plain.code, plain.files)
    if not KINDS[name].recording:
        return
    expected = (7,) if KINDS[name].until else (7, 8, 9, 10)
    assert set(mine.recorded) == {expected} and len(mine.recorded) >= KINDS[name].recording


def test_the_page_names_what_is_tried() -> None:
    """The table of docs/profile.md and these tests are of the same programs."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "profile.md").read_text("utf-8")
    table = page[page.index("## Programs that were tried") : page.index("## Data that was collected elsewhere")]
    table = re.sub("(multiprocessing) fork, spawn, forkserver", r"\1 fork; \1 spawn; \1 forkserver", table)
    first = [cell.strip(" .*") for row in table.splitlines() if row.startswith("|") for cell in row.split("|")[1:2]]
    named = {re.sub(r" \(.*?\)|^[^:;]*: ", "", part).strip() for cell in first for part in re.split(";", cell)}
    tried = {*RECORDED, *SERVED, *THREADED, *LIBRARIES, *KINDS}
    assert not tried - named, sorted(tried - named)


def test_what_is_seen_of_the_agent(tmp_path: Path) -> None:
    """Where Python is asked what it does, it says so of the agent, too: its imports, and its frame in a traceback."""
    kind = Kind([ME, "-X", "importtime", "-c", inside("1 / 0")])
    plain, mine = run(tmp_path / "plain", kind, False), run(tmp_path / "mine", kind, True)
    assert (plain.out, plain.code) == (mine.out, mine.code)

    def imported(ran: Ran) -> set[str]:
        return set(re.findall(r"\| +([\w.]+)$", ran.err, re.MULTILINE))

    def told(ran: Ran) -> list[str]:
        lines = ran.err[ran.err.index("Traceback") :].splitlines()
        ours = {i + n for i, line in enumerate(lines) if "npuperf/record/agent" in line for n in (0, 1)}
        return [line for i, line in enumerate(lines) if i not in ours and line.strip(" ~^")]

    assert imported(plain) <= imported(mine) and told(plain) == told(mine)
    assert "npuperf" not in plain.err
