"""SuperKernels: sequences planted by hand, and scopes before and after, verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from build import H, K, analyze_path, ascend_pt
from msgspec.structs import replace

from npuperf.base.errors import InputError
from npuperf.device.expect import parse_expectation
from npuperf.model.result import Device, Finding, Result, SuperKernelCheck, SuperKernelScope
from npuperf.readers.context import read_plog
from npuperf.readers.log import ReadLog

GAP = 2_000  # ns between two kernels of a static graph
LAYER = (("MatMulV3", "AI_CORE", 24, 0), ("Add", "AI_VECTOR_CORE", 40, 0), ("GroupedMatmul", "MIX_AIC", 20, 40))


def graph(
    layers: int = 4,
    steps: int = 2,
    kinds: tuple[tuple[str, str, int, int], ...] = LAYER,
    state: str = "static",
    names: str = "",
) -> list[K]:
    """Steps of equal layers on stream 3: kernels of 10 µs, GAP apart; between steps the host takes 200 µs."""
    kernels, clock = [], 0
    for step in range(steps):
        for number in range(layers * len(kinds)):
            type_, core, block, mix = kinds[number % len(kinds)]
            name = f"{names}{type_}_{number}"
            kernels.append(K(clock, 10_000, name, type_, core, 3, block, mix, step, state=state))
            clock += 10_000 + GAP
        clock += 200_000
    return kernels


DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
#: What tells that GE executes a graph.
GE = (H("AscendCL@aclmdlExecuteAsync", -50_000, 10_000),)


def analyzed(path: Path, **options: object) -> Result:
    return analyze_path(path, **options)  # type: ignore[arg-type]


def scopes(root: Path, kernels: list[K], **options: object) -> list[SuperKernelScope]:
    (device,) = analyzed(ascend_pt(root, kernels, cores="24,48", host=GE), **options).devices
    return device.super_kernels


def test_the_layers_of_a_model_are_one_scope(tmp_path: Path) -> None:
    """4 layers of 3 kernels in 2 steps: 8 runs; each has 2 gaps. Between layers a gap stays."""
    (scope,) = scopes(tmp_path, graph())
    assert (scope.stream, scope.count, scope.kernels) == (3, 8, 3)
    assert scope.types == ["MatMulV3", "Add", "GroupedMatmul"]
    assert (scope.gaps_ns, scope.dur_ns) == (2 * GAP, 30_000)
    assert scope.gain_ns_per_step == (0, 4 * 2 * GAP)
    assert (scope.cube, scope.vector) == (24, 48)  # 40 at most, in pairs beside 24 cube cores
    assert [(s.kernels, str(s.stopped_by)) for s in scope.segments] == [(3, "None")]


@pytest.mark.parametrize(
    ("stopper", "why"),
    [
        (("Cumsum", "AI_CPU", 1, 0), "Cumsum (AI_CPU)"),
        (("hcom_broadcast_", "COMMUNICATION", 0, 0), "hcom_broadcast_ (communication)"),
        (("hcom_alltoallv_", "COMMUNICATION", 0, 0), "hcom_alltoallv_ (communication)"),
    ],
)
def test_a_kernel_that_cannot_be_fused_splits_the_scope(
    stopper: tuple[str, str, int, int], why: str, tmp_path: Path
) -> None:
    kinds = (LAYER[0], LAYER[1], stopper, LAYER[0], LAYER[2], LAYER[1])
    scope = scopes(tmp_path, graph(layers=3, kinds=kinds))[0]
    assert [(s.kernels, s.gaps_ns, str(s.stopped_by)) for s in scope.segments] == [(2, GAP, why), (3, 2 * GAP, "None")]
    assert scope.gain_ns_per_step == (0, 3 * 3 * GAP)


FUSED = ("hcom_allReduce_", "hcom_reduceScatter_", "hcom_allGather_", "hcom_alltoall_")


@pytest.mark.parametrize("name", FUSED)
def test_communication_that_can_be_fused_does_not_end_a_scope(name: str, tmp_path: Path) -> None:
    """Two kernels, communication, three kernels: five gaps of one SuperKernel, on the condition that HCCL uses AIV."""
    kinds = (LAYER[0], LAYER[1], (name, "COMMUNICATION", 0, 0), LAYER[0], LAYER[2], LAYER[1])
    scope = scopes(tmp_path, graph(layers=3, kinds=kinds))[0]
    assert [(s.kernels, s.gaps_ns, s.stopped_by) for s in scope.segments] == [(6, 5 * GAP, None)]
    assert (scope.cube, scope.vector) == (24, 48)  # of the kernels; blocks of communication are not recorded
    (rule,) = (r for r in scope.rules if str(r.rule) == "communication")
    assert rule.status == "unknown" and "HCCL_OP_EXPANSION_MODE=AIV" in str(rule.detail) and name in str(rule.detail)


@pytest.mark.parametrize(
    ("mode", "segments", "status"), [("AIV", [6], "ok"), ("AI_CPU", [2, 3], None), (None, [6], "unknown")]
)
def test_where_hccl_expands_decides_whether_communication_is_fused(
    mode: str | None, segments: list[int], status: str | None, tmp_path: Path
) -> None:
    kinds = (LAYER[0], LAYER[1], (FUSED[0], "COMMUNICATION", 0, 0), LAYER[0], LAYER[2], LAYER[1])
    folder = ascend_pt(tmp_path, graph(layers=3, kinds=kinds), cores="24,48", host=GE)
    recorded = {"HCCL_OP_EXPANSION_MODE": mode} if mode else {}
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": recorded}))
    (device,) = analyzed(folder).devices
    scope = device.super_kernels[0]
    assert [s.kernels for s in scope.segments] == segments
    assert {str(r.rule): r.status for r in scope.rules}.get("communication") == status
    if mode == "AI_CPU":
        assert "HCCL_OP_EXPANSION_MODE is AI_CPU" in str(scope.segments[0].stopped_by)


def test_communication_at_the_border_stays_outside(tmp_path: Path) -> None:
    """Behind the last kernel there is nothing to fuse it with: the two gaps of the three kernels count."""
    kinds = (*LAYER, (FUSED[0], "COMMUNICATION", 0, 0), ("Cumsum", "AI_CPU", 1, 0))
    (scope,) = scopes(tmp_path, graph(layers=2, kinds=kinds))
    assert [(s.kernels, s.gaps_ns) for s in scope.segments] == [(3, 2 * GAP)]


def test_a_graph_with_kernels_of_dynamic_shape_has_no_scope(tmp_path: Path) -> None:
    """12 kernels per step, the sixth of them dynamic: GE makes no SuperKernel in a dynamic graph."""
    kernels = [replace(k, state="dynamic") if i % 12 == 5 else k for i, k in enumerate(graph(layers=4, steps=3))]
    folder = ascend_pt(tmp_path / "ge", kernels, cores="24,48", host=GE)
    assert analyzed(folder).devices[0].super_kernels == []
    assert super_kernel_finding(folder).status == "ok"
    nobody = ascend_pt(tmp_path / "mode", kernels, cores="24,48")  # whoever executes them
    assert super_kernel_finding(nobody).status == "ok"


def super_kernel_finding(path: Path, **options: object) -> Finding:
    (found,) = (f for f in analyzed(path, **options).findings if f.rule == "super_kernel")
    return found


def test_without_knowing_the_graph_nothing_is_proposed(tmp_path: Path) -> None:
    """No host event tells who executes, or no OP State whether the graph is static: cannot tell, and why."""
    nobody = ascend_pt(tmp_path / "mode", graph(), cores="24,48")
    (device,) = analyzed(nobody).devices
    assert device.super_kernels == []
    found = super_kernel_finding(nobody)
    assert found.status == "cannot_tell" and "trace_view.json" in str(found.needs)
    assert found.gain_ns_per_step is None and found.code is None
    stateless = ascend_pt(tmp_path / "state", graph(state="N/A"), cores="24,48", host=GE)
    found = super_kernel_finding(stateless)
    assert found.status == "cannot_tell" and "OP State" in str(found.needs)
    close = [
        replace(k, start=k.start - GAP * (i % 12)) for i, k in enumerate(graph())
    ]  # without gaps it does not matter
    assert super_kernel_finding(ascend_pt(tmp_path / "close", close, cores="24,48")).status == "ok"


@pytest.mark.parametrize(
    "file",
    [
        "msinsight/text/level1/rank0_ascend_pt",  # eager training: all of OP State is dynamic
        "msinsight/cluster4/rank_0_ascend_pt",  # the same, of a Megatron step
        "msprof-analyze/arithmetic_utilization/kernel_details.csv",  # neither a timeline nor OP State
        "msinsight/toy/op_summary_1.csv",
    ],
)
def test_real_profiles_without_a_static_graph_have_no_scope(file: str) -> None:
    if not (DATA / file).exists():
        pytest.skip("the collection of real profiles is not here")
    result = analyzed(DATA / file)
    assert all(device.super_kernels == [] for device in result.devices)
    assert {f.status for f in result.findings if f.rule == "super_kernel"} <= {"ok", "cannot_tell"}


@pytest.mark.parametrize("call", ["AscendCL@aclmdlRIExecuteAsync", "Runtime@rtModelRIExecute"])
def test_captured_graphs_have_no_scope(call: str, tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, graph(), cores="24,48", host=[H(call, -50_000, 10_000)])
    (device,) = analyzed(folder).devices
    assert device.super_kernels == []
    assert super_kernel_finding(folder).status == "ok"


@pytest.mark.parametrize("kernels", [graph(state="dynamic"), graph(names="aclnn"), graph(layers=1, kinds=LAYER[:1])])
def test_no_scope_in_dynamic_graphs_in_eager_mode_and_for_single_kernels(kernels: list[K], tmp_path: Path) -> None:
    assert scopes(tmp_path, kernels) == []


@pytest.mark.parametrize(("soc", "some"), [("Ascend910_9391", True), ("Ascend910B1", True), ("Ascend310P3", False)])
def test_the_chip_decides_whether_super_kernels_exist(soc: str, some: bool, tmp_path: Path) -> None:
    found = scopes(tmp_path, graph(), soc=soc)
    assert bool(found) == some
    if some:
        assert {str(r.rule): r.status for r in found[0].rules}["product"] == ("ok" if "_93" in soc else "unknown")


def test_an_event_wait_ends_a_scope(tmp_path: Path) -> None:
    """One step of 6 kernels, a wait in front of the fourth."""
    kernels = graph(layers=2, steps=1)
    kernels.insert(3, K(kernels[3].start - 1_500, 1_000, "EVENT_WAIT", "EVENT_WAIT", "EVENT_WAIT", 3, 0, step=0))
    found = scopes(tmp_path, kernels)
    assert [(s.kernels, s.count) for s in found] == [(3, 2)]


def test_a_wait_for_cores_is_no_gap_to_save(tmp_path: Path) -> None:
    """12 µs before the second kernel another stream holds all vector cores for 11; 1 µs is a gap."""
    kernels = [
        K(0, 10_000, "MatMulV3_0", "MatMulV3", "AI_CORE", 3, 24),
        K(22_000, 10_000, "Add_1", "Add", "AI_VECTOR_CORE", 3, 48),
        K(34_000, 10_000, "MatMulV3_2", "MatMulV3", "AI_CORE", 3, 24),
        K(5_000, 16_000, "Side", "Side", "AI_VECTOR_CORE", 9, 48),
        K(50_000, 100, "EVENT_WAIT", "EVENT_WAIT", "EVENT_WAIT", 9, 0),
    ]
    host = [H("AscendCL@aclmdlExecuteAsync", -50_000, 10_000)]
    (device,) = analyzed(ascend_pt(tmp_path, kernels, cores="24,48", host=host)).devices
    assert [(s.kernels, s.gaps_ns) for s in device.super_kernels] == [(3, 1_000 + 2_000)]


def options_of(scope: SuperKernelScope) -> dict[str, str]:
    return {o.key: o.value for o in scope.options}


def test_feed_sync_all_where_kernels_start_fewer_cores_than_the_super_kernel(tmp_path: Path) -> None:
    (mixed,) = scopes(tmp_path / "mixed", graph())
    assert options_of(mixed)["feed-sync-all"] == "1"
    even = (("A", "AI_VECTOR_CORE", 40, 0), ("B", "AI_VECTOR_CORE", 40, 0), ("C", "AI_VECTOR_CORE", 40, 0))
    (alike,) = scopes(tmp_path / "even", graph(kinds=even))
    assert "feed-sync-all" not in options_of(alike)
    assert options_of(alike) == {} and 'super_kernel(f"sk1_{layer}"):' in alike.code


@pytest.mark.parametrize(("streams", "fusion"), [(1, False), (2, False), (3, True)])
def test_stream_fusion_only_with_more_than_two_streams(streams: int, fusion: bool, tmp_path: Path) -> None:
    kernels = graph(steps=1)
    beside = [replace(k, stream=10 + s, type=f"Side{s}", name=f"Side{s}_{i}", block=2)
              for s in range(streams - 1) for i, k in enumerate(kernels)]  # fmt: skip
    found = [s for s in scopes(tmp_path, [*kernels, *beside]) if s.stream == 3]
    assert ("stream-fusion" in options_of(found[0])) == fusion


def test_the_code_is_python_with_documented_options_only(tmp_path: Path) -> None:
    (scope,) = scopes(tmp_path, graph())
    compile(scope.code, "scope", "exec")
    assert 'torchair.scope.super_kernel(f"sk1_{layer}", "feed-sync-all=1")' in scope.code
    assert "MatMulV3, Add, GroupedMatmul" in scope.code


def names_entered(code: str) -> list[str]:
    """Run proposed code with a torchair that takes down the names of the scopes that it enters."""
    entered: list[str] = []

    def super_kernel(scope: str, options: str = "") -> nullcontext[None]:
        entered.append(scope)
        return nullcontext()

    torchair = SimpleNamespace(scope=SimpleNamespace(super_kernel=super_kernel))
    exec(code.replace("import torchair", ""), {"torchair": torchair})
    return entered


@pytest.mark.parametrize(("layers", "names"), [(6, [f"sk1_{i}" for i in range(6)]), (1, ["sk1"])])
def test_every_use_of_a_scope_has_a_name_of_its_own(layers: int, names: list[str], tmp_path: Path) -> None:
    """One name is one range: used for six layers it would be cut five times. What a step runs once needs no number."""
    (scope,) = scopes(tmp_path, graph(layers=layers))
    assert scope.count == 2 * layers
    assert names_entered(scope.code) == names


def test_the_warnings_of_bypass_need_a_log_level(tmp_path: Path) -> None:
    (scope,) = scopes(tmp_path, graph())
    (rule,) = (r for r in scope.rules if str(r.rule) == "scope")
    assert "ASCEND_GLOBAL_LOG_LEVEL=2" in str(rule.detail)
    folder = ascend_pt(tmp_path / "finding", graph(), cores="24,48", host=GE)
    assert "ASCEND_GLOBAL_LOG_LEVEL=2" in str(super_kernel_finding(folder).next)


#: Three streams that run kernels of both sides; stream 3 alone may be on all cores.
def three_streams(main: tuple[int, int], side: tuple[int, int]) -> list[K]:
    kinds = (("MatMulV3", "AI_CORE", main[0], 0), ("Add", "AI_VECTOR_CORE", main[1], 0))
    kernels = graph(steps=1, kinds=kinds)
    beside = [
        replace(k, stream=stream, type=f"Side{k.type}", name=f"s{stream}_{k.name}", block=side[i % 2])
        for stream in (10, 11)
        for i, k in enumerate(kernels)
    ]
    return [*kernels, *beside]


@pytest.mark.parametrize(
    ("main", "side", "options", "host", "why"),
    [
        ((24, 48), (4, 8), {}, (), None),
        ((16, 32), (4, 8), {}, (), "16,32"),
        ((24, 48), (4, 8), {"cores_of": {3: (16, 32)}}, (), "--cores-of"),
        ((24, 48), (4, 8), {"expect": "3=16,32"}, (), "--expect-cores"),
        ((24, 48), (4, 8), {}, ("AscendCL@aclrtSetStreamResLimit",), "aclrtSetStreamResLimit"),
    ],
)
def test_stream_fusion_is_withheld_where_streams_own_their_cores(
    main: tuple[int, int],
    side: tuple[int, int],
    options: dict[str, object],
    host: tuple[str, ...],
    why: str | None,
    tmp_path: Path,
) -> None:
    """16+4+4 cube and 32+8+8 vector cores fit the chip, with each stream below it: limits. 24+4+4 do not."""
    calls = [*GE, *(H(name, -40_000, 1_000) for name in host)]
    if "expect" in options:
        options = {"expect": (parse_expectation("--expect-cores", str(options["expect"])),)}
    folder = ascend_pt(tmp_path, three_streams(main, side), cores="24,48", host=calls)
    (device,) = analyzed(folder, **options).devices
    scope = next(s for s in device.super_kernels if s.stream == 3)
    assert ("stream-fusion" in options_of(scope)) == (why is None)
    details = [str(r.detail) for r in scope.rules if str(r.rule) == "stream-fusion"]
    assert [why in d for d in details if why] == ([True] if why else [])


def test_stream_fusion_is_withheld_where_core_counts_are_unknown(tmp_path: Path) -> None:
    (device,) = analyzed(ascend_pt(tmp_path, three_streams((24, 48), (4, 8)), host=GE)).devices
    scope = next(s for s in device.super_kernels if s.stream == 3)
    assert "stream-fusion" not in options_of(scope)
    assert any("core counts are unknown" in str(r.detail) for r in scope.rules)


@pytest.mark.parametrize(
    ("cube", "vector", "launch", "fewer"),
    [
        (4, 0, (4, 0), False),
        (0, 40, (0, 40), False),
        (24, 20, (24, 24), True),  # one vector core per cube core
        (24, 40, (24, 48), True),  # two
        (8, 40, (20, 40), True),
        (8, 41, (21, 42), True),
        (12, 48, (24, 48), True),
        (20, 40, (20, 40), False),
    ],
)
def test_cores_that_a_super_kernel_launches_with(
    cube: int, vector: int, launch: tuple[int, int], fewer: bool, tmp_path: Path
) -> None:
    """Block Dim is max(cube, vector / 2 rounded up), with one or two vector cores for each."""
    kinds = [("A", "AI_CORE", cube, 0)] * bool(cube) + [("B", "AI_VECTOR_CORE", vector, 0)] * bool(vector)
    (scope,) = scopes(tmp_path, graph(kinds=tuple(kinds * 2)))
    assert (scope.cube, scope.vector) == launch
    assert ("feed-sync-all" in options_of(scope)) == fewer


def test_without_block_dim_nothing_is_said_about_cores(tmp_path: Path) -> None:
    (scope,) = scopes(tmp_path, graph(kinds=tuple((t, c, 0, 0) for t, c, *_ in LAYER)))
    assert (scope.cube, scope.vector) == (None, None)
    assert "feed-sync-all" not in options_of(scope)
    assert {str(r.rule): r.status for r in scope.rules}["feed-sync-all"] == "unknown"


def test_block_dim_that_some_kernels_lack_is_counted(tmp_path: Path) -> None:
    """One kernel in three has no blocks: that is not "not recorded"."""
    (scope,) = scopes(tmp_path, graph(kinds=(*LAYER[:2], ("Mul", "AI_VECTOR_CORE", 0, 0))))
    (rule,) = (r for r in scope.rules if str(r.rule) == "feed-sync-all")
    assert "missing for 1 of 3 kernels" in str(rule.detail)


def test_gaps_that_may_be_waits_for_cores_are_no_gain(tmp_path: Path) -> None:
    """Two streams, and no Block Dim that would tell when one holds the other's cores."""
    unknown = graph(kinds=tuple((t, c, 0, 0) for t, c, *_ in LAYER))
    beside = [replace(k, stream=9, name=f"side_{i}", type=f"Side{i % 3}") for i, k in enumerate(unknown)]
    result = analyzed(ascend_pt(tmp_path, [*unknown, *beside], cores="24,48", host=GE))
    (found,) = (f for f in result.findings if f.rule == "super_kernel")
    assert found.status == "cannot_tell" and found.gain_ns_per_step is None and "Block Dim" in str(found.needs)
    (device,) = result.devices
    assert all({str(r.rule): r.status for r in s.rules}["gaps"] == "unknown" for s in device.super_kernels)


