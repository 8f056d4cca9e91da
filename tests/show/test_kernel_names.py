"""C++ names of kernels: short for people, different where the names differ, whole in CSV and JSON."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from build import analyze_path

from npuperf.base.units import duration, in_rows, short_name, short_names
from npuperf.device.whatif import pattern
from npuperf.show.formats import View, render

NATIVE = "void at::native::"
ADD = f"{NATIVE}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)"
CLAMP = (
    f"{NATIVE}vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::launch_clamp_scalar("
    "at::TensorIteratorBase&, c10::Scalar)::{lambda()#1}::operator()() const::{lambda()#7}::operator()() "
    "const::{lambda(float)#1}, at::detail::Array<char*, 2> >(int, at::native::(anonymous namespace)::Other<int>)"
)
POOL = f"{NATIVE}(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*, long)"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (ADD, "vectorized_elementwise_kernel<…CUDAFunctor_add…>"),
        (CLAMP, "vectorized_elementwise_kernel<…launch_clamp_scalar…>"),
        (POOL, "max_pool_forward_nchw<…>"),
        ("cask::computeOffsets(cask::Params)", "computeOffsets"),
        ("at::native::computeOffsets<cask::Params>", "computeOffsets<…Params…>"),
        ("void cask", "void cask"),
        ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_32x32_sliced1x4_tn"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("aclnnMatmul_MatMulV3Common_MatMulV3", "aclnnMatmul_MatMulV3Common_MatMulV3"),
        ("void broken<<<(", "broken<…>"),
        ("", ""),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


def test_names_that_would_look_alike_show_what_differs() -> None:
    multiply = [
        f"{NATIVE}elementwise_kernel<128, 2, at::native::{kind}<float, at::native::MulFunctor<float> > >(int)"
        for kind in ("BinaryFunctor", "BUnaryFunctor")
    ]
    wgrad = [f"void wgrad_engine<float, 128, {n}, false>(int)" for n in (5, 6)]
    lambdas = [f"{NATIVE}kernel<F<float> >(int, G::{{lambda(int)#{n}}})" for n in (1, 2)]
    short = short_names([*multiply, ADD, *wgrad, *lambdas])
    assert short[multiply[0]] == "elementwise_kernel<…BinaryFunctor…MulFunctor…>"
    assert short[multiply[1]] == "elementwise_kernel<…BUnaryFunctor…MulFunctor…>"
    assert [short[name] for name in wgrad] == [
        "wgrad_engine<float, 128, 5, false>",
        "wgrad_engine<float, 128, 6, false>",
    ]
    assert short[ADD] == "vectorized_elementwise_kernel<…CUDAFunctor_add…>"
    assert len(set(short.values())) == 7 and all(len(s) <= 60 for s in short.values())
    assert short_names(lambdas[:1])[lambdas[0]] == "kernel<…F…>"


@pytest.mark.parametrize(
    "name", [ADD, CLAMP, POOL, "Memcpy HtoD (Pageable -> Device)", "MatMulV2", "odd*name", "a[b],c?"]
)
def test_an_expression_for_a_type_means_no_other(name: str) -> None:
    others = [ADD, CLAMP, POOL, ADD.replace("float", "int"), "Memcpy HtoD (Pinned -> Device)", "MatMulV3", "a[b],cd"]
    named = pattern(name, others)
    assert [n for n in {name, *others} if fnmatchcase(n.lower(), named.lower())] == [name] or name == "a[b],c?"
    assert "," not in named and not named.endswith("*")


def gpu_trace(folder: Path, names: list[str]) -> Path:
    """A launch of 5 µs every 20 µs; every kernel 10 µs after its launch, for 8 µs."""
    events: list[dict[str, object]] = []
    for i in range(60):
        name, at = names[i % len(names)], 1_000 + 20 * i
        call = {"ph": "X", "pid": 7, "tid": 7, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 5}
        kernel = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": name, "ts": at + 10, "dur": 8}
        events.append({**call, "args": {"correlation": i + 1}})
        events.append({**kernel, "args": {"device": 0, "stream": 7, "correlation": i + 1}})
    path = folder / "trace.json.gz"
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}]}
    path.write_bytes(gzip.compress(json.dumps({**head, "traceEvents": events}).encode()))
    return path


@pytest.mark.parametrize("format_", ["text", "markdown"])
def test_people_see_short_names(tmp_path: Path, format_: str) -> None:
    result = analyze_path(gpu_trace(tmp_path, [ADD, CLAMP, POOL]))
    page = render(result, format_, View(full=True))
    assert "CUDAFunctor_add" in page and "max_pool_forward_nchw" in page
    assert "at::detail::Array" not in page and "TensorIteratorBase" not in page


REAL = Path(__file__).parents[3] / "shared" / "data" / "hta"


@pytest.mark.skipif(not REAL.is_dir(), reason="real profiles are not here")
@pytest.mark.parametrize("format_", ["text", "markdown"])
@pytest.mark.parametrize("name", ["alexnet_gpu", "ns_resolution_gpu"])
def test_people_see_short_names_of_real_traces(name: str, format_: str) -> None:
    page = render(analyze_path(REAL / f"{name}.json.gz"), format_, View(full=True))
    assert [line for line in page.splitlines() if "TensorIteratorBase" in line or "at::detail" in line] == []


def test_programs_see_whole_names(tmp_path: Path) -> None:
    result = analyze_path(gpu_trace(tmp_path, [ADD, CLAMP, POOL]))
    rows = csv.DictReader(io.StringIO(render(result, "csv", View(table="operators"))))
    assert {row["type"] for row in rows} == {ADD, CLAMP, POOL}
    assert {o["type"] for o in json.loads(render(result, "json", View()))["operators"]} == {ADD, CLAMP, POOL}


def test_the_change_of_a_type_has_its_short_name(tmp_path: Path) -> None:
    """The first type has more kernels than the second, all of one length."""
    result = analyze_path(gpu_trace(tmp_path, [ADD, ADD, CLAMP]))
    (change,) = (w for w in result.what_if if w.expr.startswith("op:"))
    assert "**" not in change.expr and "," not in change.expr
    assert str(change.title) == "vectorized_elementwise_kernel<…CUDAFunctor_add…> twice as fast, and no other type"


@pytest.mark.parametrize("seed", range(8))
def test_numbers_in_a_row_are_named_by_their_ends(seed: int) -> None:
    """Read again they are the same, in as few rows as there are gaps, and one more."""
    numbers = random.Random(seed).sample(range(20), seed + 2)
    rows = [[int(end) for end in text.split("-")] for text in in_rows(numbers)]
    assert [n for row in rows for n in range(row[0], row[-1] + 1)] == sorted(numbers)
    assert len(rows) == sum(n + 1 not in numbers for n in numbers)
    assert all(len(row) == 1 or row[0] < row[1] for row in rows)


@pytest.mark.parametrize(
    ("ns", "words"),
    [(None, "–"), (0, "0 ns"), (-999, "-999 ns"), (1_000, "1.00 us"), (12_345_678, "12.35 ms"), (-2e9, "-2.00 s")],
)
def test_times_are_named_in_their_unit(ns: float | None, words: str) -> None:
    assert duration(ns) == words
