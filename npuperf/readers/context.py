"""The files that describe a collection: core counts, options, environment, the exporter's own split, CANN's log."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.files import few, files_below, open_lines
from npuperf.base.messages import Message, say
from npuperf.base.notes import part_of, read_note
from npuperf.base.units import NS_PER_S, NS_PER_US
from npuperf.model.chip import Cores
from npuperf.model.columns import (
    STATISTIC_COLUMNS,
    STATISTIC_REQUIRED,
    STEP_COLUMNS,
    STEP_REQUIRED,
    ColumnNames,
    Kind,
)
from npuperf.model.device import Context, Environment, Told, VendorStep
from npuperf.model.groups import distinct
from npuperf.model.labels import Labels
from npuperf.model.result import HostSum, Suggestion
from npuperf.model.tasks import NO_TIME, Work, work_of_rows
from npuperf.readers.comm_groups import GroupBook, book_of
from npuperf.readers.log import ReadLog
from npuperf.readers.table import RowTable, read_table

#: More cores than this no chip has.
_MOST_CORES: Final = 1024
#: Parts of a step that are longer (ns: a year) or below zero by more than rounding are damage.
_LONGEST_PART: Final = 366 * 24 * 3600 * NS_PER_S
_ROUNDING: Final = NS_PER_US


def read_cores(infos: tuple[Path, ...], log: ReadLog) -> dict[int, Cores]:
    """Read usable core counts per device from ``info.json.N``."""
    found: dict[int, Cores] = {}
    for path in infos:
        info = _json(path, log).get("DeviceInfo")
        device = info[0] if isinstance(info, list) and info and isinstance(info[0], dict) else {}
        cube, vector = _int(device.get("ai_core_num")), _int(device.get("aiv_num"))
        number = _int(device.get("id"))
        if number is None:
            number = int(path.name.rsplit(".", 1)[1])
        cores = _cores(cube, vector, path, log)
        if cores:
            found[number] = cores
            log.use(path)
    return found


def _cores(cube: int | None, vector: int | None, path: Path, log: ReadLog) -> Cores | None:
    """Return core counts as a file has them; None where it has none, or what no chip has."""
    if not cube:
        return None
    if max(cube, vector or 0) > _MOST_CORES:
        log.warn(say("{path}: no chip has {n} cores; core counts are unknown",
                     path=str(path), n=max(cube, vector or 0)))  # fmt: skip
        return None
    return Cores(cube, vector, say("{file}", file=path.name))


class RecordedMachine(Struct, frozen=True):
    """What ``npuperf.json`` says of the machine that a run was recorded on, and of the recording."""

    soc: str | None = None
    cores: Cores | None = None
    context: Context = field(default_factory=Context)


def read_machine(manifest: Path | None, log: ReadLog) -> RecordedMachine:
    """Read chip and core counts from the manifest of a run, and how the program was run and recorded.

    Where data was only exported, a manifest says nothing of the run.
    """
    if manifest is None:
        return RecordedMachine()
    found = _json(manifest, log)
    log.use(manifest)
    soc = _text(found.get("soc"))
    cores = _cores(_int(found.get("cores_cube")), _int(found.get("cores_vector")), manifest, log)
    if not found or found.get("imported_from"):
        return RecordedMachine(soc, cores)
    versions, options, git = (part_of(found, name) for name in ("versions", "options", "git"))
    environment, command, commit = found.get("environment"), found.get("command"), _text(git.get("commit"))
    inside, outside = (_int(part_of(found, "overhead").get(name)) for name in ("inside_ns", "outside_ns"))
    context = Context(
        environment=Environment(
            at_start={str(k): str(v) for k, v in environment.items()} if isinstance(environment, dict) else None
        ),
        cann=_text(versions.get("cann")),
        torch=_text(versions.get("torch")),
        torch_npu=_text(versions.get("torch_npu")),
        overhead=inside / outside if inside is not None and outside else None,
        stacks=stacks if isinstance(stacks := options.get("stack"), bool) else None,
        extras=tuple(ours for ours, _ in _DEAR if options.get(ours)),
        watches_gc=options["gc_threshold"] is not None if "gc_threshold" in options else None,
        command=tuple(map(str, command)) if isinstance(command, list) else (),
        options=_told(options, ((ours, ours) for ours, _ in (*_DEAR, *_ALSO))),
        git_commit=f"{commit}-dirty" if commit and git.get("dirty") is True else commit,
        created=_text(found.get("created")),
    )
    return RecordedMachine(soc, cores, context)


#: Options of ``npuperf profile`` that make recording dearer, with torch_npu's names for them in profiler_info.
_DEAR: Final = (
    ("stack", "with_stack"),
    ("modules", "with_modules"),
    ("memory", "profile_memory"),
    ("flops", "with_flops"),
    ("shapes", "record_shapes"),
    ("l2_cache", "_l2_cache"),
    ("op_args", "record_op_args"),
    ("op_attr", "_op_attr"),
    ("sys_io", "_sys_io"),
    ("sys_interconnection", "_sys_interconnection"),
    ("host_sys", "_host_sys"),
)


#: More of them that decide what is recorded.
_ALSO: Final = (("aic_metrics", "_aic_metrics"), ("activities", "activities"), ("gc_threshold", "_gc_detect_threshold"))


def _told(options: dict[str, Any], names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return options that decide what is recorded, by our names; ``names``: ours, and that in the file."""
    return {ours: _option(options[theirs]) for ours, theirs in names if theirs in options}