# --- before and after ------------------------------------------------------------------------------------------------


WHOLE, SECOND_PART = "sk_layer_start_{}_end_{}_0", "sk_layer_split_0_1_start_{}_end_{}_0"


#: Steps that tell a difference from chance: five on each side are the least.
STEPS = 6


def fused(layers: int, took: int, *, parts: int = 1, block: int = 24, name: str = WHOLE, steps: int = STEPS) -> list[K]:
    """The same steps with a SuperKernel, or two, in each layer's place."""
    kernels, clock = [], 0
    for step in range(steps):
        for layer in range(layers):
            begin, middle, end = (f"{type_}_{3 * layer + i}" for i, (type_, *_) in enumerate(LAYER))
            names = [name.format(begin, end)]
            if parts == 2:
                names = [name.format(begin, middle), SECOND_PART.format(end, end)]
            for full in names:
                kernels.append(K(clock, took, full, "SuperKernel", "MIX_AIC", 3, block, 2 * block, step))
                clock += took + GAP
        clock += 200_000
    return kernels


def checks(root: Path, before: list[K], after: list[K], **options: object) -> list[SuperKernelCheck]:
    earlier, later = ascend_pt(root / "before", before, cores="24,48"), ascend_pt(root / "after", after, cores="24,48")
    device: Device
    (device,) = analyzed(later, before=earlier, **options).devices
    return device.super_kernel_checks


