"""Verify a tuning: the same program profiled without and with the bank, operator by operator and per step."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.documents.tuning import Tuning, Verification, Verified
from npuperf.errors import InputError
from npuperf.files import shown
from npuperf.model.labels import I64
from npuperf.model.noise import noise_of
from npuperf.profile.command import resolve
from npuperf.profile.options import build
from npuperf.profile.run import record
from npuperf.tune.savings import Usage, read_usage

#: Steps to record: two would say nothing about their noise.
_STEPS: Final = 10


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
    tell: Callable[[str], None],
) -> Verification:
    """Profile a program with each of two banks (before, after) into ``folder`` and compare.

    Each run gets a compiler cache of its own, so that kernels are built anew: those built with one bank hide the
    other. Raises InputError when a profile has no kernel.
    """
    found = []
    for name, bank in zip(("baseline", "tuned"), banks, strict=True):
        tell(f"{name}: profiling with the bank {bank} and an empty compiler cache (a program that names its own cache "
             "needs op_compiler_cache_mode=force)")  # fmt: skip
        cache = folder / f"cache-{name}"
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        with_bank = {**environment, "TUNE_BANK_PATH": str(bank), "ASCEND_CACHE_PATH": str(cache)}
        found.append(_profile(command, folder / name, with_bank, tell))
    return compare(found[0], found[1], tuning)


def _profile(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], tell: Callable[[str], None]
) -> Profiled:
    options = build({"active": _STEPS}, ["active"])
    outcome = record(
        resolve(list(command), None, None), options, folder, environment, force=True, tell=tell, progress=None
    )
    if outcome.problem is not None or outcome.exit_code:
        why = outcome.problem.what if outcome.problem else f"exit status {outcome.exit_code}"
        raise InputError(f"{folder}: nothing to compare: {why}")
    return read_profiled(folder)


def read_profiled(path: Path) -> Profiled:
    """Read a profile to compare. Raises InputError when it has no kernel."""
    usage = read_usage(path)
    if usage is None:
        raise InputError(f"{path}: no kernel of a device in this profile, so there is nothing to compare")
    return Profiled(path, usage)


def compare(before: Profiled, after: Profiled, tuning: Tuning | None) -> Verification:
    """Compare two profiles: the step, every operator type that both have (tuned ones first), and what was predicted."""
    lengths = before.usage.lengths, after.usage.lengths
    step = _verified("step", *lengths) if all(map(len, lengths)) else None
    operators = []
    for name in before.usage.busiest(felt=False):
        durations = [_durations(p.usage, name) for p in (before, after)]
        if all(len(d) for d in durations):
            operators.append(replace(_verified(name, *durations), predicted_ns=_predicted(name, tuning)))
    operators.sort(key=lambda found: found.predicted_ns is None)
    verdict, reason = _judge(step, operators)
    return Verification(
        baseline=shown(before.path),
        tuned=shown(after.path),
        step=step,
        operators=tuple(operators),
        predicted_ns=tuning.saved_ns if tuning else None,
        verdict=verdict,  # type: ignore[arg-type]
        reason=reason,
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


def _verified(name: str, before: I64, after: I64) -> Verified:
    noise = noise_of(before, after)
    gain = float(before.mean() - after.mean())
    verdict = "cannot tell"
    if noise is not None:
        verdict = "faster" if gain > noise else "slower" if -gain > noise else "same"
    return Verified(
        name=name,
        count=len(after),
        before_ns=round(float(before.mean())),
        after_ns=round(float(after.mean())),
        noise_ns=None if noise is None else round(noise),
        verdict=verdict,  # type: ignore[arg-type]
    )


def _judge(step: Verified | None, operators: Sequence[Verified]) -> tuple[str, str]:
    """Say plainly whether the gain arrived."""
    faster = [o.name for o in operators if o.verdict == "faster"]
    slower = [o.name for o in operators if o.verdict == "slower"]
    listed = f"faster: {', '.join(faster[:3]) or 'none'}; slower: {', '.join(slower[:3]) or 'none'}"
    if step is None or step.noise_ns is None:
        return "cannot tell", f"two steps are needed on both sides; {listed}"
    if step.verdict == "slower":
        return "worse", f"the step became longer; {listed}"
    if step.verdict == "faster":
        return "kept", f"the step became shorter; {listed}"
    if faster:
        return "not felt", f"operators became faster, the step did not; {listed}"
    return "not felt", f"no operator became faster by more than the noise; {listed}"