def _option(value: object) -> str:
    """Spell a value as the options of npuperf are, whoever wrote it."""
    if not value or value is True:
        return "on" if value else "off"
    if isinstance(value, list):
        return ",".join(map(_option, value)).lower()
    name = str(value).removeprefix("ProfilerActivity.")
    plain = name.removeprefix("ACL_AICORE_")
    return name if plain == name else "".join(part.capitalize() for part in plain.split("_"))


def read_context(
    profiler_info: Path | None, metadata: Path | None, log: ReadLog
) -> tuple[Context, int | None, GroupBook]:
    """Read how the profile was taken, the rank if it is recorded, and the rank's process groups."""
    info = _json(profiler_info, log) if profiler_info else {}
    common = part_of(part_of(info, "config"), "common_config")
    experimental = part_of(part_of(info, "config"), "experimental_config")
    options, gc = {**common, **experimental}, "_gc_detect_threshold"
    described = _json(metadata, log) if metadata else {}
    environment = part_of(described, "ENV_VARIABLES")
    log.use(*filter(None, (profiler_info, metadata)))
    context = Context(
        level=_text(experimental.get("_profiler_level")),
        environment=Environment({str(k): str(v) for k, v in environment.items()}),
        cann=_text(info.get("cann_version")),
        torch=_text(info.get("torch_version")),
        torch_npu=_text(info.get("torch_npu_version")),
        stacks=stacks if isinstance(stacks := common.get("with_stack"), bool) else None,
        extras=tuple(ours for ours, theirs in _DEAR if options.get(theirs)),
        watches_gc=experimental[gc] is not None if gc in experimental else None,
        options=_told(options, (*_DEAR, *_ALSO)),
    )
    return context, _int(info.get("rank_id")), book_of(described)


def read_vendor_steps(path: Path, log: ReadLog) -> list[VendorStep]:
    """Read step_trace_time.csv (µs, no unit in its header): the exporter's own split of each step."""
    return _vendor_steps(_step_table(path, log))