def test_a_super_kernel_is_compared_with_the_kernels_it_is_named_after(tmp_path: Path) -> None:
    """One layer: 3 kernels of 10 µs and 2 gaps of 2 µs = 34 µs became 31 µs."""
    (check,) = checks(tmp_path, graph(1, STEPS), fused(1, 31_000))
    assert (check.compared.name, check.parts, check.compared.count, check.kernels) == ("layer", 1, STEPS, 3)
    assert (check.compared.old_ns, check.gaps_ns, check.compared.new_ns, check.compared.saved_ns) == (
        34_000,
        4_000,
        31_000,
        3_000,
    )
    assert (check.block_dim, check.block_expected) == (24, 24)
    assert (check.compared.verdict, check.basis) == ("better", "measured")


def test_blocks_of_a_super_kernel_that_are_not_recorded_are_none(tmp_path: Path) -> None:
    (check,) = checks(tmp_path, graph(1, STEPS), [replace(k, block=-1, mix=-1) for k in fused(1, 31_000)])
    assert check.block_dim is None and check.compared.saved_ns == 3_000


def test_the_same_scope_in_several_layers_is_whole(tmp_path: Path) -> None:
    """Two layers of 34 µs each became two SuperKernels of 31 µs."""
    (check,) = checks(tmp_path, graph(2, STEPS), fused(2, 31_000))
    assert (check.parts, check.kernels, check.compared.old_ns, check.compared.new_ns) == (1, 6, 68_000, 62_000)
    assert "broke" not in str(check.reason)


