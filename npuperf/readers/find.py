"""Find profiles on disk: the only place that knows file and folder names.

A *source* is what one collection left and what is read together: for torch_npu one ``*_ascend_pt`` folder,
for msprof one ``PROF_*`` folder (or one ``device_N`` of the old layout), else the files of one folder.
"""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.errors import InputError, unreadable
from npuperf.base.escape import for_shell
from npuperf.base.files import MANIFEST, Walk, few, is_file, is_pack, matching, open_input
from npuperf.base.messages import Message, chain, say, say_n
from npuperf.model.columns import STEP_COLUMNS, STEP_REQUIRED, locate
from npuperf.model.result import InputKind
from npuperf.readers.comm_groups import CLUSTER_FILES
from npuperf.readers.context import is_export
from npuperf.readers.memory_files import MEMORY_FILES
from npuperf.readers.pieces import sniff
from npuperf.readers.table import sniff_headers

_ASCEND: Final = re.compile(r".+_ascend_(pt|ms)$")
_PROF: Final = re.compile(r"^PROF_\w+$")
_DEVICE: Final = re.compile(r"^device_(\d{1,9})$")
_COLLECTION: Final = re.compile("|".join(kind.pattern for kind in (_ASCEND, _PROF, _DEVICE)))
_OP_SUMMARY: Final = re.compile(r"^op_summary.*\.csv$")
_OP_STATISTIC: Final = re.compile(r"^op_statistic[\d_]*\.csv$")
_NUMBERED: Final = re.compile(r"^op_summary(_slice)?[\d_]+\.csv$")
_TIMELINE: Final = re.compile(r"^(trace_view|msprof(_slice)?_\d[\d_]*)\.json$")
_TORCH_DB: Final = re.compile(r"^ascend_pytorch_profiler(?:_(\d{1,9}))?\.db$")
_MSPROF_DB: Final = re.compile(r"^msprof_\d+\.db$")
_INFO: Final = re.compile(r"^info\.json\.(\d{1,9})$")
_PROFILER_INFO: Final = re.compile(r"^profiler_info(?:_(\d{1,9}))?\.json$")
_KINETO: Final = re.compile(r"\.json(\.gz)?$")
_SNAPSHOT: Final = re.compile(r"\.(pickle|pkl)$")
_MEMSCOPE: Final = re.compile(r"^(?:memscope|leaks)_dump_\d+\.(csv|db)$")
_STAMP: Final = re.compile(r"_(\d{14})\.(?:csv|json|db)$")
_SLICE: Final = re.compile(r"_slice_\d+")
_RAW_DIRS: Final = {"FRAMEWORK", "logs", "data", "sqlite", "mindstudio_profiler_log"}
_OUTPUT: Final = "ASCEND_PROFILER_OUTPUT"
_INNER_DIRS: Final = (_OUTPUT, "mindstudio_profiler_output", "summary", "timeline")
#: Where the vendor's cluster tool writes; it repeats what the ranks beside it have.
_CLUSTER: Final = "cluster_analysis_output"
_COMMUNICATION: Final = ("communication.json", "communication_matrix.json", "communication_analyzer.db")
#: What it writes, by what of a source it is.
_SUMMED: Final = {
    "cluster_step_trace_time.csv": "steps",
    "cluster_communication.json": "communication",
    "cluster_communication_matrix.json": "matrix",
    "cluster_analysis.db": "db",
    "cluster_communication_analyzer.db": "db",
}
_FIXED: Final = ("kernel_details.csv", "step_trace_time.csv", "analysis.db", *_COMMUNICATION, *_SUMMED)

#: What msprof op writes, which runs one operator again and again.
_OF_ONE_OPERATOR: Final = ("OpBasicInfo.csv", "OPPROF_*/OpBasicInfo.csv")
_READABLE: Final = say("kernel_details.csv, op_summary*.csv, step_trace_time.csv, trace_view.json, msprof_*.json, "
                       "communication.json, ascend_pytorch_profiler*.db, msprof_*.db, a PyTorch trace "
                       "(.json, .json.gz), a snapshot of its memory (.pickle), or memscope_dump_*")  # fmt: skip


