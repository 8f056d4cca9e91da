"""A working folder with the stand-in for aoe, and what tests of tuning put into it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from aoe_results import ROOT
from build import H, K, ascend_pt
from conftest import STUB, Done, run_cli, until

from npuperf.model.tuning import Entry

SOC = "Ascend910B3"


class Place:
    """A working folder with a home, a model and the stand-in on PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "home").mkdir()
        (root / "net.onnx").write_bytes(b"onnx")
        self.bin = root / "bin"
        self.bin.mkdir()
        self.aoe = Path(shutil.copy(STUB / "bin" / "aoe", self.bin))
        self.aoe.chmod(0o755)

    def change_aoe(self, old: str, new: str) -> None:
        """Have the stand-in do something else."""
        text = self.aoe.read_text()
        assert text.count(old) == 1, old
        self.aoe.write_text(text.replace(old, new))

    def begin_aoe(self, code: str) -> None:
        """Have the stand-in do something first."""
        self.aoe.write_text(self.aoe.read_text().replace("\nimport json", f"\n{code}import json", 1))

    def environment(self, **extra: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND", "TUNE", "FAKE", "AOE"))}
        return {
            **clean,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.root / "home"),
            "FAKE_AOE_SECONDS": "0.05",
            "FAKE_AOE_LOG": str(self.root / "calls"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "160",
            **extra,
        }

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "npuperf", "tune", *map(str, arguments)]

    def run(self, *arguments: object, **extra: str) -> Done:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("npuperf.tune.supervise._TICK", 0.02)  # the stand-in is done before the first of them
            patch.chdir(self.root)
            for name in os.environ.keys() - self.environment().keys():
                patch.delenv(name)
            for name, value in self.environment(**extra).items():
                patch.setenv(name, value)
            done = run_cli(["tune", *map(str, arguments)])
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def calls(self) -> list[dict[str, Any]]:
        path = self.root / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def runs(self) -> list[Path]:
        return sorted(p for p in (self.root / "result" / "tune").iterdir() if p.is_dir())

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.runs[-1] / "state.json").read_text())
        return found


OP = ("--mode", "op", "--model", "net.onnx")


def said(done: Done) -> str:
    """What a person reads, however it is wrapped: the document on stdout, and what was told on stderr meanwhile."""
    return " ".join((done.stdout + done.stderr).split())


def document(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def tuning_children(place: Place) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if str(place.bin / "aoe") in " ".join(p.info["cmdline"] or [])]


def kill_tuning(place: Place) -> None:
    """Returns once they are gone: the system takes a moment, and they are nobody's children here to wait for."""
    for victim in tuning_children(place):
        victim.kill()
    until(lambda: not tuning_children(place))


def start(place: Place, *arguments: object, **extra: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        place.command(*arguments), cwd=place.root, env=place.environment(**extra), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(lambda: child.poll() is not None or list(place.root.glob("result/tune/*/aoe_result_*.json")))
    assert child.poll() is None
    return child


def start_and_kill(place: Place, *arguments: object, **extra: str) -> None:
    """Have npuperf killed as soon as aoe, which goes on, has a first result."""
    child = start(place, *arguments, **extra)
    child.kill()
    child.communicate()


def hold(place: Place) -> Path:
    """Have aoe wait after its first result until there is the file that is returned."""
    released, written = place.root / "released", "        put(path, text)\n"
    wait = f"        while not os.path.exists({str(released)!r}):\n            time.sleep(0.01)\n"
    place.change_aoe(written, written + wait)
    return released


def resumed_meanwhile(place: Place, released: Path, **extra: str) -> Done:
    """Resume while the program that is held still runs, which goes on as soon as it is said to be waited for."""
    child = subprocess.Popen(
        place.command("--resume", "--format", "json"), cwd=place.root, env=place.environment(**extra), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    told = ""
    while "is still running: waiting for it" not in told:
        line = child.stderr.readline()
        assert line, told
        told += line
    released.touch()
    out, err = child.communicate(timeout=300)
    return Done(child.returncode, out, told + err)


def dumping_modules(root: Path) -> Path:
    """Stand-ins for torch and torch_npu that only dump."""
    for name, text in {
        "torch": "class npu:\n    @staticmethod\n    def set_aoe(path):\n        import os; os.makedirs(path)\n"
        "        if os.environ.get('DUMPS'): open(path + '/op.pb', 'w').close()\n",
        "torch_npu": "",
    }.items():
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text(text)
    return root


def busy_profile(root: Path) -> Path:
    """Two steps: 4 MatMulV2 of 100 µs back to back, then 3 Add of 5 µs that each wait 400 µs for their launch.

    The host waits for the MatMulV2 before it goes on, so that the step would be shorter without them.
    """
    kernels, clock = [], 0
    host = [H("x", 0, 10)]
    for step in range(2):
        for i in range(4):
            kernels.append(K(clock, 100_000, f"mm_{i}", "MatMulV2", "AI_CORE", 2, 20, 0, step, clock - 300_000))
            clock += 100_500
        host.append(H("AscendCL@aclrtSynchronizeStream", clock - 390_000, 390_000 - 500))
        for i in range(3):
            clock += 400_000
            kernels.append(K(clock, 5_000, f"add_{i}", "Add", "AI_VECTOR_CORE", 2, 40, 0, step, clock - 8_000))
            clock += 5_000
    steps_ = {0: (0, clock // 2), 1: (clock // 2, clock)}
    return ascend_pt(root, kernels, steps_, cores="20,40", host=host)


def entry(name: str, types: tuple[str, ...], before: float, after: float) -> Entry:
    return Entry(kind="operator", name=name, types=types, before_us=before, after_us=after)


def record(m: int, base: int, version: int = 0) -> dict[str, Any]:
    return {"id": 1, "info_dict": {"m": m}, "knowledge": {"baseM": base}, "op": "MatMulV3", "version": version}


def bank(root: Path, records: list[dict[str, Any]], soc: str = SOC, cores: int = 20, cann: str | None = None) -> Path:
    folder = root / soc / "unified_bank"
    folder.mkdir(parents=True)
    text = "".join(json.dumps(r) + "\n" for r in records)
    (folder / f"{soc}_{cores}_AiCore_MatMulV3_runtime_kb.json").write_text(text)
    if cann:
        (root / "npuperf-bank.json").write_text(json.dumps({"cann": cann}))
    return root


def lines(place: Path) -> dict[int, int]:
    found = [json.loads(line) for f in place.rglob("*_runtime_kb.json") for line in f.read_text().splitlines()]
    return {r["info_dict"]["m"]: r["knowledge"]["baseM"] for r in found}
