"""Core limits against brute force: an own scheduler runs every split, with kernels that divide and that do not."""

from __future__ import annotations

import filecmp
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from build import K, analyze_path, ascend_pt
from conftest import run_cli
from msgspec.structs import replace
from streams import (
    Limits,
    Work,
    divided,
    in_waves,
    kernels_of,
    least,
    micro_batches,
    most,
    schedule,
    span,
    write_sample,
)

from npuperf.base.errors import UsageError
from npuperf.base.messages import say
from npuperf.device.core_splits import factors
from npuperf.model.chip import Cores
from npuperf.model.result import CoreSplit, Device

CUBE, VECTOR = 8, 16
CHIP = (CUBE, VECTOR)
#: A stream of long kernels on some of the cores, and one of short kernels on all of them.
COMPETING = [w for _ in range(6) for w in (Work(2, 100_000, 5), Work(5, 20_000, 8))]
SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "micro_batch_ascend_pt"


def profile(root: Path, work: list[Work], *, event_waits: bool = True, chip: tuple[int, int] = CHIP) -> Path:
    kernels = kernels_of(work, schedule(work, CHIP))
    if event_waits:
        last = max(k.start + k.dur for k in kernels)
        kernels.append(K(last + 10, 10, "EVENT_WAIT", "EVENT_WAIT", "EVENT_WAIT", 99, 0))
    return ascend_pt(root, kernels, cores=f"{chip[0]},{chip[1]}")


def device(path: Path, **options: object) -> Device:
    (found,) = analyze_path(path, **options).devices  # type: ignore[arg-type]
    return found


def proposal(found: Device) -> CoreSplit | None:
    return next((s for s in found.core_splits if not s.asked), None)


def limits_of(split: CoreSplit) -> Limits:
    return {x.stream: (x.cube, x.vector) for x in split.limits}


def rules_of(split: CoreSplit) -> dict[str, str]:
    return {str(r.rule): r.status for r in split.rules}


def assert_close(split: CoreSplit, truth: int, best: int, today: int, steps: int = 1) -> None:
    """The best of all splits does not beat the proposal by more than is printed: its interval, or the bound on all."""
    assert split.span_ns and split.bound_ns_per_step is not None
    width = split.span_ns[1] - split.span_ns[0]
    assert best >= today - steps * split.bound_ns_per_step - 0.01 * today
    beyond = truth - (today - steps * split.bound_ns_per_step)
    assert truth - best <= max(width, beyond) + 0.01 * today


def random_work(seed: int) -> list[Work]:
    """Two streams that want the same cores: long kernels on some of them beside short ones on all."""
    source = random.Random(seed)
    big, small = source.randint(3, 7), source.choice([4, 6, 8, 12])
    kernels = []
    for _ in range(source.randint(4, 9)):
        kernels += [Work(2, source.randint(60, 160) * 1_000, source.choice([big, max(big - 1, 1)]))]
        kernels += [Work(5, source.randint(5, 40) * 1_000, small)] * source.randint(0, 2)
    return kernels


@pytest.mark.parametrize("seed", [*range(22), 189, 196])
def test_no_fixed_split_beats_the_proposal_by_more_than_its_interval(seed: int, tmp_path: Path) -> None:
    work = random_work(seed)
    if len({w.stream for w in work}) < 2:
        work.append(Work(5, 30_000, 8))
    today = span(schedule(work, CHIP))
    splits = [{2: (a, VECTOR), 5: (CUBE - a, VECTOR)} for a in range(1, CUBE)]
    found = device(profile(tmp_path, work))
    assert found.partition.span_ns == today
    split = proposal(found)
    if split is None:  # then no split is certain to save a notable part
        worst = min(span(schedule(work, CHIP, s, most)) for s in splits)
        assert worst >= today * (1 - 0.02)
        return
    assert split.gain_ns_per_step and split.span_ns
    chosen = limits_of(split)
    assert chosen in splits
    assert split.gain_ns_per_step[0] > 0
    for model in (divided, in_waves, least, most):
        truth = span(schedule(work, CHIP, chosen, model))
        best = min(span(schedule(work, CHIP, s, model)) for s in splits)
        assert_close(split, truth, best, today)
        assert split.span_ns[0] - 0.01 * today <= truth <= split.span_ns[1] + 0.01 * today


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("a", [1, 3, 6])
def test_a_split_of_the_user_s_own_is_predicted(seed: int, a: int, tmp_path: Path) -> None:
    work = [*random_work(seed), Work(5, 20_000, 8)]
    today = span(schedule(work, CHIP))
    asked = {2: (a, VECTOR), 5: (CUBE - a, VECTOR)}
    (split,) = [s for s in device(profile(tmp_path, work), cores_of=asked).core_splits if s.asked]
    assert split.span_ns and limits_of(split) == asked
    for model in (least, most):
        truth = span(schedule(work, CHIP, asked, model))
        assert split.span_ns[0] - 0.01 * today <= truth <= split.span_ns[1] + 0.01 * today


