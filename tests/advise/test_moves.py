"""Casts, format conversions and copies: what, for whom, and advice for that kind alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from build import K, ascend_pt
from msgspec.structs import replace
from small_programs import analyzed, answer, beside, busy, problem, steps_of

from npuperf.advise.moves import BUCKETS, PRIVATE_FORMATS, from_buckets
from npuperf.model.host import Spans
from npuperf.model.labels import Labels
from npuperf.model.result import Finding

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@dataclass(frozen=True)
class Ends:
    """The four columns of the export that say what goes in and out."""

    dtypes: str = "FLOAT"
    formats: str = "ND"
    out_dtypes: str = "FLOAT"
    out_formats: str = "ND"


HEADERS = ("Input Data Types", "Input Formats", "Output Data Types", "Output Formats")


def with_ends(folder: Path, ends: dict[str, Ends]) -> Path:
    """Add the columns to a kernel table, by the kernels' names."""
    path = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    header, *rows = csv.reader(path.read_text().splitlines())
    name = header.index("Name")
    blank = ("N/A",) * 4
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*header, *HEADERS])
        for row in rows:
            e = ends.get(row[name])
            out.writerow([*row, *(blank if e is None else (e.dtypes, e.formats, e.out_dtypes, e.out_formats))])
    return folder


def case(root: Path, rule: str, *moves: tuple[K, Ends], versions: Mapping[str, object] | None = None) -> Finding:
    kernels = [replace(k, name="aclnnMatmul_MatMulV2_MatMulV2") for k in busy()]
    for move, _ in moves:
        kernels.append(beside(kernels, move.dur, name=move.name, type=move.type, shapes=move.shapes))
    folder = with_ends(ascend_pt(root, kernels), {k.name: e for k, e in moves})
    (folder / "profiler_info_0.json").write_text(json.dumps({"rank_id": 0, **(versions or {})}))
    return answer(analyzed(folder), rule)


def move(name: str, dur: int = 1_000_000, type: str | None = None, shapes: str = "8,8") -> K:
    return K(0, dur, name, type or name.rpartition("_")[2], shapes=shapes)


CAST = Ends("FLOAT", "ND", "DT_BF16", "ND")
TO_NZ = Ends("DT_BF16", "ND", "DT_BF16", "FRACTAL_NZ")
TO_5HD = Ends("FLOAT", "FORMAT_NCHW", "FLOAT", "NC1HWC0:1")


@pytest.mark.parametrize(
    ("name", "by", "asked", "says"),
    [
        ("aclnnCast_CastAiCore_Cast", "program", "aclnnCast", "the program casts"),
        ("aclnnInplaceCopy_CastAiCore_Cast", "program", "aclnnInplaceCopy", "the program casts"),
        ("aclnnEmbeddingDenseBackward_CastAiCore_Cast", "operator", "aclnnEmbeddingDenseBackward", "casts inside"),
        ("trans_Cast_5", "compiler", None, "put between operators"),
        ("Cast190", "unknown", None, "who casts is not recorded"),
    ],
)  # fmt: skip
def test_a_cast_names_its_dtypes_and_who_asked(
    tmp_path: Path, name: str, by: str, asked: str | None, says: str
) -> None:
    found = case(tmp_path, "casts", (move(name, type="Cast", shapes="4096,1,151936"), CAST))
    (row,) = found.evidence["casts"]
    assert (row["source"], row["target"], row["by"], row["asked"]) == ("FLOAT32", "BF16", by, asked)
    assert "FLOAT32 to BF16 ×1 of [4096,1,151936]" in str(found.title)
    assert says in steps_of(found)
    assert "allow_internal_format" not in steps_of(found)
    assert found.gain_ns_per_step == (0, 500_000)  # 1 ms in two steps


