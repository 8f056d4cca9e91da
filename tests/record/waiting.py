"""A program that only pretends to have npuperf's agent wait in it: it takes requests, and records rows of a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
from pretended import MARK, Pretended

from npuperf.record.folder import RunFolder

#: A row every 10 ms, as many as "active" says, for as long as "duration", or until it is to stop. It ends when there is
#: a file "enough" beside it, or one "crash" while it records. Where there is a file "deaf" it looks for no requests,
#: and as long as there is one "hold" it records five rows.
WAITING = """
import json, os, sys, time
from pathlib import Path
here, me, rank = Path(__file__).parent, os.getpid(), os.environ.get("RANK")
standing = json.load(open(os.environ["NPUPERF_PLAN"]))

def tell(plan, state, rows, raw=None, **more):
    document = dict(state=state, step=100 + rows, pid=me, host=os.uname().nodename, executable=sys.executable,
                    rank=rank and int(rank), recorded=list(range(100, 100 + rows)), soc="Ascend910B3",
                    folders=[str(raw)] if raw and state == "recorded" else [], **more)
    status = Path(plan["status"], f"{os.uname().nodename}_{me}.json")
    status.with_suffix(".part").write_text(json.dumps(document))
    status.with_suffix(".part").rename(status)

def longer(plan, name):
    return sum(json.loads(file.read_text()).get(name, 0) for file in Path(plan["more"]).parent.glob("more.*"))

def record(plan):
    if plan["ranks"] is not None and int(rank or 0) not in plan["ranks"]:
        return tell(plan, "left out", 0)
    raw = Path(plan["raw"], f"PROF_{me:06}_{time.time_ns()}_ABC")
    raw.mkdir()
    with open(raw / "rows", "w", buffering=1) as file:
        began, rows = time.monotonic(), 0
        while True:
            wanted = plan["schedule"]["active"] + longer(plan, "active")
            over = rows >= wanted
            if plan["duration"] is not None:
                over = rows and time.monotonic() - began >= plan["duration"] + longer(plan, "duration")
            crash = (here / "crash").exists()
            if over or crash or os.path.exists(plan["stop"]):
                break
            if rows == 5 and (here / "hold").exists():
                time.sleep(0.01)
                continue
            rows += 1
            tell(plan, "recording", rows)  # first: who sees the row finds it told
            file.write(f"k{me}.{rows}\\n")
            time.sleep(0.01)
    tell(plan, "recorded", rows, raw, early=crash)
    if crash:
        sys.exit(7)

tell(standing, "standby", 0)
while not (here / "enough").exists():
    request = Path(standing["standby"], f"{me}.json")
    if request.exists() and not (here / "deaf").exists():
        taken = request.rename(request.with_suffix(".taken"))
        record(json.loads(Path(json.loads(taken.read_text())["plan"]).read_text()))
    time.sleep(0.01)
print("ended by itself", flush=True)
"""


class Waiting(Pretended):
    """The program, started as under ``npuperf profile --standby``, and commands that reach it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.standing = RunFolder(root / "standing")
        self.standby = self.standing.work / "standby"
        self.standing.status.mkdir(parents=True)
        self.standby.mkdir(mode=0o700)
        plan = {"standby": str(self.standby), "status": str(self.standing.status)}
        self.standing.plan.write_text(json.dumps(plan))
        (root / "serve.py").write_text(WAITING)
        self.programs: list[subprocess.Popen[str]] = []

    def serve(self, *ranks: int) -> subprocess.Popen[str]:
        """Start it, or a shell that starts one for each rank, and wait until all wait."""
        plan = {"NPUPERF_PLAN": str(self.standing.plan)}
        call = [sys.executable, "-S", "serve.py"]
        if ranks:
            each = " ".join(f"RANK={rank} {sys.executable} -S serve.py &" for rank in ranks)
            call = ["sh", "-c", f"{each} wait"]
        known = len(list(self.standing.status.glob("*.json")))
        program = subprocess.Popen(
            call, cwd=self.root, env={**self.environment, **plan}, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.programs.append(program)
        self.until(lambda: len(list(self.standing.status.glob("*.json"))) == known + max(1, len(ranks)))
        return program

    def ended(self, program: subprocess.Popen[str]) -> tuple[int, str]:
        """Let it end by itself, and return how it did."""
        (self.root / "enough").touch()
        output, _ = program.communicate(timeout=120)
        return program.returncode, output

    def until(self, holds: object, seconds: float = 120) -> None:
        """Wait for a fact."""
        assert callable(holds)
        last = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < last
            time.sleep(0.02)

    def clean(self) -> None:
        """End all that runs here."""
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(self.root):
                    process.kill()
            except (psutil.Error, OSError):
                continue
        for program in (*self.programs, *self.started):
            if program.stdout is not None:
                program.stdout.close()
            program.wait()


def state_of(folder: RunFolder) -> list[str]:
    """In which states the processes of a run are."""
    return [json.loads(file.read_text())["state"] for file in sorted(folder.status.glob("*.json"))]


def is_root() -> bool:
    return os.geteuid() == 0
