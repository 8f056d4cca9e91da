"""What a result is compared with: told apart, read back exactly, and refused where it cannot be relied on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from build import K, ascend_pt
from clusters import large_job, pipeline_job, result_of
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.against.baselines import BaselineStore, reduced, without_blanks
from npuperf.against.compare import compare_results
from npuperf.against.metrics import register_all
from npuperf.against.run import run
from npuperf.against.sides import read_result, sides_of, warnings_of
from npuperf.analyze.request import AnalyzeRequest, Question
from npuperf.base.errors import InputError, UsageError
from npuperf.base.messages import Message, Parameter, Quantity, Series, plain, said, say, say_n, series, text
from npuperf.model.document import metrics_of
from npuperf.model.result import Result
from npuperf.model.schema import document_of
from npuperf.model.shortened import unfolded
from npuperf.show.formats import View, render

register_all()
SAMPLES = ("transformer_ascend_pt", "micro_batch_ascend_pt", "pipeline_job")


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return {name: run(AnalyzeRequest(path=ROOT / "samples" / name)) for name in SAMPLES}


def again(result: Result) -> Result:
    return document_of(json.loads(render(result, "json")), Path("r.json"), Result)


def kept_of(result: Result) -> Result:
    """What is read of a baseline."""
    return unfolded(again(reduced(result)))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_result_comes_back_as_it_was(results: dict[str, Result], name: str) -> None:
    """In every format, and in another language: the messages are messages again."""
    result = results[name]
    back = again(result)
    for format_ in ("json", "text", "markdown"):
        assert render(back, format_, View(full=True)) == render(result, format_, View(full=True))
    assert render(back, "csv", View(table="findings")) == render(result, "csv", View(table="findings"))


@pytest.mark.parametrize("result", [result_of(large_job(64)), result_of(pipeline_job())], ids=["large", "pipeline"])
def test_a_job_comes_back_as_it_was(result: Result) -> None:
    assert again(result) == result


@pytest.mark.parametrize("old", SAMPLES)
@pytest.mark.parametrize("new", SAMPLES)
def test_a_baseline_is_as_good_as_the_profile(results: dict[str, Result], old: str, new: str) -> None:
    """Whatever is left out of a baseline, no comparison asks for."""
    thresholds = load_thresholds({})
    kept = kept_of(results[old])
    whole = compare_results([results[old]], [results[new]], thresholds, allow_mismatch=True)
    assert compare_results([kept], [results[new]], thresholds, allow_mismatch=True) == whole


@pytest.mark.parametrize("name", SAMPLES)
def test_gates_find_the_same_in_a_baseline(results: dict[str, Result], name: str) -> None:
    kept = kept_of(results[name])
    metrics = metrics_of(Result)
    assert len(metrics) >= 7
    for metric in metrics.values():
        argument = {"op": "MatMulV2", "finding": "sync_points"}.get(metric.name)
        if argument is None and metric.argument == "required":
            argument = next(iter(metric.arguments())) if metric.arguments else "x"
        assert metric.measure(kept, argument) == metric.measure(results[name], argument), metric.name


@pytest.mark.parametrize("name", SAMPLES)
def test_a_baseline_is_small(results: dict[str, Result], name: str) -> None:
    assert len(without_blanks(render(reduced(results[name]), "json"))) < 200_000


PARAMETERS: st.SearchStrategy[Parameter] = st.recursive(
    st.one_of(
        st.text(),
        st.none(),
        st.integers(-(2**53), 2**53),
        st.builds(Quantity, st.integers(0, 10**12), st.sampled_from(["ns", "share", "count", "bytes", "number"])),
        st.builds(Quantity, st.integers(0, 10**12), st.just("ns"), st.integers(0, 10**12)),
    ),
    lambda inner: st.one_of(
        st.builds(lambda items, by: series(items, by), st.lists(inner, max_size=3), st.sampled_from([", ", "; ", " "])),
        st.builds(lambda x, y: say("{x} of {y}", x=x, y=y), inner, inner),
        st.builds(lambda n, x: say_n("{n} thing {x}", "{n} things {x}", n, x=x), st.integers(0, 3), inner),
    ),
    max_leaves=6,
)


@given(PARAMETERS)
def test_messages_come_back(parameter: Parameter) -> None:
    """With their plural and what stands in a series, unless a series lies directly in another."""
    message = say("told: {what}", what=parameter)
    written = json.loads(json.dumps(plain(message)))
    back = said(text(message), written)
    assert text(back) == text(message)
    if not nested(message):
        assert back == message


def nested(value: Parameter, inside: bool = False) -> bool:
    if isinstance(value, Series):
        return inside or any(nested(item, True) for item in value.items)
    return isinstance(value, Message) and any(nested(one) for one in value.parameters.values())


HOSTILE = [
    {"id": "{x:>99999999999}", "parameters": {"x": "a"}},
    {"id": "{x.__class__}", "parameters": {"x": "a"}},
    {"id": "{y}", "parameters": {"x": "a"}},
    {"id": "{x", "parameters": {"x": "a"}},
    {"id": "{x}", "parameters": {"x": {"value": 1, "unit": "parsec"}}},
    {"id": "{x}", "parameters": {"x": {"value": "1", "unit": "ns"}}},
    {"id": "{x}", "parameters": [1]},
    {"id": "{x}", "parameters": {"x": 1}, "plural": 3},
    {"id": "{x}", "parameters": {"x": 1}, "plural": "{x}s", "n": "many"},
    {"id": "{x}", "parameters": {"x": [1]}, "by": 3},
    {"id": 3, "parameters": {}},
    {"parameters": {}},
    [],
    None,
]


@pytest.mark.parametrize("written", HOSTILE)
def test_what_is_no_message_stays_its_sentence(written: object) -> None:
    assert said("5 of {x}", written) == say("{text}", text="5 of {x}")


def test_a_sentence_that_says_something_else_is_believed(results: dict[str, Result]) -> None:
    note = json.loads(render(results["transformer_ascend_pt"], "json"))
    note["verdict"]["reason"] = "forged"
    assert str(document_of(note, Path("r.json"), Result).verdict.reason) == "forged"


def note_of(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A result of a small profile as JSON, after a change."""
    kernels = [K(i * 30_000, 10_000, step=1 + i // 2, launch=i * 30_000 - 20_000) for i in range(4)]
    note = json.loads(render(run(AnalyzeRequest(path=ascend_pt(tmp_path / "p", kernels))), "json"))
    change(note)
    path = tmp_path / "old.json"
    path.write_text(json.dumps(note), "utf-8")
    return path


def test_a_result_is_read_and_called_as_it_was_asked_for(tmp_path: Path) -> None:
    result = read_result(note_of(tmp_path, lambda note: note.update(added_later=[{"x": 1}])), "main")
    assert result.input.path == "main"
    assert result.digest is not None and result.digest.windows == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda note: note.pop("digest"), "too old to compare with"),
        (lambda note: note.update(schema_version="1.4"), r"written in version 1\.4 of the format"),
        (lambda note: note.pop("schema_version"), "no schema_version"),
        (lambda note: note.pop("devices"), "cannot be read as a result.*devices"),
        (lambda note: note["digest"]["parts"][0].update(part="magic"), "cannot be read as a result"),
        (lambda note: note["digest"]["parts"][0].update(ns=-5), "numbers that nothing can have"),
        (lambda note: note["digest"]["parts"][0].update(ns=1), "do not add up"),
        (lambda note: note["digest"]["span_ns"].append(7), "not something for every step"),
        (lambda note: note["digest"]["types"][0]["ns"].append(7), "not something for every step"),
        (lambda note: note["digest"].update(windows=10**30), "cannot be read as a result"),
        (lambda note: note["digest"].update(windows=10**19), "numbers that nothing can have|cannot be read"),
        (lambda note: note["digest"].update(steps=[], span_ns=[], types=[], counts=[]), "not something for every step"),
        (lambda note: note["digest"].update(windows=0), "not as long as what they consist of"),
        (lambda note: note["digest"].update(windows=10**15), "not as long as what they consist of"),
        (lambda note: note["digest"].update(windows=1), "not as long as what they consist of"),
        (lambda note: note["digest"].update(span_ns=[0] * len(note["digest"]["span_ns"])), "not as long as"),
        (lambda note: note.update(verdict=[]), "cannot be read as a result"),
        (lambda note: note["verdict"].update(reason={"x": 1}), "cannot be read as a result"),
    ],
)
def test_results_that_cannot_be_relied_on_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], why: str
) -> None:
    with pytest.raises(InputError, match=why) as told:
        read_result(note_of(tmp_path, change), "old")
    assert str(tmp_path) in str(told.value) or "old.json" in str(told.value)


