"""Comparisons with something in every part, made by hand; their waterfalls add up."""

from __future__ import annotations

from msgspec.structs import replace

from npuperf.base.messages import ns_change, say, share
from npuperf.model.comparison import CauseChange, Compared, Comparison, Difference, FindingChange, Shift, WaterfallPart
from npuperf.model.document import Gate
from npuperf.model.parts import Part

OLD_STEP = 12_310_456


def part(of: Part, key: str | None, old: int, new: int, calls: tuple[float, float] = (0, 0), **more: object):
    """A part of the mean step; what more calls cost is half of the difference where their number changes."""
    count = (new - old) // 2 if calls[0] != calls[1] else 0
    return WaterfallPart(
        part=of,
        key=key,
        old_ns=old,
        new_ns=new,
        delta_ns=new - old,
        count_ns=count,
        speed_ns=new - old - count,
        old_count=calls[0],
        new_count=calls[1],
        **more,  # type: ignore[arg-type]
    )


WATERFALL = (
    part("compute", "MatMulV2 [1024,1024;1024,4096] FLOAT16", 5_120_007, 5_500_419, (48, 48), where="model.py:41"),
    part("host_wait", "sync: aten::item", 0, 140_001, (0, 1), change="added", where="train.py:77 step"),
    part("transfer", "dp", 1_200_000, 1_305_000, (4, 4)),
    part("compute", "Add [1024] FLOAT16", 95_555, 0, (24, 0), change="removed"),
    part(
        "compute",
        "AddLayerNorm [1024,1024] FLOAT16",
        210_000,
        290_123,
        (36, 12),
        change="added",
        instead_of=("Add [1024,1024]", "LayerNorm [1024,1024]"),
    ),
    part("launch_latency", None, 400_000, 420_500),
    part("wait", "dp", 310_000, 300_100),
    *(part("compute", f"Cast{i} [{i}]", 100_000 + i, 100_500, (2, 2)) for i in range(15)),
    part("dependency", None, 800_000, 800_000),
)
_REST = OLD_STEP - sum(p.old_ns for p in WATERFALL)
PARTS = (*WATERFALL, part("other", None, _REST, _REST))
NEW_STEP = sum(p.new_ns for p in PARTS)
DELTA = NEW_STEP - OLD_STEP

WORSE = Comparison(
    old="runs/monday",
    new="runs/tuesday",
    verdict="worse",
    reason=say(
        "the step is {part} longer ({change})",
        part=share(DELTA / OLD_STEP),
        change=ns_change(DELTA),
    ),
    old_step_ns=OLD_STEP,
    new_step_ns=NEW_STEP,
    delta_ns=DELTA,
    interval_ns=(440_000, 710_000),
    old_median_ns=12_300_000,
    new_median_ns=12_870_000,
    samples=(10, 12),
    method=say("exact rank interval"),
    confidence=0.99,
    workload="same",
    parity=(
        Difference(
            what="AI Core frequency",
            old="1800 MHz",
            new="1650 MHz",
            matters=True,
            reason=say("kernels take longer on a slower clock"),
        ),
        Difference(what="torch_npu", old="2.1.0", new=None, matters=False),
    ),
    causes=(
        CauseChange(
            kind="rank",
            ranks=[3],
            stage=None,
            change="added",
            old_ns=None,
            new_ns=(90_000, 110_000),
            delta_ns=(90_000, 110_000),
            title=say("rank {rank} is late", rank=3),
        ),
    ),
    waterfall=PARTS,
    rows=(
        Compared(
            kind="step",
            name="",
            change="changed",
            verdict="worse",
            old_ns=OLD_STEP,
            new_ns=NEW_STEP,
            count=12,
            noise_ns=90_000,
        ),
        Compared(
            kind="operator", name="MatMulV2", change="changed", verdict="worse", old_ns=5_120_007, new_ns=5_500_419
        ),
    ),
    shifts=(
        Shift(what="launches per step", unit="count", old=412.0, new=401.0, verdict="better", samples=(10, 12)),
        Shift(
            what="occupancy of cube cores",
            unit="percent",
            old=81.25,
            new=74.5,
            verdict="worse",
            interval=(-7.5, -5.25),
            samples=(10, 12),
        ),
        Shift(what="vector cores", unit="cores", old=40.0, new=40.0, verdict="same", samples=(10, 12)),
        Shift(what="transfer in dp", unit="ns", old=1_200_000.0, new=1_305_000.0, verdict="worse"),
        Shift(what="AI Core frequency", unit="MHz", old=1800.0, new=None, verdict="cannot_tell"),
        Shift(what="HCCS 0-1", unit="GB/s", old=18.456, new=9.2, verdict="cannot_tell", samples=(1, 1)),
        Shift(what="copies: htod", unit="bytes", old=4096.0, new=8192.0, verdict="worse"),
    ),
    findings=(
        FindingChange(
            rule="sync_points",
            rank=0,
            change="added",
            old=None,
            new=say("the host waits for the device"),
            new_severity="high",
        ),
        FindingChange(
            rule="casts", rank=None, change="removed", old=say("casts take time"), new=None, old_severity="low"
        ),
        FindingChange(
            rule="small_kernels",
            rank=None,
            change="changed",
            old=say("small kernels are {n}", n=3),
            new=say("small kernels are {n}", n=9),
            old_severity="low",
            new_severity="medium",
        ),
    ),
    aligned=(say("step {step} is on one side only", step=13),),
    unchanged=7,
    warnings=(say("the baseline lost {n} rows", n=2),),
)
SAME = replace(
    WORSE,
    verdict="same",
    reason=say("the steps are the same"),
    new_step_ns=OLD_STEP,
    delta_ns=0,
    interval_ns=(-20_000, 30_000),
    new_median_ns=12_300_000,
    parity=(),
    waterfall=tuple(replace(p, new_ns=p.old_ns, delta_ns=0, count_ns=0, speed_ns=0) for p in PARTS),
    shifts=(),
    findings=(),
    aligned=(),
    warnings=(),
)
UNTOLD = replace(
    WORSE,
    verdict="cannot_tell",
    reason=say("two steps of the baseline decide nothing: record ten with npuperf profile --for-compare"),
    interval_ns=None,
    method=None,
    confidence=None,
    samples=(2, 12),
    workload="unknown",
)
FAILED = Gate(
    expr="step_time>+5%,200us for 2 of 3",
    status="fail",
    value=float(NEW_STEP),
    limit=1.05 * OLD_STEP,
    unit="ns",
    baseline=float(OLD_STEP),
    interval=(440_000.0, 710_000.0),
    explained_by=PARTS[:3],
    runs=(True, False, True),
)
GATES = (
    FAILED,
    Gate(expr="warn: count.launches>+0", status="fail", value=412.0, limit=400.0, baseline=400.0, level="warn"),
    Gate(expr="occupancy.cube<50%", status="cannot_tell", value=None, limit=50.0, reason=say("no block counts")),
    Gate(expr="host_wait>20%", status="pass", value=12.5, limit=20.0, unit="percent"),
)  # fmt: skip
