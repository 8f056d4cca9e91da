"""Whoever says "ok" would have found the problem: it is planted into the same recording, and then it is found.

For every recording, real ones and the project's own, and every rule that says "ok" of it: the problem that the rule is
about is put into a copy of the files (tests/planting.py knows the formats and nothing of npuperf), and the rule must
then say so. What needs no planting is told by the raw files: of operators launched one by one there is no graph to
find fault with, and no kernel is slowed by communication where none runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from planting import RANGE, RUNTIME, TORCH, Copied, Database, Table, Trace
from small_programs import analyzed

from npuperf.model.result import Finding

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
RECORDINGS: dict[str, tuple[type[Copied], Path]] = {
    "own": (Trace, ROOT / "samples" / "transformer_ascend_pt"),
    "text, Level1": (Trace, DATA / "msinsight/text/level1/rank0_ascend_pt"),
    "text, Level0": (Trace, DATA / "msinsight/text/level0/rank0_ascend_pt"),
    "db, Level1": (Database, DATA / "msinsight/db/level1/rank0_ascend_pt"),
    "db, Level0": (Database, DATA / "msinsight/db/level0/rank0_ascend_pt"),
    "timeline": (Trace, DATA / "msprof-analyze/timeline"),
    "GPU, steps": (Trace, DATA / "hta/ns_resolution_gpu.json.gz"),
    "GPU, no steps": (Trace, DATA / "hta/simple_add_gpu.json.gz"),
    "table, Level2": (Table, DATA / "msinsight/cluster4/rank_0_ascend_pt"),
    "table, ArithmeticUtilization": (Table, DATA / "msprof-analyze/arithmetic_utilization"),
    "table, excerpt": (Table, DATA / "msprof-analyze/pipe_utilization"),
    "op_summary, made by hand": (Table, DATA / "msinsight/toy/op_summary_1.csv"),
    "op_summary, pipes": (Table, DATA / "op_summary_2026/op_summary_pipe_utilization.csv"),
    "op_summary, blocks": (Table, DATA / "op_summary_2026/op_summary_block_over_cores.csv"),
}


#: How long after its task a wait returns, ns: more than clocks of host and device disagree.
RETURNS = 50_000


def whole(copied: Copied) -> int:
    """The length of the recording on the device, ns."""
    busy = copied.busy()
    return max(end for _, end in busy) - min(start for start, _ in busy)


def pause(copied: Copied, name: str, where: str = TORCH) -> None:
    """Let the host be in a call for as long as the whole recording, right before it launches what the device lacks."""
    at, _ = copied.waited_for()
    dur = whole(copied)
    copied.stretch(at.root - 1, dur)
    copied.call(name, at.root - 1, dur, where, at.thread)


def capture(copied: Copied) -> None:
    """Let the host capture for as long as the whole recording: nothing runs between the calls that begin and end it."""
    at, _ = copied.waited_for()
    dur, begin = whole(copied), at.root - 1
    copied.stretch(begin, dur)
    names = ("cudaStreamBeginCapture", "cudaStreamEndCapture")
    if not copied.kineto:
        names = ("AscendCL@aclmdlRICaptureBegin", "AscendCL@aclmdlRICaptureEnd")
    copied.call(names[0], begin, 1000, RUNTIME, at.thread)
    copied.call(names[1], begin + dur - 2000, 1000, RUNTIME, at.thread)


def wait(copied: Copied, call: str, operator: str | None = None) -> None:
    """Let a task last as long as the recording, the host wait for it, and take as long again for what comes next."""
    at, since = copied.waited_for()
    dur = whole(copied)
    copied.clear(since - 1, at.root)
    copied.stretch(at.root + 1, dur)  # within the operator that launches
    copied.stretch(since - 1, dur)
    if operator is not None:
        copied.call(operator, since - 1, dur + RETURNS + 2, TORCH, at.thread)
    copied.call(call, since, dur + RETURNS, RUNTIME, at.thread)


def starve(copied: Copied, name: str | None = None) -> None:
    """Let the host take long for every launch that the device waits for, all of them thrice the recording."""
    places = copied.places()
    dur = 3 * whole(copied) // len(places)
    for at, _ in reversed(places):
        copied.stretch(at.root + 1, dur)
        if name is not None:
            copied.call(name, at.root + 1, dur, RUNTIME, at.thread)


def small(copied: Copied) -> None:
    """Make kernels short, and their launches slow."""

    def change(kernel: dict[str, Any]) -> None:
        kernel["dur"] = min(kernel["dur"], 2_000)

    copied.kernels(change)
    starve(copied)


def dynamic(copied: Copied) -> None:
    """Make kernels those of dynamic shape, and let the host tile before it launches them."""
    copied.kernels(lambda kernel: kernel.update(state="dynamic"))
    starve(copied, "AscendCL@aclnnMulGetWorkspaceSize")


def fusible(copied: Copied) -> None:
    """Name operators that follow each other in one function as those of SwiGLU, and let the host take long for all."""
    by_thread: dict[Any, list[int]] = {}
    for launch in copied.launches():
        mine = by_thread.setdefault(launch.thread, [])
        if not mine or launch.root > mine[-1]:
            mine.append(launch.root)
    thread, roots = max(by_thread.items(), key=lambda one: len(one[1]))
    frames = [copied.frame(root, thread) for root in roots]
    at = 0
    while at < len(roots) - 2:
        alike = frames[at] == frames[at + 1] == frames[at + 2]
        for root, name in zip(roots[at : at + 3], ("chunk", "silu", "mul"), strict=True) if alike else ():
            copied.rename(root, thread, f"aten::{name}")
        at += 3 if alike else 1
    starve(copied)


def slowed(copied: Any) -> None:
    """Let kernels be equal, and take a quarter of the time where no communication is beside them."""
    talks = copied.collectives()

    def change(kernel: dict[str, Any]) -> None:
        start, end = kernel["start"], kernel["start"] + kernel["dur"]
        kernel.update(type="Add", shapes='"8,8;8,8"')
        kernel["dur"] = kernel["dur"] if any(a <= start and end <= b for a, b in talks) else kernel["dur"] // 4

    copied.kernels(change)


def communicate(copied: Any) -> None:
    """Let the device communicate while it waits."""
    if isinstance(copied, Table):
        longest(copied, name="hcom_allReduce__123_0_1", type="hcom_allReduce_", core="HCCL")
        return
    _, since = copied.waited_for()
    dur = whole(copied)
    copied.stretch(since + 1, dur)
    copied.collective(since + 1, dur)


def longest(copied: Copied, **made: Any) -> None:
    """Make the kernels of the type that takes longest others, and let one of them take as long as the recording."""
    total: dict[str, int] = {}
    starts: dict[str, int] = {}

    def add(kernel: dict[str, Any]) -> None:
        if not str(kernel["name"]).startswith("hcom"):
            key = kernel.get("type") or kernel["name"]
            total[key] = total.get(key, 0) + kernel["dur"]
            starts[key] = kernel["start"]

    copied.kernels(add)
    chosen = max(total, key=lambda key: total[key])
    copied.kernels(lambda k: k.update(made if (k.get("type") or k["name"]) == chosen else {}))
    copied.stretch(starts[chosen] + 1, whole(copied))


def counted(kernel: dict[str, Any], factor: float) -> None:
    """Let a kernel's cores have taken so many times its cycles in the same time."""
    for name in ("aic_cycles", "aiv_cycles", "cube"):
        if kernel.get(name) not in (None, "", "N/A"):
            kernel[name] = f"{float(kernel[name]) * factor:.{3 if name == 'cube' else 0}f}"


