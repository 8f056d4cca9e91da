"""Baselines: where they are kept, under which names, and which runs were held against them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from build import K, ascend_pt
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from npuperf.against.baselines import BaselineStore, candidate_of, histories, key_of, recording_id, usual_folder
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import InputError, UsageError
from npuperf.base.files import MANIFEST
from npuperf.model.document import Gate
from npuperf.model.result import Result


@pytest.fixture
def result(tmp_path: Path) -> Result:
    kernels = [K(i * 30_000, 10_000, step=1 + i // 2, launch=i * 30_000 - 20_000) for i in range(4)]
    return run(AnalyzeRequest(path=ascend_pt(tmp_path / "p", kernels)))


def later(result: Result, hours: int) -> Result:
    """The same program, recorded so much later."""
    devices = [replace(d, origin_ns=d.origin_ns + hours * 3_600_000_000_000) for d in result.devices]
    return replace(result, devices=devices)


def failing(result: Result, *failed: bool | None) -> Result:
    """With one gate that asks for several runs: whether each of them failed, this one last."""
    gate = Gate(expr="idle>1% for 2 of 3", status="pass", value=3.0, limit=1.0, runs=tuple(map(bool, failed)))
    return replace(result, gates=(gate,))


GOOD = ["main", "v1.2", "0", "feature-x", "a_b", "naïve", "x" * 100, "release+1"]
BAD = ["", ".", "..", ".main", "-main", "_main", "a/b", "a\\b", "a b", "a\nb", "a\x00b", "x" * 101, "main.json", "a:b"]


@pytest.mark.parametrize("name", GOOD)
def test_names(tmp_path: Path, name: str) -> None:
    store = BaselineStore(tmp_path / "kept")
    store.check(name)
    told = store.keep(name, "{}")
    assert f"kept as baseline {name}" in str(told)
    assert store.names() == [name]
    assert store.find(name).read_text() == "{}"


@pytest.mark.parametrize("name", BAD)
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    store = BaselineStore(tmp_path / "kept")
    with pytest.raises(UsageError, match="not a name for a baseline"):
        store.check(name)
    with pytest.raises(UsageError):
        store.find(name)
    assert not store.folder.exists()


@given(st.text(max_size=120))
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    folder = Path("/nowhere/kept")
    try:
        path = BaselineStore(folder).path(name)
    except UsageError:
        return
    assert Path(os.path.normpath(path)).parent == folder
    assert path.name == f"{name}.json"


def test_what_had_the_name_is_replaced_and_told(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    store.keep("main", "1")
    os.utime(store.path("main"), (1_700_000_000, 1_700_000_000))
    assert "in the place of the one of 2023-11-14" in str(store.keep("main", "2"))
    assert store.path("main").read_text() == "2"
    assert store.names() == ["main"]


def test_places_that_cannot_be_written_to_are_told_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "main.json").mkdir()
    for folder, why in ((tmp_path / "file" / "kept", "not a folder"), (tmp_path, "a folder")):
        with pytest.raises((UsageError, InputError), match=why):
            BaselineStore(folder).check("main")


def test_nothing_is_written_through_links_and_into_pipes(tmp_path: Path, result: Result) -> None:
    """What lies in a folder of baselines may have come with somebody's artifact."""
    store = BaselineStore(tmp_path / "kept")
    store.folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (store.folder / "candidates").symlink_to(tmp_path / "elsewhere")
    for refused in (lambda: store.check("main"), lambda: store.add("main", candidate_of(result))):
        with pytest.raises(InputError, match="candidates: leads out of"):
            refused()
    assert not [*(tmp_path / "elsewhere").iterdir()]
    (store.folder / "candidates").unlink()
    (store.folder / "candidates").mkdir()
    os.mkfifo(store.folder / "candidates" / "main.json")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        store.add("main", candidate_of(result))
    (store.folder / "candidates" / "main.json").unlink()
    os.mkfifo(store.folder / "main.json")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        store.check("main")


