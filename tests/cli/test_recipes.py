"""Recipes: those that ship work, and what cannot be is refused with the nearest valid key."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, made_once, run_cli
from preloaded import Loaded

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
    assert done.returncode == 0 and f"recipe {recipe.stem}: " in done.stderr
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
        ({"analyze": {"top": [9] * 40}}, f"top: {str([9] * 40)[:60]}… is not a single value"),
        ({"output": {"format": "docx"}}, "docx"),
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


def test_recipes_record_as_few_steps_as_the_vendor_says_or_say_why() -> None:
    """One or two steps; a larger number has its reason in the same line."""
    for recipe in RECIPES:
        (line,) = (x for x in recipe.read_text("utf-8").splitlines() if x.strip().startswith("active:"))
        number, _, reason = line.partition("#")
        assert int(number.split(":")[1]) <= 2 or len(reason) > 20, recipe.name


#: Rules that look at input shapes.
ON_SHAPES = {"tiling_cache", "host_operators", "graph_capture"}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda p: p.stem)
def test_recipes_record_the_shapes_that_their_rules_look_at(recipe: Path) -> None:
    content = yaml.safe_load(recipe.read_text("utf-8"))
    if ON_SHAPES & set(content.get("rules") or ON_SHAPES):
        assert content["profile"].get("shapes") is True


# --- the examples of scopes, against the real torchair and npugraph_ex ----------------------------------------------

_TRY = """
import inspect, json, runpy, sys, traceback
import torch, torch_npu, torchair

graphs, backends = [], []

def compile_(module, inputs):
    named = [n for n in module.graph.nodes if "scope_" in str(n.target) or "npu_" in str(n.target)]
    graphs.append([(getattr(n.target, "__name__", str(n.target)), *(a for a in n.args if isinstance(a, (list, tuple))))
                   for n in named])
    return module

def backend(compiler_config=None):
    backends.append(compiler_config.mode.value)
    return compile_

real = torch.compile

def compiled(model, backend=None, **options):
    if isinstance(backend, str):
        backends.append(backend)
    return real(model, backend=compile_, **options)

torch.compile = compiled
torchair.get_npu_backend = backend
# the operators run on the CPU: there is no device behind the stand-in that could compute
torch.Tensor.npu = torch.nn.Module.npu = lambda self, *a, **k: self
torch.nn.Module.half = lambda self: self
torch.npu.synchronize = lambda: None
randn = torch.randn
torch.randn = lambda *size, **options: randn(*size)

@torch.compiler.allow_in_graph
def npu_quant_matmul(x1, x2, scale, *, pertoken_scale=None, output_dtype=None):
    some = x1[:, :8].float() @ x2[:8].float()  # a few columns: the sums are not what is tested
    return (some * scale * pertoken_scale[:, None]).to(output_dtype)

@torch.compiler.allow_in_graph
def npu_dequant_swiglu_quant(x, *, activate_left=False, quant_mode=0):
    gate, value = x.float().chunk(2, -1)
    y = torch.nn.functional.silu(gate) * value
    scale = y.abs().amax(-1) / 127 + 1e-9
    return (y / scale[:, None]).round().to(torch.int8), scale

for stand_in in (npu_quant_matmul, npu_dequant_swiglu_quant):
    operator = getattr(torch.ops.npu, stand_in.__name__).default._schema
    assert {*inspect.signature(stand_in).parameters} <= {a.name for a in operator.arguments}, operator
    setattr(torch_npu, stand_in.__name__, stand_in)

signatures = [str(inspect.signature(getattr(torchair.scope, n))) for n in ("limit_core_num", "super_kernel")]
for example in json.loads(sys.argv[1]):
    torch._dynamo.reset()
    graphs, backends, wrong = [], [], ""
    sys.argv = example
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as done:
        wrong = f"exit status {done.code}" if done.code else ""
    except Exception:
        wrong = traceback.format_exc()
    print("traced: " + json.dumps([wrong, signatures, graphs, backends]))
