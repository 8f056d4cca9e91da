"""The last words of a tuning: how programs find the bank, and what they must build anew once."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuperf.model.tuning import Status, Tuning
from npuperf.show.formats import View, render
from npuperf.tune.bank import bank_use
from npuperf.tune.request import Dump, ModelFile, Script, Source, TuningJob


@pytest.mark.parametrize(
    ("source", "refresh"),
    [
        (ModelFile(Path("a.onnx")), "atc --op_compiler_cache_mode=force"),
        (Script(("python3", "train.py"), adapter=True), 'parameter_map["op_compiler_cache_mode"].s'),
        (
            Script(("python3", "train.py"), adapter=False),
            'torch.npu.set_option({"ACL_OP_COMPILER_CACHE_MODE": "force"})',
        ),
        (Dump(Path("dump")), 'torch.npu.set_option({"ACL_OP_COMPILER_CACHE_MODE": "force"})'),
    ],
)
def test_the_cache_is_refreshed_where_operators_are_built(tmp_path: Path, source: Source, refresh: str) -> None:
    said = str(bank_use(TuningJob("op", source), tmp_path).refresh)
    assert refresh in said and "deletes the cache" in said and "afterwards set enable" in said


@pytest.mark.parametrize("version", ["latest", "cann"])
@pytest.mark.parametrize(("mode", "kind"), [("op", "op"), ("subgraph", "graph")])
def test_the_default_place_needs_no_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, mode: str, kind: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    job = TuningJob("op" if mode == "op" else "subgraph", ModelFile(Path("a.onnx")))
    place = tmp_path / "Ascend" / version / "data/aoe/custom" / kind
    assert bank_use(job, place).export is None
    assert bank_use(job, place.parent / "other").export == f"export TUNE_BANK_PATH={place.parent / 'other'}"


def test_another_place_is_quoted_and_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    use = bank_use(TuningJob("op", Dump(Path("dump"))), Path("my bank"))
    assert use.export == f"export TUNE_BANK_PATH='{tmp_path}/my bank'" and use.place == f"{tmp_path}/my bank"


@pytest.mark.parametrize("format_", ["text", "markdown"])
def test_the_screen_says_it(tmp_path: Path, format_: str) -> None:
    status: Status = "successful"
    use = bank_use(TuningJob("op", ModelFile(Path("a.onnx"))), tmp_path)
    tuned = Tuning(mode="op", status=status, recovered=False, files=(), use=use)
    page = "".join(render(tuned, format_, View()).split())  # lines may be broken anywhere
    assert f"exportTUNE_BANK_PATH={tmp_path}" in page
    assert "op_compiler_cache_mode=force" in page
    assert "op_compiler_cache_mode" not in render(
        Tuning(mode="op", status="failed", recovered=False, files=()), format_
    )
