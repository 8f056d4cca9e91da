"""Sequences that torch_npu has one operator for: found whole, in order, with what they launch, and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from build import EPOCH, K, kernel_details, us
from small_programs import analyzed, answer

from npuperf import advise
from npuperf.advise.fused_operators import Alphabet
from npuperf.model.result import Finding

EVERY = 50_000  # ns from one call to the next
KERNEL = 20_000


@dataclass(frozen=True)
class Call:
    """An operator that the program calls, how many kernels it launches, what it calls itself, and its line."""

    name: str
    kernels: int = 1
    inner: str | None = None
    line: str = "model.py(10): forward"
    around: str | None = None


def calls(text: str, **more: object) -> list[Call]:
    """``mul`` launches a kernel, ``(view)`` none."""
    made = []
    for word in text.split():
        name = word.strip("()")
        kernels = 0 if word.startswith("(") else 1
        made.append(Call(name if "::" in name else f"aten::{name}", kernels, **more))  # type: ignore[arg-type]
    return made


def recorded(root: Path, made: list[Call]) -> Path:
    """Two steps of the same calls; a kernel of 20 µs follows 5 µs after its call begins, and nothing hides it."""
    folder = root / "host_1_20250101000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    events, kernels = _names(), list[K]()
    for i, call in enumerate(made * 2):
        begin = i * EVERY
        step = 11 + i // len(made)
        if call.around:
            events.append(_x(call.around, begin - 100, EVERY - 1_000))
        events.append(_x(call.name, begin, 40_000, **{"Call stack": call.line}))
        if call.inner:
            events.append(_x(call.inner, begin + 500, 30_000, **{"Call stack": call.line}))
        for n in range(call.kernels):
            start = begin + 5_000 + n * KERNEL
            name = f"aclnnX_{len(kernels)}"
            kernels.append(K(start, KERNEL, name, "X", step=step))
            events += _launch(len(kernels), begin + 600 if call.inner else begin, start, name)
    events.append(_x("ProfilerStep#11", -1_000, len(made) * EVERY, tid=10))
    events.append(_x("ProfilerStep#12", len(made) * EVERY - 900, len(made) * EVERY, tid=10))
    kernel_details(folder / "kernel_details.csv", kernels)
    (folder / "trace_view.json").write_text(json.dumps(events))
    return folder.parent


def _names() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for pid, name, label in ((1, "Python", "CPU"), (2, "CANN", "CPU"), (3, "Ascend Hardware", "NPU 0")):
        rows.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
        rows.append({"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}})
    return rows


def _x(name: str, start: int, dur: int, tid: int = 10, **args: str) -> dict[str, object]:
    event = {"ph": "X", "name": name, "pid": 1, "tid": tid, "ts": us(EPOCH + start), "dur": dur / 1_000}
    return {**event, "cat": "cpu_op", "args": args}


def _launch(number: int, op: int, start: int, name: str) -> list[dict[str, object]]:
    """The operator's call of aclnn, the launch, the kernel, and the arrows from one to the other."""
    call = op + 1_000 + number % 2
    common = {"cat": "async_npu", "name": "async_npu", "id": us(EPOCH + start)}
    flow = {"cat": "HostToDevice", "name": "HostToDevice", "id": str(number << 32)}
    launch = {"ph": "X", "name": "Node@launch", "pid": 2, "tid": 10, "ts": us(EPOCH + call + 200), "dur": 0.5}
    task = {"ph": "X", "name": name, "pid": 3, "tid": 2, "ts": us(EPOCH + start), "dur": KERNEL / 1_000}
    return [
        _x("aclnnX", call, 800),
        {**launch, "args": {"connection_id": number}},
        {**task, "args": {"Task Type": "AI_VECTOR_CORE", "connection_id": number, "Model Id": 4294967295}},
        {**common, "ph": "s", "pid": 1, "tid": 10, "ts": us(EPOCH + call)},
        {**common, "ph": "f", "pid": 3, "tid": 2, "ts": us(EPOCH + start), "bp": "e"},
        {**flow, "ph": "s", "pid": 2, "tid": 10, "ts": us(EPOCH + call + 200)},
        {**flow, "ph": "f", "pid": 3, "tid": 2, "ts": us(EPOCH + start), "bp": "e"},
    ]


