"""What runs are held against, small and sound: results, kept baselines, locks, gates in files."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from build import H, K, ascend_pt

from npuperf.against.baselines import reduced
from npuperf.against.locks import lock_text
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Result
from npuperf.show.formats import render

#: As many as an interval needs.
STEPS = 8
_STEP_NS = 100_000
_JOB = Path(__file__).resolve().parents[2] / "samples" / "pipeline_job"
NAME = "main"
SEVERAL = "step_time>+50%,1ms for 2 of 3"
#: Gates of every kind, none of which fails where nothing changed.
GATES = (
    "step_time>+50%,1ms", "host_wait>99.9%", "each(step_time)>1s", "p95(step_time)>1s", "count.launches>+0",
    "count.launches!=+0", "op:Add>+90%,1ms", "comm.transfer>99.9%", "bytes.comm>+0", "warn: findings>=high",
    "verdict!=compute", "count.syncs<+0", "finding:ai_cpu",
)  # fmt: skip
#: What of these the small run tells.
TOLD = ("step_time>+50%,1ms", "each(step_time)>1s", "count.launches>+0", "op:Add>+90%,1ms", "warn: findings>=low")


def eight_steps(root: Path, longer_ns: int = 0) -> Path:
    """A result folder with eight steps of seven kernels, the last a collective, each a little different."""
    kernels, steps, host = [], {}, []
    for step in range(STEPS):
        begin = step * _STEP_NS
        steps[step + 1] = (begin, begin + _STEP_NS)
        host.append(H("aten::item", begin + 60_000, 9_000 + step, python=True))
        for at, (type_, core) in enumerate((("MatMulV2", "AI_CORE"), ("Add", "AI_VECTOR_CORE")) * 3):
            start, dur = begin + 11_000 + at * 10_000, 5_000 + 7 * (step * at % 5) + longer_ns
            launch = {"step": step + 1, "launch": start - 9_000, "launch_dur": 1_000}
            kernels.append(K(start, dur, f"{type_}_{at}", type_, core, shapes="2,3;3,4", **launch))
        kernels.append(
            K(begin + 80_000, 9_000 + step, f"hcom_allReduce__1_{step}_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0,
              step=step + 1, launch=begin + 70_000, launch_dur=1_000)
        )  # fmt: skip
    return ascend_pt(root, kernels, steps, cores="24,48", host=host)


@cache
def result_of_before() -> Result:
    """The result of an earlier run, in which every kernel took a little longer."""
    with TemporaryDirectory() as folder:
        return run(AnalyzeRequest(path=eight_steps(Path(folder) / "before", 20)))


@cache
def _text(what: str) -> str:
    result = result_of_before()
    if what == "lock":
        return lock_text(result)
    return render(reduced(result) if what == "baseline" else result, "json")


def against_result(root: Path) -> Path:
    """A run, and the result of an earlier one as JSON."""
    (root / "old.json").write_text(_text("result"))
    return eight_steps(root / "now")


def against_baseline(root: Path) -> Path:
    """A run, and a baseline with the runs that were held against it."""
    kept = root / "kept"
    (kept / "candidates").mkdir(parents=True)
    (kept / f"{NAME}.json").write_text(_text("baseline"))
    candidates = [
        {"time": "2026-01-01T00:00:00Z", "recording": f"{n:016x}", "path": "now", "git_commit": None, "step_ns": 9,
         "gates": dict.fromkeys((*TOLD, SEVERAL), n == 1)} for n in range(3)
    ]  # fmt: skip
    (kept / "candidates" / f"{NAME}.json").write_text(json.dumps(candidates, indent=1))
    return eight_steps(root / "now")


def against_lock(root: Path) -> Path:
    """A run, and the lock of an earlier one."""
    (root / "perf.lock").write_text(_text("lock"))
    return eight_steps(root / "now")


def with_gates(root: Path) -> Path:
    """A run, the result of an earlier one, and gates in a file."""
    lines = ["gates:", *(f"  - {json.dumps(gate)}" for gate in (*TOLD, *GATES))]
    (root / "gates.yaml").write_text("\n".join(lines) + "\n")
    return against_result(root)


def two_runs(root: Path) -> Path:
    """A run, and an earlier one."""
    eight_steps(root / "before", 20)
    return eight_steps(root / "now")


def jobs(root: Path) -> Path:
    """The same two ranks of the sample twice, as runs of a job before and now."""
    for run_ in ("before", "now"):
        for rank in (0, 2):
            shutil.copytree(_JOB / f"rank_{rank}_ascend_pt", root / run_ / f"rank_{rank}_ascend_pt")
    return root / "now"


_HELD = ("analyze", "{root}/now", "--allow-mismatch", "--junit", "{root}/../junit.xml")
_TOLD = tuple(word for gate in TOLD for word in ("--fail-on", gate))
AGAINST_RESULT = (*_HELD, "--baseline", "{root}/old.json", *_TOLD)
AGAINST_RUN = (*_HELD, "--baseline", "{root}/before", *_TOLD[:-2])
AGAINST_BASELINE = (*_HELD, "--baseline", NAME, "--baseline-dir", "{root}/kept", *_TOLD, "--fail-on", SEVERAL)
AGAINST_LOCK = (*_HELD, "--check", "{root}/perf.lock")
RELOCKED = (*_HELD, "--update-lock", "{root}/perf.lock")
WITH_GATES = (*_HELD, "--baseline", "{root}/old.json", "--gates", "{root}/gates.yaml", "--undecided", "pass")
JOBS = ("analyze", "{root}/now", "--allow-mismatch", "--baseline", "{root}/before", "--fail-on", "step_time>+50%")
