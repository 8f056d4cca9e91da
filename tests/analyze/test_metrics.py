"""Gates of ``npuperf analyze --fail-on``: values by hand, and a pass only on evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import K, ascend_pt
from conftest import run_cli

US = 1_000


def profile(folder: Path) -> str:
    """Three steps of 100, 300 and 120 us: kernels without a gap, each launched long before it starts."""
    kernels, at = [], 0
    for step, parts in enumerate((10, 30, 12)):
        for _ in range(parts):
            kernels.append(K(at, 10 * US, f"k{at}", step=step, launch=at - 500 * US))
            at += 10 * US
    return str(ascend_pt(folder, kernels, cores="24,48"))


def gates(*arguments: str) -> tuple[int, list[tuple[str, float | None, str | None]]]:
    done = run_cli(["analyze", *arguments, "--format", "json"])
    found = json.loads(done.stdout)["gates"]
    return done.returncode, [(g["status"], g["value"], g["unit"]) for g in found]


@pytest.mark.parametrize(
    ("condition", "code", "status"),
    [
        ("step_time>119us", 1, "fail"),
        ("step_time>121us", 0, "pass"),
        ("step_time>=0.12ms", 1, "fail"),
        ("step_time<120000ns", 0, "pass"),
    ],
)
def test_the_step_time_is_the_median(tmp_path: Path, condition: str, code: int, status: str) -> None:
    assert gates(profile(tmp_path), "--fail-on", condition) == (code, [(status, 120 * US, "ns")])


def test_several_gates_are_judged_one_by_one(tmp_path: Path) -> None:
    code, judged = gates(profile(tmp_path), "--fail-on", "idle>1%", "--fail-on", "step_time>1us")
    assert (code, judged) == (1, [("pass", 0, "percent"), ("fail", 120 * US, "ns")])


def test_no_pass_without_evidence(tmp_path: Path) -> None:
    """Without launches idle time may be waiting for the host, and rules cannot tell: more may be there than is seen."""
    kernels = [K(i * 30 * US, 10 * US, f"k{i}", step=0) for i in range(20)]
    folder = str(ascend_pt(tmp_path, kernels, cores="24,48"))
    for condition, missing in (("host_wait>5%", "without a recorded launch"), ("findings>5", "checks cannot tell")):
        code, ((status, _, _),) = gates(folder, "--fail-on", condition)
        assert (code, status) == (4, "cannot_tell"), condition
        assert missing in run_cli(["analyze", folder, "--fail-on", condition]).stdout


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("step_tme>5ms", "did you mean step_time?"),
        ("step_time>5", "give ns, us, ms or s"),
        ("idle>5ms", "idle is a percentage"),
        ("idle", "METRIC>LIMIT"),
        ("saved<1%", "no such metric"),
    ],
)
def test_a_misspelt_gate_never_passes(tmp_path: Path, condition: str, hint: str) -> None:
    done = run_cli(["analyze", profile(tmp_path), "--fail-on", condition])
    assert (done.returncode, done.stdout) == (2, "") and hint in done.stderr


def test_what_was_read_is_not_written(tmp_path: Path) -> None:
    folder = profile(tmp_path)
    (file,) = Path(folder).rglob("kernel_details.csv")
    before = file.read_bytes()
    done = run_cli(["analyze", folder, "-o", str(file), "--force"])
    assert done.returncode == 2 and "was read for this report" in done.stderr
    assert file.read_bytes() == before