def test_baselines_lie_beside_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder = tmp_path / "work" / "result"
    profile = run_folder / "host_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    profile.mkdir(parents=True)
    beside = tmp_path / "work" / ".npuperf" / "baselines"
    # Without a manifest it is a recording by itself.
    assert usual_folder(run_folder) == beside
    assert usual_folder(profile) == run_folder / ".npuperf" / "baselines"
    (run_folder / MANIFEST).write_text("{}")
    for path in (run_folder, profile.parent, profile):
        assert usual_folder(path) == beside
    deep = run_folder / "a" / "b" / "c"
    assert (usual_folder(deep), usual_folder(deep / "d")) == (beside, deep / ".npuperf" / "baselines")
    monkeypatch.chdir(tmp_path / "work")
    assert usual_folder(Path("result")) == Path(".npuperf/baselines")
    monkeypatch.chdir(run_folder)
    assert usual_folder(Path()).resolve() == beside
    assert BaselineStore.of(AnalyzeRequest(path=Path("x"), baseline_dir=Path("y"))).folder == Path("y")


def test_candidates_are_remembered(tmp_path: Path, result: Result) -> None:
    store = BaselineStore(tmp_path / "kept")
    assert store.candidates("main") == []
    for hour, failed in enumerate((True, False, True)):
        store.add("main", candidate_of(failing(later(result, hour), failed)))
    found = store.candidates("main")
    assert [one.gates for one in found] == [{"idle>1% for 2 of 3": failed} for failed in (True, False, True)]
    assert {one.step_ns for one in found} == {result.digest.total_ns // 2 if result.digest else None}
    assert histories(found, later(result, 9)) == {"idle>1% for 2 of 3": [True, False, True]}
    assert store.names() == []  # nothing was kept as a baseline


def test_a_new_baseline_is_held_against_nobody_yet(tmp_path: Path, result: Result) -> None:
    """Whoever failed against the old one did not fail against this one."""
    store = BaselineStore(tmp_path)
    for name in ("main", "other"):
        store.add(name, candidate_of(failing(result, True)))
    store.keep("main", "{}")
    assert [len(store.candidates(name)) for name in ("main", "other")] == [0, 1]


def test_one_recording_counts_once(tmp_path: Path, result: Result) -> None:
    store = BaselineStore(tmp_path)
    for failed in (True, False, True):
        store.add("main", candidate_of(failing(result, failed)))
    (only,) = store.candidates("main")
    assert only.gates == {"idle>1% for 2 of 3": True}
    assert histories([only], result) == {}
    assert recording_id(result) != recording_id(later(result, 1))


def test_recordings_of_a_host_alone_are_told_apart(result: Result) -> None:
    """They have no times of a device; the names of their files say when each was made."""
    alone = replace(result, devices=[], digest=None)
    named = [replace(alone, input=replace(alone.input, files=[f"raw/{name}.pt.trace.json"])) for name in ("1", "2")]
    moved = replace(alone, input=replace(alone.input, path="kept", files=["kept/1.pt.trace.json"]))
    assert recording_id(named[0]) == recording_id(moved) != recording_id(named[1])


def test_the_last_run_counts_not_the_verdict_on_several(result: Result) -> None:
    """A gate that passes as two of three did not fail: this run did."""
    assert candidate_of(failing(result, False, False, True)).gates == {"idle>1% for 2 of 3": True}
    undecided = Gate(expr="idle>1%", status="cannot_tell", value=None, limit=1.0)
    assert candidate_of(replace(result, gates=(undecided,))).gates == {}


def test_twenty_candidates_are_kept(tmp_path: Path, result: Result) -> None:
    store = BaselineStore(tmp_path)
    for hour in range(23):
        store.add("main", candidate_of(later(result, hour)))
    kept = [one.recording for one in store.candidates("main")]
    assert kept == [recording_id(later(result, hour)) for hour in range(3, 23)]


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '[{"time": 3}]', "[" * 100_000])
def test_damaged_candidates_are_none(tmp_path: Path, result: Result, damage: str) -> None:
    store = BaselineStore(tmp_path)
    store.add("main", candidate_of(result))
    (file,) = (tmp_path / "candidates").iterdir()
    file.write_text(damage)
    assert store.candidates("main") == []
    store.add("main", candidate_of(result))
    assert len(json.loads(file.read_text())) == 1


def test_sides_without_a_name_have_candidates_too(tmp_path: Path, result: Result) -> None:
    keys = [key_of([], []), key_of(["main"], ["main"]), key_of(["../a/result"], [None]), key_of(["x y\n.json"], [None])]
    assert keys == ["_", "main", "_result", "_x_y_.json"]
    store = BaselineStore(tmp_path)
    for key in keys:
        store.add(key, candidate_of(result))
    assert all(len(store.candidates(key)) == 1 for key in keys)