def test_a_super_kernel_that_saves_nothing_is_not_faster(tmp_path: Path) -> None:
    (check,) = checks(tmp_path, graph(1, STEPS), fused(1, 36_000))
    assert (check.compared.saved_ns, check.compared.verdict) == (-2_000, "worse")


def test_a_difference_within_the_noise_is_not_faster(tmp_path: Path) -> None:
    """31 and 36 µs: 33.5 on average, but whichever of them may come next; a tenth of a µs is not worth a word."""
    after = [replace(kernel, dur=31_000 + 5_000 * (i % 2)) for i, kernel in enumerate(fused(1, 31_000))]
    (check,) = checks(tmp_path / "wide", graph(1, STEPS), after)
    assert (check.compared.saved_ns, check.compared.verdict) == (500, "cannot_tell")
    assert "noise" in str(check.reason) and "steps on each side would decide" in str(check.reason)
    (check,) = checks(tmp_path / "close", graph(1, STEPS), fused(1, 33_900))
    assert (check.compared.saved_ns, check.compared.verdict) == (100, "same")


@pytest.mark.parametrize("steps", [2, 4])
def test_few_steps_do_not_tell_a_scope_from_chance(steps: int, tmp_path: Path) -> None:
    """However many layers use the scope in a step: what differs from step to step is not seen in two."""
    (check,) = checks(tmp_path, graph(3, steps), renamed(fused(3, 20_000, steps=steps), steps, lambda _: "layer"))
    assert (check.compared.verdict, check.compared.noise_ns) == ("cannot_tell", None)
    assert f"too few steps to tell a difference from chance: {steps} and {steps}," in str(check.reason)
    assert "--for-compare" in str(check.reason)


