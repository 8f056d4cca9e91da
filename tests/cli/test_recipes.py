"""Recipes: those that ship work, and what cannot be is refused with the nearest valid key."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, run_cli

RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
SAMPLE = ROOT / "samples" / "micro_batch_ascend_pt"


def test_the_named_ones_ship() -> None:
    assert {p.stem for p in RECIPES} >= {
        "training-first-look", "inference-decode", "micro-batch-streams", "superkernel", "host-bound", "aoe-op"
    }  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda p: p.stem)
def test_every_recipe_describes_itself_and_runs(recipe: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(recipe.read_text("utf-8"))
    assert len(content["description"]) > 20
    done = run_cli(["analyze", str(SAMPLE), "--recipe", recipe.stem, "--format", "json"])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    rules = content.get("rules")
    assert rules is None or {f["rule"] for f in document["findings"]} == set(rules)
    for name, value in (content.get("thresholds") or {}).items():
        assert document["thresholds"][name] == value
    script = tmp_path / "train.py"
    script.write_text("")
    done = run_cli(["profile", "--recipe", recipe.stem, "-o", str(tmp_path / "out"), "--dry-run", str(script)])
    assert done.returncode == 0, done.stderr
    (effect,) = [line for line in done.stdout.splitlines() if line.startswith(f"recipe {recipe.stem}: ")]
    for key, value in content["profile"].items():
        assert f"--{key}" in effect and (value is True or str(value) in effect)


def write(folder: Path, **content: object) -> str:
    path = folder / "ours.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_the_command_line_goes_before_a_recipe(tmp_path: Path) -> None:
    recipe = write(tmp_path, output={"format": "json", "top": 1}, analyze={"step": 20}, tune={"top": 2})
    document = json.loads(run_cli(["analyze", str(SAMPLE), "--recipe", recipe]).stdout)
    assert len(document["kernels"]) == 1
    assert [s["step"] for s in document["devices"][0]["steps"]] == [20]
    document = json.loads(run_cli(["analyze", str(SAMPLE), "--recipe", recipe, "--step", "21", "--top", "3"]).stdout)
    assert len(document["kernels"]) == 3
    assert [s["step"] for s in document["devices"][0]["steps"]] == [21]


def test_a_recipe_reaches_the_options_of_a_recording(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    recipe = write(tmp_path, profile={"step-on": "forward", "active": 7, "stack": True, "no-simplify": True})
    plan = ["profile", "--recipe", recipe, "-o", str(tmp_path / "out"), "--engine", "torch", "--dry-run"]
    shown = run_cli([*plan, str(script)]).stdout
    assert "--step-on forward" in shown and "--no-simplify" in shown
    assert "--active 7" in shown
    over = run_cli([*plan[:-1], "--active", "3", "--dry-run", str(script)]).stdout
    assert "--active" not in over.splitlines()[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"profil": {}}, "did you mean profile?"),
        ({"profile": {"stpe-on": "forward"}}, "did you mean step-on?"),
        ({"analyze": {"what_if": ["host*0.5"]}}, "did you mean what-if?"),
        ({"tune": {"topp": 3}}, "did you mean top?"),
        ({"output": {"frmat": "json"}}, "did you mean format?"),
        ({"rules": ["core_limits"]}, "did you mean core_limit?"),
        ({"thresholds": {"idle_shar": 0.2}}, "did you mean idle_share?"),
        ({"thresholds": {"idle_share": "much"}}, "is not a number"),
        ({"thresholds": {"idle_share": True}}, "is not a number"),
        ({"analyze": {"top": "many"}}, "analyze: top"),
        ({"analyze": {"full": "perhaps"}}, "neither true nor false"),
        ({"analyze": {"top": 0}}, "analyze: top"),
        ({"output": {"format": "html"}}, "html"),
        ({"analyze": ["full"]}, "not a mapping"),
        ({"rules": "core_limit"}, "not a list"),
        ({"thresholds": {"idle_share": float("nan")}}, "is not a number"),
        ({"analyze": {"output": "x.json"}}, "unknown key"),
    ],
)
def test_what_nobody_would_read_is_refused(content: dict[str, object], words: str, tmp_path: Path) -> None:
    done = run_cli(["analyze", str(SAMPLE), "--recipe", write(tmp_path, **content)])
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr and "ours.yaml" in done.stderr


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("host-bund", 2, "did you mean host-bound?"),
        ("./missing.yaml", 2, "no such file"),
        ("{list}", 3, "top level is not a mapping"),
        ("{broken}", 3, "cannot be read as YAML"),
        ("{binary}", 3, "cannot be read as YAML"),
    ],
)
def test_recipes_that_cannot_be_read(name: str, code: int, words: str, tmp_path: Path) -> None:
    places = {"list": b"- a\n", "broken": b"a: [b\n", "binary": b"\xff\xfe\x00\x01"}
    for stem, content in places.items():
        (tmp_path / f"{stem}.yaml").write_bytes(content)
    path = name.format(**{stem: str(tmp_path / f"{stem}.yaml") for stem in places})
    for command in ("analyze", "tune"):
        done = run_cli([command, "--recipe", path])
        assert done.returncode == code and words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


# --- the examples of both scopes, against the real torchair ---------------------------------------------------------

_TRY = """
import inspect, json, pathlib, runpy, sys
import torch, torch_npu, torchair