def read_statistic(path: Path, log: ReadLog) -> list[tuple[int | None, Told]]:
    """Read op_statistic.csv: how many kernels ran on each device (None: the file names none), and their time, µs there.

    Communication, which is no kernel, is left out. Raises InputError where it is no such table.
    """
    table = read_table(path, STATISTIC_COLUMNS, STATISTIC_REQUIRED, log)
    count, total, device = table.ints["count"], table.times["total"], table.ints["device"]
    sound = (count > 0) & (count <= _SUMMARIES_MOST) & (total >= 0) & (total <= _LONGEST_PART)
    if not sound.all():
        rows = np.flatnonzero(~sound) + 2
        log.lose(path, len(rows), say("operators without a time or count that can be; first in row {row}",
                                      row=int(rows[0])))  # fmt: skip
    sound &= work_of_rows(table.texts["core"], table.texts["type"]) == Work.COMPUTE
    return [
        (number if number >= 0 else None, Told(path.name, int(count[mine].sum()), int(total[mine].sum())))
        for number in distinct(device[sound]).tolist()
        for mine in [sound & (device == number)]
    ]


class ClusterSteps(Struct, frozen=True):
    """What msprof-analyze's cluster tool sums of a job: the steps of each rank, and its pipeline stage, from 0."""

    ranks: dict[int, list[VendorStep]] = field(default_factory=dict)
    stages: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[tuple[object, object, int, VendorStep]]) -> tuple[ClusterSteps, int]:
        """Sort rows by type (``rank`` or ``stage``), index and ``PP Index`` (-1 unknown); return how many are neither.

        A row of a stage has the most of each part over its ranks, ``(0, 1)``: it names them, and is no rank.
        """
        ranks: dict[int, list[VendorStep]] = {}
        told: dict[int, int] = {}
        sets: set[tuple[int, ...]] = set()
        lost = 0
        for kind, index, pipeline, step in rows:
            rank = _int(index)
            if kind == "rank" and rank is not None:
                ranks.setdefault(rank, []).append(step)
                if pipeline >= 0:
                    told[rank] = pipeline
            elif kind == "stage":
                sets.add(tuple(sorted(map(int, re.findall(r"\d{1,9}", str(index))))))
            else:
                lost += 1
        by_sets = {rank: place for place, those in enumerate(sorted(filter(None, sets))) for rank in those}
        known = told if told.keys() == ranks.keys() and len(set(told.values())) > 1 else by_sets
        several = known.keys() >= ranks.keys() and len({known[rank] for rank in ranks}) > 1
        return cls(ranks, {rank: known[rank] for rank in ranks} if several else {}), lost


def read_cluster_steps(path: Path, log: ReadLog) -> ClusterSteps:
    """Read cluster_step_trace_time.csv, µs: steps of ranks, and which of them are one stage of a pipeline."""
    table = _step_table(path, log)
    kinds, indices, pipeline = table.texts["type"], table.texts["index"], table.ints["pp"].tolist()
    steps = _vendor_steps(table)
    found, lost = ClusterSteps.of((kinds[i], indices[i], pipeline[i], step) for i, step in enumerate(steps))
    if lost:
        log.lose(path, lost, say("steps of neither a rank with a number nor a stage"))
    return found


def _step_table(path: Path, log: ReadLog) -> RowTable:
    """Read the rows of a step table whose parts can be times; the others are told."""
    table = read_table(path, STEP_COLUMNS, STEP_REQUIRED, log)
    sound = np.ones(len(table), np.bool_)
    for part in ("compute", "comm_exposed", "free"):
        ns = table.times[part]
        sound &= (ns == NO_TIME) | ((ns >= -_ROUNDING) & (ns <= _LONGEST_PART))
    if sound.all():
        return table
    rows = np.flatnonzero(~sound) + 2
    log.lose(path, len(rows), say("steps with a part below zero, or longer than a year; first in row {row}",
                                  row=int(rows[0])))  # fmt: skip
    return table.filter(sound)


