"""``npuperf tune`` with the stand-in for aoe as a real child process: what is run, and what it leaves."""

from __future__ import annotations

import csv
import io
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from workplace import OP, Place, bank, busy_profile, document, hold, record, said

from npuperf.model.tuning import Tuning
from npuperf.tune import supervise
from npuperf.tune.supervise import partial


@pytest.mark.parametrize("schema", ["v1", "v2", "v3"])
def test_operators_are_tuned_and_everything_is_kept(place: Place, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    released = hold(place)

    def looked(folder: Path) -> Tuning | None:
        """It goes on when npuperf has seen its first result."""
        found = partial(folder)
        released.touch()
        return found

    monkeypatch.setattr(supervise, "partial", looked)
    done = place.run(*OP, "--timeout", "5", "--format", "json", FAKE_AOE_SCHEMA=schema)
    assert done.returncode == 0, done.stderr
    found = document(done)
    assert (found["status"], found["mode"]) == ("successful", "op")
    assert (found["use"]["export"], found["use"]["place"]) == (None, found["bank"]["after"])  # the default place
    assert sum(e["kind"] == "operator" for e in found["entries"]) == 4
    assert found["bank"]["records_before"] == 0 and found["bank"]["records_after"] == 4
    (run,) = place.runs
    assert {"aoe.log", "state.json", "reproduce.sh", "diff.json", "diff.csv", "diff.md"} <= {
        p.name for p in run.iterdir()
    }
    assert "Aoe process finished" in (run / "aoe.log").read_text()
    assert "tuned, best" in done.stderr
    (call,) = place.calls()
    assert f"--model={place.root / 'net.onnx'}" in call["argv"] and "--job_type=2" in call["argv"]
    assert "--framework=5" in call["argv"] and "--progress_bar=off" in call["argv"]
    assert call["env"]["ASCEND_WORK_PATH"] == str(run) and call["cwd"] == str(run)
    (line,) = (run.parent / "history.jsonl").read_text().splitlines()
    ledger = json.loads(line)
    assert (ledger["status"], ledger["records"], ledger["added"], ledger["updated"]) == ("successful", 4, 3, 1)


def test_options_reach_aoe(place: Place) -> None:
    bank = place.root / "bank"
    bank.mkdir()
    done = place.run(*OP, "--bank", "bank", "--device", "1", "--parallel", "4", "--repeat", "--deep",
                     "--ops", "MatMulV2,net/dense_1", "--aoe-arg=--precision_mode=force_fp16")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (call,) = place.calls()
    assert {"--device=1", "--tune_optimization_level=O1", "--precision_mode=force_fp16"} <= set(call["argv"])
    wanted = {"TUNE_BANK_PATH": str(bank), "ASCEND_DEVICE_ID": "1", "TE_PARALLEL_COMPILER": "4", "REPEAT_TUNE": "True"}
    assert {name: call["env"].get(name) for name in wanted} == wanted
    (option,) = [a for a in call["argv"] if a.startswith("--tune_ops_file=")]
    names = json.loads(Path(option.split("=", 1)[1]).read_text())
    assert names == {"tune_ops_name": ["net/dense_1"], "tune_ops_type": ["MatMulV2"]}
    assert list(bank.rglob("*_runtime_kb.json"))


def test_a_dry_run_shows_everything_and_does_nothing(place: Place) -> None:
    done = place.run(*OP, "--dry-run")
    assert done.returncode == 0
    assert "--job_type=2" in done.stdout and "ASCEND_WORK_PATH=" in done.stdout
    for name in ("product", "bank path", "disk", "memory", "CPU cores", "shapes", "profiling"):
        assert f"check {name}: " in said(done) or name in said(done).split("no fault")[1].split("#")[0]
    assert not (place.root / "result").exists() and place.calls() == []


def test_the_script_that_a_run_leaves_does_the_same(place: Place) -> None:
    assert place.run(*OP, "--ops", "MatMulV2").returncode == 0
    (run,) = place.runs
    script = run / "reproduce.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    subprocess.run([str(script)], env=place.environment(), check=True, capture_output=True)
    first, second = place.calls()
    assert (first["argv"], first["cwd"]) == (second["argv"], second["cwd"])


def test_nothing_to_tune_is_a_success(place: Place) -> None:
    done = place.run(*OP, FAKE_AOE_FAIL="nonoptimizable")
    assert (done.returncode, "NOTHING TO TUNE" in done.stdout) == (0, True)


def test_two_runs_at_once_keep_apart(place: Place) -> None:
    children = [
        subprocess.Popen(place.command(*OP, "--run", name), cwd=place.root, env=place.environment(FAKE_AOE_SECONDS="1"),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in ("one", "two")
    ]  # fmt: skip
    for child in children:
        _, err = child.communicate(timeout=300)
        assert child.returncode == 0, err
    for name in ("one", "two"):
        (result,) = place.root.glob(f"{name}/tune/*/diff.json")
        assert len(json.loads(result.read_text())["entries"]) == 4


def test_a_bank_around_the_run_is_refused(place: Place) -> None:
    done = place.run(*OP, "--bank", ".")
    assert done.returncode == 3 and "is inside the knowledge base" in done.stderr
    assert not (place.root / "result" / "tune").exists() or not place.runs


def test_a_place_that_cannot_be_written_is_said(place: Place) -> None:
    (place.root / "result").write_text("")
    done = place.run(*OP)
    assert done.returncode == 3 and "cannot be created" in done.stderr


def test_what_cannot_be_tuned_is_explained(place: Place) -> None:
    (place.root / "empty").mkdir()
    done = place.run("--mode", "op", "--dump", "empty")
    assert done.returncode == 3 and "aclnn" in done.stderr and place.calls() == []
    (place.root / "train.py").write_text("import torch\n")
    done = place.run("--mode", "subgraph", "--soc", "Ascend310P3", "--", sys.executable, "train.py")
    assert done.returncode == 2 and "single operators" in done.stderr


def test_subgraphs_are_tuned_where_the_product_can(place: Place) -> None:
    done = place.run("--mode", "subgraph", "--model", "net.onnx", "--soc", "Ascend310P3", "--format", "json",
                     FAKE_CANN_SOC="Ascend310P3")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = document(done)
    assert {e["kind"] for e in found["entries"]} == {"subgraph", "model"}
    assert all(len(e["repo_key"]) == 20 for e in found["entries"] if e["repo_key"])  # beyond 2^63, still text
    assert place.run("--mode", "subgraph", "--model", "net.onnx", "--resume").returncode == 3


def test_results_of_earlier_processes_are_compared(place: Place) -> None:
    """A run that was gone on with, and whose second process left nothing, has its results in a folder below."""
    assert place.run(*OP, FAKE_AOE_FAIL="kill").returncode == 5
    (place.runs[0] / "earlier-2").mkdir()  # as after somebody has tidied up
    (place.runs[0] / "earlier-x").mkdir()
    assert place.run("--resume", FAKE_AOE_FAIL="exit2").returncode == 5
    assert list(place.runs[0].glob("earlier-3/aoe_result_*.json"))
    whole = place.run("--run", "other", *OP)
    assert whole.returncode == 0
    found = json.loads(place.run("--diff", "result", "other", "--format", "json").stdout)["comparison"]
    assert [c["change"] for c in found["rows"]] == ["added", "added"] and found["unchanged"] == 2


def test_two_empty_banks_beside_a_result(place: Place) -> None:
    """The case for which claims are checked; without a result they are most likely a mistake."""
    assert place.run(*OP).returncode == 0
    for name in ("e1", "e2"):
        (place.root / name).mkdir()
    done = place.run("--from", place.runs[0], "--diff", "e1", "e2")
    assert done.returncode == 0 and "the knowledge base shows none" in said(done)
    assert place.run("--diff", "e1", "e2").returncode == 3


def test_a_bank_that_does_not_show_what_is_claimed(place: Place) -> None:
    """aoe writes to the bank in its home; TUNE_BANK_PATH of npuperf names another one that it cannot know of."""
    place.change_aoe('os.environ.get("TUNE_BANK_PATH")\n    bank = Path', "None\n    bank = Path")
    (place.root / "bank").mkdir()
    done = place.run(*OP, "--bank", "bank", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert any("the knowledge base shows none" in w for w in document(done)["warnings"])


def test_a_bank_for_other_cores_is_pointed_out(place: Place) -> None:
    """The profile's chip has 20 cores; CANN would not find what is tuned for 16."""
    busy_profile(place.root / "result")
    done = place.run(*OP, "--format", "json", FAKE_CANN_AICORES="16")
    assert any("is for 16 cores, but the profile's chip has 20" in w for w in document(done)["warnings"])
    done = place.run(*OP, "--format", "json", "--bank", str(bank(place.root / "own", [record(1, 1)])))
    assert not any("the profile's chip has" in w for w in document(done)["warnings"])


def test_all_formats_of_a_run_show_the_same(place: Place) -> None:
    assert place.run(*OP).returncode == 0
    (run,) = place.runs
    found = json.loads((run / "diff.json").read_text())
    rows = list(csv.DictReader(io.StringIO((run / "diff.csv").read_text())))
    assert {r["name"] for r in rows} == {e["name"] for e in found["entries"]}
    markdown = (run / "diff.md").read_text()
    assert all(e["name"] in markdown for e in found["entries"])