"""

Traced = tuple[list[str], list[list[list[list[str]]]], list[str]]


EXAMPLES = (
    ("limit_core_num.py",),
    ("limit_stream_cores.py",),
    ("limit_stream_cores.py", "reduce-overhead"),
    ("super_kernel.py", "fused"),
    ("super_kernel.py", "plain"),
    ("super_kernel.py", "compare"),
)


@pytest.fixture(scope="module")
def examples(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is told of each example, one line each: run one after the other, because loading torch takes longest.

    They are as wide as is worth a NPU's while; what is looked at here does not depend on it.
    """
    if find_spec("google.protobuf") is None:
        pytest.skip("torchair needs protobuf (pip install '.[dev]')")

    def trace(folder: Path) -> None:
        for script in {script for script, *_ in EXAMPLES}:
            text = (ROOT / "recipes" / "scopes" / script).read_text("utf-8")
            assert "4096" in text
            (folder / script).write_text(text.replace("4096", "64"), "utf-8")
        (folder / "try.py").write_text(_TRY)
        commands = json.dumps([[str(folder / script), *arguments] for script, *arguments in EXAMPLES])
        done = subprocess.run(
            [loaded.python(), str(folder / "try.py"), commands], env=loaded, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        (folder / "said").write_text(done.stdout)

    said = (made_once(tmp_path_factory, "scopes", trace) / "said").read_text()
    return [line.removeprefix("traced: ") for line in said.splitlines() if line.startswith("traced: ")]


def traced(examples: list[str], *example: str) -> Traced:
    """Return torchair's signatures, what each compiled graph of an example says about scopes, and the backends."""
    told = dict(zip(EXAMPLES, examples, strict=True))
    wrong, signatures, graphs, backends = json.loads(told[example])
    assert not wrong, wrong[-3000:]
    return signatures, graphs, backends


def entered(graph: list[list[list[str]]]) -> list[dict[str, str]]:
    """Return the attributes of the scopes that a graph enters, in order."""
    return [dict(zip(*call[1:], strict=True)) for call in graph if "enter" in str(call[0])]


def test_the_example_of_core_limits_runs(examples: list[str]) -> None:
    signatures, (graph,), backends = traced(examples, "limit_core_num.py")
    assert signatures[0] == "(op_aicore_num: int, op_vectorcore_num: int)"
    assert backends == ["max-autotune"]
    scopes = entered(graph)
    assert {"_op_aicore_num": "8", "_op_vectorcore_num": "16"} in scopes
    assert {"_op_aicore_num": "16", "_op_vectorcore_num": "32"} in scopes
    assert scopes[0]["_user_stream_label"] == "experts"
    assert len(graph) == 2 * len(scopes) == 6


@pytest.mark.parametrize(("arguments", "mode"), [((), "npugraph_ex"), (("reduce-overhead",), "reduce-overhead")])
def test_the_example_of_limits_of_streams_runs(arguments: tuple[str, ...], mode: str, examples: list[str]) -> None:
    _, (graph,), backends = traced(examples, "limit_stream_cores.py", *arguments)
    assert backends == [mode]
    assert entered(graph) == [
        {"_op_aicore_num": "8", "_op_vectorcore_num": "16"},
        {"_op_aicore_num": "16", "_op_vectorcore_num": "32"},
    ]


def test_the_example_of_super_kernels_runs(examples: list[str]) -> None:
    """Each of six layers has a name of its own, and holds both operators."""
    signatures, (graph,), _ = traced(examples, "super_kernel.py", "fused")
    assert signatures[1] == "(scope: str, options: str = '')"
    assert entered(graph) == [
        {"_super_kernel_scope": f"layer_{i}", "_super_kernel_options": "feed-sync-all=1"} for i in range(6)
    ]
    kinds = [str(call[0]).split(".")[0].removeprefix("npu_") for call in graph]
    assert kinds == ["scope_enter", "quant_matmul", "dequant_swiglu_quant", "scope_exit"] * 6
    _, (plain,), _ = traced(examples, "super_kernel.py", "plain")
    assert entered(plain) == [] and len(plain) == 12


def test_the_example_of_super_kernels_compares_outputs(examples: list[str]) -> None:
    _, graphs, _ = traced(examples, "super_kernel.py", "compare")
    assert [len(entered(graph)) for graph in graphs] == [0, 6]


def test_the_code_of_proposals_runs(loaded: Loaded, tmp_path: Path) -> None:
    """What analyze prints is pasted as it is; only the placeholder bodies do nothing."""
    document = json.loads(run_cli(["analyze", str(SAMPLE), "--format", "json"]).stdout)
    (device,) = document["devices"]
    code = [s["code"] for s in [*device["core_splits"], *device["super_kernels"]]]
    assert len(code) >= 2
    (tmp_path / "pasted.py").write_text("import torch, torch_npu\n" + "\n".join(code))
    done = subprocess.run(
        [loaded.python(), str(tmp_path / "pasted.py")], env=loaded, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("analyze: {format: {a: b}}", "not a single value"),
        ("analyze: {format: }", "not a single value"),
        ("thresholds: {idle_share: 1" + "0" * 400 + "}", "is not a number"),
        ("analyze: {top: 1}\nanalyze: {top: 2}", "given twice"),
    ],
)
def test_values_that_cannot_be_are_refused(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(content)
    done = run_cli(["analyze", str(SAMPLE), "--recipe", str(path)])
    assert done.returncode in (2, 3), done.stdout
    assert why in done.stderr and str(path) in done.stderr
    assert "internal" not in done.stderr


def test_a_name_longer_than_those_of_files_is_no_recipe() -> None:
    done = run_cli(["analyze", str(SAMPLE), "--recipe", "x" * 3000 + ".yaml"])
    assert done.returncode == 2
    assert "no such file" in done.stderr
