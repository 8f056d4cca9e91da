"""The clock of a device's cores: below what they are rated at, or another one than that of other ranks."""

from __future__ import annotations

from typing import Final

from npuperf.advise.needs import ALL_ROWS, CORE_TYPES, Need, to_rule_out
from npuperf.advise.rule import Answer, Detected, JobView, Rule, rule
from npuperf.base.messages import chain, ns, number, say, say_n, series, share
from npuperf.base.units import in_rows
from npuperf.device.cores import on_cores
from npuperf.device.view import DeviceView

_COUNTERS: Final = say(
    "msprof's exporter: cycles over the time of the cores that took them is the clock in that moment, over utilization "
    "and duration it is cube cores × rated clock; CANN's platform files: clocks of chips; npu-smi info -t common"
)


#: Rows of steps that are named.
_STEPS: Final = 8


def _told(view: DeviceView) -> float:
    """Return the part of the time of kernels on AI cores of which the clock is told."""
    clock = view.report.core_clock
    total = int(view.tasks.dur[view.compute & on_cores(view.tasks)].sum())
    return min(clock.told_ns / total, 1.0) if clock is not None and total else 0.0


_CLOCK: Final = Need(
    say("clock of kernels"),
    _told,
    lambda _: say("the clock that kernels ran at is not recorded: record with npuperf profile --level 1, and give "
                  "--cores or --soc where core counts are unknown"),
)  # fmt: skip
_RATED: Final = Need(
    say("rated clock"),
    lambda view: float((clock := view.report.core_clock) is not None and clock.basis in ("counters", "chip")),
    lambda _: say(
        "at which clock the chip is rated is not known: record with npuperf profile --level 1, or give --soc"
    ),
)


@rule(
    say("clock of the cores"),
    _COUNTERS,
    (CORE_TYPES, _CLOCK, *to_rule_out(_RATED), ALL_ROWS),
)
def low_clock(view: DeviceView) -> Answer:
    """Compare the clock that kernels ran at with the rated one, or with the highest that other kernels ran at."""
    clock = view.report.core_clock
    assert clock is not None and clock.rated_mhz is not None  # or _CLOCK had said so
    if clock.lost_ns < max(view.thresholds.lost_share * view.partition.span_ns, 1):
        return None
    rated, part = number(clock.rated_mhz), share(clock.slowed_ns / clock.told_ns)
    slower = say("for {share} of the kernels' time the cores run below the {mhz} MHz that they are rated at",
                 share=part, mhz=rated)  # fmt: skip
    if clock.basis == "highest":
        slower = say("for {share} of the kernels' time the cores run below {mhz} MHz, at which other kernels ran",
                     share=part, mhz=rated)  # fmt: skip
    if clock.basis == "at_least":
        slower = say("for {share} of the kernels' time the cores run below {mhz} MHz, the least they can be rated at",
                     share=part, mhz=rated)  # fmt: skip
    range_ = say("{mean} MHz on average", mean=number(clock.mean_mhz or 0))
    if clock.least_mhz != round(clock.mean_mhz or 0):
        range_ = say("{mean} MHz on average, {least} at the lowest", mean=number(clock.mean_mhz or 0),
                     least=clock.least_mhz)  # fmt: skip
    where = say("from {time} on", time=ns(clock.since_ns)) if clock.since_ns else None
    if 0 < len(clock.slowed_steps) < len(view.steps):
        steps = series(in_rows(clock.slowed_steps)[:_STEPS])
        one = len(clock.slowed_steps) == 1
        where = say("in step {steps}", steps=steps) if one else say("in steps {steps}", steps=steps)
    told = None if clock.by_counters else say("by AI Core Freq")
    return Detected(
        title=chain(slower, chain(range_, where, told, by=", "), by=": "),
        evidence={
            name: getattr(clock, name)
            for name in ("rated_mhz", "basis", "mean_mhz", "least_mhz", "most_mhz", "slowed_ns", "told_ns", "since_ns",
                         "slowed_steps", "by_counters")
        },
        gain=(0, min(view.per_step(clock.lost_ns), view.per_step(view.partition.compute_ns))),
        refute=say("kernels that wait for memory take as long at a higher clock, or another recording shows the rated "
                   "clock in AI Core Freq"),
        next=say("while it runs, npu-smi info -t common -i {device} shows the clock (Aicore curFreq beside Aicore "
                 "Freq), temperature and power: see to cooling, or to a limit of power", device=view.profile.device),
    )  # fmt: skip


def _slower_ranks(job: JobView) -> list[Detected]:
    """Name the ranks whose cores run at a lower clock than those of the fastest rank."""
    known = {r.rank: r for r in job.study.ranks if r.clock_mhz is not None}
    highest = max((r.clock_mhz or 0 for r in known.values()), default=0.0)
    slow = {rank: r.clock_mhz or 0 for rank, r in known.items()
            if (r.clock_mhz or 0) < highest * (1 - job.thresholds.clock_ratio)}  # fmt: skip
    lost = {rank: (known[rank].compute_ns or 0) * (1 - mhz / highest) for rank, mhz in slow.items()}
    if max(lost.values(), default=0) < max(job.thresholds.lost_share * job.cluster.step_ns * job.cluster.steps, 1):
        return []
    worst = max(lost, key=lambda rank: lost[rank])
    gain = job.gain(lost[worst])
    title = say_n(
        "rank {worst} runs its cores at {mhz} MHz on average while it computes, another one at {highest}",
        "{n} ranks run their cores at a lower clock than others while they compute: rank {worst} at {mhz} MHz on "
        "average, another one at {highest}",
        len(slow),
        worst=worst,
        mhz=number(slow[worst]),
        highest=number(highest),
    )
    return [
        Detected(
            rank=worst,
            device=job.device(worst),
            title=chain(title, job.price(gain)),
            evidence={"clock_mhz": {str(rank): r.clock_mhz for rank, r in known.items()}, "slow": sorted(slow),
                      "lost_ns": int(lost[worst])},
            gain=gain,
            refute=say("kernels that wait for memory take as long at a higher clock, or the rank waits for others "
                       "anyway"),
            next=say("while it runs, npu-smi info -t common -i {device} on the host of rank {rank} shows the clock "
                     "(Aicore curFreq beside Aicore Freq), temperature and power: see to cooling, to a limit of power, "
                     "or to a chip of another kind", device=job.device(worst), rank=worst),
        )
    ]  # fmt: skip


uneven_clocks = Rule("uneven_clocks", say("clocks of ranks"), _COUNTERS, on_job=_slower_ranks)