def test_casts_of_different_shapes_are_told_apart_and_summed(tmp_path: Path) -> None:
    name = "aclnnCast_CastAiCore_Cast"
    large = [(move(name, 700_000, shapes="64,1000"), CAST)] * 2
    found = case(tmp_path, "casts", *large, (move(name, 100_000, shapes="8"), CAST))
    assert [(r["shape"], r["count"], r["total_ns"]) for r in found.evidence["casts"]] == [
        ("64,1000", 2, 1_400_000),
        ("8", 1, 100_000),
    ]


def test_each_kind_is_judged_by_its_own_rows(tmp_path: Path) -> None:
    """1 ms of casts and 0.6 of conversions beside 10 ms: each finding gains what its own kernels take."""
    result = (
        (move("aclnnCast_CastAiCore_Cast"), CAST),
        (move("aclnnMatmul_TransData_TransData", 600_000), TO_NZ),
    )
    gains = {rule: case(tmp_path / rule, rule, *result).gain_ns_per_step for rule in ("casts", "layout")}
    assert gains == {"casts": (0, 500_000), "layout": (0, 300_000)}
    assert case(tmp_path / "copies", "copies", *result).status == "ok"


SWITCH = "torch.npu.config.allow_internal_format = False"


@pytest.mark.parametrize(
    ("name", "ends", "versions", "advised", "why"),
    [
        ("trans_TransData_3", TO_5HD, {"torch_npu_version": "2.1.0"}, True, ""),
        ("trans_TransData_3", TO_5HD, {}, True, ""),
        ("trans_TransData_3", TO_5HD, {"torch_npu_version": "2.13.0"}, False, "allowed by torch_npu's default"),
        ("aclnnMatmul_TransData_TransData", TO_NZ, {"torch_npu_version": "2.1.0"}, False, "not inside aclnn calls"),
    ],
)
def test_the_switch_is_for_formats_between_operators_where_it_is_on(
    tmp_path: Path, name: str, ends: Ends, versions: dict[str, str], advised: bool, why: str
) -> None:
    found = case(tmp_path, "layout", (move(name, type="TransData"), ends), versions=versions)
    assert found.status == "problem"
    assert (SWITCH in steps_of(found)) == advised
    excluded = [str(e.because) for e in found.excluded if SWITCH in str(e.advice)]
    assert excluded == [] if advised else (len(excluded) == 1 and why in excluded[0])
    unknown = {str(p.what): p.holds for p in found.preconditions}
    if advised:
        assert unknown["private formats allowed by torch_npu's default"] is (True if versions else None)


@pytest.mark.parametrize(
    ("soc", "version", "allowed"),
    [
        ("Ascend910B4", (2, 6, 9), True), ("Ascend910B4", (2, 7, 0), None), ("Ascend910B4", (2, 9, 9), None),
        ("Ascend910B4", (2, 10, 0), False), ("Ascend910B4", None, None), (None, (2, 1, 0), True),
        ("Ascend910_9391", (2, 1, 0), False), ("Ascend910_9391", None, False),
    ],
)  # fmt: skip
def test_versions_of_torch_npu_that_allow_private_formats(
    soc: str | None, version: tuple[int, ...] | None, allowed: bool | None
) -> None:
    """On before 2.7, off from 2.10 on; between them it depends on the day. On Atlas A3 always off."""
    view = SimpleNamespace(profile=SimpleNamespace(soc=soc), traits=SimpleNamespace(torch_npu=version))
    assert PRIVATE_FORMATS.test(cast(Any, view)) is allowed


def test_conversions_name_formats_and_the_operator(tmp_path: Path) -> None:
    found = case(
        tmp_path,
        "layout",
        (move("aclnnMatmul_TransData_TransData", 900_000), TO_NZ),
        (move("trans_TransData_4", 300_000, "TransData"), TO_5HD),
    )
    assert "ND to FRACTAL_NZ ×1 for aclnnMatmul" in str(found.title)
    assert [(r["source"], r["target"], r["by"]) for r in found.evidence["conversions"]] == [
        ("ND", "FRACTAL_NZ", "operator"),
        ("NCHW", "NC1HWC0", "compiler"),
    ]


