"""What a result is compared with: profiles, results as JSON, packs and kept baselines, told apart by what is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from npuperf.against.baselines import BaselineStore, distinct
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import InputError, UsageError
from npuperf.base.files import PACK, is_file, is_pack, open_input, shown
from npuperf.base.messages import Message, say, say_n, series
from npuperf.base.notes import read_note
from npuperf.model.comparison import Comparison
from npuperf.model.parts import Digest
from npuperf.model.result import Result
from npuperf.model.schema import MOST_BYTES, document_of
from npuperf.model.shortened import unfolded

#: Bytes that tell a result from a trace.
_HEAD: Final = 64 << 10
_RESULT: Final = re.compile(rb'"schema_version"\s*:')
_NOT_EVERY_STEP: Final = say("it has not something for every step")
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
    """Read a result that was written as JSON or packed, to compare with or to show again; it is called so.

    Raises InputError where there is none, or where it is too old to be compared with.
    """
    if is_pack(path):
        from npuperf.against.packs import read_pack

        note = read_pack(path)
    else:
        note = read_note(path, most=MOST_BYTES)
    result = document_of(note, path, Result)
    if "digest" not in note:
        what = say("{path}: too old to compare with: npuperf {version} did not sum up what each step consists of",
                   path=shown(path), version=result.tool.version)  # fmt: skip
        raise InputError(what, hint=say("analyze its profile anew with this version, or give the profile itself"))
    if result.digest is not None and (wrong := _wrong(result.digest)):
        what = say("{path}: cannot be compared with: {why}", path=shown(path), why=wrong)
        raise InputError(what, hint=say("analyze its profile anew"))
    try:
        result = unfolded(result)
    except ValueError as error:
        what = say("{path}: cannot be compared with: {why}", path=shown(path), why=_NOT_EVERY_STEP)
        raise InputError(what, hint=say("analyze its profile anew")) from error
    return structs.replace(result, input=structs.replace(result.input, path=called))


def compared(
    request: AnalyzeRequest, old: Sequence[Result], new: Sequence[Result], sides: Sequence[BaselineSide]
) -> tuple[Comparison, list[Result], list[Result]]:
    """Compare two sides, of which ``sides`` says what was asked for; return what counts of either, too.

    A recording that was given twice counts once. Raises UsageError where a side has made-up names, or where they are
    not of one workload and the request does not allow that.
    """
    nameless = [result.input.path for result in (*old, *new) if result.input.anonymous]
    if nameless:
        what = say("{sides}: anonymous, so operators, code lines and causes of the two sides cannot be paired",
                   sides=series(nameless))  # fmt: skip
        hint = say("pack the comparison itself: npuperf analyze NEW --baseline OLD --pack FILE.npack --anonymize")
        raise UsageError(what, hint=hint)
    from npuperf.advise import load_thresholds
    from npuperf.against.compare import compare_results

    before, after = (distinct(side) if max(len(old), len(new)) > 1 else [*side] for side in (old, new))
    thresholds = load_thresholds(request.thresholds)
    found = compare_results(before, after, thresholds, allow_mismatch=request.allow_mismatch)
    told, repeated = warnings_of(request, sides), len(old) - len(before) + len(new) - len(after)
    if repeated:
        told.append(say_n("{n} run is a recording that was given already, and counts once with it",
                          "{n} runs are recordings that were given already, and count once with these",
                          repeated))  # fmt: skip
    return structs.replace(found, warnings=(*found.warnings, *told)), before, after


def warnings_of(request: AnalyzeRequest, sides: Sequence[BaselineSide]) -> list[Message]:
    """Say what a comparison with results that were kept cannot know."""
    kept = [side.asked for side in sides if side.result is not None]
    if not kept or not request.partial:
        return []
    return [say("{sides}: compared as it was kept; --step, --rank, --ranks, --group and --device choose from "
                "profiles only", sides=series(kept))]  # fmt: skip


def _side(asked: str, store: BaselineStore) -> BaselineSide:
    path = Path(asked)
    if _exists(path) or "/" in asked or path.suffix in (".json", ".csv", ".db", PACK):
        return _there(asked, "--baseline")
    return BaselineSide(asked, result=read_result(store.find(asked), asked), name=asked)


def _there(asked: str, option: str) -> BaselineSide:
    """Return what lies at a path that an option names. Raises InputError where nothing does."""
    path = Path(asked)
    if not asked:  # an empty variable of a shell; as a path it is the current folder
        raise UsageError(say("{option}: no path is given", option=option), hint=say("this folder is called ."))
    if not _exists(path):
        profile_or_result = say("give a profile, or a result of npuperf analyze as JSON or as a pack")
        or_name = say(
            "give a profile, a result of npuperf analyze as JSON or as a pack, or the name of a kept baseline"
        )
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
    if is_pack(path):
        return True
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
    # A host alone has no time of a device; of earlier versions no length of its steps either.
    timed = bool(digest.devices or digest.span_ns or digest.total_ns or digest.types)
    lists = [*(t.ns for t in digest.types), *(t.count for t in digest.types), *(c.count for c in digest.counts)]
    lists += [c.bytes for c in digest.counts if c.bytes is not None]
    numbers = [digest.devices, digest.windows, digest.total_ns, *(n for p in digest.parts for n in (p.ns, p.count))]
    if not all(0 <= n < _MOST for some in (numbers, digest.span_ns, *lists) for n in some):
        return say("it has numbers that nothing can have")
    if digest.total_ns != sum(part.ns for part in digest.parts):
        return say("its parts do not add up to the whole")
    if timed and (not digest.span_ns or len(digest.span_ns) not in per_step):
        return _NOT_EVERY_STEP
    if digest.total_ns and not _middling(digest):
        return say("its steps are not as long as what they consist of")
    if not all(len(some) in per_step for some in lists):
        return _NOT_EVERY_STEP
    return None
