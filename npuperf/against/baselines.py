"""Results kept as baselines: one small file each, by name, and beside them the last runs that were held against them.

FOLDER/NAME.json             a result of npuperf analyze, as --format json writes it, without its long lists
FOLDER/candidates/NAME.json  the last runs that were held against it, rejected ones too, the newest last
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import gmtime, strftime
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct, structs

from npuperf.base.errors import InputError, UsageError
from npuperf.base.files import MANIFEST, is_file, refuse_ways_out, shown, write_atomically
from npuperf.base.messages import Message, chain, say, series
from npuperf.base.notes import read_json
from npuperf.model.parts import Model
from npuperf.model.result import EXPORTED, Result
from npuperf.model.shortened import fewer_files, lean_devices, said_once, with_cuts

if TYPE_CHECKING:
    from npuperf.analyze.request import AnalyzeRequest

_FOLDER: Final = Path(".npuperf", "baselines")
_SUFFIX: Final = ".json"
_CANDIDATES: Final = "candidates"
#: Gates ask for several of at most twenty runs.
_MOST_CANDIDATES: Final = 20
_LONGEST_NAME: Final = 100
#: What is a file's name everywhere, no option, and not hidden.
_NAME: Final = re.compile(r"[^\W_][\w.+-]*")
#: Folders inside of a recording that are named as if they were the recording.
_INNER: Final = ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output")
#: Far more than anybody keeps; of more only these are listed.
_LISTED: Final = 20


class Candidate(Model, frozen=True, kw_only=True):
    """A run that was held against a baseline. ``gates``: of each that could be judged whether it failed, by its text.

    ``recording`` tells whether two candidates are one and the same recording, however often it is looked at.
    ``time``: when it was looked at, UTC.
    """

    time: str
    recording: str
    path: str
    git_commit: str | None
    step_ns: int | None
    gates: dict[str, bool]


class BaselineStore(Struct, frozen=True):
    """A folder of baselines. It is made when the first one is kept."""

    folder: Path

    @classmethod
    def of(cls, request: AnalyzeRequest) -> BaselineStore:
        """Return where the request's baselines are: where it says, else beside the run that it is about."""
        return cls(request.baseline_dir or usual_folder(request.path))

    def names(self) -> list[str]:
        """Return the names of all baselines, sorted; none where the folder cannot be read."""
        try:
            files = [path.name for path in self.folder.iterdir()]
        except OSError:
            return []
        found = (name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))
        return sorted(name for name in found if _NAME.fullmatch(name))

    def path(self, name: str) -> Path:
        """Return the file of a baseline, whether it is there or not. Raises UsageError for what is no name."""
        if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name) or name.endswith(_SUFFIX):
            hint = say("at most {n} letters, digits and . _ + -, the first a letter or digit, without {suffix}: main",
                       n=_LONGEST_NAME, suffix=_SUFFIX)  # fmt: skip
            raise UsageError(say("{name}: not a name for a baseline", name=repr(_short(name))), hint=hint)
        return self.folder / f"{name}{_SUFFIX}"

    def find(self, name: str) -> Path:
        """Return the file of a baseline that is there. Raises UsageError, with those that are, where it is not."""
        known = self.names()
        if name in known:
            return self.path(name)
        what = say("--baseline {name}: neither a file, nor a folder, nor a baseline in {folder}",
                   name=repr(_short(name)), folder=shown(self.folder))  # fmt: skip
        if not known:
            hint = say("npuperf analyze RUN --save-baseline NAME keeps one; --baseline-dir says where they are")
            raise UsageError(what, hint=hint)
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=1)
        meant = say("did you mean {name}?", name=near[0]) if near else None
        listed = series(known[:_LISTED])
        there = say("known: {names}, …", names=listed) if len(known) > _LISTED else say("known: {names}", names=listed)
        raise UsageError(what, hint=chain(meant, there, by=" "))

    def check(self, name: str) -> None:
        """Raise UsageError or InputError where nothing could be kept under a name, before the work for it is done."""
        path = self.path(name)
        if path.is_dir():
            raise UsageError(say("{path}: a folder, and a baseline is a file", path=shown(path)))
        there = next(above for above in (self.folder, *self.folder.absolute().parents) if above.exists())
        if not there.is_dir():
            raise UsageError(say("{path}: not a folder, so no baseline can be kept in it", path=shown(there)))
        refuse_ways_out(self.folder, path.name, _CANDIDATES)
        if not os.access(there, os.W_OK):
            hint = say("--baseline-dir DIR keeps them elsewhere")
            raise InputError(say("{folder}: cannot be written to", folder=shown(there)), hint=hint)

    def keep(self, name: str, text: str) -> Message:
        """Keep a result, in the place of what had the name before; return what is to be said about it.

        Runs that were held against what had the name before say nothing about this one, and are forgotten.
        """
        path = self.path(name)
        before = None
        with suppress(OSError):  # where there is none
            before = strftime("%Y-%m-%d", gmtime(path.stat().st_mtime))
        write_atomically(path, text)
        self._candidates(name).unlink(missing_ok=True)
        if before is None:
            return say("kept as baseline {name}: {path}", name=name, path=shown(path))
        return say("kept as baseline {name}, in the place of the one of {date}: {path}",
                   name=name, date=before, path=shown(path))  # fmt: skip

    def candidates(self, name: str) -> list[Candidate]:
        """Return the last runs held against a baseline, the newest last; none where they cannot be read."""
        path = self._candidates(name)
        if not is_file(path):
            return []
        try:
            found = msgspec.convert(read_json(path), list[Candidate])
        except (InputError, msgspec.ValidationError):
            return []
        return found[-_MOST_CANDIDATES:]

    def add(self, name: str, candidate: Candidate) -> None:
        """Remember a run; of one recording only what was found last. Raises InputError where that cannot be written."""
        refuse_ways_out(self.folder, _CANDIDATES)
        others = [one for one in self.candidates(name) if one.recording != candidate.recording]
        kept = [*others, candidate][-_MOST_CANDIDATES:]
        text = msgspec.json.format(msgspec.json.encode(kept), indent=1).decode() + "\n"
        write_atomically(self._candidates(name), text)

    def remember(self, name: str, result: Result, tell: Callable[[Message], None]) -> None:
        """Keep what became of a run beside the baseline that it was held against, rejected or not."""
        try:
            self.add(name, candidate_of(result))
        except InputError as error:  # somebody else's baselines
            tell(say("this run is not remembered beside its baseline: {why}", why=error.what))

    def _candidates(self, name: str) -> Path:
        return self.folder / _CANDIDATES / f"{name}{_SUFFIX}"