class Source(Struct, frozen=True):
    """The files of one collection. Paths that are empty or None were not found.

    ``summaries``: what the exporter itself summed and suggested; ``statistics``: its counts of kernels. ``groups``:
    what tells process groups apart, also of the whole run. ``memory``: the profiler's files of it, ``snapshots``:
    PyTorch's, and dumps of msmemscope. ``unseen``: where the system did not let us look for any of these.
    """

    root: Path
    kind: InputKind
    kernels: tuple[Path, ...] = ()
    timeline: tuple[Path, ...] = ()
    db: Path | None = None
    analysis_db: Path | None = None
    steps: Path | None = None
    communication: Path | None = None
    matrix: Path | None = None
    summaries: tuple[Path, ...] = ()
    statistics: tuple[Path, ...] = ()
    groups: tuple[Path, ...] = ()
    memory: tuple[Path, ...] = ()
    snapshots: tuple[Path, ...] = ()
    infos: tuple[Path, ...] = ()
    profiler_info: Path | None = None
    metadata: Path | None = None
    manifest: Path | None = None
    rank: int | None = None
    device: int | None = None
    notes: tuple[Message, ...] = ()
    unseen: tuple[Message, ...] = ()

    def of_communication(self) -> Source:
        """Return the same with as few files as tell of its communication operations."""
        few = replace(
            self,
            summaries=(),
            statistics=(),
            infos=(),
            memory=(),
            snapshots=(),
            timeline=() if self.kernels else self.timeline,
        )
        if self.communication is None:
            return few
        return replace(few, kernels=(), timeline=(), steps=None, db=None, analysis_db=None)

    def data_files(self) -> list[Path]:
        """Return the files with rows or events."""
        optional = [p for p in (self.db, self.analysis_db, self.steps, self.communication, self.matrix) if p]
        return [*self.kernels, *self.timeline, *self.memory, *self.snapshots, *optional]


class _Group(Struct):
    """Files found for one collection, before a choice is made."""

    files: list[Path] = field(default_factory=list)
    raw: bool = False


def _is_data(name: str) -> bool:
    patterns = (_OP_SUMMARY, _OP_STATISTIC, _TIMELINE, _TORCH_DB, _MSPROF_DB, MEMORY_FILES)
    return name in _FIXED or is_export(name) or any(p.match(name) for p in patterns)


