"""Documents of every kind, small, with something in every part: what tests of formats show."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import comparisons
from clusters import finding, large_job, pipeline_job, result_of
from msgspec.structs import replace

from npuperf.advise import explain
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import ExitCode
from npuperf.base.messages import ns, say, share
from npuperf.model.comparison import Compared, Comparison, Difference, WaterfallPart
from npuperf.model.document import Document, Gate, Problem
from npuperf.model.recorded import Exported, Overhead, ProcessStatus, Proof, Recorded, RecordingPlan, Setting, Window
from npuperf.model.result import Result
from npuperf.model.tuning import (
    BankChange,
    BankChanges,
    BankDiff,
    Check,
    Entry,
    FieldChange,
    Merged,
    PlannedProgram,
    ResultChanges,
    RolledBack,
    Saving,
    Summary,
    Taken,
    TunePlan,
    Tuning,
)
from npuperf.show.brief import gists_of

SAMPLES = Path(__file__).resolve().parent.parent / "samples"

WARNING = say("{time} are {share} of it", time=ns(1_500_000), share=share(0.25))
BANK = BankDiff(
    before="b1",
    after="b2",
    records_before=10,
    records_after=11,
    changes=(
        BankChange(soc="Ascend910B1", cores=24, op="MatMulV2", info='{"m":1}', change="added"),
        BankChange(
            soc="Ascend910B1",
            cores=24,
            op="Add",
            info='{"n":2}',
            change="changed",
            fields=(FieldChange(field="tiling", before="1", after="2"),),
        ),
    ),
    unchanged=9,
    warnings=(WARNING,),
)
STEP = Compared(
    kind="step",
    name="",
    change="changed",
    verdict="better",
    old_ns=2_000_000,
    new_ns=1_500_000,
    count=3,
    noise_ns=9_000,
)
OPERATOR = Compared(
    kind="operator",
    name="MatMulV2",
    change="changed",
    verdict="better",
    old_ns=20_000,
    new_ns=15_000,
    count=30,
    noise_ns=900,
    expected_ns=(0, 60_000),
    strategy="Schedule",
)
VERIFIED = Comparison(
    old="r1",
    new="r2",
    verdict="better",
    reason=say("the step got faster"),
    old_step_ns=2_000_000,
    new_step_ns=1_500_000,
    delta_ns=-500_000,
    interval_ns=(-509_000, -491_000),
    old_median_ns=2_001_000,
    new_median_ns=1_501_000,
    samples=(10, 10),
    method=say("exact rank interval"),
    confidence=0.99,
    expected_ns=(0, 600_000),
    workload="same",
    parity=(Difference(what="CANN", old="8.3", new="8.5", matters=True),),
    waterfall=(
        WaterfallPart(
            part="compute",
            key="MatMulV2",
            delta_ns=-450_000,
            count_ns=0,
            speed_ns=-450_000,
            old_ns=1_350_000,
            new_ns=900_000,
            old_count=90,
            new_count=90,
        ),
        WaterfallPart(
            part="launch_latency",
            key=None,
            delta_ns=-50_000,
            count_ns=-60_000,
            speed_ns=10_000,
            old_ns=650_000,
            new_ns=600_000,
        ),
    ),
    rows=(STEP, OPERATOR),
)
GATES = (
    Gate(expr="regression>3%", status="pass", value=0.0, limit=3.0),
    Gate(expr="failed>0", status="cannot_tell", value=None, limit=0.0, reason=say("the result is not whole")),
)
CHECK = Check(name="disk", status="warn", required=say("room"), found=say("{free} free", free="1 GB"), hard=False)
TUNING = Tuning(
    mode="op",
    status="successful",
    recovered=True,
    files=("aoe_result_opat_1_pid7.json",),
    entries=(
        Entry(
            kind="operator",
            name="Add_7",
            types=("Add",),
            change="added",
            before_us=20.0,
            after_us=15.0,
            speedup=4 / 3,
            time_saved_pct=25.0,
            reported_improvement_pct=33.33,
            strategy="Schedule",
            repo_key="k1",
        ),
        Entry(
            kind="operator", name="MatMul_1", types=("MatMulV2",), change="updated", before_us=58.781, after_us=26.876
        ),
    ),
    failed_operators=("Conv_3",),
    summary=Summary(added=1, updated=1, hit=1, reserved=0, unsatisfied=2, total=4),
    tuning_time_s=12.5,
    warnings=(WARNING,),
    bank=BANK,
    checks=(CHECK,),
    savings=(
        Saving(
            name="Add_7", calls_per_step=4, felt_per_step=2.5, least_ns=0, most_ns=12_500, basis="type", reason=WARNING
        ),
    ),
    saved_ns=(0, 12_500),
    step_ns=2_000_000,
    verification=VERIFIED,
    gates=GATES,
)
PLAN = RecordingPlan(
    argv=("python", "train.py", "--lr", "0.1"),
    added={"PYTHONPATH": "a b"},
    folder="result",
    engine="torch",
    window=Window(first=11, last=12, repeat=2, step_on="optimizer"),
    ranks=(0, 1),
    settings=(Setting(of="profile", name="with_stack", value=True),),
    cautions=(WARNING,),
)
RECORDED = Recorded(
    folder="result",
    raw_bytes=3 << 20,
    data=("result",),
    processes=(
        ProcessStatus(
            state="done", pid=7, host="h", recorded=(11, 12), folders=("f",), rank=0, engine="torch", device=0
        ),
    ),
    exports=(Exported(folder="f"),),
    proofs=(Proof(path="f", rank=0, device=0, kernels=100, launched=90, steps=2),),
    warnings=(WARNING,),
    overhead=Overhead(inside_ns=110, outside_ns=100, inside=2, outside=9),
)


@lru_cache
def result(name: str = "transformer_ascend_pt") -> Result:
    """The analysis of a sample."""
    found = run(AnalyzeRequest(path=Path("samples") / name, what_if=("host*0.5",)))
    return replace(found, input=replace(found.input, files=sorted(found.input.files)))  # read side by side


def compared() -> Result:
    """An analysis that was held against a baseline and gates."""
    return replace(result(), comparison=comparisons.WORSE, gates=comparisons.GATES)


def documents() -> dict[str, Document]:
    """One or two of every kind."""
    return {
        "transformer": result(),
        "micro_batch": result("micro_batch_ascend_pt"),
        "job": result_of(pipeline_job(), findings=[finding("ai_cpu", 0)]),
        "large_job": result_of(large_job(128), findings=[finding("ai_cpu", r) for r in range(9)], warnings=5),
        "compared": compared(),
        "gist": next(gists_of(compared())),
        "explanation": explain("exposed_communication", result()),
        "tuning": TUNING,
        "failed_tuning": Tuning(
            mode=None,
            status="failed",
            recovered=False,
            files=(),
            problem=Problem(what=say("aoe failed"), hint=say("read its log"), exit_code=ExitCode.CHILD_FAILED),
        ),
        "bank_changes": BankChanges(bank=BANK),
        "result_changes": ResultChanges(comparison=VERIFIED),
        "tune_plan": TunePlan(
            folder="tune/1",
            place="bank",
            ops="Add MatMulV2",
            programs=(PlannedProgram(title=say("tune"), shell="aoe --job_type=2"),),
            checks=(CHECK,),
        ),
        "merged": Merged(into="c", records=5, taken=(Taken(source="a", records=5),), conflicts=1, backup="c.1"),
        "rolled_back": RolledBack(place="bank", backup=None),
        "recorded": RECORDED,
        "recording_plan": PLAN,
    }
