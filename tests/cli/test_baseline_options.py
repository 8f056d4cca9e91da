"""The options that compare, keep and lock: what each writes, says, and leaves with."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from build import K, ascend_pt
from conftest import run_cli

#: One kernel of a step is this long, ns, and a step is so many kernels long.
KERNEL, STEP = 10_000, 100


def profile(root: Path, *, kernel: int = KERNEL, steps: int = 10, hour: int = 0, launches: int = 4) -> Path:
    """Steps of a few kernels; they vary by a nanosecond or so, as measured times do."""
    begin = hour * 3_600_000_000_000
    kernels = [
        K(
            begin + (step * STEP + n * 2) * kernel,
            kernel + step * 7 % 5,
            step=step,
            launch=begin + (step * STEP + n * 2) * kernel - 5_000,
            launch_dur=1_000,
        )
        for step in range(1, steps + 1)
        for n in range(launches)
    ]
    return ascend_pt(root, kernels, cores="24,48")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run, the same again, a slower one, and one that launches more."""
    monkeypatch.chdir(tmp_path)
    profile(Path("old"))
    profile(Path("again"), hour=1)
    profile(Path("slow"), kernel=2 * KERNEL, hour=2)
    profile(Path("more"), launches=5, hour=3)
    return tmp_path


def comparison(*arguments: str) -> dict[str, object]:
    done = run_cli(["analyze", *arguments, "--format", "json"])
    assert done.returncode in (0, 1, 4), done.stderr
    found: dict[str, object] = json.loads(done.stdout)["comparison"]
    return found


def test_every_kind_of_side_gives_the_same(runs: Path) -> None:
    """A profile, its result as JSON, a kept baseline by its name and by its path."""
    assert run_cli(["analyze", "old", "--format", "json", "-o", "old.json"]).returncode == 0
    kept = run_cli(["analyze", "old", "--save-baseline", "main"])
    assert kept.returncode == 0
    assert "npuperf: kept as baseline main: .npuperf/baselines/main.json" in kept.stderr
    sides = ("old", "old.json", "main", ".npuperf/baselines/main.json")
    found = [comparison("slow", "--baseline", side) for side in sides]
    assert [one["old"] for one in found] == list(sides)
    plain = [{key: value for key, value in one.items() if key not in ("old", "messages")} for one in found]
    assert all(one == plain[0] for one in plain)
    assert plain[0]["verdict"] == "worse"
    # In every step each of four kernels is 10 µs longer.
    assert sum(part["delta_ns"] for part in plain[0]["waterfall"]) == plain[0]["delta_ns"]  # type: ignore[attr-defined]
    assert [part["delta_ns"] for part in plain[0]["waterfall"] if part["part"] == "compute"] == [40_000]  # type: ignore[attr-defined]


def test_a_run_against_itself_is_the_same(runs: Path) -> None:
    for side in ("old", "again"):
        found = comparison("old", "--baseline", side)
        assert (found["verdict"], found["delta_ns"]) == ("same", 0)


def test_several_runs_are_one_side(runs: Path) -> None:
    assert comparison("slow", "--baseline", "old", "--baseline", "again")["old"] == "old + again"


def test_several_runs_are_the_new_side(runs: Path) -> None:
    """The mean step is that of all runs: one is twice as long as the old one, the other as long."""
    assert run_cli(["analyze", "again", "--format", "json", "-o", "again.json"]).returncode == 0
    alone = comparison("slow", "--baseline", "old")
    for again in ("again", "again.json"):
        found = comparison("slow", "--again", again, "--baseline", "old")
        assert (found["new"], found["samples"]) == (f"slow + {again}", [10, 20])
        assert found["delta_ns"] == pytest.approx(alone["delta_ns"] / 2, abs=1)  # type: ignore[operator]
        assert sum(part["delta_ns"] for part in found["waterfall"]) == found["delta_ns"]  # type: ignore[attr-defined]
    assert (found["verdict"], alone["verdict"]) == ("cannot_tell", "worse")
    gate = ["--baseline", "old", "--fail-on", "step_time>+5%,1us", "--fail-on", "count.launches>+0"]
    assert run_cli(["analyze", "slow", *gate]).returncode == 1
    done = run_cli(["analyze", "slow", "--again", "again", *gate, "--format", "json"])
    assert [one["status"] for one in json.loads(done.stdout)["gates"]] == ["cannot_tell", "pass"]