def _vendor_steps(table: RowTable) -> list[VendorStep]:
    """Convert rows; the window is the sum of the parts, because the stage column leaves the bubble out."""
    parts = (np.maximum(table.times[part], 0) for part in ("compute", "comm_exposed", "free"))
    columns = [c.tolist() for c in (table.ints["device"], *parts, table.times["bubble"], table.times["communication"])]
    return [
        VendorStep(
            step=_int(table.texts["step"][i]),
            device=device if device >= 0 else None,
            compute=compute,
            comm_exposed=exposed,
            free=free,
            span=compute + exposed + free,
            bubble=bubble if bubble >= 0 else None,
            comm=comm if comm >= 0 else None,
        )
        for i, (device, compute, exposed, free, bubble, comm) in enumerate(zip(*columns, strict=True))
    ]


def _json(path: Path, log: ReadLog) -> dict[str, Any]:
    """Read a small JSON object; what cannot be read is said and treated as absent."""
    try:
        return read_note(path)
    except InputError as error:
        log.fail(say("{failure}; what it describes is unknown", failure=error.what), error)
        return {}


def _text(value: object) -> str | None:
    return str(value) if value not in (None, "") else None


def _int(value: object) -> int | None:
    found = re.fullmatch(r"\s*(?:step)?\s*(\d{1,18})(?:\.0)?\s*", str(value))
    return int(found.group(1)) if found else None


_ABOUT: Final = re.compile(r"super_kernel_scope|super ?kernel sub op.*cannot fus", re.I)
_LEVEL: Final = re.compile(r"\[(WARNING|ERROR|EVENT)\]")
#: Different messages kept: the first ones tell.
_MOST: Final = 20


def plog_files(folder: Path, told: list[Message]) -> list[Path]:
    """Return CANN's logs below a folder, or the one that was named; ``told`` gets what was not entered."""
    return files_below(folder, "plog-*.log", told) if folder.is_dir() else [folder]


def read_plog(folder: Path, log: ReadLog) -> list[str]:
    """Return the warnings and errors about SuperKernel scopes, each once. Logs that cannot be read are told.

    Raises InputError when the folder holds no log, or none that can be read.
    """
    told: list[Message] = []
    files = plog_files(folder, told)
    for message in told:
        log.warn(message)
    if not files:
        hint = say("give the folder of ASCEND_PROCESS_LOG_PATH, or ~/ascend/log, which has run/plog/plog-*.log")
        raise InputError(say("{path}: no plog-*.log there", path=str(folder)), hint=hint)
    found: dict[str, None] = {}
    failures = []
    for file in files:
        try:
            with open_lines(file) as lines:
                for line in lines:
                    level = _LEVEL.search(line)
                    if level and _ABOUT.search(line):  # without the time and process that make every line different
                        text = re.sub(r"^.*?\[(?:WARNING|ERROR|EVENT)\]\s*", "", line.strip())
                        text = re.sub(r"^(?:[A-Z]+\(\d+,[^)]*\):)?\s*[\d\-:. ]{15,}\s*", "", text)
                        found.setdefault(f"{level[1]}: {text}")
            log.use(file)
        except InputError as error:
            failures.append(error)
    if len(failures) == len(files):
        raise failures[0]
    for message in few(error.what for error in failures):
        log.warn(message)
    return list(found)[:_MOST]


# -- What the exporter itself summed and suggested: tables of host calls, suggestions. Sources: msprof's exporters.
#
# Nothing here is part of a verdict. A damaged file costs its own rows alone, and is told.

#: A call or a sum of calls that takes longer (ns: a month), or counts beyond a trillion, are damage.
_LONGEST: Final = 31 * 24 * 3600 * NS_PER_S
_SUMMARIES_MOST: Final = 10**12

_SUMS: Final = (
    ColumnNames("level", Kind.TEXT, ("level",)),
    ColumnNames("name", Kind.TEXT, ("api name", "name")),
    ColumnNames("total", Kind.TIME, ("time",)),
    ColumnNames("count", Kind.INT, ("count", "calls")),
    ColumnNames("longest", Kind.TIME, ("max",)),
)


