"""Gates in files: presets, YAML with a list of gates, and recipes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT, run_cli

from npuperf.against.gates import gates_of, parse_gate
from npuperf.against.metrics import register_all
from npuperf.base.errors import InputError, UsageError
from npuperf.model.result import Result

SAMPLE = str(ROOT / "samples" / "transformer_ascend_pt")
register_all()


@pytest.mark.parametrize("name", ["ci-smoke", "ci-strict"])
def test_presets_can_be_read(name: str) -> None:
    conditions = [parse_gate(gate, Result) for gate in gates_of(name)]
    assert len({c.expr for c in conditions}) == len(conditions) >= 4
    assert any(c.relative for c in conditions) == (name == "ci-strict")
    assert any(c.level == "fail" for c in conditions)


def written(folder: Path, text: str) -> str:
    path = folder / "gates.yaml"
    path.write_text(text, "utf-8")
    return str(path)


def test_gates_of_a_file(tmp_path: Path) -> None:
    name = written(tmp_path, 'description: ours\ngates:\n- host_wait>20%  # why\n- "warn: idle>1%"\n')
    assert gates_of(name) == ("host_wait>20%", "warn: idle>1%")


@pytest.mark.parametrize(
    "text",
    ["gates: []", "gates: idle>3%", "other: 1", "gates: {a: b}", "gates:\n- warn: idle>1%", "gates: [3]", "gates:\n-"],
)
def test_a_file_without_gates_never_passes(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        gates_of(written(tmp_path, text))


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as near:
        gates_of("ci-smok")
    assert "did you mean ci-smoke?" in str(near.value.hint)
    with pytest.raises(UsageError, match="no such file"):
        gates_of(str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match="a device, not a file"):
        gates_of("/dev/zero")
    with pytest.raises(InputError):
        gates_of(written(tmp_path, "gates: ["))
    with pytest.raises(InputError):
        gates_of(written(tmp_path, "gates: [" + "idle>1%, " * 300 + "idle>2%]"))


def judged(*arguments: str) -> dict[str, str]:
    done = run_cli(["analyze", SAMPLE, *arguments, "--format", "json"])
    assert done.stdout, done.stderr
    return {gate["expr"]: gate["status"] for gate in json.loads(done.stdout)["gates"]}


def test_a_preset_on_the_command_line() -> None:
    found = judged("--gates", "ci-smoke", "--fail-on", "idle>1%", "--fail-on", "host_wait>50%")
    assert [*found] == ["idle>1%", "host_wait>50%", *(g for g in gates_of("ci-smoke") if g != "host_wait>50%")]
    assert found["idle>1%"] == "fail" and found["host_wait>50%"] == "pass"
    alone = run_cli(["analyze", SAMPLE, "--gates", "ci-strict"])
    assert (alone.returncode, alone.stdout) == (2, "") and "--baseline" in alone.stderr
    same = judged("--gates", "ci-strict", "--baseline", SAMPLE)
    assert {same[f"count.{kind}>+0"] for kind in ("launches", "syncs", "copies", "aicpu", "compiles")} == {"pass"}
    assert same["step_time>+5%,200us"] == "pass"  # three steps, and the very same


def test_gates_of_a_recipe(tmp_path: Path) -> None:
    recipe = written(tmp_path, "gates: [idle>1%]\nanalyze: {fail-on: [idle>2%]}\n")
    assert judged("--recipe", recipe) == {"idle>2%": "fail", "idle>1%": "fail"}
    assert judged("--recipe", recipe, "--fail-on", "idle>99%") == {"idle>99%": "pass", "idle>1%": "fail"}
    both = written(tmp_path, "gates: [idle>1%]\nanalyze: {gates: ci-smoke}\n")
    assert {*judged("--recipe", both)} == {"idle>1%", *gates_of("ci-smoke")}
    for verb in ("analyze", "tune", "profile"):
        done = run_cli([verb, *([SAMPLE] if verb == "analyze" else []),
                        "--recipe", written(tmp_path, "gates: [idel>1%]\n")])  # fmt: skip
        assert done.returncode == 2 and "did you mean idle?" in done.stderr
