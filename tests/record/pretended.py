"""A program and an msprof that only pretend: what the agent would write, in a second and without torch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from npuperf.record.folder import RunFolder, latest_run

ROOT = Path(__file__).resolve().parents[2]
#: Kernels that a whole run records, one row each.
ROWS = 25
#: What the program says when a signal has ended it.
LEFT = "the program was told to end"
#: Tells all processes of a place from others.
MARK = "PRETENDED_PLACE"

#: Records a row of its raw data every 20 ms and tells so as the agent does, until it is to stop; a signal ends it, with
#: all rows kept. As long as there is a file "hold" beside it, it records five rows. It goes on for as many seconds as
#: its argument says, and has a child that lives as long.
PROGRAM = f"""
import json, os, signal, subprocess, sys, time
from pathlib import Path
after = float(sys.argv[1])
plan = json.load(open(os.environ["NPUPERF_PLAN"]))
raw = Path(plan["raw"]) / "PROF_000001_20260101000000000_ABC"
status = Path(plan["status"]) / f"h_{{os.getpid()}}.json"
def tell(state, rows, **more):
    document = dict(state=state, step=rows + 1, pid=os.getpid(), host="h", recorded=list(range(rows)),
                    folders=[str(raw)], executable=sys.executable, soc="Ascend910B3", **more)
    status.with_suffix(".part").write_text(json.dumps(document))
    status.with_suffix(".part").rename(status)
def leave(number, _):
    helper.kill()
    tell("recorded", rows)
    print("{LEFT}", flush=True)
    os._exit(128 + number)
helper = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
rows = 0
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, leave)
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the system's, to whom it finds stopped as npuperf is killed
time.sleep(0.1)
raw.mkdir()
with open(raw / "rows", "w", buffering=1) as file:
    for rows in range(1, {ROWS} + 1):
        file.write(f"k{{rows}}\\n")
        tell("recording", rows)
        time.sleep(0.02)
        while rows == 5 and os.path.exists("hold") and not os.path.exists(plan["stop"]):
            time.sleep(0.01)
        if os.path.exists(plan["stop"]):
            tell("recorded", rows, stopped=rows)
            break
    else:
        tell("recorded", rows)
print("recorded", flush=True)
time.sleep(after)
helper.kill()
"""

#: Writes a table of all rows in two halves, with a pause between.
MSPROF = f"""#!{sys.executable} -S
import sys, time
from pathlib import Path
if "--help" in sys.argv: sys.exit(print("usage"))
raw = Path(next(w for w in sys.argv if w.startswith("--output=")).partition("=")[2])
rows = (raw / "rows").read_text().splitlines()
(raw / "mindstudio_profiler_output").mkdir(exist_ok=True)
with open(raw / "mindstudio_profiler_output" / "op_summary_20260101000000.csv", "w", buffering=1) as file:
    file.write("Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Stream ID\\n")
    for number, name in enumerate(rows):
        if number == len(rows) // 2: time.sleep(0.5)
        file.write(f"{{name}},Add,AI_VECTOR_CORE,{{1000 + 2 * number}}.000,1.000,1\\n")
"""


class Pretended:
    """A folder with the program and the msprof."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.started: list[subprocess.Popen[str]] = []
        (root / "bin").mkdir()
        (root / "bin" / "msprof").write_text(MSPROF)
        (root / "bin" / "msprof").chmod(0o755)
        (root / "train.py").write_text(PROGRAM)
        path = f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), MARK: str(root)}

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start ``npuperf profile``; the words of all go to one file, so that no pipe can fill."""
        call = [sys.executable, "-m", "npuperf", "profile", *map(str, arguments)]
        with (self.root / "said").open("a") as said:
            child = subprocess.Popen(
                call, cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                text=True, start_new_session=True,
            )  # fmt: skip
        self.started.append(child)
        return child

    def record(self, *options: object, after: float = 0.0) -> subprocess.Popen[str]:
        return self.start("--active", ROWS, *options, "--python", sys.executable, "train.py", after)

    @property
    def said(self) -> str:
        return (self.root / "said").read_text()

    @property
    def latest(self) -> RunFolder:
        return RunFolder(latest_run(self.root / "result"))

    def rows(self, folder: RunFolder) -> list[str]:
        """What the program recorded, counted without npuperf."""
        return [name for file in folder.raw.glob("PROF_*/rows") for name in file.read_text().split()]

    def exported(self, folder: RunFolder) -> list[str]:
        """What the tables of an export hold."""
        tables = folder.raw.glob("PROF_*/mindstudio_profiler_output/op_summary*.csv")
        return [line.split(",")[0] for table in tables for line in table.read_text().splitlines()[1:]]

    def processes(self) -> list[psutil.Process]:
        """All that runs here, whoever its parent is by now."""
        return [p for p in psutil.process_iter() if _of(p) == str(self.root)]

    def left(self, seconds: float = 120) -> list[psutil.Process]:
        """What still runs when it has had time to end."""
        last = time.monotonic() + seconds
        while (found := self.processes()) and time.monotonic() < last:
            time.sleep(0.1)
        return found


def _of(process: psutil.Process) -> str | None:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None