@pytest.mark.parametrize("damage", ["", "{", "[1, 2]", '{"schema_version": ' + "[" * 100_000, "\x00" * 50])
def test_damaged_json_is_an_input_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(damage, "utf-8")
    with pytest.raises(InputError, match=r"r\.json"):
        read_result(path, "old")


def test_sides_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = note_of(tmp_path, lambda note: None)
    kept = BaselineStore(tmp_path / ".npuperf" / "baselines")
    kept.keep("main", result.read_text("utf-8"))
    trace = tmp_path / "trace.json"
    trace.write_text('{"schemaVersion": 1, "traceEvents": []}', "utf-8")
    asked = ("p", "old.json", "main", "trace.json", str(kept.path("main")))
    found = sides_of(AnalyzeRequest(path=Path("p"), baseline=asked))
    assert [side.profile for side in found] == [Path("p"), None, None, Path("trace.json"), None]
    assert [side.result is not None for side in found] == [False, True, True, False, True]
    assert [side.name for side in found] == [None, None, "main", None, None]
    (tmp_path / "main").mkdir()
    (path_first,) = sides_of(AnalyzeRequest(path=Path("p"), baseline=("main",)))
    assert path_first.profile == Path("main")


def test_sides_that_are_not_there(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path / "b")
    request = AnalyzeRequest(path=tmp_path / "p", baseline_dir=tmp_path / "b", baseline=("mian",))
    with pytest.raises(UsageError, match="--save-baseline NAME keeps one"):
        sides_of(request)
    store.keep("main", "{}")
    with pytest.raises(UsageError, match=r"did you mean main\? known: main"):
        sides_of(request)
    with pytest.raises(InputError, match="no such file or folder"):
        sides_of(AnalyzeRequest(path=tmp_path / "p", baseline=("gone/r.json",)))


