"""Runs of ``npuperf profile`` with the real torch_npu over the CANN stand-in, and what they left."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import made_once
from preloaded import Loaded

#: Tests import torch some hundred times: what it makes stays, and looking through it for garbage, while it is made and
#: when it is taken down, takes a third of a short program's time.
_IMPORT = "import gc\ngc.disable()\nimport {}\ngc.freeze()\ngc.enable()\n"
TORCH = _IMPORT.format("torch")
WITH_OPTIMIZERS = _IMPORT.format("torch, torch._dynamo")  # the first of them imports that
#: Every step waits for the device, so that no kernel runs late, however busy the machine is; and the queue is drained
#: before Python goes: torch_npu's consumer thread may want the GIL, and be aborted, after that.
MODEL = f"""
import atexit, os, signal, sys, time
{WITH_OPTIMIZERS}
torch.npu.set_device(int(os.environ.get("LOCAL_RANK", "0")))
atexit.register(torch.npu.synchronize)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).npu()
class Waits(torch.optim.SGD):
    def step(self): super().step(); torch.npu.synchronize()
optimizer = Waits(model.parameters(), lr=0.1)
def step():
    model(torch.randn(16, 64).npu()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
#: The file in which npuperf's agent tells how far this process is; to be asked once a step has ended.
TOLD = """
def told():
    import json
    from pathlib import Path
    folder = Path(json.loads(Path(os.environ["NPUPERF_PLAN"]).read_text())["status"])
    (file,) = folder.glob(f"*_{os.getpid()}.json")
    return json.loads(file.read_text())["state"]
"""
TRAIN = MODEL + "for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 25):\n    step()\n"
#: It shows what it sees of itself.
SEEN = f"""{MODEL}
import multiprocessing
for i in range(25): step()
print(sys.argv, __name__, __file__, os.getcwd(), multiprocessing.get_start_method(allow_none=True), sys.path[0])
print(sys.stdin.read(), [p for p in sys.path if "npuperf" in p and "inject" in p])
print(Waits.step.__code__.co_filename.replace(os.path.dirname(torch.__file__), ""), os._exit.__module__)
print("to stderr", file=sys.stderr)
"""
SHOWN = 3  # lines of its output


def on_the_cpu(source: str) -> str:
    """The same without an NPU, for a run in an environment with OFF, where torch does not load torch_npu."""
    return source.replace("torch.npu.set_device", "int").replace("torch.npu.synchronize", "int").replace(".npu()", "")


AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
OFF = {AUTOLOAD: "0"}
ON_THE_CPU = on_the_cpu(TRAIN)


@dataclass
class Run:
    """A finished ``npuperf profile`` and what it left."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "npuperf.json").read_text("utf-8"))
        return found

    @property
    def recorded(self) -> list[list[int]]:
        return [p["recorded"] for p in self.manifest["processes"] if p["folders"]]

    @property
    def raw(self) -> list[Path]:
        return sorted((self.folder / "raw").iterdir())

    def kernels(self, raw: Path | None = None) -> list[dict[str, str]]:
        table = (raw or self.raw[0]) / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
        with table.open(newline="") as file:
            return list(csv.DictReader(file))

    @property
    def steps(self) -> set[int]:
        """The steps of which there is data: kernels, or a range in a trace of the CPU."""
        found = set[int]()
        for raw in self.raw:
            if raw.is_dir():
                found |= steps_of(self.kernels(raw))
            else:
                ranges = (e["name"].split("#") for e in json.loads(raw.read_text())["traceEvents"] if e["ph"] == "X")
                found |= {int(name[1]) for name in ranges if name[0] == "ProfilerStep"}
        return found


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "npuperf", "profile", *map(str, arguments)]


def profile(
    loaded: Loaded, folder: Path, *arguments: object, source: str = TRAIN, stdin: str = "", own: bool = False,
    **extra: str,
) -> Run:  # fmt: skip
    """Run ``npuperf profile ARGUMENTS`` in a folder that holds ``source`` as train.py.

    Where no interpreter is named program and exports run under those that have loaded torch, or have their ``own``.
    """
    (folder / "train.py").write_text(source)
    named: tuple[object, ...] = ()
    if "--" not in arguments:
        python = sys.executable if own else loaded.python(npu=(loaded | extra).get(AUTOLOAD) != "0")
        named = ("--python", python)
    done = subprocess.run(
        [loaded.npuperf, *command(*named, *arguments)[1:]],
        cwd=folder,
        env={**loaded, **extra},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "Traceback" not in done.stderr.split("npuperf: ", 1)[-1], done.stderr
    if "terminate called without an active exception" in done.stderr and (folder / "result").exists():
        # One in some hundred runs of torch_npu over the stand-in ends like this, with npuperf or without.
        shutil.rmtree(folder / "result")
        return profile(loaded, folder, *arguments, source=source, stdin=stdin, own=own, **extra)
    return Run(done.returncode, done.stdout, done.stderr, folder / "result")


def steps_of(rows: list[dict[str, str]]) -> set[int]:
    return {int(row["Step Id"]) for row in rows if row["Step Id"]}


def run_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Run]) -> Run:
    """Return a run that is made once for all tests, to be read, or copied."""

    def make_and_keep(folder: Path) -> None:
        run = make(folder)
        (folder / "ended.json").write_text(json.dumps([run.code, run.out, run.err]))

    folder = made_once(factory, name, make_and_keep)
    code, out, err = json.loads((folder / "ended.json").read_text())
    return Run(code, out, err, folder / "result")


def analyzed(loaded: Loaded, factory: pytest.TempPathFactory) -> Run:
    """A default run that was analyzed, of a program that has an interpreter of its own."""
    words = ("--python", sys.executable, "--analyze", "train.py", "--lr", "-o", "--")
    return run_once(factory, "analyzed", lambda folder: profile(loaded, folder, *words, source=SEEN, stdin="a line"))


def copy_of(run: Run, folder: Path) -> Run:
    """Copy a run into a folder, to be changed there."""
    shutil.copytree(run.folder, folder / "result")
    return Run(run.code, run.out, run.err, folder / "result")
