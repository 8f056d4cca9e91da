"""Documents of released versions, as they were written then, are read by this one.

``pytest tests/test_released.py --update`` writes those of the version that the source says; those of a version that has
been released are never changed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from conftest import ROOT, run_cli

from npuperf.base import __version__
from npuperf.model.result import Result
from npuperf.model.schema import schema_of

RELEASED = ROOT / "tests" / "released"
SAMPLE = "samples/micro_batch_ascend_pt"


def test_those_of_the_next_release_are_written_when_asked_for(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NPUPERF_NO_CACHE", "1")
    folder = RELEASED / __version__
    if request.config.getoption("--update"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        made = (["--format", "json", "-o", str(folder / "result.json")], ["--lock", str(folder / "perf.lock")])
        for options in (*made, ["--save-baseline", "main", "--baseline-dir", str(folder)]):
            assert run_cli(["analyze", SAMPLE, *options]).returncode == 0
    assert {"perf.lock", "result.json"} < {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("version", sorted(path.name for path in RELEASED.glob("*.*.*")))
def test_documents_of_a_release_are_read(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    folder = Path(shutil.copytree(RELEASED / version, tmp_path / version))  # what is read may be brought up to date
    document = json.loads((folder / "result.json").read_text("utf-8"))
    today = run_cli(["analyze", SAMPLE, "--no-cache", "--format", "json"])
    if document["schema_version"].split(".")[0] == json.loads(today.stdout)["schema_version"].split(".")[0]:
        jsonschema.validate(document, json.loads(json.dumps(schema_of(Result))))
    for baseline in (
        ["--baseline", str(folder / "result.json")],
        ["--baseline", "main", "--baseline-dir", str(folder)],
    ):
        compared = run_cli(["analyze", SAMPLE, "--no-cache", "--format", "json", *baseline])
        assert compared.returncode == 0, compared.stderr
        assert json.loads(compared.stdout)["comparison"]["verdict"] in ("same", "cannot_tell")
    checked = run_cli(["analyze", SAMPLE, "--no-cache", "--check", str(folder / "perf.lock")])
    assert checked.returncode == 0, checked.stderr