@pytest.mark.parametrize(("kernel", "given"), [("Add", True), ("ReluGrad", False)])
def test_weights_are_stored_in_the_operators_format_only_where_they_stay(
    tmp_path: Path, kernel: str, given: bool
) -> None:
    """A kernel of a gradient shows training, which changes the weights at every step."""
    other = (move(f"aclnnX_{kernel}_{kernel}", 100_000, kernel), Ends())
    found = case(tmp_path, "layout", (move("aclnnMatmul_TransData_TransData"), TO_NZ), other)
    weights = "npu_format_cast(weight, 29)"
    assert (weights in steps_of(found)) == given
    assert ["no backward pass" in str(e.because) for e in found.excluded if weights in str(e.advice)] == [True] * (
        not given
    )


@pytest.mark.parametrize(
    ("name", "type_", "status"),
    [
        ("aclnnContiguous_SliceAiCore_Slice", "Slice", "problem"),
        ("Slice_7", "Slice", "ok"),  # a node of a graph: the program's own slice
        ("aclnnInplaceCopy_TensorMoveAiCore_TensorMove", "TensorMove", "problem"),
        ("aclnnX_Transpose", "Transpose", "problem"),
        ("AsStrided93", "AsStrided", "problem"),
        ("aclnnMm_TransposeBatchMatMul", "TransposeBatchMatMul", "ok"),
        ("aclnnAdd_Add_Add", "BroadcastTo", "ok"),
    ],
)
def test_what_counts_as_a_copy(tmp_path: Path, name: str, type_: str, status: str) -> None:
    found = case(tmp_path, "copies", (move(name, type=type_), Ends()))
    assert found.status == status
    if status == "problem":
        assert found.gain_ns_per_step == (0, 500_000)


@pytest.mark.parametrize(
    ("rule", "type_"),
    [("casts", "Cast"), ("layout", "TransData"), ("layout", "trans_TransData"), ("copies", "TransposeD")],
)  # fmt: skip
def test_without_dtypes_and_formats_the_types_remain(tmp_path: Path, rule: str, type_: str) -> None:
    """10 ms of compute and 0.8 ms of conversions, of which another stream hides 0.3: at most 0.5 ms in two steps."""
    kernels = busy()
    turn = beside(kernels, 800_000, type=type_)
    cover = K(turn.start + 500_000, 300_000, "cover", "Mul", stream=5, launch=turn.start - 1_000_000, step=12)
    found = problem(ascend_pt(tmp_path, [*kernels, turn, cover]), rule)
    assert f"{type_} ×1" in str(found.title)
    assert found.evidence["share_of_compute"] == pytest.approx(0.8 / 11.1)
    assert found.gain_ns_per_step == (0, 250_000)


@pytest.mark.parametrize("rule", ["casts", "layout", "copies"])
def test_no_operator_types_no_answer(tmp_path: Path, rule: str) -> None:
    found = answer(analyzed(ascend_pt(tmp_path, busy(type="N/A"))), rule)
    assert (found.status, "types" in str(found.needs)) == ("cannot_tell", True)


@pytest.mark.skipif(not DATA.is_dir(), reason="no profiles of others here")
@pytest.mark.parametrize(
    ("path", "rule", "table", "kind"),
    [
        ("msinsight/cluster4/rank_2_ascend_pt", "casts", "casts", ("4096,1,151936", 4)),
        ("msinsight/cluster4/rank_2_ascend_pt", "layout", "conversions", (None, 6)),
        ("msinsight/text/level1/rank0_ascend_pt", "layout", "conversions", (None, 57)),
        ("msprof-analyze/arithmetic_utilization", "casts", "casts", (None, 75)),
    ],
)
def test_recorded_runs_counted_row_by_row(path: str, rule: str, table: str, kind: tuple[str | None, int]) -> None:
    """The counts were taken from the kernel tables by hand; time is summed here from the raw cells."""
    shape, count = kind
    found = answer(analyzed(DATA / path), rule)
    rows = [r for r in found.evidence[table] if shape is None or r["shape"] == shape]
    raw = next((DATA / path).rglob("kernel_details.csv"))
    type_ = {"casts": "Cast", "layout": "TransData"}[rule]
    lines = [r for r in csv.DictReader(raw.read_text().splitlines()) if r["Type"] == type_]
    lines = [r for r in lines if shape is None or r["Input Shapes"].strip('"') == shape]
    assert len(lines) == count
    if found.evidence["kinds"] <= len(found.evidence[table]):
        assert sum(r["count"] for r in rows) == count
        assert sum(r["total_ns"] for r in rows) == sum(round(float(r["Duration(us)"]) * 1_000) for r in lines)