def find(path: Path) -> tuple[list[Source], list[Message]]:
    """Find every source at or below ``path``; also say what was found but cannot be read.

    Raises InputError when nothing is readable; then the message names the command that exports raw data.
    """
    _called.cache_clear()
    hint = say("give the folder that torch_npu or msprof wrote, or one of its files")
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return [_file_source(path)], []
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise InputError(say("{path}: a link that leads nowhere", path=str(path)), hint=hint) from error
        raise InputError(say("{path}: no such file or folder", path=str(path)), hint=hint) from error
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:  # no file can have this name
        raise InputError(say("{path}: cannot be read: {why}", path=str(path), why=str(error)), hint=hint) from error
    told: list[Message] = []
    groups = _collect(path, told)
    sources = [s for root, group in sorted(groups.items()) for s in _choose(root, group, told)]
    # PROF folders inside a torch_npu result whose own output is there are the same data again.
    whole = {s.root for s in sources if s.kind == "ascend_pt" and (s.kernels or s.timeline or s.db or s.communication)}
    sources = [s for s in sources if not (s.kind == "prof" and whole.intersection(s.root.parents))]
    sources = _with_snapshots(sources)
    # So is what the cluster tool wrote where the ranks it is about are there.
    own = {s.root for s in sources if _CLUSTER not in s.root.parts}
    above = {folder for root in own for folder in root.parents}
    sources = [
        s
        for s in sources
        if s.root in own or not any(f.name == _CLUSTER and f.parent in above for f in (s.root, *s.root.parents))
    ]
    read = {s.root for s in sources}
    covered = read.union(*(root.parents for root in read))
    unexported = {
        root for root, group in groups.items() if group.raw and root not in covered and read.isdisjoint(root.parents)
    }
    outer = sorted(root for root in unexported if unexported.isdisjoint(root.parents))
    if not sources:
        if outer:
            raw = str(outer[0] if len(outer) == 1 else path)
            what = say_n("{path}: raw profiling data that was never exported, so there is nothing to read yet",
                         "{path}: raw profiling data of {n} profiles that was never exported, so there is nothing to "
                         "read yet", len(outer), path=raw)  # fmt: skip
            hint = say("npuperf profile --export {path}", path=for_shell(raw))
        elif is_file(path / MANIFEST):
            what = say("{path}: this run recorded nothing; its {file} shows how it went", path=str(path), file=MANIFEST)
            hint = say(
                "record again; npuperf profile says why nothing was recorded: npuperf profile -o FOLDER -- COMMAND"
            )
        elif any(matching(path, pattern, []) for pattern in _OF_ONE_OPERATOR):
            what = say("{path}: msprof op wrote this, of operators that it ran by themselves; npuperf reads profiles "
                       "of whole programs", path=str(path))  # fmt: skip
            hint = say("an operator within its program: npuperf profile -o FOLDER -- COMMAND")
        else:
            what = say("{path}: no profile found; looked for {files}", path=str(path), files=_READABLE)
            hint = say("README.md lists what can be read")
        raise InputError(chain(what, *few(told), by="\n  "), hint=hint)
    return sources, few(told) + [
        say(
            "{path}: raw data that was never exported; export it with: npuperf profile --export {folder}",
            path=str(root),
            folder=for_shell(str(root)),
        )
        for root in outer
    ]


def _with_snapshots(sources: list[Source]) -> list[Source]:
    """Read snapshots of memory with the only profile that lies beside or below them; others stand for themselves."""
    alone = [s for s in sources if s.kind in ("snapshot", "memscope")]
    others = [s for s in sources if s.kind not in ("snapshot", "memscope")]
    kept = list[Source]()
    for snapshot in alone:
        folder = snapshot.root.parent
        near = [at for at, s in enumerate(others) if folder == s.root or folder in s.root.parents]
        if len(near) == 1:
            other = others[near[0]]
            others[near[0]] = replace(other, snapshots=(*other.snapshots, *snapshot.snapshots))
        else:
            kept.append(snapshot)
    return others + kept


def _is_passed_over(base: Path, name: str) -> bool:
    """Leave out hidden folders, raw data, and what npuperf itself wrote into a run directory."""
    if name in _RAW_DIRS:
        called = _called(base)
        return called == "host" or bool(_COLLECTION.match(called))
    own = name in ("analysis", "tune") and is_file(base / MANIFEST)
    return own or name.startswith(".")


@lru_cache(maxsize=1 << 16)
def _called(folder: Path) -> str:
    """Return a folder's own name: a link to it may have any. A search asks the disk once."""
    return Path(os.path.realpath(folder)).name if os.path.islink(folder) else folder.name  # noqa: PTH114 - never raises