def found_in(root: Path, made: list[Call]) -> Finding:
    return answer(analyzed(recorded(root, made)), "fused_operators")


def rows(found: Finding) -> dict[str, tuple[int, int, int]]:
    """Return count, kernels and exposed time by API."""
    return {
        r["api"].rpartition(".")[2]: (r["count"], r["kernels"], r["exposed_ns"])
        for r in found.evidence.get("replacements", [])
    }


WHOLE = [
    ("pow mean add rsqrt mul mul", "npu_rms_norm", 6),
    ("to pow mean add rsqrt mul to mul", "npu_rms_norm", 7),  # the cast before it is not counted, the one within is
    ("(slice) (slice) silu mul", "npu_swiglu", 2),
    ("(chunk) silu mul", "npu_swiglu", 2),
    ("(chunk) gelu mul", "npu_geglu", 2),
    ("mul (slice) (slice) neg cat mul add", "npu_rotary_mul", 5),
    ("(slice) (slice) neg cat mul mul add", "npu_rotary_mul", 5),
    ("matmul mul softmax matmul", "npu_fusion_attention", 4),
    ("matmul div add softmax to dropout matmul", "npu_fusion_attention", 7),
    ("(transpose) bmm softmax bmm", "npu_fusion_attention", 3),
    ("mul masked_fill softmax", "npu_scaled_masked_softmax", 3),
    ("(transpose) contiguous (view)", "npu_confusion_transpose", 1),
    ("(permute) reshape", "npu_confusion_transpose", 1),
    ("add npu::npu_rms_norm", "npu_add_rms_norm", 2),
]


@pytest.mark.parametrize(("sequence", "api", "kernels"), WHOLE)
def test_a_whole_sequence_is_found_once_a_step(tmp_path: Path, sequence: str, api: str, kernels: int) -> None:
    found = found_in(tmp_path, [*calls("linear"), *calls(sequence), *calls("linear")])
    assert found.status == "problem"
    assert rows(found) == {api: (2, 2 * kernels, 2 * kernels * KERNEL)}
    assert api in str(found.title) and f"use torch_npu.{api} at model.py:10 forward" in str(found.next)
    low, high = found.gain_ns_per_step or (1, 0)
    assert low == 0 and high >= kernels * KERNEL


@pytest.mark.parametrize(
    "sequence",
    [
        "pow mean add mul mul",  # no rsqrt
        "mean pow add rsqrt mul",  # another order
        "pow mean add relu rsqrt mul",  # something else between
        "silu mul",  # of no halves of one tensor
        "(chunk) silu add",
        "sigmoid mul",
        "matmul softmax",
        "softmax matmul",
        "matmul relu softmax matmul",
        "neg cat mul add",
        "(transpose) (view)",  # nothing is stored anew
        "(pow) (mean) (add) (rsqrt) (mul)",  # nothing is launched
        "npu::npu_rms_norm add",
        "gelu",
    ],
)
def test_a_part_of_a_sequence_is_none(tmp_path: Path, sequence: str) -> None:
    found = found_in(tmp_path, [*calls("linear"), *calls(sequence), *calls("linear")])
    assert (found.status, rows(found)) == ("ok", {})


def test_what_operators_call_themselves_is_no_sequence(tmp_path: Path) -> None:
    """The operators lie within one another: aten::layer_norm calls them, the program does not."""
    inner = [Call("aten::layer_norm", 1, f"aten::{name}") for name in ("pow", "mean", "add", "rsqrt", "mul")]
    assert rows(found_in(tmp_path, inner)) == {}