def _calls(*names: str) -> tuple[ColumnNames, ...]:
    return (
        ColumnNames("name", Kind.TEXT, names),
        ColumnNames("dur", Kind.TIME, ("duration",)),
        ColumnNames("start", Kind.TIME, ("start time",)),
        ColumnNames("end", Kind.TIME, ("end time",)),
    )


class _Form(Struct, frozen=True):
    """One kind of table: ``level`` stands for rows that name none; a row is a sum, or one call (``each``)."""

    level: str
    columns: tuple[ColumnNames, ...]
    each: bool = False


#: By the beginning of the file's name. The first two are the same data.
_FORMS: Final = {
    "acl_statistic": _Form("acl", _SUMS),
    "acl": _Form("acl", _calls("name"), each=True),
    "api_statistic": _Form("api", _SUMS),
    "runtime_api": _Form("runtime", _SUMS),
    "ge_op_execute": _Form("ge", _calls("event type"), each=True),
    "msprof_tx": _Form("tx", _calls("message"), each=True),
    "pytorch_operator_view": _Form("torch", _calls("name", "message", "op name"), each=True),
}
_STEM: Final = re.compile(r"_slice_\d+|[_\d]+$")


def _stem(path: Path) -> str:
    """Return what a file's name begins with, before slices, numbers and time stamps."""
    return _STEM.sub("", path.stem)