def _collect(path: Path, told: list[Message]) -> dict[Path, _Group]:
    """Find files by the collections they belong to; ``told`` gets what was not entered or not read."""
    groups: dict[Path, _Group] = defaultdict(_Group)
    walk = Walk(path, _is_passed_over)
    for folder in walk:
        base = folder.path
        called = _called(base)
        if _ASCEND.match(called) or _PROF.match(called):
            groups[base].raw = folder.has_any
        # Inside a collection every timeline has a known name; the other traces there repeat parts of it.
        within = any(_COLLECTION.match(_called(folder)) for folder in (base, *base.parents))
        for name in folder.files:
            if not _is_data(name):
                try:  # the first bytes tell a PyTorch trace from the many other JSON files, and a snapshot from pickles
                    if not ((not within and _is_kineto(base / name)) or _is_snapshot(base / name)):
                        continue
                except InputError as error:
                    told.append(error.what)
                    continue
            root = base
            while root.name in _inner(name):
                root = root.parent
            if base.name not in ("summary", "timeline") and _DEVICE.match(_called(root)):  # else of the old layout
                root = root.parent
            groups[root].files.append(base / name)
        told += [
            say("{path}: a folder with the name of a file; it has no such data", path=str(base / name))
            for name in folder.folders
            if _is_data(name)
        ]
    for refused in walk.refused:  # whether it has what the profiler exported, nobody knows
        for root in refused.parents:
            if root in groups:
                groups[root].raw = False
    told[:0] = walk.told
    return groups


def _inner(name: str) -> tuple[str, ...]:
    """Return the folders within a collection that may hold a file of this name."""
    if name in ("trace_view.json", "kernel_details.csv"):
        return (_OUTPUT,)
    return (*_INNER_DIRS, "analyze") if name in _COMMUNICATION else _INNER_DIRS


def _is_kineto(path: Path) -> bool:
    return bool(_KINETO.search(path.name)) and _is_trace(sniff(path, _is_trace))


def _is_snapshot(path: Path) -> bool:
    """Tell a snapshot of memory from other pickles: one of its names is among the first bytes; or msmemscope's dump."""
    if _MEMSCOPE.match(path.name):
        return True
    if not _SNAPSHOT.search(path.name):
        return False
    with open_input(path) as file:
        head = file.read(512)
    return head.startswith(b"\x80") and (b"segments" in head or b"device_traces" in head)


def _is_trace(head: bytes) -> bool:
    return b'"traceEvents"' in head or (head.lstrip().startswith(b"[") and b'"ph"' in head and b'"ts"' in head)


def _choose(root: Path, group: _Group, told: list[Message]) -> list[Source]:
    """Decide which files of a group are read together; ``told`` gets what cannot be read at all."""
    files = group.files
    ascend = bool(_ASCEND.match(_called(root))) or any(f.parent.name == _OUTPUT for f in files)
    in_prof = any(_PROF.match(_called(p)) for p in (root, *root.parents[:2]))
    kind: InputKind = "ascend_pt" if ascend else "prof" if in_prof else "csv"
    details = [f for f in files if f.name == "kernel_details.csv"]
    stamped, notes = _newest([f for f in files if _OP_SUMMARY.match(f.name)])
    if details or len(stamped) < 2 or all(_NUMBERED.match(f.name) for f in stamped):
        traces, more = _newest([f for f in files if _TIMELINE.match(f.name)])
        views = [f for f in traces if f.name == "trace_view.json"]
        databases, newer = _newest([f for f in files if _TORCH_DB.match(f.name) or _MSPROF_DB.match(f.name)])
        summaries, _ = _newest([f for f in files if is_export(f.name)])
        memory, older = _newest([f for f in files if MEMORY_FILES.match(f.name)])
        # Of what torch_npu's folder keeps of msprof's own export the rest is repeated.
        unseen: list[Message] = []
        suggestions = matching(root, "PROF_*/mindstudio_profiler_output/prof_rule*.json", unseen) if ascend else ()
        summaries += _newest([f for f in suggestions if is_export(f.name)])[0]
        whole = _source(
            root,
            kind,
            kernels=tuple(details[:1] or stamped),
            timeline=tuple(views or traces),
            db=min(databases, key=lambda p: (not _TORCH_DB.match(p.name), p.name), default=None),
            analysis_db=_first(files, "analysis.db") or _first(files, "communication_analyzer.db"),
            communication=_first(files, "communication.json"),
            matrix=_first(files, "communication_matrix.json"),
            steps=_first(files, "step_trace_time.csv"),
            summaries=tuple(summaries),
            statistics=_statistics(files, details[:1] or stamped),
            memory=tuple(memory),
            notes=tuple(notes + more + newer + older),
            unseen=unseen,
        )
        sources = [whole]
    else:  # op_summary_<anything>.csv side by side: different profiles
        sources = _file_sources(stamped, told)
    sources = [s for s in sources if any(file != s.matrix for file in s.data_files())]  # links alone are no profile
    summed = [f for f in files if f.name in _SUMMED]
    clusters = [_summed_source(root, summed)] if any(_SUMMED[f.name] != "matrix" for f in summed) else []
    known = {f for s in (*sources, *clusters) for f in s.data_files()}
    kineto = _file_sources([f for f in files if f not in known and not _is_data(f.name)], told)
    return sources + clusters + kineto


