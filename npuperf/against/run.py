"""An analysis held against what was asked of it: earlier results, gates, locks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from npuperf.against import metrics
from npuperf.against.baselines import BaselineStore, left_out_of
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import InputError, UsageError
from npuperf.base.files import is_file, open_input, shown
from npuperf.base.messages import Message, say, series
from npuperf.base.notes import read_note
from npuperf.model.parts import Digest
from npuperf.model.result import Result
from npuperf.model.schema import MOST_BYTES, document_of

if TYPE_CHECKING:
    from npuperf.against.gates import Condition
    from npuperf.model.comparison import Comparison
    from npuperf.readers.log import Progress
    from npuperf.readers.recording import Recording

metrics.register_all()


def run(
    request: AnalyzeRequest,
    recording: Recording | None = None,
    progress: Progress | None = None,
    finished: Callable[[], None] | None = None,
) -> Result:
    """Analyze as :func:`npuperf.analyze.run.run` does, and judge the gates. What the request compares with is not read.

    Raises as that does, and UsageError for gates that cannot be, before anything is read.
    """
    from npuperf.analyze import run as analysis  # answers that were kept are held against things without it

    conditions = conditions_of(request)
    return held_against(request, conditions, analysis.run(request, recording, progress, finished))


def conditions_of(request: AnalyzeRequest) -> list[Condition]:
    """Read the gates asked for. Raises UsageError for those that could never be judged."""
    if not (request.fail_on or request.gates):
        return []
    from npuperf.against.gates import check_baseline, gates_of, parse_gate

    texts = [*request.fail_on, *(gate for name in request.gates for gate in gates_of(name))]
    conditions = [parse_gate(text, Result) for text in dict.fromkeys(texts)]
    check_baseline(conditions, given=bool(request.baseline))
    return conditions


def compared(
    request: AnalyzeRequest, result: Result, old: Sequence[Result], again: Sequence[Result] = ()
) -> Comparison | None:
    """Compare a result, and further runs ``again``, with those it is held against; None where there are none.

    Raises UsageError where they are not of one workload and the request does not allow that.
    """
    if not old:
        return None
    from npuperf.advise import load_thresholds
    from npuperf.against.compare import compare_results

    thresholds = load_thresholds(request.thresholds)
    return compare_results(old, [result, *again], thresholds, allow_mismatch=request.allow_mismatch)


def held_against(
    request: AnalyzeRequest,
    conditions: Sequence[Condition],
    result: Result,
    old: Sequence[Result] = (),
    history: Mapping[str, Sequence[bool]] | None = None,
    again: Sequence[Result] = (),
) -> Result:
    """Return the result with its comparison, and with its gates judged, after those that it has already.

    ``history``: of a gate, by its text, whether earlier runs failed it, the newest last. ``again``: further runs of
    what the result is a run of, which tell how much runs differ.
    """
    comparison = compared(request, result, old, again)
    gates = [*result.gates]
    if conditions:
        from npuperf.against.judging import judge_gate

        past = history or {}
        gates += [
            judge_gate(condition, result, old, again, comparison=comparison, history=past.get(condition.expr, ()))
            for condition in conditions
        ]
    if request.check:
        from npuperf.against.locks import check_lock

        gates += [gate for path in request.check for gate in check_lock(result, path)]
    if request.undecided is not None:
        from npuperf.against.judging import settle

        gates = [*settle(gates, request.undecided)]
    return structs.replace(result, comparison=comparison, gates=tuple(gates))


# -- What a result is compared with: profiles, results as JSON, and kept baselines, told apart by what lies there.

#: Bytes that tell a result from a trace.
_HEAD: Final = 64 << 10
_RESULT: Final = re.compile(rb'"schema_version"\s*:')
#: Beyond this no sum is believed, ns or things: a century.
_MOST: Final = 1 << 62


class BaselineSide(Struct, frozen=True):
    """A side as it was asked for. ``profile`` is to be analyzed; a ``result`` was read already.

    ``name``: of a kept baseline.
    """

    asked: str
    profile: Path | None = None
    result: Result | None = None
    name: str | None = None


def sides_of(request: AnalyzeRequest) -> tuple[BaselineSide, ...]:
    """Look at what the request compares with: a path if there is one, else the name of a baseline.

    Results are read at once. Raises UsageError where nothing is there, InputError where a result cannot be read.
    """
    store = BaselineStore.of(request)
    return tuple(_side(asked, store) for asked in request.baseline)


def again_of(request: AnalyzeRequest) -> tuple[BaselineSide, ...]:
    """Look at the further runs of the new side, which are no baselines. Raises as :func:`sides_of` does."""
    return tuple(_there(asked, "--again") for asked in request.again)


def read_result(path: Path, called: str) -> Result:
    """Read a result that was written as JSON, to compare with; it is called so.

    Raises InputError where there is none, or where it is too old to be compared with.
    """
    note = read_note(path, most=MOST_BYTES)
    result = document_of(note, path, Result)
    if "digest" not in note:
        what = say("{path}: too old to compare with: npuperf {version} did not sum up what each step consists of",
                   path=shown(path), version=result.tool.version)  # fmt: skip
        raise InputError(what, hint=say("analyze its profile anew with this version, or give the profile itself"))
    if result.digest is not None and (wrong := _wrong(result.digest)):
        what = say("{path}: cannot be compared with: {why}", path=shown(path), why=wrong)
        raise InputError(what, hint=say("analyze its profile anew"))
    return structs.replace(result, input=structs.replace(result.input, path=called))


def warnings_of(request: AnalyzeRequest, sides: Sequence[BaselineSide]) -> list[Message]:
    """Say what a comparison with results that were kept cannot know."""
    kept = [side.result for side in sides if side.result is not None]
    left_out = left_out_of(0).id
    told = [warning for result in kept for warning in result.input.warnings if warning.id == left_out]
    if kept and request.partial:
        names = series(side.asked for side in sides if side.result is not None)
        told.append(say("{sides}: compared as it was kept; --step, --rank, --ranks, --group and --device choose from "
                        "profiles only", sides=names))  # fmt: skip
    return told


def _side(asked: str, store: BaselineStore) -> BaselineSide:
    path = Path(asked)
    if _exists(path) or "/" in asked or path.suffix in (".json", ".csv", ".db"):
        return _there(asked, "--baseline")
    return BaselineSide(asked, result=read_result(store.find(asked), asked), name=asked)


def _there(asked: str, option: str) -> BaselineSide:
    """Return what lies at a path that an option names. Raises InputError where nothing does."""
    path = Path(asked)
    if not asked:  # an empty variable of a shell; as a path it is the current folder
        raise UsageError(say("{option}: no path is given", option=option), hint=say("this folder is called ."))
    if not _exists(path):
        profile_or_result = say("give a profile, or a result of npuperf analyze as JSON")
        or_name = say("give a profile, a result of npuperf analyze as JSON, or the name of a kept baseline")
        hint = or_name if option == "--baseline" else profile_or_result
        raise InputError(say("{option} {path}: no such file or folder", option=option, path=asked), hint=hint)
    if is_file(path) and _is_result(path):
        return BaselineSide(asked, result=read_result(path, asked))
    return BaselineSide(asked, profile=path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no path at all
        return False


def _is_result(path: Path) -> bool:
    """Tell a result from a trace, which is JSON as well."""
    if path.suffix != ".json":
        return False
    with open_input(path) as file:
        return bool(_RESULT.search(file.read(_HEAD)))


def _middling(digest: Digest) -> bool:
    """Tell whether the mean step is neither longer nor shorter than all steps are; these are rounded means."""
    shortest = min(digest.span_ns) if digest.steps else 0
    return (shortest - 1) * digest.windows <= digest.total_ns <= (max(digest.span_ns) + 1) * digest.windows


def _wrong(digest: Digest) -> Message | None:
    """Say what of a digest contradicts itself; whoever compares relies on it."""
    per_step = [len(digest.steps)] if digest.steps else [len(digest.span_ns), 1]
    # A host alone has steps, and no time of a device.
    timed = bool(digest.devices or digest.span_ns or digest.total_ns or digest.types)
    lists = [*(t.ns for t in digest.types), *(t.count for t in digest.types), *(c.count for c in digest.counts)]
    lists += [c.bytes for c in digest.counts if c.bytes is not None]
    numbers = [digest.devices, digest.windows, digest.total_ns, *(n for p in digest.parts for n in (p.ns, p.count))]
    if not all(0 <= n < _MOST for some in (numbers, digest.span_ns, *lists) for n in some):
        return say("it has numbers that nothing can have")
    if digest.total_ns != sum(part.ns for part in digest.parts):
        return say("its parts do not add up to the whole")
    if timed and (not digest.span_ns or len(digest.span_ns) not in per_step):
        return say("it has not something for every step")
    if digest.total_ns and not _middling(digest):
        return say("its steps are not as long as what they consist of")
    if not all(len(some) in per_step for some in lists):
        return say("it has not something for every step")
    return None