@pytest.mark.parametrize(
    ("dtype", "advised", "holds"),
    [("INT64", "int32", True), ("DOUBLE", "float", True), ("FLOAT", None, False), (None, "int32, float", None)],
)
def test_another_dtype_is_for_operators_that_have_a_wide_one(
    tmp_path: Path, dtype: str | None, advised: str | None, holds: bool | None
) -> None:
    """An operator on AI CPU whose inputs are float already does not get to AI Core by a narrower dtype."""
    kernels = busy()
    kernels.append(beside(kernels, 500_000, name="aclnnSort_Sort", type="Sort", core="AI_CPU"))
    folder = with_ends(ascend_pt(tmp_path, kernels), {"aclnnSort_Sort": Ends(dtype)} if dtype else {})
    found = answer(analyzed(folder), "ai_cpu")
    offer = "use a dtype that AI Core has"
    assert (f"{offer} ({advised})" in steps_of(found)) == (advised is not None)
    assert [str(e.because) for e in found.excluded] == ([] if advised else ["needs inputs of int64 or double"])
    if advised:
        assert {str(p.what): p.holds for p in found.preconditions}["inputs of int64 or double"] is holds
    assert "out of the step" in steps_of(found)


@pytest.mark.parametrize(
    ("name", "type_", "given"),
    [("aclnnContiguous_Slice", "Slice", True), ("aclnnInplaceCopy_TensorMove", "TensorMove", False)],
)
def test_joining_views_is_for_views(tmp_path: Path, name: str, type_: str, given: bool) -> None:
    """A copy of a whole tensor (TensorMove) is no view that is stored anew."""
    found = case(tmp_path, "copies", (move(name, type=type_), Ends()))
    assert ("COMBINED_ENABLE=1" in steps_of(found)) == given
    excluded = [str(e.because) for e in found.excluded if "COMBINED_ENABLE" in str(e.advice)]
    assert excluded == ([] if given else ["needs views that are stored anew"])
    assert "record with --stack" in steps_of(found)


def test_copies_inside_operators_have_advice_beside_few_of_the_programs(tmp_path: Path) -> None:
    """1 ms inside an operator and 0.05 of the program's own, which is less than 2 % of 11 ms of compute."""
    few = (move("aclnnInplaceCopy_TensorMove", 50_000, "TensorMove"), Ends())
    found = case(tmp_path, "copies", (move("aclnnTopk_Transpose"), Ends()), few)
    assert str(found.next).startswith("copies inside aclnnTopk are part of these calls")


def test_copies_that_a_compiler_put_in_are_inside_no_operator(tmp_path: Path) -> None:
    found = case(tmp_path, "copies", (move("trans_Transpose_3", type="Transpose"), Ends()))
    assert found.status == "problem"
    assert "copies inside" not in " ".join([steps_of(found), *(str(e.advice) for e in found.excluded)])


@pytest.mark.parametrize("recorded", [True, False])
def test_stacks_that_are_recorded_are_not_asked_for(tmp_path: Path, recorded: bool) -> None:
    """They lead to no line of the user's, and another recording would do no better."""
    config = {"config": {"common_config": {"with_stack": recorded}}}
    for rule, moved in (("casts", move("aclnnCast_CastAiCore_Cast")), ("copies", move("aclnnContiguous_Slice"))):
        found = case(tmp_path / rule, rule, (moved, Ends()), versions=config)
        assert ("--stack" in steps_of(found)) != recorded