def alone(kernel: dict[str, Any]) -> None:
    """Let a kernel have one block, and the cycles of one core."""
    if str(kernel["block"]).isdigit() and int(kernel["block"]):
        counted(kernel, 1 / int(kernel["block"]))
    kernel["block"] = "1"


def set_variable(name: str, value: str) -> Callable[[Any], None]:
    return lambda copied: copied.environment(name, value)


#: What each rule is about, planted.
PROBLEMS: dict[str, Callable[[Any], None]] = {
    "data_loading": lambda c: pause(c, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    "compilation": lambda c: pause(c, "backend_compile (dynamo_timed)"),
    "captures": capture,
    "garbage_collection": lambda c: pause(c, "Python GC"),
    "host_pauses": lambda c: pause(c, "save_checkpoint", RANGE),
    "start_up": lambda c: pause(c, "cuModuleLoadData" if c.kineto else "AscendCL@aclrtBinaryLoadFromFile", RUNTIME),
    "sync_points": lambda c: wait(c, "cudaStreamSynchronize" if c.kineto else "AscendCL@aclrtSynchronizeStream"),
    "value_dependent": lambda c: wait(
        c, "cudaStreamSynchronize" if c.kineto else "AscendCL@aclrtSynchronizeStream", "aten::nonzero"
    ),
    "blocking_copies": lambda c: wait(c, "cudaMemcpy" if c.kineto else "AscendCL@aclrtMemcpy", "aten::to"),
    "uneven_host": lambda c: starve(c, "cudaLaunchKernel"),
    "graph_capture": starve,
    "small_kernels": small,
    "task_queue": lambda c: starve(c, "AscendCL@aclnnMulGetWorkspaceSize"),
    "online_compile": lambda c: starve(c, "AscendCL@aclopCompileAndExecute"),
    "dynamic_shape": dynamic,
    "fused_operators": fusible,
    "slowed_compute": slowed,
    "exposed_communication": communicate,
    "early_steps": lambda c: c.number_steps(1),
    "idle_cores": lambda c: c.kernels(alone),
    "low_clock": lambda c: c.kernels(lambda kernel: counted(kernel, 0.7)),
    "launch_blocking": set_variable("ASCEND_LAUNCH_BLOCKING", "1"),
    "ai_cpu": lambda c: longest(c, core="AI_CPU"),
    "waiting_kernels": lambda c: longest(c, type="MoeDistributeDispatchV2", core="MIX_AIV"),
    "casts": lambda c: longest(c, type="Cast"),
    "copies": lambda c: longest(c, type="Transpose"),
    "layout": lambda c: longest(c, type="TransData"),
}


#: About graphs: of a run that launches its operators one by one, as names of kernels tell, there is nothing to say.
OF_GRAPHS = {"host_operators", "runtime_threads", "tiling_cache", "super_kernel"}
#: What cannot be planted without writing another recording, and where such recordings are judged.
ELSEWHERE = {
    "core_limit": "tests/device/test_splits.py",
    "env_settings": "tests/advise/test_settings.py",
    **dict.fromkeys(
        (
            "fp32_products",
            "moved_for_products",
            "narrow_products",
            "padded_products",
            "scalar_kernels",
            "slow_copies",
            "unaligned_products",
        ),
        "tests/advise/test_efficiency_rules.py",
    ),
    **dict.fromkeys(
        (
            "device_allocations",
            "late_release",
            "memory_fragments",
            "memory_headroom",
            "memory_leak",
            "short_peak",
            "waiting_blocks",
            "gradient_copies",
            "hccl_buffers",
        ),
        "tests/advise/test_memory_rules.py",
    ),
    "idle_blocks": "tests/readers/test_memscope.py",  # only msmemscope records accesses
    "super_kernel": "tests/device/test_sequences.py",  # of recordings in which no kernels recur
}


def launched_one_by_one(copied: Copied) -> bool:
    names: list[str] = []
    copied.kernels(lambda kernel: names.append(kernel["name"]))
    return 2 * sum(name.startswith("aclnn") for name in names) >= len(names)


def beside_communication(copied: Copied) -> float:
    """The part of the recording in which kernels run wholly beside communication."""
    talks, beside = copied.collectives(), []

    def look(kernel: dict[str, Any]) -> None:
        own = not kernel["name"].startswith("hcom_")
        if own and any(a <= kernel["start"] and kernel["start"] + kernel["dur"] <= b for a, b in talks):
            beside.append(kernel["dur"])

    copied.kernels(look)
    return sum(beside) / whole(copied)


def busy(copied: Copied) -> float:
    """The part of the recording in which the device is busy, at most."""
    return sum(end - start for start, end in copied.busy()) / whole(copied)


@cache
def untouched(name: str) -> tuple[Finding, ...]:
    _, path = RECORDINGS[name]
    return tuple(analyzed(path).findings)


def ok_of(name: str) -> list[str]:
    if not RECORDINGS[name][1].exists():
        return []
    return sorted({f.rule for f in untouched(name) if f.status == "ok"})


@pytest.mark.parametrize(("name", "rule"), [(name, rule) for name in RECORDINGS for rule in ok_of(name)])
def test_a_rule_that_is_content_would_have_found_the_problem(name: str, rule: str, tmp_path: Path) -> None:
    kind, path = RECORDINGS[name]
    copied: Any = kind(path, tmp_path / "copy")  # type: ignore[call-arg]
    if (name, rule) == ("own", "fused_operators"):
        return  # each of its operators is in a function call of its own, so that no three of them belong together
    if (name, rule) == ("db, Level1", "idle_cores"):
        return  # whose chip is inferred from kernels that fill it: those of one block run alike on any of its clock
    if rule in OF_GRAPHS and launched_one_by_one(copied):
        return
    if rule == "slowed_compute" and beside_communication(copied) < 0.01:
        return
    if rule == "low_clock" and busy(copied) < 0.04:
        return  # a third of that is hardly a hundredth of the step
    if rule in ELSEWHERE:
        assert rule in (ROOT / ELSEWHERE[rule]).read_text()
        return
    PROBLEMS[rule](copied)
    assert {f.rule: f.status for f in analyzed(copied.save()).findings}[rule] == "problem"
