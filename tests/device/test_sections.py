"""Which part of training launched each kernel, on recordings made by hand: the launches say it beside each row."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from build import H, K, analyze_path, ascend_pt
from msgspec import Struct

from npuperf.advise import load_thresholds
from npuperf.device.study import Study
from npuperf.model.tasks import Work
from npuperf.readers.recording import open_recording

MAIN, AUTOGRAD, LOADER = 9, 31, 40
US = 1_000


class L(Struct, frozen=True):
    """One launch in 10 µs of its thread: the kernel's name, what is around it from the outside in, its part.

    ``arrow``: the number that joins a forward operator (the innermost event around its launch) to its backward one.
    """

    kernel: str
    around: tuple[str, ...] = ()
    part: str | None = None
    thread: int = MAIN
    arrow: int | None = None
    dur: float = 5
    inferred: bool = False


def event(cat: str, name: str, begin: float, dur: float, tid: int, **args: object) -> dict[str, object]:
    device = 0 if cat in ("kernel", "gpu_memcpy") else 4321
    return {"ph": "X", "cat": cat, "name": name, "pid": device, "tid": tid, "ts": begin, "dur": dur, "args": args}


def kineto(path: Path, steps: list[list[L]]) -> Path:
    """A Kineto trace of these launches, one after another every 10 µs; kernels run on one stream, in order."""
    made, at, free, number = [], 1_000.0, 0.0, 0
    for step, launches in enumerate(steps):
        begun = at
        for launch in launches:
            for depth, name in enumerate(launch.around):
                frame = name.startswith("nn.Module: ") or "): " in name
                cat = "python_function" if frame else "cpu_op"
                made.append(event(cat, name, at + 0.2 * depth, 9 - 0.4 * depth, launch.thread))
            inner = at + 0.2 * (len(launch.around) - 1)
            if launch.arrow is not None:
                phase = {"ph": "f", "bp": "e"} if launch.thread == AUTOGRAD else {"ph": "s"}
                made.append({**phase, "cat": "fwdbwd", "name": "fwdbwd", "id": 100 * step + launch.arrow, "pid": 4321,
                             "tid": launch.thread, "ts": inner})  # fmt: skip
            number += 1
            made.append(event("cuda_runtime", "cudaLaunchKernel", at + 4, 1, launch.thread, correlation=number))
            free = max(free, at + 7)
            kind = "gpu_memcpy" if launch.kernel.startswith("Memcpy") else "kernel"
            made.append(event(kind, launch.kernel, free, launch.dur, 7, device=0, stream=7, correlation=number))
            flow = {"cat": "ac2g", "name": "ac2g", "id": number}
            made.append({**flow, "ph": "s", "pid": 4321, "tid": launch.thread, "ts": at + 4})
            made.append({**flow, "ph": "f", "pid": 0, "tid": 7, "ts": free, "bp": "e"})
            free += launch.dur
            at += 10
        made.append(event("user_annotation", f"ProfilerStep#{step + 5}", begun - 0.5, at - begun, MAIN))
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}],
                                "traceEvents": made}))  # fmt: skip
    return path


def studied(path: Path) -> Study:
    (reading,) = open_recording(path).map(lambda reading: reading)
    return Study.of(reading.profiles[0], load_thresholds())


def told(path: Path) -> list[tuple[str | None, str | None, bool]]:
    """Every task, in order of its start: its name, its part, and whether that is inferred."""
    study = studied(path)
    tasks, sections = study.profile.tasks, study.sections
    return [(tasks.name[i], sections.part[i], bool(sections.inferred[i]))
            for i in np.flatnonzero(tasks.work != Work.CONTROL).tolist()]  # fmt: skip


EVALUATED = "autograd::engine::evaluate_function: AddmmBackward0"
FORWARD = ("nn.Module: Model_0", "nn.Module: Linear_0", "aten::addmm")


def as_it_is(launches: list[L]) -> list[tuple[str | None, str | None, bool]]:
    return [(each.kernel, each.part, each.inferred) for each in launches]


def test_two_micro_batches_then_clipping_and_the_update(tmp_path: Path) -> None:
    """Before the last backward operator much is launched that is not forward: gradients, zeroing, metrics."""
    step = [
        L("Memcpy HtoD (Pinned -> Device)", ("aten::to",), "copies"),
        L("zero", ("Optimizer.zero_grad#SGD.zero_grad", "aten::zero_"), "optimizer"),
        L("linear", FORWARD, "forward", arrow=1),
        L("mask", ("aten::bernoulli_",), "forward"),  # nothing encloses it; a forward operator on either side
        L("loss", ("aten::cross_entropy_loss", "aten::nll_loss_forward"), "forward", arrow=2),
        L("accuracy", ("aten::eq",), None),  # neither forward nor backward, and nothing tells more
        L("loss_grad", (EVALUATED, "NllLossBackward0"), "backward", AUTOGRAD, arrow=2),
        L("linear_grad", (EVALUATED, "AddmmBackward0"), "backward", AUTOGRAD, arrow=1),
        L("recomputed", (EVALUATED, "CheckpointFunctionBackward", *FORWARD), "backward", AUTOGRAD),
        L("ncclDevKernel_AllReduce_1", ("c10d::allreduce_",), "backward", AUTOGRAD),
        L("log", ("aten::mul",), None),  # after a backward pass, before the next forward operator
        L("linear", FORWARD, "forward", arrow=3),
        L("linear_grad", (EVALUATED, "AddmmBackward0"), "backward", AUTOGRAD, arrow=3),
        L("ncclDevKernel_AllReduce_2", ("c10d::allreduce_",), "backward", AUTOGRAD),
        L("ncclDevKernel_AllReduce_3", ("c10d::allreduce_",), "gradients", inferred=True),
        L("unscale", ("aten::_amp_foreach_non_finite_check_and_unscale_",), "gradients"),
        L("scale", ("aten::mul_",), "gradients", inferred=True),
        L("update", ("Optimizer.step#SGD.step", "aten::_foreach_add_"), "optimizer"),
        L("average", ("aten::lerp_",), None),  # after the update, which is told: whatever it is
    ]
    assert told(kineto(tmp_path / "trace.json", [step, step])) == as_it_is(step + step)


def test_what_a_checkpoint_computes_anew_is_backward_and_told(tmp_path: Path) -> None:
    """A module within the backward pass; gradients, and what forward computed at first, are none."""
    checkpoint = "autograd::engine::evaluate_function: CheckpointFunctionBackward"
    step = [
        L("linear", ("CheckpointFunction", *FORWARD), "forward"),
        L("again", (checkpoint, "nn.Module: Linear_0", "aten::addmm"), "backward", AUTOGRAD),
        L("linear_grad", (checkpoint, EVALUATED, "AddmmBackward0"), "backward", AUTOGRAD),
    ]
    path = kineto(tmp_path / "trace.json", [step] * 3)
    assert told(path) == as_it_is(step * 3)
    study = studied(path)
    assert study.sections.anew.tolist() == [name == "again" for name in study.profile.tasks.name.texts()]


def test_where_little_tells_the_order_does_and_that_is_inferred(tmp_path: Path) -> None:
    """No module, no arrow, no range of the optimizer; the collective on the main thread comes after the backward."""
    step = [
        L("embed", ("aten::embedding",), "forward", inferred=True),
        L("linear", ("aten::addmm",), "forward", inferred=True),
        L("linear_grad", (EVALUATED, "aten::mm"), "backward", AUTOGRAD),
        L("ncclDevKernel_AllReduce_1", ("c10d::allreduce_",), "optimizer", inferred=True),
        L("update", ("aten::_foreach_add_",), "optimizer", inferred=True),
        L("elsewhere", ("aten::add",), None, LOADER),  # a thread of which nothing is known
    ]
    assert told(kineto(tmp_path / "trace.json", [step, step])) == as_it_is(step + step)


def test_a_users_ranges_and_functions_tell_no_part(tmp_path: Path) -> None:
    """Megatron's forward_backward_func holds both; "## backward ##" holds the loss here, as in one public trace."""
    step = [
        L("linear", ("schedules.py(410): forward_backward_no_pipelining", "aten::addmm"), "forward", arrow=1),
        L("loss", ("## backward ##", "aten::nll_loss_forward"), "forward", arrow=2),
        L("loss_grad", (EVALUATED, "NllLossBackward0"), "backward", AUTOGRAD, arrow=2),
        L("linear_grad", (EVALUATED, "AddmmBackward0"), "backward", AUTOGRAD, arrow=1),
        L("update", ("my_optimizer_step", "aten::add_"), "optimizer", inferred=True),
    ]
    assert told(kineto(tmp_path / "trace.json", [step])) == as_it_is(step)