def usual_folder(path: Path) -> Path:
    """Return where baselines of what lies at a path are kept: beside its run directory, or beside the recording."""
    place = Path(os.path.abspath(path))  # noqa: PTH100 - a link is where it is, not where it leads to
    above = (place, *list(place.parents)[:3])
    run = next((folder for folder in above if is_file(folder / MANIFEST)), None)
    if run is None:
        run = next(folder for folder in above if folder.name not in _INNER)
    folder = run.parent / _FOLDER
    return folder if path.is_absolute() else Path(shown(folder))


def key_of(sides: Sequence[str], names: Sequence[str | None]) -> str:
    """Return under which name the runs held against these sides are remembered; no baseline has a name like ``_x``."""
    if not sides:
        return "_"
    if names[0] is not None:
        return names[0]
    return "_" + re.sub(r"[^\w.+-]", "_", Path(sides[0]).name)[:_LONGEST_NAME]


def candidate_of(result: Result) -> Candidate:
    """Return what is remembered of a run."""
    digest = result.digest
    step = digest.total_ns // digest.windows if digest is not None and digest.windows else None
    return Candidate(
        time=strftime("%Y-%m-%dT%H:%M:%SZ", gmtime()),
        recording=recording_id(result),
        path=result.input.path,
        git_commit=result.workload.git_commit,
        step_ns=step,
        gates={
            gate.expr: gate.runs[-1] if gate.runs else gate.status == "fail"
            for gate in result.gates
            if gate.status != "cannot_tell"
        },
    )


def recording_id(result: Result) -> str:
    """Return what tells a recording from others: where its devices begin in time, and all of its length.

    Without a device it is the names of its files, which have the time in them, and what recording cost.
    """
    import hashlib  # seldom asked for

    digest = result.digest
    sums = None if digest is None else (digest.total_ns, digest.span_ns)
    begun = [(d.rank, d.device, d.origin_ns) for d in result.devices]
    alone = (sorted(Path(file).name for file in result.input.files), result.workload.recording_overhead)
    what = repr((begun, sums) if begun else alone)
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def distinct(results: Sequence[Result]) -> list[Result]:
    """Return every recording once: its steps given twice would make what they say look surer than it is."""
    found: dict[str, Result] = {}
    for result in results:
        found.setdefault(recording_id(result), result)
    return [*found.values()]


def histories(candidates: Sequence[Candidate], result: Result) -> Mapping[str, Sequence[bool]]:
    """Return per gate whether earlier runs failed it, the newest last; this recording is not among them."""
    own = recording_id(result)
    found: dict[str, list[bool]] = {}
    for candidate in candidates:
        if candidate.recording != own:
            for expr, failed in candidate.gates.items():
                found.setdefault(expr, []).append(failed)
    return found


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"


# -- A result as it is kept as a baseline: whatever a comparison or a gate may ask for, and nothing else.

#: Of files, warnings and the like.
_NOTES: Final = 20


def reduced(result: Result) -> Result:
    """Return a result without what only its own report shows. Its digest and its workload stay as they are."""
    found, cluster = fewer_files(result.input, _NOTES), result.cluster
    return with_cuts(
        result,
        structs.replace(
            result,
            input=structs.replace(found, warnings=found.warnings[:_NOTES], missing=found.missing[:_NOTES]),
            verdict=structs.replace(result.verdict, evidence={}),
            devices=lean_devices(result.devices),
            operators=[],
            kernels=[],
            judged_operators=None,
            judged_kernels=None,
            findings=said_once(result, problems=0, whole=0),
            what_if=[],
            cluster=cluster
            and structs.replace(
                cluster,
                ranks=[structs.replace(rank, clock=None, source="") for rank in cluster.ranks],
                collectives=[],
                collective_rates=[],
                roots=[structs.replace(root, evidence={}, next=None) for root in cluster.roots],
                experts=[],
                notes=[],
            ),
            comparison=None,
            gates=(),
            **{name: [] for name in EXPORTED},
        ),
    )


def without_blanks(rendered: str) -> str:
    """Return a document as one line, which is for files and not for people."""
    return msgspec.json.format(rendered, indent=-1) + "\n"
