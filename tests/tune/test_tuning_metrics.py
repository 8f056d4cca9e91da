"""Gates of a tuning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import run_cli
from msgspec.structs import replace
from workplace import OP, Place

from npuperf.against.gate_verdicts import judge_gate
from npuperf.against.gates import parse_gate
from npuperf.model.comparison import Compared, Comparison, WaterfallPart
from npuperf.model.document import Gate
from npuperf.model.tuning import Tuning
from npuperf.tune import request as request


def test_gates(place: Place) -> None:
    assert place.run(*OP, "--fail-on", "failed>0", "--fail-on", "added<1").returncode == 0
    done = place.run(*OP, "--fail-on", "added>2")
    assert done.returncode == 1 and "gate FAIL  added>2: 3\n" in done.stdout
    done = place.run(*OP, "--fail-on", "regression>3%")
    assert done.returncode == 4 and "--verify" in done.stdout
    done = place.run(*OP, "--fail-on", "speed>3")
    assert done.returncode == 2 and "no such metric" in done.stderr and "regression" in done.stderr
    assert len(place.runs) == 3  # it was refused before anything was tuned
    banks = [str(place.runs[0] / name) for name in ("bank_before", "bank_after")]
    done = place.run("--diff", *banks, "--fail-on", "added<1")
    assert done.returncode == 2 and "--from RESULT" in done.stderr
    done = place.run("--from", place.runs[0], "--fail-on", "added>2", "--format", "csv")
    assert done.returncode == 1 and "gate FAIL  added>2: 3\n" in done.stderr


@pytest.mark.parametrize(
    ("condition", "code"),
    [("failed>0", 4), ("added<4", 4), ("added>1", 1), ("added>2", 4), ("added<2", 0), ("added<=2", 4)],
)
def test_gates_of_half_a_result(tmp_path: Path, condition: str, code: int) -> None:
    """It names what is there at least: two added, perhaps more."""
    counts = dict.fromkeys(("repo_update_num", "repo_hit_num", "repo_reserved_num", "repo_unsatisfied_num"), 0)
    opat = {"opat_tuning_result": "tuning incomplete", "repo_summary": {**counts, "repo_add_num": 2, "total_num": 2}}
    text = json.dumps({"report_1_1": [{"basic": {"tuning_name": "t"}}, {"OPAT": opat}]})
    file = tmp_path / "aoe_result_opat_20260101120000000_pid7.json"
    file.write_text(text)
    assert run_cli(["tune", "--from", str(file), "--fail-on", condition]).returncode == code


def judged(condition: str, tuning: Tuning) -> Gate:
    return judge_gate(parse_gate(condition, Tuning), tuning)


@pytest.mark.parametrize(
    ("longer", "interval", "status"),
    [
        (50, (40, 60), "fail"),
        (50, (1, 99), "fail"),  # beyond the limit, and no chance
        (50, (-10, 110), "cannot_tell"),  # it may be chance
        (10, (-5, 25), "pass"),
        (10, (-20, 40), "cannot_tell"),  # it may be 4 %
        (-50, (-60, -40), "pass"),
        (50, None, "cannot_tell"),
    ],
)
def test_gates_know_of_noise(longer: int, interval: tuple[int, int] | None, status: str) -> None:
    """3 % of 1000 ns are 30."""
    step = Compared(kind="step", name="step", change="changed", verdict="worse", old_ns=1000, new_ns=1000 + longer)
    found = Comparison(old="a", new="b", verdict="worse", interval_ns=interval, rows=(step,))
    tuning = Tuning(mode="op", status="successful", recovered=False, files=(), verification=found)
    gate = judged("regression>3%", tuning)
    assert gate.status == status
    assert gate.value == (None if interval is None else longer / 10)
    assert (gate.reason is not None) == (status == "cannot_tell")


def test_a_regression_is_explained_by_what_became_longer() -> None:
    """Of four parts that became longer the three greatest; what became shorter explains nothing."""
    changes = {"compute": 60, "host_wait": 30, "transfer": -70, "launch_latency": 5, "other": 25}
    parts = tuple(
        WaterfallPart(part=part, key=None, delta_ns=by, count_ns=0, speed_ns=by)  # type: ignore[arg-type]
        for part, by in changes.items()
    )
    step = Compared(kind="step", name="step", change="changed", verdict="worse", old_ns=1000, new_ns=1050)
    found = Comparison(old="a", new="b", verdict="worse", interval_ns=(40, 60), rows=(step,), waterfall=parts)
    tuning = Tuning(mode="op", status="successful", recovered=False, files=(), verification=found)
    gate = judge_gate(parse_gate("regression>3%", Tuning), tuning, comparison=found)
    assert [part.part for part in gate.explained_by] == ["compute", "host_wait", "other"]


def test_a_gate_by_hand() -> None:
    tuning = Tuning(mode="op", status="failed", recovered=False, files=(), failed_operators=("a", "b"))
    assert judged("failed >= 2", tuning).status == "fail"
    assert judged("failed>2", tuning).status == "pass"
    assert judged("added<1", tuning).status == "cannot_tell"


@pytest.mark.parametrize(
    ("condition", "whole", "part"),
    [
        ("saved<6%", "fail", "cannot_tell"),
        ("saved>=5", "fail", "fail"),
        ("saved<5%", "pass", "pass"),
        ("saved>5%", "pass", "cannot_tell"),
    ],
)
def test_what_is_saved_at_least_is_held_against_the_step(condition: str, whole: str, part: str) -> None:
    """50 to 90 of 1000 ns: 5 % at least; of half a result perhaps more."""
    tuning = Tuning(mode="op", status="successful", recovered=False, files=(), saved_ns=(50, 90), step_ns=1000)
    found = judged(condition, tuning)
    assert (found.status, found.value) == (whole, 5)
    half = judged(condition, replace(tuning, status="incomplete"))
    assert half.status == part and (half.value is None) == (part == "cannot_tell")