def test_an_optimizer_within_the_backward_pass(tmp_path: Path) -> None:
    """Hooks may update a parameter as soon as its gradient is there."""
    step = [
        L("linear", FORWARD, "forward", arrow=1),
        L("linear_grad", (EVALUATED, "aten::mm"), "backward", AUTOGRAD, arrow=1),
        L("update", ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                     "Optimizer.step#SGD.step", "aten::add_"), "optimizer", AUTOGRAD),
        L("linear_grad", (EVALUATED, "aten::mm"), "backward", AUTOGRAD),
    ]  # fmt: skip
    assert told(kineto(tmp_path / "trace.json", [step])) == as_it_is(step)


@pytest.mark.parametrize("around", [("aten::addmm",), FORWARD])
def test_without_a_backward_pass_there_are_no_parts(tmp_path: Path, around: tuple[str, ...]) -> None:
    step = [L("linear", around), L("relu", around)]
    assert told(kineto(tmp_path / "trace.json", [step, step])) == as_it_is(step + step)


def test_a_phase_of_the_typical_step_is_named_by_what_runs_in_it(tmp_path: Path) -> None:
    """The update and the next step's passes are one compute-bound phase; a step has two parts of it.

    Per step 10 ms each: forward, backward, an exposed allReduce, the update.
    """
    step = [
        L("linear", FORWARD, arrow=1, dur=10_000),
        L("linear_grad", (EVALUATED, "aten::mm"), thread=AUTOGRAD, dur=10_000),
        L("ncclDevKernel_AllReduce_1", ("c10d::allreduce_",), thread=AUTOGRAD, dur=10_000),
        L("update", ("Optimizer.step#SGD.step", "aten::add_"), dur=10_000),
    ]
    (device,) = analyze_path(kineto(tmp_path / "trace.json", [step] * 4)).devices
    assert device.typical_step is not None
    assert [(p.bound, str(p.label)) for p in device.typical_step.phases] == [
        ("compute", "forward, backward"), ("communication", "backward"), ("compute", "optimizer")
    ]  # fmt: skip