def _summed_source(root: Path, files: Sequence[Path], at: Path | None = None) -> Source:
    """Return the source of what the vendor's cluster tool wrote into one folder, or of one file of it."""
    named = {_SUMMED[f.name]: f for f in sorted(files, reverse=True)}  # of the databases the newer release's
    beside = [files[0].parent / name for name in CLUSTER_FILES]
    return _source(root, "cluster", at, ranked=False, beside=beside, **named)


def _statistics(files: list[Path], kernels: Sequence[Path]) -> tuple[Path, ...]:
    """Return the counts of kernels of the same export: of a model's iteration those of that iteration alone."""
    newest, _ = _newest([f for f in files if _OP_STATISTIC.match(f.name)])
    exports = {_SLICE.sub("", f.name).removeprefix("op_summary") for f in kernels}
    return tuple(
        f
        for f in newest
        if f.name == "op_statistic.csv" or _STAMP.search(f.name) or f.name.removeprefix("op_statistic") in exports
    )


def _file_sources(files: Iterable[Path], told: list[Message]) -> list[Source]:
    """Return the sources of files that stand for themselves; those that cannot be read are told."""
    sources = []
    for file in files:
        try:
            sources.append(_file_source(file))
        except InputError as error:
            told.append(error.what)
    return sources


def _first(files: list[Path], name: str) -> Path | None:
    return next((f for f in files if f.name == name), None)