def test_a_step_that_has_not_all_of_a_scope_is_no_sample(tmp_path: Path) -> None:
    """Of six steps the last one has the first half only: five are left, 34 µs to 20 µs in each."""
    after = fused(1, 10_000, parts=2)[:-1]
    (check,) = checks(tmp_path / "five", graph(1, STEPS), after)
    assert check.compared.verdict == "better"
    (check,) = checks(tmp_path / "four", graph(1, STEPS), after[:-2])
    assert check.compared.verdict == "cannot_tell" and "chance: 6 and 4," in str(check.reason)


def test_other_cores_than_expected_are_said(tmp_path: Path) -> None:
    (check,) = checks(tmp_path, graph(1, STEPS), fused(1, 31_000, block=12))
    assert (check.block_dim, check.block_expected) == (12, 24)
    assert "launches with 12 cores, its kernels with 24 at most" in str(check.reason)


def test_a_scope_that_broke_into_two_is_said_with_the_log_behind_it(tmp_path: Path) -> None:
    log = tmp_path / "log" / "run" / "plog" / "plog-77_20261121.log"
    log.parent.mkdir(parents=True)
    stamp = "[WARNING] GE(77,python):2026-11-21-10:00:0{}.123.456 [sk.cc:12]77 Check: "
    text = "super_kernel_scope layer is split at node Add_1, which does not support it\n"
    log.write_text(
        "[INFO] GE(77,python): super_kernel_scope layer begins\n" + "".join(stamp.format(i) + text for i in range(3))
    )
    (check,) = checks(tmp_path, graph(1, STEPS), fused(1, 15_000, parts=2), plog=tmp_path / "log")
    assert check.parts == 2
    assert "broke into 2 SuperKernels: MatMulV3_0 … Add_1" in str(check.reason)
    assert check.compared.old_ns == 22_000 + 10_000
    assert check.compared.new_ns == 30_000
    assert len(check.log) == 1 and "split at node Add_1" in check.log[0] and check.log[0].startswith("WARNING")


