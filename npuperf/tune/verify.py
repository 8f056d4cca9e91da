"""The same program profiled with and without the bank, compared operator by operator and per step: the verdict."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace

from npuperf.base.errors import InputError
from npuperf.base.files import refuse_ways_out, shown
from npuperf.base.messages import chain, say, series
from npuperf.model.comparison import Compared, Comparison
from npuperf.model.labels import F64
from npuperf.model.tuning import Tuning
from npuperf.record.plan import Tell
from npuperf.record.request import read_request
from npuperf.record.run import run as record
from npuperf.tune.savings import Profiled, Usage, read_profiled

#: Operators that a sentence names.
_NAMED: Final = 3


def verify(
    command: Sequence[str],
    folder: Path,
    banks: tuple[Path, Path],
    tuning: Tuning,
    environment: Mapping[str, str],
    tell: Tell,
) -> Comparison:
    """Profile a program with each of two banks (before, after) into ``folder`` and compare.

    Each run gets a compiler cache of its own, so that kernels are built anew: those built with one bank hide the
    other. Raises InputError when a profile has no kernel.
    """
    refuse_ways_out(folder)
    found = []
    for name, bank in zip(("baseline", "tuned"), banks, strict=True):
        tell(say("{name}: profiling with the knowledge base {bank} and an empty compiler cache (a program "
                 "that sets its own cache needs op_compiler_cache_mode=force)", name=name, bank=str(bank)))  # fmt: skip
        cache, output = folder / f"cache-{name}", folder / name
        shutil.rmtree(cache, ignore_errors=True)
        try:
            cache.mkdir(parents=True)
        except OSError as error:
            what = say("{path}: cannot be created: {why}", path=str(cache), why=error.strerror or str(error))
            raise InputError(what) from error
        with_bank = {**environment, "TUNE_BANK_PATH": str(bank), "ASCEND_CACHE_PATH": str(cache)}
        how = {"command": tuple(command), "output": output, "force": True, "for_compare": True}
        ran = record(read_request(how, given=("for_compare",)), with_bank, tell, keep_recording=True)
        ended = ran.document
        if ended.problem is not None or ended.exit_code:
            why = ended.problem.what if ended.problem else say("exit status {status}", status=ended.exit_code)
            raise InputError(say("{folder}: nothing to compare: {why}", folder=str(output), why=why))
        profiled = read_profiled(output, ran.recording)
        if profiled is None:
            raise InputError(say("{path}: no kernel of a device in this profile, so there is nothing to compare",
                                 path=str(output)))  # fmt: skip
        found.append(profiled)
    return compare(found[0], found[1], tuning)


def compare(before: Profiled, after: Profiled, tuning: Tuning | None) -> Comparison:
    """Compare two profiles as analyses are compared, and every operator type that both have by what one call takes.

    Tuned operators come first, with what was predicted. One program was profiled twice: that a bank made other work of
    it is said, and no reason not to compare.
    """
    from npuperf.advise import load_thresholds
    from npuperf.against.compare import compare_results

    thresholds = load_thresholds({})
    found = compare_results([before.result], [after.result], thresholds, allow_mismatch=True)
    both = set(after.usage.busiest(felt=False))
    names = [name for name in before.usage.busiest(felt=False) if name in both]
    operators = [_operator(name, before.usage, after.usage, thresholds.compare_ratio, tuning) for name in names]
    operators.sort(key=lambda row: row.expected_ns is None)
    # Which operators became faster, and that the step does not feel it; where that is open, how to decide it.
    faster, slower = ([o.name for o in operators if o.verdict == verdict] for verdict in ("better", "worse"))
    listed = [series(names[:_NAMED]) if names else say("none") for names in (faster, slower)]
    told = (
        say("operators became faster, the step did not") if faster and found.verdict in ("same", "worse") else None,
        None if faster else say("no operator was shown to become faster"),
        say("faster: {faster}; slower: {slower}", faster=listed[0], slower=listed[1]) if faster or slower else None,
        say("two profiles, each with its own TUNE_BANK_PATH, are compared by npuperf analyze NEW --baseline OLD")
        if found.verdict == "cannot_tell"
        else None,
    )
    step = found.step
    return replace(
        found,
        old=shown(before.path),
        new=shown(after.path),
        reason=chain(found.reason, *told),
        expected_ns=tuning.saved_ns if tuning else None,
        rows=(*([replace(step, name="step")] if step else []), *operators),
        unchanged=0,
    )


def _operator(name: str, before: Usage, after: Usage, ratio: float, tuning: Tuning | None) -> Compared:
    """Compare the mean call of an operator type. What chance does is judged by its mean in every step (ns)."""
    from npuperf.model.noise import judge_shift

    means: list[int] = []
    in_steps: list[F64] = []
    for usage in (before, after):
        rows = usage.types.flag([n == name for n in usage.types.names])
        time, count = np.bincount(usage.step[rows], usage.dur[rows]), np.bincount(usage.step[rows])
        in_steps.append(time[count > 0] / count[count > 0])
        means.append(round(float(usage.dur[rows].mean())))
    judged = judge_shift(in_steps[:1], in_steps[1:], ratio=ratio)
    # What tuned operators of the type were expected to save per step, None where none was tuned.
    tuned = {e.name for e in (tuning.entries if tuning else ()) if name.lower() in map(str.lower, e.types)}
    saved = [s for s in (tuning.savings if tuning else ()) if s.name in tuned]
    most = sum(s.most_ns for s in saved if s.basis == "name")  # others may all be the same calls
    most += max((s.most_ns for s in saved if s.basis == "type"), default=0)
    return Compared(
        kind="operator",
        name=name,
        change="same" if means[0] == means[1] else "changed",
        verdict=judged.verdict,
        old_ns=means[0],
        new_ns=means[1],
        count=int(count.sum()),
        noise_ns=None if judged.margin is None else round(judged.margin),
        expected_ns=(sum(s.least_ns for s in saved), most) if tuned else None,
    )