def _newest(files: list[Path]) -> tuple[list[Path], list[Message]]:
    """Of repeated exports keep the newest time stamp (all its slices); say which were passed over."""
    series: dict[str, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    kept: list[Path] = []
    notes: list[Message] = []
    for f in files:
        stamp = _STAMP.search(f.name)
        if stamp:
            stem = _SLICE.sub("", f.name[: stamp.start()])
            series[str(f.parent / stem)][stamp.group(1)].append(f)
        else:
            kept.append(f)
    for exports in series.values():
        newest = max(exports)
        whole = [f for f in exports[newest] if not _SLICE.search(f.name)]
        kept += whole or exports[newest]  # a merged file beside its own slices would count every row twice
        notes += [
            say(
                "{path}: an older export of the same data; the one from {newest} is used",
                path=str(old[0]),
                newest=newest,
            )
            for at, old in sorted(exports.items())
            if at != newest
        ]
    return sorted(kept), notes


def _source(
    root: Path,
    kind: InputKind,
    at: Path | None = None,
    *,
    ranked: bool = True,
    beside: Sequence[Path] = (),
    **files: Any,
) -> Source:
    """Return a source of these files with what describes its collection: core counts, options, rank, device.

    ``at``: what it is called by, if not by its root; ``beside``: what may name its groups first of all. The rank is
    that of the profiler's own files, never the folder's.
    """
    folder = root.parent if root.name == _OUTPUT else root
    unseen: list[Message] = []
    patterns = ("info.json.*", "device_*/info.json.*", "PROF_*/device_*/info.json.*")
    infos = sorted(f for pattern in patterns for f in matching(folder, pattern, unseen) if _INFO.match(f.name))
    profilers = matching(folder, "profiler_info*.json", unseen)
    profiler = next((f for f in profilers if _PROFILER_INFO.match(f.name)), None)
    metadata = folder / "profiler_metadata.json"
    manifests = (above / MANIFEST for above in (folder, *folder.absolute().parents[:3]))
    device = _DEVICE.match(_called(folder))
    # What names process groups lies beside the collection, and in what the cluster tool wrote above it.
    places = [folder, folder / _OUTPUT, *(above / _CLUSTER for above in folder.absolute().parents[:3])]
    groups = [place / CLUSTER_FILES[0] for place in places]
    groups += [place / name for place in places[2:] for name in CLUSTER_FILES[1:]]
    named = ((profiler, _PROFILER_INFO), (files.get("db"), _TORCH_DB)) if ranked else ()
    ranks = (found[1] for path, pattern in named if path and (found := pattern.match(path.name)) and found[1])
    rank = next(ranks, None)
    return Source(
        root=at or root,
        kind=kind,
        infos=tuple(infos),
        profiler_info=profiler,
        metadata=metadata if is_file(metadata, unseen) else None,
        manifest=next((m for m in manifests if is_file(m, unseen)), None),
        device=int(device.group(1)) if device else None,
        rank=None if rank is None else int(rank),
        groups=tuple(path for path in dict.fromkeys((*beside, *groups)) if is_file(path, unseen)),
        unseen=tuple(dict.fromkeys((*files.pop("unseen", ()), *unseen))),
        **files,
    )


def _file_source(path: Path) -> Source:
    """Return the source of one named file; unknown names are told by their content."""
    root = path.parent
    while root.name in (*_INNER_DIRS, *_inner(path.name)):
        root = root.parent
    name = path.name
    if name in _SUMMED:
        return _summed_source(root, [path], path)
    if MEMORY_FILES.match(name):
        return _source(root, "csv", path, memory=(path,))
    if _MEMSCOPE.match(name):
        return _source(root, "memscope", path, ranked=False, snapshots=(path,))
    if _SNAPSHOT.search(name):
        return _source(root, "snapshot", path, ranked=False, snapshots=(path,))
    if name == "step_trace_time.csv":
        return _source(root, "csv", path, steps=path)
    if name in ("analysis.db", "communication_analyzer.db"):
        return _source(root, "db", path, ranked=False, analysis_db=path)
    if name == "communication.json":
        beside = path.with_name("communication_matrix.json")
        matrix = beside if is_file(beside) else None
        return _source(root, "json", path, ranked=False, communication=path, matrix=matrix)
    if is_pack(path):
        what = say("{path}: a pack has what was found, and no recording", path=str(path))
        raise InputError(what, hint=say("npuperf analyze {path} shows it", path=for_shell(str(path))))
    if _OP_STATISTIC.match(name) or is_export(name):
        what = say("{path}: sums of the exporter's, without a task, so it is not analyzed by itself", path=str(path))
        raise InputError(what, hint=say("give the folder of its profile: {folder}", folder=for_shell(str(root))))
    if name.endswith(".csv"):
        steps = all(locate(sniff_headers(path), STEP_COLUMNS)[column] for column in STEP_REQUIRED)
        return _source(root, "csv", path, steps=path) if steps else _source(root, "csv", path, kernels=(path,))
    with open_input(path) as file:
        head = file.read(16)
    if head.startswith(b"SQLite format 3") or name.endswith(".db"):
        return _source(root, "db", path, db=path)
    if _KINETO.search(name) or head[:2] == b"\x1f\x8b" or head.lstrip()[:1] in (b"[", b"{"):
        return _source(root, "json", path, timeline=(path,))
    what = say("{path}: not a file that npuperf analyze reads", path=str(path))
    raise InputError(what, hint=say("give {files}", files=_READABLE))