def renamed(kernels: list[K], steps: int, scope: Callable[[int], str]) -> list[K]:
    """Give the SuperKernel of each layer (steps of equal layers) another scope."""
    layers = len(kernels) // steps
    return [replace(k, name=k.name.replace("sk_layer_start", f"sk_{scope(i % layers)}_start"))
            for i, k in enumerate(kernels)]  # fmt: skip


def test_a_name_for_every_use_is_one_scope_and_none_broke(tmp_path: Path) -> None:
    """Three layers, sk1_0 to sk1_2: 3 × 34 µs became 3 × 31 µs, once per step."""
    log = tmp_path / "plog-1_1.log"
    stamp = "[WARNING] GE(1,python):2026-11-21-10:00:00.1.2 [sk.cc:1]1 f: super_kernel_scope {} stops\n"
    log.write_text(stamp.format("sk1_2") + stamp.format("sk10"))
    after = renamed(fused(3, 31_000), STEPS, lambda layer: f"sk1_{layer}")
    (check,) = checks(tmp_path, graph(3, STEPS), after, plog=log)
    assert (check.compared.name, check.parts, check.kernels, check.compared.count) == ("sk1_*", 1, 9, STEPS)
    assert (check.compared.old_ns, check.compared.new_ns, check.compared.verdict) == (102_000, 93_000, "better")
    assert "broke" not in str(check.reason) and "whole" not in str(check.reason)
    assert len(check.log) == 1 and "sk1_2" in check.log[0]