VOCABULARY, HIDDEN, WIDE, TOKENS = 32_000, 4_096, 28_672, 2_048


def language_model() -> tuple[list[K], list[H]]:
    """One step of a language model on an NPU, launched every 20 µs by operators around the launches.

    The feed-forward layer is nearly as wide as the vocabulary is large.
    """
    rows = [
        ("aten::embedding", "GatherV2", f"{VOCABULARY},{HIDDEN};{TOKENS}"),
        ("aten::linear", "MatMulV2", f"{TOKENS},{HIDDEN};{WIDE},{HIDDEN}"),
        ("aten::linear", "MatMulV2", f"{TOKENS},{WIDE};{HIDDEN},{WIDE}"),
        ("aten::linear", "MatMulV2", f"{TOKENS},{HIDDEN};{VOCABULARY},{HIDDEN}"),
        ("aten::to", "Cast", f"{TOKENS},{VOCABULARY}"),
        ("aten::nll_loss_forward", "NLLLoss", f"{TOKENS},{VOCABULARY};{TOKENS}"),
        ("NllLossBackward0", "NLLLossGrad", f"{TOKENS},{VOCABULARY};{TOKENS}"),
        ("MmBackward0", "MatMulV2", f"{TOKENS},{VOCABULARY};{VOCABULARY},{HIDDEN}"),
        ("MmBackward0", "MatMulV2", f"{TOKENS},{WIDE};{TOKENS},{HIDDEN}"),
        ("EmbeddingBackward0", "EmbeddingDenseGrad", f"{TOKENS},{HIDDEN};{TOKENS}"),
    ]
    kernels = [K(i * 20 * US, 10 * US, f"k{i}", kind, "AI_CORE", step=3, launch=i * 20 * US - 9 * US, launch_dur=US,
                 shapes=shapes) for i, (_, kind, shapes) in enumerate(rows)]  # fmt: skip
    host = [H(name, i * 20 * US - 12 * US, 15 * US, python=True) for i, (name, _, _) in enumerate(rows)]
    host.append(H("Optimizer.zero_grad#SGD.zero_grad", -20 * US, US, python=True))  # the program's own thread
    return kernels, host