def test_weights_are_those_of_operators_that_convert_to_the_format(tmp_path: Path) -> None:
    other = (move("aclnnConv_TransData_TransData", 900_000), TO_5HD)
    found = case(tmp_path / "two", "layout", (move("aclnnMatmul_TransData_TransData", 800_000), TO_NZ), other)
    assert "for aclnnMatmul, store weights" in steps_of(found)
    found = case(tmp_path / "one", "layout", other)
    assert [str(e.advice).partition(" that")[0] for e in found.excluded if "weights" in str(e.advice)] == [
        "store weights"
    ]


@pytest.mark.parametrize(("rule", "name"), [("casts", "Cast"), ("layout", "TransData"), ("copies", "TensorMove")])
def test_two_percent_of_compute_time_are_worth_a_word(tmp_path: Path, rule: str, name: str) -> None:
    """98 kernels of 100 µs, and one of 200: 2 %; a microsecond less is less."""
    for ns, status in ((200_000, "problem"), (199_000, "ok")):
        made = busy(98)
        moved = beside(made, ns, name=f"aclnn_{name}_{name}", type=name)
        assert answer(analyzed(ascend_pt(tmp_path / status, [*made, moved])), rule).status == status


@pytest.mark.parametrize("rule", ["casts", "layout", "copies"])
def test_nothing_is_moved_whatever_the_threshold(tmp_path: Path, rule: str) -> None:
    result = analyzed(ascend_pt(tmp_path, busy()), thresholds={"layout_share": 0.0})
    assert answer(result, rule).status == "ok"


def test_each_kind_has_its_own_rows_however_they_alternate(tmp_path: Path) -> None:
    """Two kinds in turn: 3 of 0.1 ms and 2 of 0.2 ms."""
    name = "aclnnCast_CastAiCore_Cast"
    wide, narrow = (move(name, 100_000, shapes="64"), CAST), (move(name, 200_000, shapes="8"), CAST)
    found = case(tmp_path, "casts", wide, narrow, wide, narrow, wide)
    assert [(r["shape"], r["count"], r["total_ns"]) for r in found.evidence["casts"]] == [
        ("8", 2, 400_000),
        ("64", 3, 300_000),
    ]


# --- copies from DDP's buckets: told by the range around their operators, on its thread and at its time --------------


#: Ordered by thread, then start: (thread, start, end, name).
OPS = [
    (1, 0, 100, "aten::copy_"),  # before the range
    (1, 200, 900, BUCKETS),
    (1, 300, 400, "aten::copy_"),
    (1, 320, 380, "aclnnInplaceCopy"),
    (1, 950, 990, "aten::copy_"),  # after it
    (1, 1_000, 1_400, BUCKETS),
    (1, 1_100, 1_200, "aten::copy_"),
    (2, 300, 400, "aten::copy_"),  # at its time, on another thread
]


def asked(ops: list[tuple[int, int, int, str]], op: list[int]) -> list[bool]:
    thread, start, end, name = zip(*ops, strict=True)
    spans = Spans(np.array(start), np.array(end), np.array(thread), Labels.of(list(name)))
    view = SimpleNamespace(
        profile=SimpleNamespace(host=SimpleNamespace(ops=spans)), tasks=SimpleNamespace(op=np.array(op))
    )
    return cast("list[bool]", from_buckets(cast(Any, view), np.arange(len(op))).tolist())


def test_only_what_lies_within_the_range_is_ddp_s() -> None:
    assert asked(OPS, [0, 2, 3, 4, 6, 7, -1]) == [False, True, True, False, True, False, False]


def test_without_such_a_range_nothing_is() -> None:
    assert asked([op for op in OPS if op[3] != BUCKETS], [0, 1, 2, -1]) == [False] * 4