def test_one_of_several_uses_that_broke_is_named(tmp_path: Path) -> None:
    """sk1_0 is whole; of sk1_1 GE made two."""
    whole = renamed(fused(1, 31_000), STEPS, lambda _: "sk1_0")
    second = [k.name.replace("sk_layer_", "sk_sk1_1_") for k in fused(1, 15_000, parts=2)]
    two = [replace(k, start=k.start + 60_000, name=n) for k, n in zip(fused(1, 15_000, parts=2), second, strict=True)]
    (check,) = checks(tmp_path, graph(1, STEPS), [*whole, *two])
    assert check.parts == 2
    assert "1 of 2 scopes of this name are not whole" in str(check.reason)
    assert "broke into 2 SuperKernels: MatMulV3_0 … Add_1" in str(check.reason)


def test_one_name_for_equal_layers_did_not_break(tmp_path: Path) -> None:
    """GE cut the range of "layer" between its three uses; each of them is one whole SuperKernel."""
    after = renamed(fused(3, 31_000), STEPS, lambda layer: f"layer_split_{12 * layer}_{12 * layer + 9}")
    (check,) = checks(tmp_path, graph(3, STEPS), after)
    assert check.compared.name == "layer" and check.compared.verdict == "better"
    assert "broke" not in str(check.reason)
    assert "3 equal sequences" in str(check.reason) and "a name of its own" in str(check.reason)


def test_a_scope_that_lost_its_edge_is_said(tmp_path: Path) -> None:
    """GE names every part of a range that it cut SCOPE_split_…, also where only one part is left."""
    after = renamed(fused(1, 31_000), STEPS, lambda _: "layer_split_4_8")
    (check,) = checks(tmp_path, graph(1, STEPS), after)
    assert check.parts == 1 and "the scope was cut: MatMulV3_0 … GroupedMatmul_2_0 is what is left" in str(check.reason)


def test_operators_that_are_not_in_the_earlier_profile_cannot_be_compared(tmp_path: Path) -> None:
    (check,) = checks(tmp_path, graph(1, STEPS, names="other_"), fused(1, 31_000))
    assert check.compared.verdict == "cannot_tell"
    assert "not in the earlier profile" in str(check.reason) and check.compared.new_ns == 31_000


def test_super_kernels_without_telling_names_are_compared_with_what_vanished(tmp_path: Path) -> None:
    """Per step 3 kernels of 10 µs vanished, one of 31 µs came."""
    (check,) = checks(tmp_path, graph(1, STEPS), fused(1, 31_000, name="te_superkernel_0123abcd"))
    assert (check.basis, check.kernels, check.compared.old_ns, check.compared.new_ns) == ("inferred", 3, 30_000, 31_000)
    assert check.compared.verdict == "cannot_tell" and "gaps" in str(check.reason)
    (check,) = checks(tmp_path / "less", graph(1, STEPS), fused(1, 25_000, name="te_superkernel_0123abcd"))
    assert (check.compared.verdict, check.compared.saved_ns) == ("better", 5_000)


def test_only_those_that_vanished_count_for_what_they_took(tmp_path: Path) -> None:
    """Of six kernels of one type the three long ones were fused: 3 × 20 µs became 60 µs; the mean would say 45."""
    kinds = [("GroupedMatmul", "AI_CORE", 24, 0)] * 6
    kernels = graph(1, STEPS, kinds=tuple(kinds))
    before = [replace(k, dur=20_000 if i % 6 < 3 else 10_000) for i, k in enumerate(kernels)]
    kept = [k for i, k in enumerate(before) if i % 6 >= 3]
    (check,) = checks(tmp_path, before, [*kept, *fused(1, 60_000, name="te_superkernel_0123abcd")])
    assert (check.compared.old_ns, check.compared.new_ns, check.kernels, check.compared.verdict) == (
        60_000,
        60_000,
        3,
        "cannot_tell",
    )


