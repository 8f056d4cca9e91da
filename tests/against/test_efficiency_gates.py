"""Gates on efficiency: figures by hand, bounds on the right side of a limit, and what is said where there are none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from build import K, analyze_path, ascend_pt
from clusters import VERDICT, result_of
from msgspec.structs import replace

from npuperf.against.baselines import reduced
from npuperf.against.gate_verdicts import judge_gate
from npuperf.against.gates import parse_gate
from npuperf.against.metrics import register_all
from npuperf.base.messages import text
from npuperf.model.efficiency_result import Efficiency, EfficiencyPart, Mfu, ModelWork
from npuperf.model.result import Partition, Result, Step
from npuperf.model.schema import document_of
from npuperf.model.shortened import unfolded
from npuperf.show.formats import render

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import simulate

register_all()
MS = 1_000_000


def window(
    useful: tuple[float, float] = (0.4, 0.4), *, span_ns: int = 10 * MS, kernels: tuple[float, float] | None = None,
    busy: float | None = 0.5, formula_share: float | None = 1.0, untold: float = 0.0, idle: float = 0.3,
    mhz: float | None = 1800.0, palm: float | None = None, won: tuple[int, int] | None = None, uncounted: float = 0.0,
) -> Efficiency:  # fmt: skip
    """A window of 353.8944 TFLOPS with shares as given."""
    peak = 24 * 1800e6 * 8192
    whole = peak * span_ns / 1e9
    shares = {"useful": useful[0], "cube_busy_without_formula": untold, "cube_uncounted": uncounted, "cube_idle": idle}
    return Efficiency(
        cube_cores=24, clock_mhz=mhz, basis="counters" if busy is not None else "chip", peak_flop_per_s=peak,
        span_ns=span_ns, cube_busy_flop=None if busy is None else busy * whole, cube_busy_share=busy,
        useful_flop=(useful[0] * whole, useful[1] * whole), hfu=useful,
        mfu=Mfu(kernels=kernels or useful, palm=palm, verl=palm and palm / 2),
        parts=[EfficiencyPart(part=name, flop=share * whole, ns=round(share * span_ns), share=share)
               for name, share in shares.items()],
        idle=[], formula_share=formula_share, contradictions=0, odd=0, recoverable_ns=won,
    )  # fmt: skip


def run(*devices: list[Efficiency | None], model: bool = False) -> Result:
    """A result of devices with one step per window."""
    made = result_of(None)
    of = made.devices[0]

    def partition(span: int) -> Partition:
        return Partition(span_ns=span, compute_ns=span, comm_exposed_ns=0, other_exposed_ns=0, idle_ns=0,
                         host_wait_ns=0, launch_latency_ns=0, dependency_wait_ns=0, unattributed_ns=0)  # fmt: skip

    return replace(
        made,
        devices=[
            replace(of, rank=rank, device=rank, partition=partition(10 * MS * len(own)), efficiency=own[0],
                    steps=[Step(step=at, start_ns=0, partition=partition(e.span_ns if e else 10 * MS), verdict=VERDICT,
                                efficiency=e) for at, e in enumerate(own)])
            for rank, own in enumerate(devices)
        ],
        model=ModelWork(palm_flop=1.0, verl_flop=1.0, given=False, tokens=1.0, devices=1) if model else None,
    )  # fmt: skip


def judged(gate: str, new: Result, *old: Result) -> tuple[str, float | None, str]:
    found = judge_gate(parse_gate(gate, Result), new, old)
    return found.status, found.value, "" if found.reason is None else text(found.reason)


def test_the_median_step_of_the_device_with_the_least() -> None:
    """Medians of 40 and 30 %."""
    both = run([window((0.4, 0.4))] * 3, [window((x, x)) for x in (0.1, 0.3, 0.5)])
    assert judged("hfu<31%", both) == ("fail", 30.0, "30.0 %; the median of 3 steps")
    assert judged("hfu<30%", both)[0] == "pass"
    assert judged("mfu>29%", both)[0] == "fail"
    assert judged("cube_busy<50%", both)[:2] == ("pass", 50.0)
    assert judged("max(hfu)<41%", both)[:2] == ("fail", 40.0)


@pytest.mark.parametrize(
    ("gate", "status"),
    [
        ("mfu<19%", "pass"), ("mfu<20%", "pass"), ("mfu<25%", "cannot_tell"), ("mfu<31%", "fail"),
        ("mfu>19%", "fail"), ("mfu>25%", "cannot_tell"), ("mfu>30%", "pass"),
        ("each(mfu)<25%", "cannot_tell"), ("each(mfu)<31%", "fail"), ("each(mfu)>31%", "pass"),
    ],
)  # fmt: skip
def test_what_lies_between_bounds(gate: str, status: str) -> None:
    """MFU is 20 to 30 %: what is certain of all between is told, and nothing else."""
    found = run([window((0.3, 0.3), kernels=(0.2, 0.3))] * 3)
    assert judged(gate, found)[0] == status


def test_the_bounds_are_said() -> None:
    found = run([window((0.2, 0.3))] * 3)
    assert judged("mfu<25%", found)[2].endswith("between 20.0 % and 30.0 %")
    assert judged("mfu<31%", found)[2].endswith("at most 30.0 %")


def test_kernels_without_a_formula_may_be_useful() -> None:
    """20 % by formulas, 15 % of the peak done by kernels without one; 30 % idle, of which counters tell or not."""
    counted = run([window((0.2, 0.2), formula_share=0.5, untold=0.15)])
    assert judged("hfu<34%", counted)[0] == "cannot_tell"
    assert judged("hfu<36%", counted)[0] == "fail"
    uncounted = run([window((0.2, 0.2), formula_share=0.5, untold=0.15, idle=0.0, uncounted=0.3)])
    assert judged("hfu<64%", uncounted)[0] == "cannot_tell"
    assert judged("hfu<66%", uncounted)[0] == "fail"
    nothing = run([window((0.0, 0.0), formula_share=0.0)])
    assert judged("hfu<66%", nothing)[0] == "cannot_tell" and "no kernel" in judged("mfu<1%", nothing)[2]


def test_what_lacks_is_named() -> None:
    assert "--soc" in judged("mfu<1%", run([window()], [None]))[2]
    assert "PipeUtilization" in judged("cube_busy<1%", run([window(busy=None)]))[2]
    assert "PipeUtilization" in judged("clock<1MHz", run([window(busy=None)]))[2]
    assert "product" in judged("clock<1MHz", run([window(mhz=None)]))[2]
    assert "--params" in judged("mfu.palm<1%", run([window()]))[2]
    assert "see the warnings" in judged("mfu.verl<1%", run([window()], model=True))[2]
    assert "--level 1" in judged("recoverable_time>1ms", run([window()]))[2]
    for gate in ("mfu<1%", "hfu<1%", "cube_busy<1%", "clock<1", "mfu.palm<1%", "recoverable_time>1ms"):
        assert judged(gate, run([None]))[0] == "cannot_tell", gate


def test_the_other_figures() -> None:
    found = run([window(palm=0.4, won=(MS, 3 * MS))] * 2, [window(palm=0.3, won=(MS, 2 * MS), mhz=1650.0)] * 2,
                model=True)  # fmt: skip
    assert judged("mfu.palm<31%", found)[:2] == ("fail", pytest.approx(30))
    assert judged("mfu.verl<16%", found)[:2] == ("fail", pytest.approx(15))
    assert judged("clock<1800MHz", found) == ("fail", 1650.0, "")
    assert judged("clock<1650", found)[0] == "pass"
    assert [judged(f"recoverable_time>{limit}us", found)[0] for limit in (900, 2500, 3000)] == [
        "fail", "cannot_tell", "pass"
    ]  # fmt: skip


def test_against_a_baseline_of_the_same_work() -> None:
    """MFU of 20 to 30 % became 10 to 15 %: whatever is useful, it is half. Of other work nobody could tell."""
    old, slower = run([window((0.2, 0.3))] * 9), run([window((0.1, 0.15), span_ns=20 * MS)] * 9)
    assert judged("mfu<-5%", slower, old)[0] == "fail"
    assert judged("mfu<-5%", old, old)[0] == "pass"
    assert judged("mfu<-12%", slower, old)[0] == "cannot_tell", "by 10 points or by 15"
    assert judged("cube_busy<-2%", run([window(busy=0.4)] * 9), old)[0] == "fail"
    assert judged("clock<-1%", run([window(mhz=1650.0)]), old)[0] == "fail"


def test_a_kept_baseline_has_them(tmp_path: Path) -> None:
    """What is kept has no steps, but their sums: gates find in it what the whole result has."""
    one = window((0.2, 0.3), formula_share=0.5, untold=0.05, palm=0.4, won=(MS, 2 * MS))
    whole = run([one, window((0.3, 0.3), palm=0.5, won=(0, MS)), one], model=True)
    written = json.loads(render(reduced(whole), "json"))
    kept = unfolded(document_of(written, tmp_path, Result))
    for gate in ("mfu", "hfu", "mfu.palm", "mfu.verl", "cube_busy", "recoverable_time"):
        metric = parse_gate(f"{gate}>1" + ("ms" if gate == "recoverable_time" else "%"), Result).metric
        before, after = (metric.measure(of, None) for of in (whole, kept))
        assert before.series and (after.series, after.most) == (
            tuple(tuple(map(pytest.approx, own)) for own in before.series),
            tuple(tuple(map(pytest.approx, own)) for own in before.most),
        )


def test_gates_on_a_run(tmp_path: Path) -> None:
    """A simulated training run of 24 cores at 1800 MHz, whose counters agree with its shapes."""
    out = tmp_path / "a_ascend_pt"
    simulate.write_context(out)
    writer = simulate.Writer(out, "Block Dim", frames=True)
    for step in simulate.simulate(((11 + i, simulate.training_step()) for i in range(4)), 7):
        writer.step(*step)
    writer.close()
    asked = ("clock<1800", "clock<1801MHz", "mfu>99%", "hfu<100%", "cube_busy>99%", "recoverable_time>10s")
    found = analyze_path(out, fail_on=asked, no_cache=True)
    assert [gate.status for gate in found.gates] == ["pass", "fail", "pass", "fail", "pass", "pass"]
    bare = ascend_pt(tmp_path, [K(0, 1000, type="MatMulV2", core="AI_CORE")])
    asked = ("mfu<1%", "hfu<1%", "cube_busy<1%", "clock<1", "mfu.palm<1%", "recoverable_time>0")
    assert {gate.status for gate in analyze_path(bare, fail_on=asked, no_cache=True).gates} == {"cannot_tell"}