def test_the_head_is_told_by_the_vocabulary_that_the_loss_chooses_from(tmp_path: Path) -> None:
    kernels, host = language_model()
    study = studied(ascend_pt(tmp_path, kernels, {3: (-20 * US, 300 * US)}, host=host))
    pieces = [study.sections.piece[i] for i in range(len(kernels))]
    assert pieces == ["embedding", None, None, "lm_head", None, "loss", "loss", "lm_head", None, "embedding"]
    weight = study.profile.tasks.dur
    assert str(study.sections.label(3, 6, weight)) == "forward (inferred), LM head (inferred), loss (inferred)"


def test_a_classifiers_last_layer_is_no_head(tmp_path: Path) -> None:
    """1,000 classes are no vocabulary."""
    kernels, host = language_model()
    small = [K(**{f: getattr(k, f) for f in K.__struct_fields__} | {"shapes": k.shapes.replace("32000", "1000")})
             for k in kernels]  # fmt: skip
    study = studied(ascend_pt(tmp_path, small, {3: (-20 * US, 300 * US)}, host=host))
    assert "lm_head" not in study.sections.piece.texts()


# -- Real recordings; the counts are of their raw events, by thread and by ranges around the launches.

DATA = Path(__file__).parents[3] / "shared" / "data"
#: Compute kernels by part: of launches on autograd's thread, within Optimizer.* ranges, DistributedDataParallel.forward
#: and aten::cross_entropy_loss (ResNet), or modules and the loss (AlexNet); what is neither stays untold.
REAL = {
    "hta/ns_resolution_gpu.json.gz": {"forward": 1520, "backward": 2780, "optimizer": 45, None: 5},  # ones_like
    "msprof-analyze/timeline": {"forward": 65, "backward": 106, "optimizer": 90, None: 13},  # accuracy, ones_like
    "msinsight/text/level1/rank0_ascend_pt": {"forward": 50, "backward": 115, "optimizer": 4, None: 18},
}


@pytest.mark.parametrize("name", REAL)
def test_the_parts_of_real_recordings(name: str) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip("no real profiles here")
    study = studied(path)
    tasks, part = study.profile.tasks, study.sections.part
    kernels = np.flatnonzero(tasks.work == Work.COMPUTE)
    assert Counter(part.take(kernels).texts()) == REAL[name]
    communication = np.flatnonzero(tasks.work == Work.COMMUNICATION)
    assert set(part.take(communication).texts()) <= {"backward"}  # DistributedDataParallel's, in the backward pass