def test_of_what_vanished_only_compute_can_have_been_fused(tmp_path: Path) -> None:
    """With 3 kernels of 10 µs a collective of 40 µs vanished; another one that came has replaced none of them."""
    others = [replace(k, start=k.start + 60_000, dur=40_000, core="COMMUNICATION", block=0, mix=0) for k in fused(1, 1)]
    old, new = ([replace(k, name=f"{t}_{i}", type=t) for i, k in enumerate(others)] for t in ("hcom_send_", "hcom_a_"))
    after = fused(1, 25_000, name="te_superkernel_0123abcd")
    (check,) = checks(tmp_path, [*graph(1, STEPS), *old], [*after, *new])
    assert (check.kernels, check.compared.old_ns, check.compared.new_ns) == (3, 30_000, 25_000)
    assert check.compared.verdict == "better" and "hcom" not in str(check.reason)


def test_kernels_that_others_may_have_replaced_prove_nothing(tmp_path: Path) -> None:
    """Three of 10 µs vanished and 25 µs came; but also another type, or a SuperKernel that names what it holds."""
    after = fused(1, 25_000, name="te_superkernel_0123abcd")
    other = {"dur": 10_000, "type": "TransData", "core": "AI_VECTOR_CORE", "block": 40, "mix": 0}
    more = [replace(k, start=k.start + 60_000, name=f"new_{i}", **other) for i, k in enumerate(after)]  # type: ignore[arg-type]
    (check,) = checks(tmp_path / "other", graph(1, STEPS), [*after, *more])
    assert check.compared.verdict == "cannot_tell" and "TransData" in str(check.reason)
    named = [replace(k, start=k.start + 60_000) for k in fused(1, 5_000)]
    found = {c.compared.name: c for c in checks(tmp_path / "named", graph(1, STEPS), [*after, *named])}
    assert found["(unnamed)"].compared.verdict == "cannot_tell" and "name their operators" in str(
        found["(unnamed)"].reason
    )


def test_one_run_says_nothing_about_its_noise(tmp_path: Path) -> None:
    (check,) = checks(tmp_path, graph(layers=1, steps=1), fused(1, 20_000, steps=1))
    assert check.compared.verdict == "cannot_tell"
    assert "noise unknown: too few steps to tell a difference from chance: 1 and 1," in str(check.reason)


def test_logs_without_an_earlier_profile(tmp_path: Path) -> None:
    log = tmp_path / "plog-1_1.log"
    log.write_text("[ERROR] GE(1,python):2026-11-21-10:00:00.1.2 [sk.cc:1]1 f: super_kernel_scope layer stops\n")
    folder = ascend_pt(tmp_path / "after", fused(1, 15_000, parts=2), cores="24,48")
    (device,) = analyzed(folder, plog=log).devices
    (check,) = device.super_kernel_checks
    assert (check.compared.verdict, check.parts, check.compared.new_ns) == ("cannot_tell", 2, 30_000)
    assert "--before" in str(check.reason) and "broke into 2" in str(check.reason)
    assert check.log == ["ERROR: [sk.cc:1]1 f: super_kernel_scope layer stops"]


def test_no_super_kernel_at_all_is_said(tmp_path: Path) -> None:
    (check,) = checks(tmp_path, graph(1, STEPS), graph(1, STEPS))
    assert check.compared.verdict == "cannot_tell" and "no SuperKernel" in str(check.reason)


def test_a_folder_without_logs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("super_kernel_scope")
    with pytest.raises(InputError, match=r"plog-\*\.log"):
        read_plog(tmp_path, ReadLog())


def test_the_document_holds_scopes_and_checks(tmp_path: Path) -> None:
    from npuperf.show.formats import render

    later = ascend_pt(tmp_path / "after", fused(2, 31_000), cores="24,48")
    earlier = ascend_pt(tmp_path / "before", graph(2, STEPS), cores="24,48", host=GE)
    document = json.loads(render(analyzed(later, before=earlier), "json"))
    assert document["devices"][0]["super_kernel_checks"][0]["compared"]["verdict"] == "better"
    document = json.loads(render(analyzed(earlier), "json"))
    assert document["devices"][0]["super_kernels"][0]["segments"][0]["kernels"] == 3
    assert np.all([s["code"] for s in document["devices"][0]["super_kernels"]])
