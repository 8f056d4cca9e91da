"""The register of rules: what all of them share, and how one is added."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
import yaml
from build import K, ascend_pt, kernel_details
from msgspec import structs
from msgspec.structs import replace
from small_programs import analyzed, answer, assert_complete, assert_whole, beside, busy, placeholders, starved

from npuperf import advise
from npuperf.advise import RULES, load_thresholds, rule_names
from npuperf.advise.needs import Need
from npuperf.advise.rule import Detected, Rule
from npuperf.base.messages import Message, ns, say
from npuperf.device.view import DeviceView
from npuperf.model.thresholds import Thresholds

# --- the register --------------------------------------------------------------------------------------------------


RULE_NAMES = {
    "ai_cpu", "blocking_copies", "captures", "casts", "compilation", "copies", "core_limit", "data_loading",
    "dynamic_shape", "early_steps", "env_settings", "fp32_products", "fused_operators", "garbage_collection",
    "graph_capture", "host_operators", "host_pauses", "idle_cores", "launch_blocking", "layout", "low_clock",
    "moved_for_products", "narrow_products", "online_compile", "padded_products", "recording_cost",
    "runtime_threads", "scalar_kernels", "slow_copies", "small_kernels", "start_up", "super_kernel", "sync_points",
    "task_queue", "tiling_cache", "unaligned_products", "uneven_host", "value_dependent", "waiting_kernels",
}  # fmt: skip
#: Across ranks; those of ALONE have something to say about one device, too.
RANK_RULE_NAMES = {
    "exposed_communication", "odd_packets", "relayed_transfers", "retried_transfers", "slow_collectives",
    "slow_link", "slow_rank", "slowed_compute", "small_packets", "uneven_clocks", "uneven_experts",
}  # fmt: skip
ALONE = {"exposed_communication", "slowed_compute"}
#: Asked where memory was recorded.
OF_MEMORY = {
    "device_allocations", "gradient_copies", "hccl_buffers", "idle_blocks", "late_release", "memory_fragments",
    "memory_headroom", "memory_leak", "out_of_memory", "segment_settings", "short_peak", "waiting_blocks",
}  # fmt: skip
ASKED = RULE_NAMES | ALONE
ANY_DEVICE = {
    "blocking_copies", "captures", "compilation", "data_loading", "early_steps", "garbage_collection", "graph_capture",
    "host_pauses", "small_kernels", "start_up", "sync_points", "uneven_host", "value_dependent",
}  # fmt: skip


def test_every_rule_is_registered() -> None:
    topics = [importlib.import_module(m.name) for m in pkgutil.iter_modules(advise.__path__, "npuperf.advise.")]
    made = [v for topic in topics for v in vars(topic).values() if isinstance(v, Rule)]
    assert {rule.name for rule in made} == RULE_NAMES | RANK_RULE_NAMES | OF_MEMORY == {*rule_names()}
    assert len(RULES) == len(rule_names()) and all(any(rule is one for one in made) for rule in RULES)
    assert {r.name for r in RULES if r.on_device} == RULE_NAMES
    assert {r.name for r in RULES if r.on_job} == RANK_RULE_NAMES
    assert {r.name for r in RULES if r.on_rank} == ALONE
    assert {r.name for r in RULES if r.on_memory} == OF_MEMORY
    no_npu = {"slow_rank", "uneven_experts", "exposed_communication"}
    assert {r.name for r in RULES if r.on_job and r.any_device} == no_npu
    assert {r.name for r in RULES if r.on_device and r.any_device} == ANY_DEVICE


@pytest.mark.parametrize("rule", RULES, ids=rule_names())
def test_every_rule_has_a_title_and_a_source(rule: Rule) -> None:
    for message in (rule.title, rule.source):
        assert isinstance(message, Message) and str(message).strip()
        assert_whole(message)


SENTENCES = [
    pytest.param(call, id=f"{path.stem}:{call.lineno}")
    for path in sorted(Path(advise.__path__[0]).glob("*.py"))
    for call in ast.walk(ast.parse(path.read_text("utf-8")))
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("say", "say_n")
]


@pytest.mark.parametrize("call", SENTENCES)
def test_every_sentence_is_a_literal_whose_placeholders_are_its_parameters(call: ast.Call) -> None:
    plural = isinstance(call.func, ast.Name) and call.func.id == "say_n"
    sentences = [ast.literal_eval(argument) for argument in call.args[: 2 if plural else 1]]
    given = {keyword.arg for keyword in call.keywords} | ({"n"} if plural else set())
    for sentence in sentences:
        assert placeholders(sentence) <= given
    assert set().union(*map(placeholders, sentences)) == given


def test_every_problem_says_why_how_to_refute_it_and_what_next() -> None:
    """Problem has no defaults for them; whatever a rule leaves out would not even be made."""
    asked = {field.name for field in structs.fields(Detected) if field.required}
    assert set(asked) == {"title", "refute", "next", "evidence"}


# --- a rule of one's own -------------------------------------------------------------------------------------------


@pytest.fixture
def own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advise, "RULES", [*RULES])


def steps_recorded(view: DeviceView) -> float:
    return float(bool(view.steps))


def long_enough(view: DeviceView) -> Detected | None:
    if view.partition.span_ns < 5_000_000:
        return None
    return Detected(
        title=say("the window takes {span}", span=ns(view.partition.span_ns)),
        refute=say("you like it"),
        next=say("wait for less"),
        evidence={"kernels": len(view.tasks)},
        gain=(1_000_000, 2_000_000),
        code="pass\n",
    )


NEED = Need(say("steps"), steps_recorded, lambda _: say("steps are not recorded"))
MADE_UP = Rule("made_up", say("a long window"), say("a test"), (NEED,), long_enough, any_device=True)


@pytest.mark.usefixtures("own_rules")
def test_a_rule_is_added_with_one_call(tmp_path: Path) -> None:
    """10 ms in two steps of 5: a gain of 1 to 2 ms is 20 to 40 % of a step."""
    advise.register(MADE_UP)
    assert rule_names()[-1] == "made_up"
    folder = ascend_pt(tmp_path / "long", busy())
    found = answer(folder, "made_up")
    assert_complete(found, 5_000_000)
    assert str(found.title) == "the window takes 10.00 ms"
    assert (found.gain_pct, found.severity, found.code) == ((20.0, 40.0), "high", "pass\n")
    assert [f.rule for f in analyzed(folder, rules=("made_up",)).findings] == ["made_up"]
    short = answer(ascend_pt(tmp_path / "short", busy(40)), "made_up")
    assert (short.status, str(short.title), short.next, short.evidence) == ("ok", "a long window", None, {})
    untold = answer(ascend_pt(tmp_path / "untold", busy(step="")), "made_up")
    assert (untold.status, untold.needs, untold.next) == ("cannot_tell", *[say("steps are not recorded")] * 2)


@pytest.mark.usefixtures("own_rules")
def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="ai_cpu"):
        advise.register(structs.replace(MADE_UP, name="ai_cpu"))


# --- thresholds ----------------------------------------------------------------------------------------------------


def test_every_threshold_has_a_value_and_a_source() -> None:
    entries = yaml.safe_load((resources.files("npuperf.advise") / "thresholds.yaml").read_text("utf-8"))
    assert set(entries) == set(Thresholds.__struct_fields__)
    for name, entry in entries.items():
        assert isinstance(entry["value"], (int, float)) and entry["value"] > 0, name
        assert isinstance(entry["source"], str) and len(entry["source"].split()) >= 4, name
    thresholds = load_thresholds()
    assert thresholds.as_dict() == {name: entry["value"] for name, entry in entries.items()}
    assert all(0 < entry["value"] <= 1 for name, entry in entries.items() if name.endswith("_share"))


# --- answers -------------------------------------------------------------------------------------------------------


def test_every_rule_answers_once_per_device(tmp_path: Path) -> None:
    kernels = [*busy(), *(replace(k, device=1) for k in busy())]
    findings = analyzed(kernel_details(tmp_path / "kernel_details.csv", kernels)).findings
    for device in (0, 1):
        assert sorted(f.rule for f in findings if f.device == device) == sorted(ASKED)


def test_problems_stand_first_the_gravest_on_top(tmp_path: Path) -> None:
    kernels = starved(step=1, state="dynamic", block=4)
    kernels.append(beside(kernels, 300_000, core="AI_CPU", type="Unique", step=1))
    found = analyzed(ascend_pt(tmp_path, kernels, cores="24,48")).findings
    status = [f.status for f in found]
    assert status == sorted(status, key=["problem", "cannot_tell", "ok"].index)
    grave = [f.severity for f in found if f.status == "problem"]
    assert len(grave) >= 3
    assert grave == sorted(grave, key=["high", "medium", "low"].index)


# --- healthy profiles ----------------------------------------------------------------------------------------------


def with_hidden_traffic() -> list[K]:
    """Collectives beside compute, and events and waits between kernels."""
    kernels = busy()
    for i in range(0, 100, 10):
        start = i * 100_000 + 10_000
        kernels.append(K(start, 80_000, f"hcom_allReduce__{i}_0_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0,
                         launch=i * 5_000 - 400_000))  # fmt: skip
        kernels.append(K(start, 50_000, "EVENT_WAIT", core="EVENT_WAIT", stream=5, launch=i * 5_000 - 400_000))
    return kernels


@pytest.mark.parametrize("make", [busy, with_hidden_traffic])
def test_no_rule_says_problem_on_a_healthy_profile(tmp_path: Path, make: Callable[[], list[K]]) -> None:
    folder = ascend_pt(tmp_path, make(), cores="24,48")
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": ""}}))
    overhead = {"inside_ns": 5_000_000, "outside_ns": 5_000_000, "inside": 2, "outside": 2}
    (tmp_path / "npuperf.json").write_text(json.dumps({"environment": {}, "overhead": overhead}))
    result = analyzed(folder)
    assert result.verdict.bound == "compute"
    answers = {f.rule: f.status for f in result.findings}
    if make is with_hidden_traffic:  # kernels run beside it, but shapes that make them comparable are not recorded
        assert answers.pop("slowed_compute") == "cannot_tell"
    of_counters = {"fp32_products", "low_clock", "narrow_products", "padded_products", "scalar_kernels",
                   "unaligned_products"}  # fmt: skip
    unknown = {"fused_operators", "moved_for_products", *of_counters}
    for rule in unknown:  # no torch operators are recorded, no shapes, dtypes and counters
        assert answers.pop(rule) == "cannot_tell"
    assert set(answers.values()) == {"ok"} and ASKED - {*answers} <= {"slowed_compute", *unknown}


def test_nothing_recorded_means_cannot_tell_not_ok(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    rows = "".join(f"k{i},N/A,N/A,{i * 100}.5,40.25\n" for i in range(50))
    path.write_text("Name,Type,Accelerator Core,Start Time(us),Duration(us)\n" + rows)
    findings = analyzed(path).findings
    assert {f.rule: f.status for f in findings} == dict.fromkeys(ASKED, "cannot_tell")
    for f in findings:
        assert f.needs and f.next and f.gain_ns_per_step is None


# --- gains ---------------------------------------------------------------------------------------------------------


def test_without_steps_a_gain_is_for_the_whole_window(tmp_path: Path) -> None:
    found = answer(ascend_pt(tmp_path, starved(step="")), "small_kernels")
    assert (found.gain_per, found.gain_ns_per_step) == ("window", (0, 99 * 20_000))


@pytest.mark.parametrize(("extra", "severity"), [(150_000, "low"), (400_000, "medium"), (2_000_000, "high")])
def test_severity_follows_the_gain(tmp_path: Path, extra: int, severity: str) -> None:
    """Beside 10 ms of work: 1.5 %, 3.8 %, 16.7 % of the step."""
    kernels = busy()
    kernels.append(beside(kernels, extra, core="AI_CPU", type="Unique"))
    assert answer(ascend_pt(tmp_path, kernels), "ai_cpu").severity == severity