def test_both_sides_are_split(tmp_path: Path) -> None:
    """Stream 2: pairs of cube kernels of 5 and of vector kernels of 10; stream 5 wants everything for a short while."""
    main = [Work(2, 100_000, 5), Work(2, 100_000, 5), Work(2, 100_000, 0, 10), Work(2, 100_000, 0, 10)]
    work = [w for _ in range(6) for w in (*main, Work(5, 20_000, 8), Work(5, 20_000, 0, 16))]
    found = device(profile(tmp_path, work))
    split = proposal(found)
    assert split is not None and split.gain_pct
    assert limits_of(split) == {2: (5, 10), 5: (3, 6)}
    today = span(schedule(work, CHIP))
    every = [{2: (a, v), 5: (CUBE - a, VECTOR - v)} for a in range(1, CUBE) for v in range(1, VECTOR)]
    assert (
        span(schedule(work, CHIP, limits_of(split), most))
        == min(span(schedule(work, CHIP, s, most)) for s in every)
        < today
    )


def test_a_chip_without_vector_cores(tmp_path: Path) -> None:
    split = proposal(device(profile(tmp_path, COMPETING, chip=(CUBE, 0))))
    assert split is not None
    assert limits_of(split) == {2: (5, 0), 5: (3, 0)}
    assert split.code and "set_stream_limit(torch.npu.current_stream(), 5, 0)" in split.code


@pytest.mark.parametrize("kind", ["one stream", "perfectly divisible", "no contention"])
def test_no_proposal_without_a_certain_gain(kind: str, tmp_path: Path) -> None:
    work = {
        "one stream": [Work(2, 50_000, 8)] * 6,
        "perfectly divisible": [Work(s, 50_000, 8) for _ in range(6) for s in (2, 5)],
        "no contention": [Work(s, 50_000, 4) for _ in range(6) for s in (2, 5)],
    }[kind]
    found = analyze_path(profile(tmp_path, work))
    assert found.devices[0].core_splits == []
    assert [f.status for f in found.findings if f.rule == "core_limit"] == ["ok"]


def test_waits_that_may_be_for_events_give_no_proposal_but_say_what_is_missing(tmp_path: Path) -> None:
    found = analyze_path(profile(tmp_path, COMPETING, event_waits=False))
    assert found.devices[0].core_splits == []
    (finding,) = [f for f in found.findings if f.rule == "core_limit"]
    assert finding.status == "cannot_tell"
    assert finding.needs and "no events are recorded" in str(finding.needs)


def test_streams_left_out_get_the_rest(tmp_path: Path) -> None:
    (split,) = [s for s in device(profile(tmp_path, COMPETING), cores_of={5: (3, 6)}).core_splits if s.asked]
    assert limits_of(split) == {5: (3, 6), 2: (5, 10)}