def test_a_further_run_counts_once(runs: Path) -> None:
    twice = comparison("slow", "--again", "slow", "--baseline", "old")
    assert (twice["new"], twice["samples"]) == ("slow", [10, 10])
    assert twice["warnings"] == ["1 run is a recording that was given already, and counts once with it"]


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--baseline", "mian"], 2, "neither a file, nor a folder, nor a baseline in .npuperf/baselines"),
        (["--baseline", "gone/x.json"], 3, "no such file or folder"),
        (["--fail-on", "step_time>+5%"], 2, "--baseline"),
        (["--baseline", ""], 2, "--baseline: no path is given"),
        (["--baseline", "old", "--again", ""], 2, "--again: no path is given"),
        (["--again", "again"], 2, "--again without --baseline"),
        (["--baseline", "again", "--again", "main"], 3, "--again main: no such file or folder"),
        (["--fail-on", "stp_time>5ms"], 2, "did you mean step_time?"),
        (["--gates", "ci-smock"], 2, "ci-smoke"),
        (["--undecided", "maybe"], 2, "neither pass nor fail"),
        (["--save-baseline", "../main"], 2, "not a name for a baseline"),
        (["--check", "gone.lock"], 3, "gone.lock"),
        (["--update-lock", "gone.lock"], 2, "--lock gone.lock makes one"),
        (["--junit", "gone/gates.xml"], 2, "its folder does not exist"),
        (["--junit", "notes.txt"], 2, "is no report of JUnit"),
        (["--junit", "old"], 2, "a folder, and a report is a file"),
        (["--lock", "notes.txt"], 2, "the file exists"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(
    runs: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, told: str
) -> None:
    (runs / "notes.txt").write_text("mine")
    monkeypatch.setattr("npuperf.analyze.run.Analysis.run", lambda *_: pytest.fail("was analyzed"))
    done = run_cli(["analyze", "old", *arguments])
    assert done.returncode == status
    assert told in done.stderr
    assert done.stdout == ""
    assert (runs / "notes.txt").read_text() == "mine"


def test_gates_against_a_baseline(runs: Path) -> None:
    run_cli(["analyze", "old", "--save-baseline", "main"])
    gate = ["--baseline", "main", "--fail-on", "step_time>+5%,1us"]
    assert run_cli(["analyze", "again", *gate]).returncode == 0
    done = run_cli(["analyze", "more", "--baseline", "main", "--fail-on", "count.launches>+0"])
    assert done.returncode == 1
    assert "count.launches>+0" in done.stdout
    profile(Path("few"), steps=3, kernel=11_000, hour=9)
    assert run_cli(["analyze", "few", *gate]).returncode == 4
    assert run_cli(["analyze", "few", *gate, "--undecided", "pass"]).returncode == 0
    assert run_cli(["analyze", "few", *gate, "--undecided", "fail"]).returncode == 1


def test_a_rejected_run_is_no_baseline(runs: Path) -> None:
    file = runs / ".npuperf" / "baselines" / "main.json"
    run_cli(["analyze", "old", "--save-baseline", "main"])
    before = file.read_text()
    gates = ["--baseline", "main", "--fail-on", "count.launches>+0", "--save-baseline", "main"]
    done = run_cli(["analyze", "more", *gates])
    assert done.returncode == 1
    assert "not kept as baseline main: a gate failed" in done.stderr
    assert "npuperf analyze more --save-baseline main" in done.stderr
    assert file.read_text() == before
    assert run_cli(["analyze", "more", "--save-baseline", "main"]).returncode == 0
    assert file.read_text() != before
    assert run_cli(["analyze", "more", *gates]).returncode == 0


def test_two_of_three_runs(runs: Path) -> None:
    """The third candidate is the second that fails; looking at one of them again changes nothing."""
    run_cli(["analyze", "old", "--save-baseline", "main"])
    gate = ["--baseline", "main", "--fail-on", "count.launches>+0 for 2 of 3"]
    profile(Path("more2"), launches=5, hour=7)
    statuses = [run_cli(["analyze", path, *gate]).returncode for path in ("more", "more", "again", "more2", "more2")]
    assert statuses == [0, 0, 0, 1, 1]
    kept = json.loads((runs / ".npuperf" / "baselines" / "candidates" / "main.json").read_text())
    assert [one["path"] for one in kept] == ["more", "again", "more2"]
    # Its own history is none of another gate.
    assert (
        run_cli(["analyze", "more2", "--baseline", "main", "--fail-on", "count.launches>+0 for 2 of 4"]).returncode == 0
    )


def test_a_recording_given_twice_is_no_second_run(runs: Path) -> None:
    """Its steps counted twice would tell a difference from chance that they cannot tell."""
    run_cli(["analyze", "old", "--save-baseline", "main"])
    once = comparison("slow", "--baseline", "main")
    twice = comparison("slow", "--baseline", "main", "--baseline", "old")
    assert (twice["samples"], twice["interval_ns"]) == (once["samples"], once["interval_ns"])
    assert twice["warnings"] == ["1 run is a recording that was given already, and counts once with it"]
    assert comparison("slow", "--baseline", "main", "--baseline", "again")["samples"][0] == 2 * once["samples"][0]


def test_the_first_of_two_failures_is_no_baseline(runs: Path) -> None:
    """Else the second would be held against it, and a slower program would become the rule."""
    run_cli(["analyze", "old", "--save-baseline", "main"])
    profile(Path("more2"), launches=5, hour=7)
    gates = ["--baseline", "main", "--fail-on", "count.launches>+0 for 2 of 3", "--save-baseline", "main"]
    first, second = (run_cli(["analyze", path, *gates]) for path in ("more", "more2"))
    assert (first.returncode, second.returncode) == (0, 1)
    assert "this run is one of those that fail count.launches>+0 for 2 of 3" in first.stderr
    assert run_cli(["analyze", "again", *gates]).returncode == 0
    assert "kept as baseline main" in run_cli(["analyze", "again", *gates]).stderr


def test_without_baseline_and_gates_nothing_is_written(runs: Path) -> None:
    before = sorted(path.name for path in runs.iterdir())
    run_cli(["analyze", "old"])
    run_cli(["analyze", "slow", "--baseline", "old", "--fail-on", "host_wait>90%"])
    assert sorted(path.name for path in runs.iterdir()) == before


def test_locks(runs: Path) -> None:
    assert "wrote perf.lock" in run_cli(["analyze", "old", "--lock", "perf.lock"]).stderr
    assert run_cli(["analyze", "again", "--check", "perf.lock"]).returncode == 0
    done = run_cli(["analyze", "more", "--check", "perf.lock"])
    assert done.returncode == 1
    assert "perf.lock" in done.stdout
    assert run_cli(["analyze", "more", "--update-lock", "perf.lock"]).returncode == 0
    assert run_cli(["analyze", "more", "--check", "perf.lock"]).returncode == 0
    assert run_cli(["analyze", "old", "--lock", "perf.lock", "--force"]).returncode == 0
    assert run_cli(["analyze", "old", "--check", "perf.lock"]).returncode == 0


def test_a_report_for_dashboards_beside_the_usual_one(runs: Path) -> None:
    arguments = ["analyze", "more", "--baseline", "old", "--fail-on", "count.launches>+0", "--junit", "gates.xml"]
    for _ in range(2):  # an earlier report is replaced
        done = run_cli([*arguments, "--format", "markdown"])
        assert done.returncode == 1
        assert done.stdout.startswith("# ")
        suite = ElementTree.parse("gates.xml").getroot()
        assert suite.get("failures") == "1"


def test_a_part_of_a_run_against_a_kept_one_is_said(runs: Path) -> None:
    run_cli(["analyze", "old", "--save-baseline", "main"])
    done = run_cli(["analyze", "again", "--step", "3", "--baseline", "main", "--format", "json"])
    assert "main: compared as it was kept" in json.loads(done.stdout)["comparison"]["warnings"][0]


def test_the_kept_result_of_a_run_has_gates_and_no_comparison(runs: Path) -> None:
    (runs / "result").mkdir()
    (runs / "result" / "npuperf.json").write_text("{}")
    (runs / "old").rename(runs / "result" / "host_1_ascend_pt")
    assert run_cli(["analyze", "result", "--baseline", "again", "--fail-on", "step_time>+5%"]).returncode == 0
    kept = json.loads((runs / "result" / "analysis" / "result.json").read_text())
    assert kept["comparison"] is None
    assert [gate["expr"] for gate in kept["gates"]] == ["step_time>+5%"]


def test_the_folder_of_baselines_can_be_chosen(runs: Path) -> None:
    where = ["--baseline-dir", "kept"]
    assert run_cli(["analyze", "old", "--save-baseline", "main", *where]).returncode == 0
    assert (runs / "kept" / "main.json").is_file()
    assert comparison("again", "--baseline", "main", *where)["verdict"] == "same"
    assert run_cli(["analyze", "again", "--baseline", "main"]).returncode == 2