def test_choosing_a_part_does_not_reach_into_kept_results(tmp_path: Path) -> None:
    path = str(note_of(tmp_path, lambda note: None))
    request = AnalyzeRequest(path=tmp_path / "p", baseline=(path, str(tmp_path / "p")), step=1)
    sides = sides_of(request)
    (told,) = warnings_of(request, sides)
    assert str(told).startswith(f"{path}: compared as it was kept")
    assert warnings_of(request, sides[1:]) == []
    assert warnings_of(AnalyzeRequest(path=request.path, baseline=request.baseline), sides) == []


def test_every_answer_is_kept(results: dict[str, Result]) -> None:
    """Problems and what cannot be told of every rank, with the numbers that each has."""
    result = results["pipeline_job"]
    problem, untold = (next(f for f in result.findings if f.status == status) for status in ("problem", "cannot_tell"))
    devices = [replace(result.devices[0], rank=rank, device=rank % 8) for rank in range(150)]
    many = [
        replace(one, rank=rank, device=rank % 8, title=say("{n} things", n=rank // 2))
        for one in (problem, untold)
        for rank in range(150)
    ]
    small = reduced(replace(result, devices=devices, findings=many))
    assert len(small.findings) == 2
    kept = unfolded(again(small))
    assert [(f.status, f.rank, f.device, f.title) for f in kept.findings] == [
        (f.status, f.rank, f.device, f.title) for f in many
    ]


def test_the_same_is_asked_of_a_baseline() -> None:
    request = AnalyzeRequest(
        path=Path("new"), step=3, soc="Ascend910B1", what_if=("host*0.5",), top=3, baseline=("a",), fail_on=("idle>1%",)
    )
    asked = request.of_baseline(Path("old"))
    assert asked == Question(path=Path("old"), step=3, soc="Ascend910B1")
    assert request.question == Question(path=Path("new"), step=3, soc="Ascend910B1", what_if=("host*0.5",), top=3)


def test_a_run_on_a_host_alone_is_a_baseline(tmp_path: Path) -> None:
    """It has counts for every step and how long the host took for it, 90 us, and no time of a device."""
    marks = [("user_annotation", f"ProfilerStep#{n}", 100 * n, 90) for n in (1, 2, 3)]
    calls = [("cpu_op", "aten::mm", 100 * n + 5, 20) for n in (1, 2, 3)]
    trace = tmp_path / "a.pt.trace.json"
    events = [{"ph": "X", "cat": c, "name": n, "pid": 5, "tid": 5, "ts": t, "dur": d} for c, n, t, d in marks + calls]
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), "utf-8")
    result = run(AnalyzeRequest(path=trace))
    kept = tmp_path / "main.json"
    kept.write_text(without_blanks(render(reduced(result), "json")), "utf-8")
    side = read_result(kept, "main")
    assert side.digest is not None
    assert (side.digest.steps, side.digest.span_ns) == ([1, 2, 3], [90_000] * 3)
    assert compare_results([side], [result], load_thresholds({})).verdict == "same"