def _read_sums(path: Path, log: ReadLog) -> Iterator[HostSum]:
    """Yield the sum of each name of each level; calls without a duration have start and end."""
    form = _FORMS[_stem(path)]
    required = ("name",) if form.each else ("name", "total", "count")
    table = read_table(path, form.columns, required, log)
    name = table.texts["name"]
    if form.each:
        level, total, count = Labels.missing(len(table)), table.times["dur"], np.ones(len(table), np.int64)
        if len(total) and (total == NO_TIME).all():
            start, end = table.times["start"], table.times["end"]
            known = (start != NO_TIME) & (end != NO_TIME)
            total = np.where(known, np.where(known, end, 0) - np.where(known, start, 0), NO_TIME)
        longest = total
    else:
        level, total, count = table.texts["level"], table.times["total"], table.ints["count"]
        longest = table.times["longest"]
    sound = name.known() & (total >= 0) & (total <= _LONGEST) & (count > 0) & (count <= _SUMMARIES_MOST)
    if not sound.all():
        rows = np.flatnonzero(~sound) + 2
        log.lose(path, len(rows), say("host calls without a name, or a time or count that can be; first in row {row}",
                                      row=int(rows[0])))  # fmt: skip
    level, name = level.filter(sound), name.filter(sound)
    total, count, longest = total[sound], count[sound], longest[sound]
    key = (level.codes.astype(np.int64) + 1) * (len(name.names) + 1) + name.codes
    order = np.argsort(key, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else ():
        most = int(longest[rows].max())
        yield HostSum(
            level=level[rows[0]] or form.level,
            name=name[rows[0]] or "",
            count=sum(count[rows].tolist()),
            total_ns=sum(total[rows].tolist()),
            max_ns=most if 0 <= most <= _LONGEST else None,
            files=1,
        )


def merged_sums(sums: Iterable[HostSum]) -> list[HostSum]:
    """Add sums of the same name and level, those of most time first."""
    found: dict[tuple[str, str], HostSum] = {}
    for one in sums:
        key = one.level, one.name
        found[key] = one.and_also(found[key]) if key in found else one
    return sorted(found.values(), key=lambda one: (-one.total_ns, one.level, one.name))


def _read_suggestions(path: Path, log: ReadLog) -> list[Suggestion]:
    """Read what the exporter's own rules found: groups of rules, in each the rules that hold."""
    groups = _plain(read_note(path)).get("data")
    if not isinstance(groups, list):
        raise InputError(say("{path}: no list of suggestions in it", path=str(path)))
    found: list[Suggestion] = []
    bad = 0
    for group in map(_plain, groups):
        held = group.get("result")
        for rule in map(_plain, held if isinstance(held, list) else [None]):
            suggested = rule.get("rule suggestion")
            if isinstance(suggested, str) and suggested:
                operators = rule.get("op list", rule.get("tuning data"))
                listed = operators if isinstance(operators, list) else ()
                found.append(Suggestion(
                    kind=str(group.get("rule type") or ""),
                    rule=str(rule.get("rule subtype") or ""),
                    suggestion=suggested,
                    operators=tuple(o if isinstance(o, str) else json.dumps(o, ensure_ascii=False) for o in listed),
                    files=1,
                ))  # fmt: skip
            else:
                bad += 1
    if bad:
        log.lose(path, bad, say("parts of a list of suggestions that suggest nothing"))
    return found


def _plain(value: Any) -> dict[str, Any]:
    """Return an object with its keys in one spelling: ``Rule Type`` and ``rule_type`` are the same."""
    members = value.items() if isinstance(value, dict) else ()
    return {key.lower().replace("_", " "): member for key, member in members}


def merged_suggestions(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Put equal suggestions together, with their operators; those that most files have come first."""
    found: dict[tuple[str, str, str], list[Suggestion]] = {}
    for one in suggestions:
        found.setdefault((one.kind, one.rule, one.suggestion), []).append(one)
    files = Counter({key: sum(one.files for one in same) for key, same in found.items()})
    return [
        Suggestion(
            kind=kind, rule=rule, suggestion=text, files=number,
            operators=tuple(dict.fromkeys(name for one in found[kind, rule, text] for name in one.operators)),
        )
        for (kind, rule, text), number in files.most_common()
    ]  # fmt: skip


class ExporterTable(Struct, frozen=True):
    """A table that exporters write: how its files are called, what reads one, how rows of several files go together."""

    names: str
    read: Callable[[Path, ReadLog], Iterable[Any]]
    merged: Callable[[Iterable[Any]], list[Any]]


#: By the field of a result that has the rows (``EXPORTED`` of npuperf.model.result).
EXPORTS: Final[dict[str, ExporterTable]] = {
    "host_sums": ExporterTable(rf"(?:{'|'.join(_FORMS)})(?:_slice)?[\d_]*\.csv", _read_sums, merged_sums),
    "suggestions": ExporterTable(r"prof_rule[\d_]*\.json", _read_suggestions, merged_suggestions),
}


def is_export(name: str) -> bool:
    """Tell by its name whether a file is such a table."""
    return any(re.fullmatch(export.names, name) for export in EXPORTS.values())


def read_exports(files: Iterable[Path], log: ReadLog) -> None:
    """Read tables that exporters write into ``log``; what cannot be read is said there, too."""
    paths = list(files)
    summed = {path.parent for path in paths if _stem(path) == "acl_statistic"}
    for path in paths:
        if _stem(path) == "acl" and path.parent in summed:
            continue  # the same calls, one by one
        name = next(name for name, export in EXPORTS.items() if re.fullmatch(export.names, path.name))
        try:
            log.exported.setdefault(name, []).extend(EXPORTS[name].read(path, log))
        except InputError as error:
            shown = say("{failure}; what the exporter summed or suggested there is not shown", failure=error.what)
            log.fail(shown, error)
        else:
            log.use(path)
    log.exported.update(merged_exports([log]))


def merged_exports(logs: Sequence[ReadLog]) -> dict[str, list[Any]]:
    """Return the tables of several readings, each as one, by the field of a result."""
    read = {name: [row for log in logs for row in log.exported.get(name, ())] for name in EXPORTS}
    return {name: EXPORTS[name].merged(rows) for name, rows in read.items() if rows}
