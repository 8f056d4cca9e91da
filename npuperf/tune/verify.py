"""Verify a tuning: the same program profiled without and with the bank, operator by operator and per step."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from npuperf.documents.comparison import Compared, Comparison
from npuperf.documents.tuning import Tuning
from npuperf.errors import InputError
from npuperf.files import shown
from npuperf.folders import refuse_ways_out
from npuperf.messages import Message, Parameter, chain, say, series
from npuperf.model.labels import F64, Mask
from npuperf.model.thresholds import Thresholds
from npuperf.profile.request import read_request
from npuperf.profile.run import run_and_keep
from npuperf.readers.recording import Recording
from npuperf.tune.supervise import Tell
from npuperf.tune.usage import Usage, read_analysis, usage_of

if TYPE_CHECKING:  # most of what is asked of tune needs no analysis
    from npuperf.documents.analysis import Result

#: Operators that a sentence names.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Profiled:
    """One profile: its analysis, and the calls of its operators."""

    path: Path
    result: Result
    usage: Usage


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
        cache = folder / f"cache-{name}"
        shutil.rmtree(cache, ignore_errors=True)
        try:
            cache.mkdir(parents=True)
        except OSError as error:
            why = error.strerror or str(error)
            raise InputError(say("{path}: cannot be created: {why}", path=str(cache), why=why)) from error
        with_bank = {**environment, "TUNE_BANK_PATH": str(bank), "ASCEND_CACHE_PATH": str(cache)}
        found.append(_profile(command, folder / name, with_bank, tell))
    return compare(found[0], found[1], tuning)


def _profile(command: Sequence[str], folder: Path, environment: Mapping[str, str], tell: Tell) -> Profiled:
    how = {"command": tuple(command), "output": folder, "force": True, "for_compare": True}
    request = read_request(how, given=("for_compare",))
    ran = run_and_keep(request, environment, tell)
    ended = ran.document
    if ended.problem is not None or ended.exit_code:
        why = ended.problem.what if ended.problem else say("exit status {status}", status=ended.exit_code)
        raise InputError(say("{folder}: nothing to compare: {why}", folder=str(folder), why=why))
    return read_profiled(folder, ran.recording)


def read_profiled(path: Path, recording: Recording | None = None) -> Profiled:
    """Read a profile to compare. Raises InputError when it has no kernel."""
    from npuperf.readers.recording import open_recording

    recording = recording or open_recording(path, keep=True)
    result = read_analysis(path, recording)
    usage = usage_of(recording, result)
    if usage is None:
        what = say("{path}: no kernel of a device in this profile, so there is nothing to compare", path=str(path))
        raise InputError(what)
    return Profiled(path, result, usage)


def compare(before: Profiled, after: Profiled, tuning: Tuning | None) -> Comparison:
    """Compare two profiles as analyses are compared, and every operator type that both have by what one call takes.

    Tuned operators come first, with what was predicted. One program was profiled twice: that a bank made other work of
    it is said, and no reason not to compare.
    """
    from npuperf.advise import load_thresholds
    from npuperf.compare.compare import compare_results

    thresholds = load_thresholds({})
    found = compare_results([before.result], [after.result], thresholds, allow_mismatch=True)
    sides = before.usage, after.usage
    both = set(after.usage.busiest(felt=False))
    names = [name for name in before.usage.busiest(felt=False) if name in both]
    operators = [_operator(name, sides, thresholds, tuning) for name in names]
    operators.sort(key=lambda row: row.expected_ns is None)
    step = found.step
    return replace(
        found,
        old=shown(before.path),
        new=shown(after.path),
        reason=chain(found.reason, _gained(found, operators)),
        expected_ns=tuning.saved_ns if tuning else None,
        rows=(*([replace(step, name="step")] if step else []), *operators),
        unchanged=0,
    )


def _predicted(type_: str, tuning: Tuning | None) -> tuple[int, int] | None:
    """Return what tuned operators of a type were expected to save per step, None where none was tuned."""
    names = {e.name for e in (tuning.entries if tuning else ()) if type_.lower() in map(str.lower, e.types)}
    rows = [s for s in (tuning.savings if tuning else ()) if s.name in names]
    if not names:
        return None
    own = sum(s.most_ns for s in rows if s.basis == "name")  # others may all be the same calls
    return sum(s.least_ns for s in rows), own + max((s.most_ns for s in rows if s.basis == "type"), default=0)


def _of_type(usage: Usage, type_: str) -> Mask:
    return usage.types.flag([n == type_ for n in usage.types.names])


def _operator(name: str, sides: tuple[Usage, Usage], thresholds: Thresholds, tuning: Tuning | None) -> Compared:
    """Compare the mean call of an operator type. What chance does is judged by its mean in every step."""
    from npuperf.compare.noise import judge_shift

    rows = [_of_type(usage, name) for usage in sides]
    before, after = (_in_steps(usage, mine) for usage, mine in zip(sides, rows, strict=True))
    old, new = (round(float(usage.dur[mine].mean())) for usage, mine in zip(sides, rows, strict=True))
    judged = judge_shift([before], [after], ratio=thresholds.compare_ratio)
    return Compared(
        kind="operator",
        name=name,
        change="same" if old == new else "changed",
        verdict=judged.verdict,
        old_ns=old,
        new_ns=new,
        count=int(rows[1].sum()),
        noise_ns=None if judged.margin is None else round(judged.margin),
        expected_ns=_predicted(name, tuning),
    )


def _in_steps(usage: Usage, rows: Mask) -> F64:
    """Return how long these kernels take on average in each step that has any (ns)."""
    time, count = np.bincount(usage.step[rows], usage.dur[rows]), np.bincount(usage.step[rows])
    return time[count > 0] / count[count > 0]


def _gained(found: Comparison, operators: Sequence[Compared]) -> Message | None:
    """Say which operators became faster, and that the step does not feel it; where that is open, how to decide it."""
    faster = [o.name for o in operators if o.verdict == "better"]
    slower = [o.name for o in operators if o.verdict == "worse"]
    unfelt = say("operators became faster, the step did not") if faster and found.verdict in ("same", "worse") else None
    none = None if faster else say("no operator was shown to become faster")
    listed = say("faster: {faster}; slower: {slower}", faster=_names(faster), slower=_names(slower))
    by_hand = say("two profiles, each with its own TUNE_BANK_PATH, are compared by npuperf analyze NEW --baseline OLD")
    return chain(
        unfelt, none, listed if faster or slower else None, by_hand if found.verdict == "cannot_tell" else None
    )


def _names(names: Sequence[str]) -> Parameter:
    return series(names[:_NAMED]) if names else say("none")