graphs = []

def backend(compiler_config=None):
    def compile_(module, inputs):
        graphs.append([(n.target.__name__, *n.args) for n in module.graph.nodes if "scope_" in str(n.target)])
        return module
    return compile_

torchair.get_npu_backend = backend
# the operators run on the CPU: there is no device behind the stand-in that could compute
torch.Tensor.npu = torch.nn.Module.npu = lambda self, *a, **k: self
torch.nn.Module.half = lambda self: self
torch.npu.synchronize = lambda: None
randn = torch.randn
torch.randn = lambda *size, **options: randn(*size)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps([[str(inspect.signature(getattr(torchair.scope, n))) for n in ("limit_core_num", "super_kernel")],
                  graphs]))
"""


def traced(npu: dict[str, str], script: str, *arguments: str) -> tuple[list[str], list[list[object]]]:
    """Run an example; return torchair's signatures and what each compiled graph says about scopes."""
    if find_spec("google.protobuf") is None:
        pytest.skip("torchair needs protobuf (pip install '.[dev]')")
    command = [sys.executable, "-c", _TRY, str(ROOT / "recipes" / "scopes" / script), *arguments]
    done = subprocess.run(command, env=npu, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    signatures, graphs = json.loads(done.stdout.splitlines()[-1])
    return signatures, graphs


def test_the_example_of_core_limits_runs(npu: dict[str, str]) -> None:
    signatures, graphs = traced(npu, "limit_core_num.py")
    assert signatures[0] == "(op_aicore_num: int, op_vectorcore_num: int)"
    (graph,) = graphs
    entered = [dict(zip(*call[1:], strict=True)) for call in graph if "enter" in str(call[0])]  # type: ignore[index]
    assert {"_op_aicore_num": "8", "_op_vectorcore_num": "16"} in entered
    assert {"_op_aicore_num": "16", "_op_vectorcore_num": "32"} in entered
    assert entered[0]["_user_stream_label"] == "experts"
    assert len(graph) == 2 * len(entered) == 6


def test_the_example_of_super_kernels_runs(npu: dict[str, str]) -> None:
    signatures, graphs = traced(npu, "super_kernel.py", "fused")
    assert signatures[1] == "(scope: str, options: str = '')"
    (graph,) = graphs
    enter = graph[0]
    options = "feed-sync-all=1"
    assert dict(zip(*enter[1:], strict=True)) == {  # type: ignore[index]
        "_super_kernel_scope": "layer", "_super_kernel_options": options
    }  # fmt: skip
    _, plain = traced(npu, "super_kernel.py", "plain")
    assert plain == [[]]


def test_the_code_of_proposals_runs(npu: dict[str, str], tmp_path: Path) -> None:
    """What analyze prints is pasted as it is; only the placeholder bodies do nothing."""
    document = json.loads(run_cli(["analyze", str(SAMPLE), "--format", "json"]).stdout)
    (device,) = document["devices"]
    code = [s["code"] for s in [*device["core_splits"], *device["super_kernels"]]]
    assert len(code) >= 2
    (tmp_path / "pasted.py").write_text("import torch, torch_npu\n" + "\n".join(code))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "pasted.py")], env=npu, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
