"""What a step that waits for its launches is advised: by the kind of run, and with what is left out and why.

Sources of the exclusions: TorchAir's overview (npugraph_ex is for inference, and captures neither a backward pass nor
operators that draw random numbers); torch_npu's NPUGraph notes (fixed shapes, aclnn only, training and inference).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from build import EPOCH, H, ascend_pt
from msgspec import Struct, field
from msgspec.structs import replace
from small_programs import analyzed, answer, assert_complete, starved, step_length

from npuperf.model.result import Finding

CAPTURE = "npugraph_ex"
NPU_GRAPHS = "make_graphed_callables"
FUSED = "NpuFused"
QUEUE = "TASK_QUEUE_ENABLE=2"


class Run(Struct, frozen=True):
    """What is recorded of the host, beside the launches; ``environment`` as a manifest has it."""

    ops: tuple[str, ...] = ("aten::add",)
    calls: tuple[str, ...] = ("AscendCL@aclnnAdd",)
    type: str = "Add"
    name: str = "aclnnAdd_Add_Add"
    shapes: tuple[str, ...] = ("2,2",)
    environment: dict[str, str] = field(default_factory=dict)


def finding(root: Path, run: Run, rule: str = "graph_capture") -> Finding:
    kernels = [
        replace(k, name=run.name, type=run.type, shapes=run.shapes[i * len(run.shapes) // 100])
        for i, k in enumerate(starved())
    ]
    host = [H(name, -60_000 + 3_000 * i, 2_000, python=True, thread=10) for i, name in enumerate(run.ops)]
    host += [H(name, i * 40_000 - 40_000, 20_000) for i in range(100) for name in run.calls]
    folder = ascend_pt(root, kernels, host=host)
    (folder / "npuperf.json").write_text(json.dumps({"environment": run.environment}))
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": run.environment}))
    return answer(analyzed(folder), rule)


def advised(found: Finding, what: str) -> bool:
    return any(what in str(step) for step in (found.next, *found.alternatives))


def reasons(found: Finding, what: str) -> str:
    """Return why a piece of advice is not given; it must stand in the document once."""
    (excluded,) = [e for e in found.excluded if what in str(e.advice)]
    return str(excluded.because)


BACKWARD = ("aten::add", "autograd::engine::evaluate_function: AddBackward0", "AddBackward0")
TRAINING = Run(ops=(*BACKWARD, "Optimizer.step#AdamW.step", "aten::addcdiv_"))


def test_inference_is_captured(tmp_path: Path) -> None:
    found = finding(tmp_path, Run())
    assert advised(found, CAPTURE) and advised(found, "max-autotune")
    assert {str(p.what): p.holds for p in found.preconditions}["no backward pass"] is True
    assert "TorchAir" in str(found.source)
    assert "AdamW" not in str(found.next)
    assert "needs training" in reasons(found, FUSED + "AdamW and others")


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (TRAINING, "no backward pass"),
        (replace(Run(), ops=BACKWARD), "no backward pass"),
        (replace(Run(), ops=("aten::add", "Optimizer.step#SGD.step")), "no backward pass"),
        (replace(Run(), type="ReluGrad"), "no backward pass"),
        (replace(Run(), ops=("aten::add", "aten::dropout")), "no operators that draw random numbers"),
        (replace(Run(), ops=("aten::bernoulli_",)), "no operators that draw random numbers"),
        (replace(Run(), type="DropOutDoMask"), "no operators that draw random numbers"),
        (replace(Run(), shapes=("2,2", "3,2")), "the same input shapes in every step"),
        (replace(Run(), calls=("AscendCL@aclnnAdd", "AscendCL@aclopCompileAndExecute")), "operators of aclnn only"),
    ],
)
def test_what_excludes_capture_is_named(tmp_path: Path, run: Run, why: str) -> None:
    found = finding(tmp_path, run)
    assert found.status == "problem" and not advised(found, CAPTURE)
    assert why in reasons(found, CAPTURE)


def test_a_training_step_gets_what_fits_it(tmp_path: Path) -> None:
    found = finding(tmp_path, TRAINING)
    assert not advised(found, "max-autotune") and "no backward pass" in reasons(found, "max-autotune")
    for what in ("torch_npu.optim.NpuFusedAdamW", NPU_GRAPHS):
        assert advised(found, what)
    assert_complete(found, step_length(analyzed(next(tmp_path.glob("*_ascend_pt")))))


@pytest.mark.parametrize(
    ("run", "what", "why"),
    [
        (replace(TRAINING, calls=("AscendCL@aclopCompileAndExecute",)), NPU_GRAPHS, "operators of aclnn only"),
        (replace(TRAINING, shapes=("2,2", "3,2")), NPU_GRAPHS, "the same input shapes in every step"),
        (replace(TRAINING, environment={"TASK_QUEUE_ENABLE": "2"}), QUEUE, "TASK_QUEUE_ENABLE other than 2"),
        (replace(TRAINING, environment={"ASCEND_LAUNCH_BLOCKING": "1"}), QUEUE, "ASCEND_LAUNCH_BLOCKING other than 1"),
        (replace(TRAINING, environment={"CPU_AFFINITY_CONF": "1"}), "CPU_AFFINITY_CONF=2", "does not bind yet"),
        (replace(TRAINING, environment={"CPU_AFFINITY_CONF": "1,npu0:0-23"}), "CPU_AFFINITY_CONF=2", "not bind yet"),
        (replace(TRAINING, environment={"CPU_AFFINITY_CONF": "mode:1"}), "CPU_AFFINITY_CONF=2", "not bind yet"),
    ],
)
def test_what_is_set_or_cannot_be_is_not_advised(tmp_path: Path, run: Run, what: str, why: str) -> None:
    found = finding(tmp_path, run)
    assert not advised(found, what)
    assert why in reasons(found, what)


@pytest.mark.parametrize(
    ("more", "environment", "advised_first"),
    [
        ([], {}, "export TASK_QUEUE_ENABLE=1,"),
        ([], {"TASK_QUEUE_ENABLE": "0"}, "export TASK_QUEUE_ENABLE=1,"),
        ([H("Enqueue@add", -45_000, 1_000)], {}, "export TASK_QUEUE_ENABLE=2:"),
        ([H("Enqueue@add", -45_000, 1_000)], {"TASK_QUEUE_ENABLE": "1"}, "export TASK_QUEUE_ENABLE=2:"),
    ],
)
def test_the_queue_s_second_stage_needs_the_queue(
    tmp_path: Path, more: list[H], environment: dict[str, str], advised_first: str
) -> None:
    """Torch and the runtime are recorded, so that events of the queue would be; its own finding comes first."""
    host = [H("AscendCL@aclnnAdd_Tiling", i * 40_000 - 42_000, 30_000) for i in range(100)]
    host += [H("aten::add", -70_000, 2_000, python=True, thread=10), H("aten::add_backward", -68_000, 2_000), *more]
    kernels = [replace(k, name="aclnnAdd_Add_Add", type="AddGrad") for k in starved()]
    folder = ascend_pt(tmp_path, kernels, host=host)
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": environment}))
    problems = [f for f in analyzed(folder).findings if f.status == "problem"]
    queue, launches = (f for f in problems if f.rule in ("task_queue", "graph_capture"))
    assert (queue.rule, launches.rule) == ("task_queue", "graph_capture")
    assert str(queue.next).startswith(advised_first)
    assert str(launches.next) == "as advised for “task queue”: one change for both"
    other = {"1": "2:", "2": "1,"}[advised_first[25]]
    assert not any(f"TASK_QUEUE_ENABLE={other}" in str(step) for f in problems for step in (f.next, *f.alternatives))
    for found in (queue, launches):
        assert "task queue that" in reasons(found, f"export TASK_QUEUE_ENABLE={other}")


@pytest.mark.parametrize(
    ("ops", "fused", "foreach"),
    [
        (("Optimizer.step#Adam.step", "aten::addcdiv_"), "NpuFusedAdam,", False),
        (("Optimizer.step#SGD.step", "aten::_foreach_add_"), "NpuFusedSGD,", False),
        (("Optimizer.step#Lion.step", "aten::add_"), None, True),
        (("Optimizer.step#Lion.step", "aten::_foreach_add_"), None, False),
        (("Optimizer.step#AdamW.step", "aten::_fused_adamw_"), None, False),
        (("Optimizer.step#NpuFusedAdamW.step", "npu::npu_apply_adam_w"), None, False),
    ],
)
def test_an_optimizer_is_replaced_only_where_it_is_not_fused(
    tmp_path: Path, ops: tuple[str, ...], fused: str | None, foreach: bool
) -> None:
    found = finding(tmp_path, Run(ops=(*BACKWARD, *ops)))
    assert advised(found, FUSED) == (fused is not None) and (fused is None or advised(found, fused))
    assert advised(found, "foreach=True") == foreach


def test_an_optimizer_may_be_there_where_no_operator_of_torch_is_recorded(tmp_path: Path) -> None:
    found = finding(tmp_path / "none", Run(ops=(), type="ReluGrad"))
    assert advised(found, FUSED) and "fused one for, which the profile does not tell" in str(found.alternatives)
    assert "an optimizer of torch" in reasons(finding(tmp_path / "some", Run(ops=BACKWARD)), FUSED)


@pytest.mark.parametrize("call", ["AscendCL@aclmdlRIExecuteAsync", "Model@ModelExecute"])
def test_who_runs_a_graph_is_not_told_to_use_one(tmp_path: Path, call: str) -> None:
    name = "aclnnAdd_Add_Add" if "RI" in call else "Add_17"
    found = finding(tmp_path, Run(calls=(call,), name=name))
    assert found.status == "ok"
    small = finding(tmp_path / "small", Run(calls=(call,), name=name), "small_kernels")
    assert not any(advised(small, what) for what in (CAPTURE, "max-autotune", QUEUE))


def kineto(path: Path, *ops: str, dur: int = 6_000) -> Path:
    """A GPU trace: kernels of 6 µs every 40 µs, launched 8 µs before."""
    events = [_event("cpu_op", name, -90_000 + 3_000 * i, 2_000) for i, name in enumerate(ops)]
    for i in range(100):
        events.append(_event("cuda_runtime", "cudaLaunchKernel", i * 40_000 - 10_000, 2_000, correlation=i))
        events.append(_event("kernel", f"add_kernel_{i % 3}", i * 40_000, dur, correlation=i, stream=7, device=0))
    with gzip.open(path, "wt") as file:
        json.dump({"deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": events}, file)
    return path


def _event(category: str, name: str, start: int, dur: int, **args: int) -> dict[str, object]:
    ts = (EPOCH + start) / 1_000
    tid = args.get("stream", 1)
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur / 1_000, "args": args}


@pytest.mark.parametrize("ops", [("aten::add",), (*BACKWARD, "Optimizer.step#Adam.step", "aten::addcdiv_")])
def test_a_gpu_gets_what_gpus_have(tmp_path: Path, ops: tuple[str, ...]) -> None:
    """Graphs are advised for launches, with what no launch saves; what fuses kernels is advised for small ones."""
    result = analyzed(kineto(tmp_path / "trace.json.gz", *ops))
    launches, small = answer(result, "graph_capture"), answer(result, "small_kernels")
    assert launches.status == small.status == "problem"
    (bound,) = [w for w in result.what_if if "graph capture" in str(w.title)]
    assert 'mode="reduce-overhead"' in str(launches.next) and bound.gain_ns_per_step is not None
    assert launches.gain_ns_per_step == (0, bound.gain_ns_per_step[1])
    assert 98 * 34_000 < bound.gain_ns_per_step[1] <= 99 * 34_000  # but for a gap between two kernels
    assert not advised(small, "reduce-overhead") and "which fuses kernels" in str(small.next)
    for found in (launches, small):
        said = [found.title, found.next, found.source, found.refute, *found.excluded, *found.preconditions]
        for word in ("npu", "NPU", "torchair", "TASK_QUEUE", "CANN", "aclnn", "Atlas"):
            assert not any(word in str(text) for text in said), word
        assert advised(found, "fused=True") == (len(ops) > 1)


def test_a_gpu_that_waits_for_larger_kernels_is_advised_too(tmp_path: Path) -> None:
    """99 waits of 15 us are 37.3 % of 3.985 ms, and no kernel is a small one."""
    result = analyzed(kineto(tmp_path / "trace.json.gz", "aten::add", dur=25_000))
    assert result.verdict.bound == "host"
    assert answer(result, "small_kernels").status == "ok"
    found = answer(result, "graph_capture")
    assert found.status == "problem" and "take 37.3 % of span" in str(found.title)
    assert 'mode="reduce-overhead"' in str(found.next)


def test_advice_has_its_own_gain_and_the_one_that_saves_most_comes_first(tmp_path: Path) -> None:
    """Training, 30 of every 40 us tiling: the queue's second stage takes these; the optimizer launches nothing."""
    kernels = [replace(k, name="aclnnAdd_Add_Add") for k in starved()]
    host = [H("AscendCL@Add_Tiling", i * 40_000 - 42_000, 30_000) for i in range(100)]
    host += [H("Enqueue@add", -45_000, 1_000), H("Optimizer.step#SGD.step", -60_000, 1_000, python=True, thread=10)]
    host.append(H("AscendCL@aclnnAdd", -70_000, 2_000))
    found = answer(analyzed(ascend_pt(tmp_path, kernels, host=host)), "graph_capture")
    queue = answer(analyzed(tmp_path), "task_queue")
    assert QUEUE in str(queue.next) and "task queue" in str(found.next)
    assert found.gain_ns_per_step == queue.gain_ns_per_step == (0, 99 * 30_000 // 2)
    assert "all of the moved time is hidden" in str(found.refute)


def test_a_graph_that_is_replayed_is_not_advised(tmp_path: Path) -> None:
    """Every ten kernels share the call that replays their graph; the device waits for each of these calls."""
    events = []
    for i in range(100):
        at = i // 10 * 400_000 + i % 10 * 6_000
        events.append(_event("kernel", f"add_kernel_{i % 3}", at, 6_000, correlation=i // 10, stream=7, device=0))
    for i in range(10):
        events.append(_event("cuda_runtime", "cudaGraphLaunch", i * 400_000 - 10_000, 2_000, correlation=i))
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump({"deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": events}, file)
    result = analyzed(path)
    assert result.verdict.bound == "host"
    assert answer(result, "graph_capture").status == "ok"
    assert not any("graph capture" in str(w.title) for w in result.what_if)


def test_what_is_compiled_already_is_not_told_to_be(tmp_path: Path) -> None:
    """Code of torch.compile's own runs between the launches: replaying it is left, compiling it is not."""
    ran = ("Torch-Compiled Region: 0/0", "aten::add")
    found = answer(analyzed(kineto(tmp_path / "trace.json.gz", *ran)), "graph_capture")
    assert (
        found.status == "problem" and advised(found, "compile with mode=") and not advised(found, "torch.compile(model")
    )
    assert "no code that torch.compile made" in reasons(found, "torch.compile(model")


def test_without_host_events_the_conditions_are_named(tmp_path: Path) -> None:
    """Kernels and launches alone do not tell training from inference: the advice says what it depends on."""
    folder = ascend_pt(tmp_path, starved())
    found = answer(analyzed(folder), "graph_capture")
    assert advised(found, CAPTURE) and advised(found, ", which the profile does not tell")
    assert {str(p.what): p.holds for p in found.preconditions}["no backward pass"] is None


def test_kernels_of_a_step_are_the_same_up_to_a_few(tmp_path: Path) -> None:
    """Of 50 kernels per step 4 have other shapes in the second: nine tenths recur."""
    kernels = [replace(k, name="k", shapes="9,9" if i >= 96 else "2,2") for i, k in enumerate(starved())]
    found = answer(analyzed(ascend_pt(tmp_path, kernels)), "graph_capture")
    assert {str(p.what): p.holds for p in found.preconditions}["the same input shapes in every step"] is True


@pytest.mark.parametrize(
    ("run", "possible"),
    [
        (Run(), True),
        (TRAINING, True),  # by NPUGraph
        (replace(TRAINING, calls=("AscendCL@aclopCompileAndExecute",)), False),
        (replace(TRAINING, shapes=("2,2", "3,2")), False),
    ],
)
def test_the_what_if_speaks_of_capture_only_where_it_is_possible(tmp_path: Path, run: Run, possible: bool) -> None:
    finding(tmp_path, run)
    result = analyzed(next(tmp_path.glob("*_ascend_pt")))
    (title,) = [str(w.title) for w in result.what_if if w.expr == "host*0,latency*0"]
    assert title.startswith("no waiting for the host at all")
    assert ("graph capture" in title) == possible


@pytest.mark.parametrize(("run", "graph"), [(Run(), True), (TRAINING, False)])
def test_dynamic_shapes_of_training_are_padded(tmp_path: Path, run: Run, graph: bool) -> None:
    """Three quarters of the compute time is in dynamic kernels, and the device waits for their tiling."""
    kernels = [replace(k, name=run.name, state="static" if i % 4 == 3 else "dynamic") for i, k in enumerate(starved())]
    host = [H("AscendCL@Add_Tiling", i * 40_000 - 42_000, 30_000) for i in range(100)]
    host += [H(name, -60_000 + 3_000 * i, 2_000, python=True, thread=10) for i, name in enumerate(run.ops)]
    found = answer(analyzed(ascend_pt(tmp_path, kernels, host=host)), "dynamic_shape")
    assert found.status == "problem" and advised(found, "pad batch and sequence length")
    assert advised(found, "max-autotune") == graph
    if not graph:
        assert "no backward pass" in reasons(found, "max-autotune")


def test_without_calls_of_the_runtime_aclop_calls_cannot_be_ruled_out(tmp_path: Path) -> None:
    """At Level0 torch_npu's own ranges are recorded (aclnnAdd), the calls of aclnn and aclop are not."""
    run = replace(TRAINING, ops=(*TRAINING.ops, "aclnnAdd"), calls=())
    held = {str(p.what): p.holds for p in finding(tmp_path / "a", run).preconditions}
    assert held["operators of aclnn only"] is None
    held = {str(p.what): p.holds for p in finding(tmp_path / "b", TRAINING).preconditions}
    assert held["operators of aclnn only"] is True


def test_to_set_a_variable_its_being_unset_need_not_be_said(tmp_path: Path) -> None:
    """Whether it is set is not recorded: the document says so, the sentence does not."""
    kernels = [replace(k, name="aclnnAdd_Add_Add") for k in starved()]
    host = [H(name, -60_000 + 3_000 * i, 2_000, python=True, thread=10) for i, name in enumerate(TRAINING.ops)]
    found = answer(analyzed(ascend_pt(tmp_path, kernels, host=host)), "graph_capture")
    assert advised(found, QUEUE) and not advised(found, "TASK_QUEUE_ENABLE other than")
    assert {str(p.what): p.holds for p in found.preconditions}["TASK_QUEUE_ENABLE other than 2"] is None
