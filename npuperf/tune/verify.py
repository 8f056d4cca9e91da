"""Verify a tuning: the same program profiled without and with the bank, operator by operator and per step."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from npuperf.documents.comparison import Compared, Comparison, outcome
from npuperf.documents.tuning import Tuning
from npuperf.errors import InputError
from npuperf.files import shown
from npuperf.folders import refuse_ways_out
from npuperf.messages import Message, Parameter, say, series
from npuperf.model.labels import I64
from npuperf.model.mean_noise import noise_of
from npuperf.profile.request import ProfileRequest
from npuperf.profile.run import run_and_keep
from npuperf.readers.recording import Recording
from npuperf.tune.supervise import Tell
from npuperf.tune.usage import Usage, read_usage

#: Steps to record: two would say nothing about their noise.
_STEPS: Final = 10
#: Operators that a sentence names.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Profiled:
    """One profile: its operators and the lengths of its steps."""

    path: Path
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
    request = ProfileRequest(command=tuple(command), active=_STEPS, given=("active",), output=folder, force=True)
    ran = run_and_keep(request, environment, tell)
    ended = ran.document
    if ended.problem is not None or ended.exit_code:
        why = ended.problem.what if ended.problem else say("exit status {status}", status=ended.exit_code)
        raise InputError(say("{folder}: nothing to compare: {why}", folder=str(folder), why=why))
    return read_profiled(folder, ran.recording)


def read_profiled(path: Path, recording: Recording | None = None) -> Profiled:
    """Read a profile to compare. Raises InputError when it has no kernel."""
    usage = read_usage(path, recording)
    if usage is None:
        what = say("{path}: no kernel of a device in this profile, so there is nothing to compare", path=str(path))
        raise InputError(what)
    return Profiled(path, usage)


def compare(before: Profiled, after: Profiled, tuning: Tuning | None) -> Comparison:
    """Compare two profiles: the step, every operator type that both have (tuned ones first), and what was predicted."""
    lengths = before.usage.lengths, after.usage.lengths
    step = _compared("step", "step", *lengths) if all(map(len, lengths)) else None
    operators = []
    for name in before.usage.busiest(felt=False):
        durations = _durations(before.usage, name), _durations(after.usage, name)
        if all(map(len, durations)):
            operators.append(_compared("operator", name, *durations, expected_ns=_predicted(name, tuning)))
    operators.sort(key=lambda row: row.expected_ns is None)
    old, new, noise = (step.old_ns, step.new_ns, step.noise_ns) if step else (None, None, None)
    delta = None if old is None or new is None else new - old
    return Comparison(
        old=shown(before.path),
        new=shown(after.path),
        verdict=step.verdict if step else "cannot_tell",
        reason=_reason(step, operators),
        old_step_ns=old,
        new_step_ns=new,
        delta_ns=delta,
        interval_ns=None if delta is None or noise is None else (delta - noise, delta + noise),
        expected_ns=tuning.saved_ns if tuning else None,
        rows=(*([step] if step else []), *operators),
    )


def _predicted(type_: str, tuning: Tuning | None) -> tuple[int, int] | None:
    """Return what tuned operators of a type were expected to save per step, None where none was tuned."""
    names = {e.name for e in (tuning.entries if tuning else ()) if type_.lower() in map(str.lower, e.types)}
    rows = [s for s in (tuning.savings if tuning else ()) if s.name in names]
    if not names:
        return None
    own = sum(s.most_ns for s in rows if s.basis == "name")  # others may all be the same calls
    return sum(s.least_ns for s in rows), own + max((s.most_ns for s in rows if s.basis == "type"), default=0)


def _durations(usage: Usage, type_: str) -> I64:
    return usage.dur[usage.types.flag([n == type_ for n in usage.types.names])]


def _compared(
    kind: Literal["step", "operator"], name: str, before: I64, after: I64, expected_ns: tuple[int, int] | None = None
) -> Compared:
    noise = noise_of(before, after)
    old, new = round(float(before.mean())), round(float(after.mean()))
    return Compared(
        kind=kind,
        name=name,
        change="same" if old == new else "changed",
        verdict=outcome(float(before.mean() - after.mean()), noise),
        old_ns=old,
        new_ns=new,
        count=len(after),
        noise_ns=None if noise is None else round(noise),
        expected_ns=expected_ns,
    )


def _reason(step: Compared | None, operators: Sequence[Compared]) -> Message:
    """Say plainly whether the gain arrived."""
    faster = [o.name for o in operators if o.verdict == "better"]
    slower = [o.name for o in operators if o.verdict == "worse"]
    listed = say("faster: {faster}; slower: {slower}", faster=_names(faster), slower=_names(slower))
    if step is None or step.verdict == "cannot_tell":
        return say("two steps are needed on both sides; {listed}", listed=listed)
    if step.verdict == "worse":
        return say("the step became longer; {listed}", listed=listed)
    if step.verdict == "better":
        return say("the step became shorter; {listed}", listed=listed)
    if faster:
        return say("operators became faster, the step did not; {listed}", listed=listed)
    return say("no operator was shown to become faster; {listed}", listed=listed)


def _names(names: Sequence[str]) -> Parameter:
    return series(names[:_NAMED]) if names else say("none")