def test_limits_beyond_the_chip_together_free_nobody(tmp_path: Path) -> None:
    asked = {2: (8, 16), 5: (8, 16)}
    (split,) = [s for s in device(profile(tmp_path, COMPETING), cores_of=asked).core_splits if s.asked]
    assert split.gain_ns_per_step == (0, 0)
    assert rules_of(split)["sum"] == "violated"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({7: (4, 8)}, "no such stream"),
        ({2: (9, 8)}, "9 cube cores"),
        ({2: (0, 8)}, "0 cube cores"),
        ({5: (4, 0)}, "0 vector"),
    ],
)
def test_limits_that_cannot_be_are_refused(asked: dict[int, tuple[int, int]], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        device(profile(tmp_path, COMPETING), cores_of=asked)


@pytest.mark.parametrize(
    ("block", "limit", "low", "high"),
    [
        (24, 24, 1, 1),
        (24, 16, 1.5, 2),  # divided 24/16; blocks in two waves
        (20, 16, 1.25, 2),
        (8, 16, 1, 1),  # below the limit
        (32, 16, 1, 1.5),  # two waves today and then
        (48, 12, 2, 2),
        (0, 4, 1, 1),  # does not use the side
        (-1, 4, 1, 1),  # unknown: not slowed, not claimed
    ],
)
def test_factors_by_hand(block: int, limit: int, low: float, high: float) -> None:
    found = factors(np.array([block]), 24, limit)
    assert (found[0].item(), found[1].item()) == (low, high)


@pytest.mark.parametrize(
    ("soc", "status"), [("Ascend910B1", "ok"), ("Ascend910_9391", "ok"), (None, "unknown"), ("Ascend999X", "none")]
)
def test_the_chip_decides_whether_limits_exist(soc: str | None, status: str, tmp_path: Path) -> None:
    split = proposal(device(profile(tmp_path, COMPETING), soc=soc))
    if status == "none":
        assert split is None
    else:
        assert split is not None
        assert rules_of(split)["product"] == status


# --- a static graph: one launch per step, kernels have none of their own -------------------------------------------


def test_the_sample_is_what_its_script_writes(tmp_path: Path) -> None:
    made = write_sample(tmp_path)
    files = [f.relative_to(made) for f in made.rglob("*") if f.is_file()]
    assert files and {f.relative_to(SAMPLE) for f in SAMPLE.rglob("*") if f.is_file()} == set(files)
    assert all(filecmp.cmp(made / f, SAMPLE / f, shallow=False) for f in files)


def test_two_micro_batches_in_a_static_graph() -> None:
    """Every even split of the sample's chip by brute force; the proposal may divide the sides unevenly."""
    found = device(SAMPLE)
    split = proposal(found)
    assert split is not None and split.span_ns and split.gain_ns_per_step
    assert "max-autotune" in str(split.mode)
    work = micro_batches()
    today = span(schedule(work, (24, 48)))
    assert found.partition.span_ns == today
    every = [{3: (a, 2 * a), 9: (24 - a, 48 - 2 * a)} for a in range(1, 24)]
    for model in (divided, in_waves):
        truth = span(schedule(work, (24, 48), limits_of(split), model))
        best = min(span(schedule(work, (24, 48), s, model)) for s in every)
        assert truth < today
        assert_close(split, truth, best, today, steps=3)
        assert split.span_ns[0] - 0.01 * today <= truth <= split.span_ns[1] + 0.01 * today
    assert split.code is not None
    compile(split.code, "scopes", "exec")
    assert "with torchair.scope.limit_core_num(16, 32):" in split.code
    assert 'with torchair.scope.npu_stream_switch("stream_9"):' in split.code


def test_the_wait_for_an_event_is_no_contention() -> None:
    """Only kernels right behind an event wait are in doubt: the sample has some at the beginning of its graphs."""
    use = device(SAMPLE).cores.over_time
    assert use is not None and use.contended_ns is not None
    assert 0 < use.contended_ns[0] < use.contended_ns[1]
    assert {w.stream: w.holders for w in use.contention} == {9: [3], 3: [9]}


@pytest.mark.parametrize("seed", range(6))
def test_three_streams(seed: int, tmp_path: Path) -> None:
    """The proposal against all 21 ways to divide 8 cube cores among three streams."""
    source = random.Random(seed)
    work = []
    for _ in range(5):
        work += [Work(2, source.randint(60, 120) * 1_000, source.choice([3, 4]))]
        work += [Work(5, source.randint(20, 60) * 1_000, source.choice([4, 8]))]
        work += [Work(7, source.randint(5, 30) * 1_000, 8)]
    today = span(schedule(work, CHIP))
    found = device(profile(tmp_path, work))
    split = proposal(found)
    every = [
        {2: (a, VECTOR), 5: (b, VECTOR), 7: (CUBE - a - b, VECTOR)} for a in range(1, CUBE) for b in range(1, CUBE - a)
    ]
    if split is None:
        assert min(span(schedule(work, CHIP, s, most)) for s in every) >= today * (1 - 0.02)
        return
    assert limits_of(split) in every and split.span_ns
    for model in (divided, in_waves, least, most):
        truth = span(schedule(work, CHIP, limits_of(split), model))
        best = min(span(schedule(work, CHIP, s, model)) for s in every)
        assert_close(split, truth, best, today)
        assert split.span_ns[0] - 0.01 * today <= truth <= split.span_ns[1] + 0.01 * today


def test_a_run_s_manifest_tells_chip_cores_and_version(tmp_path: Path) -> None:
    folder = profile(tmp_path / "raw", COMPETING)
    for info in folder.rglob("info.json.0"):
        info.unlink()
    manifest = {"soc": "Ascend910_9391", "cores_cube": CUBE, "cores_vector": VECTOR, "versions": {"cann": "8.5.0"}}
    (tmp_path / "npuperf.json").write_text(json.dumps(manifest))
    found = device(tmp_path)
    assert (found.soc, found.cores_cube, found.cores_vector, str(found.cores.source)) == (
        "Ascend910_9391", CUBE, VECTOR, "npuperf.json"
    )  # fmt: skip
    split = proposal(found)
    assert split is not None
    rules = {str(r.rule): (r.status, str(r.detail)) for r in split.rules}
    assert rules["product"] == ("ok", "Ascend910_9391: Atlas A3")
    del manifest["cores_cube"]
    (tmp_path / "npuperf.json").write_text(json.dumps(manifest))
    assert (device(tmp_path).cores_cube, str(device(tmp_path).cores.source)) == (24, "SoC table: Ascend910_9391")


def as_mode(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Let scopes see another way of executing."""
    monkeypatch.setattr("npuperf.device.view.DeviceWindow.mode", property(lambda _: mode))


@pytest.mark.parametrize(("version", "status"), [("8.5.0", "unknown"), ("9.0.0", "ok"), (None, "unknown")])
def test_static_kernels_depend_on_the_version_of_cann(
    version: str | None, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_mode(monkeypatch, "aclgraph")
    folder = shutil.copytree(SAMPLE, tmp_path / "sample")
    info = folder / "profiler_info_0.json"
    info.write_text(json.dumps({**json.loads(info.read_text()), **({"cann_version": version} if version else {})}))
    split = proposal(device(folder))
    assert split is not None
    assert rules_of(split)["static kernel"] == status


@pytest.mark.parametrize(
    ("mode", "of_streams"),
    [
        ("ge", False), ("ge_static", False), ("ge_dynamic", False), ("eager", True), ("aclgraph", True),
        ("npugraph_ex", True), ("unknown", True),
    ],
)  # fmt: skip
def test_rules_of_stream_limits_are_none_of_the_graph_engine_s(
    mode: str, of_streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_mode(monkeypatch, mode)
    split = proposal(device(SAMPLE))
    assert split is not None
    assert {"static kernel", "one thread"} & rules_of(split).keys() == (
        {"static kernel", "one thread"} if of_streams else set()
    )


@pytest.mark.parametrize(("mode", "status"), [("ge", "violated"), ("eager", "unknown")])
@pytest.mark.parametrize(
    ("streams", "words"),
    [((), None), ((7,), None), ((5,), "1 AI CPU operator on"), ((7, 2, 5, 2), "3 AI CPU operators on")],
)
def test_operators_on_ai_cpu_are_counted_on_limited_streams(
    mode: str, status: str, streams: tuple[int, ...], words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_mode(monkeypatch, mode)
    kernels = kernels_of(COMPETING, schedule(COMPETING, CHIP))
    last = max(k.start + k.dur for k in kernels)
    for i, stream in enumerate(streams):
        kernels.append(K(last + i * 1_000, 500, f"Unique_{i}", "Unique", "AI_CPU", stream, 1, 0))
    found = device(ascend_pt(tmp_path, kernels, cores=f"{CUBE},{VECTOR}"), cores_of={2: (4, 8), 5: (4, 8)})
    (split,) = (s for s in found.core_splits if s.asked)
    told = [(rule.status, str(rule.detail)) for rule in split.rules if str(rule.rule) == "AI CPU"]
    assert [one for one, _ in told] == ([status] if words else [])
    assert all(words is not None and detail.startswith(words) for _, detail in told)


#: What limits cores, and what switches streams, in each way of executing: TorchAir's pages on core limits and streams.
NAMES = {
    "ge": ("torchair.scope.limit_core_num", "torchair.scope.npu_stream_switch"),
    "npugraph_ex": ("torch.npu.npugraph_ex.scope.limit_core_num", "torch.npu.stream"),
    "aclgraph": ("torch.npu.npugraph_ex.scope.limit_core_num", "torch.npu.stream"),
    "eager": ("torch.npu.set_stream_limit", None),
}


@pytest.mark.parametrize("mode", NAMES)
def test_the_code_has_the_names_of_its_mode(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is run; every call on it is taken down by its full name."""
    as_mode(monkeypatch, mode)
    split = proposal(device(SAMPLE))
    assert split is not None and split.code
    called: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattr__(self, name: str) -> Named:
            return Named(f"{self.name}.{name}")

        def __call__(self, *arguments: object) -> Named:
            called.append(self.name)
            return self

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

    modules = {name: Named(name) for name in ("torch", "torchair", "torch_npu")}
    code = "\n".join(line for line in split.code.splitlines() if not line.startswith("import "))
    streams = {f"stream_{x.stream}": Named("stream") for x in split.limits}
    exec(code, {**modules, **streams})
    limit, switch = NAMES[mode]
    assert called.count(limit) == len(split.limits)
    assert called.count(switch or "") == (len(split.limits) - 1 if switch else 0)
    others = {name for pair in NAMES.values() for name in pair if name} - {limit, switch}
    assert not others & set(called)


def test_a_long_profile_is_searched_on_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample repeats itself, so a third of it has the same answer; the gain is that of the whole."""
    whole = proposal(device(SAMPLE))
    monkeypatch.setattr("npuperf.device.core_splits._EXCERPT", 35)
    part = proposal(device(SAMPLE))
    assert whole is not None and part is not None
    assert limits_of(part) == limits_of(whole) == {3: (16, 32), 9: (8, 16)}
    assert part.gain_ns_per_step == whole.gain_ns_per_step
    assert part.bound_ns_per_step is None and part.searched_kernels < whole.searched_kernels == 99


def test_a_stream_gets_one_limit() -> None:
    done = run_cli(["analyze", str(SAMPLE), "--cores-of", "3=16,32", "--cores-of", "3=8,16"])
    assert done.returncode == 2 and "already has a limit" in done.stderr


def test_a_split_that_costs_time_says_so() -> None:
    done = run_cli(["analyze", str(SAMPLE), "--cores-of", "3=8,16", "--cores-of", "9=16,32"])
    assert ", costs 529 us per step (65.1 %)" in done.stdout and "-529" not in done.stdout


def test_core_counts_that_contradict_the_profile_are_said() -> None:
    warnings = analyze_path(SAMPLE, cores=Cores(8, 16, say("--cores"))).input.warnings
    assert any("--cores says 8,16 cores, the profile says 24,48" in str(w) for w in warnings)


def test_what_was_not_searched_is_not_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The beginning has one stream only; the streams compete later."""
    alone = [K(i * 11_000, 10_000, f"a_{i}", "A", "AI_CORE", 2, 8, 0, 0) for i in range(60)]
    begin = 60 * 11_000 + 50_000
    work = micro_batches()
    compete = [replace(k, start=k.start + begin) for k in kernels_of(work, schedule(work, (24, 48)))]
    wait = K(begin - 20_000, 10, "EVENT_WAIT", "EVENT_WAIT", "EVENT_WAIT", 99, 0)
    path = ascend_pt(tmp_path, [*alone, wait, *compete], cores="24,48")
    monkeypatch.setattr("npuperf.device.core_splits._EXCERPT", 50)
    (found,) = (f for f in analyze_path(path).findings if f.rule == "core_limit")
    assert found.status == "cannot_tell" and "--step N" in str(found.needs)