def test_inner_operators_do_not_break_a_sequence(tmp_path: Path) -> None:
    """aten::matmul calls aten::bmm, aten::softmax calls aten::_softmax."""
    made = [Call("aten::matmul", 1, "aten::bmm"), Call("aten::softmax", 1, "aten::_softmax"),
            Call("aten::matmul", 1, "aten::bmm")]  # fmt: skip
    assert rows(found_in(tmp_path, made)) == {"npu_fusion_attention": (2, 6, 6 * KERNEL)}


def test_a_backward_pass_is_no_sequence(tmp_path: Path) -> None:
    around = "autograd::engine::evaluate_function: MulBackward0"
    assert rows(found_in(tmp_path, calls("pow mean add rsqrt mul", around=around))) == {}


def test_operators_of_different_functions_are_no_sequence(tmp_path: Path) -> None:
    made = [*calls("(chunk) silu"), *calls("mul", line="model.py(99): other")]
    assert rows(found_in(tmp_path, made)) == {}
    same = [*calls("(chunk) silu"), *calls("mul", line="model.py(12): forward")]
    assert "npu_swiglu" in rows(found_in(tmp_path / "same", same))


def test_layers_are_counted_and_sequences_do_not_share_kernels(tmp_path: Path) -> None:
    layer = calls("pow mean add rsqrt mul mul linear matmul mul masked_fill softmax matmul (chunk) silu mul linear")
    found = rows(found_in(tmp_path, layer * 3))
    assert {api: row[:2] for api, row in found.items()} == {
        "npu_rms_norm": (6, 36), "npu_fusion_attention": (6, 30), "npu_swiglu": (6, 12)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("optimizer", "inner", "api"),
    [
        ("Adam", "aten::addcdiv_", "NpuFusedAdam"),
        ("SGD", "aten::_foreach_add_", "NpuFusedSGD"),
        ("Lion", "aten::add_", None),
        ("AdamW", "aten::_fused_adamw_", None),
    ],
)
def test_an_optimizer_with_a_fused_one(tmp_path: Path, optimizer: str, inner: str, api: str | None) -> None:
    made = [*calls("linear"), Call(f"Optimizer.step#{optimizer}.step", 2, inner)]
    found = rows(found_in(tmp_path, made))
    assert found == ({} if api is None else {api: (2, 4, 4 * KERNEL)})


BACKWARD = calls("mul", around="autograd::engine::evaluate_function: MulBackward0")


def test_inference_only_apis_are_excluded_in_training(tmp_path: Path) -> None:
    made = [*calls("add npu::npu_rms_norm linear (chunk) silu mul"), *BACKWARD]
    found = found_in(tmp_path, made)
    assert [*rows(found)] == ["npu_swiglu"]
    (excluded,) = found.excluded
    assert "npu_add_rms_norm" in str(excluded.advice) and "no backward pass" in str(excluded.because)


def test_what_is_ruled_out_is_no_problem(tmp_path: Path) -> None:
    assert found_in(tmp_path, [*calls("add npu::npu_rms_norm"), *BACKWARD]).status == "ok"


SQUARE = [("Pows", "4,64;1"), ("ReduceMeanD", "4,64"), ("Adds", "4,1;1"), ("Rsqrt", "4,1"), ("Mul", "4,64;4,1")]


