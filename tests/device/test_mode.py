"""How a program was executed, from what torch_npu, TorchAir and the runtime record in each mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from build import H, K, ascend_pt
from msgspec.structs import replace

from npuperf.device.mode import (
    Mode,
    is_captured,
    is_compiled,
    is_graph,
    is_launched_whole,
    mode_of,
    no_launches,
    version,
)
from npuperf.model.labels import Labels
from npuperf.readers.recording import open_recording

EAGER = [K(i * 10_000, 5_000, launch=i * 10_000 - 8_000) for i in range(4)]
#: Kernels of captured graphs keep the names of eager mode, and have no launch when they are replayed.
REPLAYED = [replace(k, launch=None) for k in EAGER]
STATIC = [replace(k, name=f"Add_{i}") for i, k in enumerate(REPLAYED)]
DYNAMIC = [replace(k, name=f"Add_{i}", state="dynamic") for i, k in enumerate(EAGER)]
#: Without OP State.
PLAIN = [replace(k, state="N/A") for k in STATIC]


def py(*names: str) -> list[H]:
    return [H(name, -9_000 + i, 10, python=True) for i, name in enumerate(names)]


def cann(*names: str) -> list[H]:
    return [H(name, -9_000 + i, 10) for i, name in enumerate(names)]


@pytest.mark.parametrize(
    ("kernels", "host", "mode"),
    [
        (EAGER, (), "eager"),
        # HCCL and torch_npu ask in eager mode, too, whether a stream is being captured.
        (EAGER, cann("AscendCL@aclmdlRICaptureGetInfo"), "eager"),
        (REPLAYED, cann("AscendCL@aclmdlRIExecuteAsync", "Model@ModelExecute"), "aclgraph"),
        (STATIC, py("TorchNpuGraphBase::Run", "AssembleInputs", "RunGraphWithStreamAsync"), "ge_static"),
        (STATIC, cann("Model@ModelExecute"), "ge_static"),
        (PLAIN, py("TorchNpuGraphBase::Run", "ExecuteGraph", "RefreshAtTensorFromGeTensor"), "ge_dynamic"),
        (DYNAMIC, cann("Model@ModelExecute"), "ge_dynamic"),
        # Neither states nor the executor's own events: which kind of graph is not told.
        (PLAIN, cann("Model@ModelExecute"), "ge"),
        # One operator at a time, compiled when it is called.
        (STATIC, cann("AscendCL@aclopCompileAndExecute", "AscendCL@InferShape"), "eager"),
        (PLAIN, (), "unknown"),
    ],
)
def test_the_mode_follows_from_what_was_called(kernels: list[K], host: Sequence[H], mode: Mode, tmp_path: Path) -> None:
    profiles = open_recording(ascend_pt(tmp_path, kernels, host=host)).profiles
    assert [mode_of(p) for p in profiles] == [mode]


@pytest.mark.parametrize(
    ("package", "mode"),
    [("npugraph_ex", "npugraph_ex"), ("torchair", "aclgraph"), ("vllm_ascend", "aclgraph")],
)
def test_recorded_stacks_show_which_package_replays(package: str, mode: Mode, tmp_path: Path) -> None:
    calls = [*cann("AscendCL@aclmdlRIExecuteAsync"), *py("aten::empty")]
    profile = open_recording(ascend_pt(tmp_path, REPLAYED, host=calls)).profiles[0]
    stack = Labels.of([f"/opt/{package}/_acl_concrete_graph/acl_graph.py(90): run;train.py(4): main"])
    assert mode_of(replace(profile, host=replace(profile.host, stack=stack))) == mode


def test_modes_are_of_one_kind() -> None:
    captured, compiled = ("aclgraph", "npugraph_ex"), ("ge", "ge_static", "ge_dynamic")
    modes: tuple[Mode, ...] = ("eager", "unknown", *captured, *compiled)  # type: ignore[assignment]
    assert [m for m in modes if is_captured(m)] == list(captured)
    assert [m for m in modes if is_compiled(m)] == list(compiled)
    assert [m for m in modes if is_graph(m)] == [*captured, *compiled]
    assert [m for m in modes if is_launched_whole(m)] == [*captured, "ge", "ge_static"]


def test_why_there_are_no_launches_fits_what_was_read() -> None:
    assert "trace_view.json" in str(no_launches("eager"))
    assert "trace_view.json" not in str(no_launches("eager", timeline=True))
    assert "as a whole" in str(no_launches("npugraph_ex", timeline=True))
    assert "as a whole" not in str(no_launches("ge_dynamic", timeline=True))


@pytest.mark.parametrize(
    ("text", "numbers"), [("7.1.0.alpha001", (7, 1, 0)), ("CANN 8.0", (8, 0)), ("unknown", None), (None, None)]
)
def test_a_version_is_its_leading_numbers(text: str | None, numbers: tuple[int, ...] | None) -> None:
    assert version(text) == numbers


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 5000 + ".1", "8." + "1" * 5000])
def test_a_version_of_thousands_of_digits_is_no_error(text: str) -> None:
    found = version(text)
    assert found is not None and max(found) < 10**9