@pytest.mark.parametrize(
    ("kinds", "count"),
    [
        (SQUARE, 20),
        ([*SQUARE[:3], ("Relu", "4,1"), *SQUARE[3:]], 0),
        ([("Pows", "9,64;1"), *SQUARE[1:]], 0),  # another tensor
        ([("BatchMatMulV2", "8,4,4;8,4,4"), ("SoftmaxV2", "8,4,4"), ("BatchMatMulV2", "8,4,4;8,4,4")], 20),
        ([("Swish", "8,4"), ("Mul", "8,4;8,4")], 0),
    ],
)
def test_kernel_tables_alone_tell_only_what_types_tell(
    tmp_path: Path, kinds: list[tuple[str, str]], count: int
) -> None:
    kernels = [
        K((i * len(kinds) + j) * 20_000, 20_000, "k", type_, shapes=shapes)
        for i in range(20)
        for j, (type_, shapes) in enumerate(kinds)
    ]
    found = answer(analyzed(kernel_details(tmp_path / "kernel_details.csv", kernels)), "fused_operators")
    assert sum(row[0] for row in rows(found).values()) == count
    assert found.status == ("problem" if count else "cannot_tell")
    if not count:
        assert "torch operator" in str(found.needs)


def test_graphs_do_not_tell_their_torch_operators(tmp_path: Path) -> None:
    made = [Call("aten::linear"), Call("aten::add", 0)]
    folder = recorded(tmp_path, made)
    path = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    own = ("async_npu", "HostToDevice", "Node@launch", "aclnnX")
    events = [e for e in json.loads(path.read_text()) if e["name"] not in own]
    events.append({"ph": "X", "name": "AscendCL@aclmdlRIExecuteAsync", "pid": 2, "tid": 10, "ts": us(EPOCH), "dur": 1})
    path.write_text(json.dumps(events))
    found = answer(analyzed(folder), "fused_operators")
    assert (found.status, "run in graphs" in str(found.needs)) == ("cannot_tell", True)


def test_sequences_of_two_streams_are_not_mixed(tmp_path: Path) -> None:
    kernels = [
        K((i * 5 + j) * 20_000, 20_000, "k", type_, shapes=shapes, stream=2 + j % 2)
        for i in range(20)
        for j, (type_, shapes) in enumerate(SQUARE)
    ]
    found = answer(analyzed(kernel_details(tmp_path / "kernel_details.csv", kernels)), "fused_operators")
    assert found.status == "cannot_tell"


def test_every_entry_has_a_source_and_a_sequence() -> None:
    entries = yaml.safe_load((Path(advise.__path__[0]) / "affinity.yaml").read_text("utf-8"))
    assert len({e["api"] for e in entries}) == len(entries)
    for entry in entries:
        assert entry["source"] and entry["least"] >= 1
        steps = entry["operators"].split()
        assert entry["least"] <= len(steps)
        assert set(entry) <= {"api", "operators", "kernels", "between", "least", "dtypes", "requires", "source"}


DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.mark.skipif(not DATA.is_dir(), reason="no profiles of others here")
def test_a_recorded_step_of_adam() -> None:
    """The trace has ten parameters: mul_, add_, mul_, addcmul_, sqrt, div, add_ and addcdiv_ for each of them."""
    found = answer(analyzed(DATA / "msprof-analyze" / "timeline"), "fused_operators")
    (row,) = found.evidence["replacements"]
    assert (row["api"], row["count"], row["kernels"]) == ("torch_npu.optim.NpuFusedAdam", 1, 10 * 8)


# --- which sequences a text can hold at all is known from its letters ------------------------------------------------


#: Steps: "a", then one of "b" and "c", then perhaps "d".
STEPS = ("a", "b|c", "d?")


@pytest.mark.parametrize(
    ("names", "possible"),
    [
        (("a", "b"), True),
        (("a", "c", "d"), True),
        (("c", "a"), True),  # the order is the expression's to tell
        (("a", "d"), False),
        (("b", "c", "d"), False),
        (("x",), False),
        ((), False),
    ],
)
def test_a_step_that_must_be_there_needs_one_of_its_letters(names: tuple[str, ...], possible: bool) -> None:
    alphabet = Alphabet(("a", "b", "c", "d"))
    letters = frozenset(alphabet.text(names, np.arange(len(names))))
    assert alphabet.possible(STEPS, letters) is possible
    if not possible:
        assert not alphabet.pattern(STEPS, ()).search("".join(sorted(letters)))
