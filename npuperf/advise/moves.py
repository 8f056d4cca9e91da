"""Kernels that compute nothing: what they turn into what, and who asked for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import zip_longest
from typing import Final, Literal, NamedTuple, TypedDict

import numpy as np

from npuperf.advise.needs import (
    ALL_ROWS,
    EAGER,
    INFERENCE,
    ON_NPU,
    OPERATOR_TYPES,
    Need,
    Option,
    Requirement,
    see_where,
    still_unset,
)
from npuperf.advise.rule import Answer, Detected, rule
from npuperf.base.messages import Message, Quantity, Series, chain, say, series, share
from npuperf.device.view import DeviceView
from npuperf.model.chip import product_of_soc
from npuperf.model.groups import alike, distinct, first_rows, sums_of
from npuperf.model.host import Spans
from npuperf.model.labels import I64, Mask, Operands
from npuperf.model.tasks import Tasks

#: ``program``: an operator of the program does nothing else; ``operator``: an operator converts for itself;
#: ``compiler``: put between operators when they were compiled; ``unknown``: neither name nor torch operator tells.
AskedBy = Literal["program", "operator", "compiler", "unknown"]

#: Rows of a table in the evidence.
MOST_ROWS: Final = 20
#: Kinds, calls or places that are named.
_LISTED: Final = 3
_ACLNN: Final = re.compile(r"(aclnn\w+?)_")
_INSERTED: Final = re.compile(r"^trans_", re.I)
#: Calls that only move or convert: whoever makes them means it.
_PLAIN: Final = re.compile(r"^aclnn(Cast|InplaceCopy|Contiguous|NpuFormatCast|TransConvertWeight\w*|Permute|Clone)$")
#: What torch.distributed calls the copies of gradients from the buckets that were reduced.
BUCKETS: Final = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
_UNRECORDED: Final = Operands()


class _Kind(NamedTuple):
    source: str | None
    target: str | None
    type: str | None
    by: AskedBy
    asked: str | None
    shape: str | None = None


class MoveRow(TypedDict):
    """Kernels of one kind in the evidence; None: not recorded."""

    source: str | None
    target: str | None
    type: str | None
    by: AskedBy
    asked: str | None
    count: int
    total_ns: int
    shape: str | None
    where: list[str]


def of_types(view: DeviceView, pattern: re.Pattern[str]) -> Mask:
    """Return the compute tasks whose operator type matches; a type or the end of a kernel's name."""
    chosen: Mask = view.compute & view.types.flag([bool(pattern.search(n)) for n in view.types.names])
    return chosen


def share_of_compute(view: DeviceView, chosen: Mask) -> float:
    """Return the part of compute time in some tasks."""
    total = int(view.tasks.dur[view.compute].sum())
    return int(view.tasks.dur[chosen].sum()) / total if total else 0.0


def moves(
    view: DeviceView,
    chosen: Mask,
    ends: Callable[[Operands], tuple[str | None, str | None]],
    *,
    of_shapes: bool = False,
) -> list[MoveRow]:
    """Group tasks by what they turn into what (``ends``) and who asked for it, the longest first.

    ``of_shapes``: tensors of different shapes are different kinds.
    """
    index = np.flatnonzero(chosen)
    tasks = view.tasks
    columns = (tasks.name, tasks.operands, tasks.shapes) if of_shapes else (tasks.name, tasks.operands)
    key = np.zeros(len(index), np.int64)
    for column in columns:
        key = np.unique(key * (len(column.names) + 1) + column.codes[index] + 1, return_inverse=True)[1]
    buckets = from_buckets(view, index)
    _, first, group = np.unique(2 * key + buckets, return_index=True, return_inverse=True)
    kinds: dict[_Kind, int] = {}
    kind_of = np.zeros(len(first), np.int64)
    for number, at in enumerate(index[first].tolist()):
        shape = _shape(view, at) if of_shapes else None
        by, asked = ("program", BUCKETS) if buckets[first[number]] else asked_by(view, at)
        text = tasks.operands[at]
        kind = _Kind(*ends(Operands.parse(text) if text else _UNRECORDED), view.types[at], by, asked, shape)
        kind_of[number] = kinds.setdefault(kind, len(kinds))
    mine = kind_of[group.reshape(-1)]  # its shape differs between versions of numpy
    order = np.argsort(mine, kind="stable")
    members = np.split(index[order], np.flatnonzero(np.diff(mine[order])) + 1)
    rows: list[MoveRow] = []
    for kind, own in zip(kinds, members, strict=True):
        dur = tasks.dur[own]
        rows.append(
            {
                "source": kind.source,
                "target": kind.target,
                "type": kind.type,
                "by": kind.by,
                "asked": kind.asked,
                "count": len(own),
                "total_ns": int(dur.sum()),
                "shape": _shape(view, int(own[np.argmax(dur)])),
                "where": view.code_lines(own),
            }
        )
    return sorted(rows, key=lambda row: -row["total_ns"])


def from_buckets(view: DeviceView, index: I64) -> Mask:
    """Tell which tasks copy gradients from DDP's buckets: their operators lie within its own range."""
    ops, op = view.profile.host.ops, view.tasks.op[index]
    of_ddp = ops.name.flag([name == BUCKETS for name in ops.name.names])
    found = np.zeros(len(index), np.bool_)
    if of_ddp.any():
        known = np.flatnonzero(op >= 0)
        ranges = Spans(ops.start[of_ddp], ops.end[of_ddp], ops.thread[of_ddp], ops.name.filter(of_ddp))
        found[known] = ranges.latest(ops.thread[op[known]], ops.start[op[known]]) >= 0
    return found


def _shape(view: DeviceView, task: int) -> str | None:
    return (view.tasks.shapes[task] or "").strip('"').strip(";") or None


def asked_by(view: DeviceView, task: int) -> tuple[AskedBy, str | None]:
    """Tell who asked for a kernel, by its name, and the call or torch operator that it belongs to."""
    name = view.tasks.name[task] or ""
    torch = view.profile.host.torch_op(int(view.tasks.op[task]))
    if _INSERTED.match(name):
        return "compiler", torch
    call = _ACLNN.match(name)
    if call is None and torch is None:
        return "unknown", None
    if call is None or _PLAIN.match(call.group(1)):
        return "program", torch or (call.group(1) if call else None)
    return "operator", call.group(1)


def listed(rows: list[MoveRow], *, of_shapes: bool = False) -> Series:
    """Return the longest kinds as a list to show."""
    shown: list[Message] = []
    for row in rows[:_LISTED]:
        what = say("{source} to {target} ×{count}", source=row["source"], target=row["target"], count=row["count"])
        if row["source"] is None or row["target"] is None or row["source"] == row["target"]:
            what = say("{type} ×{count}", type=row["type"] or "N/A", count=row["count"])
        if of_shapes and row["shape"]:
            what = say("{what} of [{shape}]", what=what, shape=row["shape"])
        shown.append(what if row["asked"] is None else say("{what} for {asked}", what=what, asked=row["asked"]))
    return series(shown)


def who(view: DeviceView, rows: list[MoveRow]) -> list[AskedBy]:
    """Return who asked for a notable part of compute time, and at least who asked for the longest kernels."""
    total = int(view.tasks.dur[view.compute].sum())
    sums = dict.fromkeys((row["by"] for row in rows), 0)
    for row in rows:
        sums[row["by"]] += row["total_ns"]
    order = sorted(sums, key=lambda by: -sums[by])
    return [by for by in order if by == order[0] or sums[by] >= view.thresholds.layout_share * total]


def askers(rows: list[MoveRow], by: AskedBy) -> Series:
    """Return the names of those who asked, the longest kernels first."""
    return series(list(dict.fromkeys(r["asked"] for r in rows if r["by"] == by and r["asked"]))[:_LISTED])


def places(rows: list[MoveRow], by: AskedBy) -> Series:
    """Return code lines, or torch operators where no stack is recorded, of those who asked."""
    return series(list(dict.fromkeys(line for r in rows if r["by"] == by for line in r["where"]))[:_LISTED])


# -- Conversions between formats (TransData): who asked for which format, and what changes that.

_FORMAT: Final = re.compile(r"(^|_)(transdata|formatcast|npuformatcast)$", re.I)
_NZ: Final = "FRACTAL_NZ"
_SWITCH: Final = say("torch_npu.npu.config.allow_internal_format; off by default on Atlas A3, since March 2026 on A2")
_KERNEL_NAMES: Final = say(
    "kernel names: trans_TransData is put between operators, aclnn names the operator that converts"
)
STORE_NZ: Final = say(
    "store weights that do not change as FRACTAL_NZ once: torch.npu.config.allow_internal_format = True, then "
    "torch_npu.npu_format_cast(weight, 29)"
)
STORE_NZ_SOURCE: Final = say("torch_npu.npu_format_cast, format 29: FRACTAL_NZ")
#: torch_npu of these versions has private formats off, or may have them on, where nothing is set.
_OFF_SINCE: Final = (2, 10)
_ON_BEFORE: Final = (2, 7)


@rule(
    say("conversions between formats"),
    say("operator types TransData and FormatCast; Input and Output Formats, and the operator in the kernel's name"),
    (OPERATOR_TYPES, ALL_ROWS),
)
def layout(view: DeviceView) -> Answer:
    """Find conversions that take a notable part of compute time."""
    return _moved(
        view,
        of_types(view, _FORMAT),
        "conversions",
        lambda o: (next(iter(o.formats), None), next(iter(o.out_formats), None)),
        lambda part, kinds: say("{share} of compute time converts formats: {conversions}",
                                share=part, conversions=kinds),
        say("the conversions stay, or the operators become slower by more than the conversions took"),
        _fewer_conversions,
    )  # fmt: skip


def _moved(
    view: DeviceView,
    chosen: Mask,
    name: str,
    ends: Callable[[Operands], tuple[str | None, str | None]],
    says: Callable[[Quantity, Series], Message],
    refute: Message,
    fewer: Callable[[DeviceView, list[MoveRow]], tuple[Option, ...]],
    *,
    of_shapes: bool = False,
) -> Answer:
    """Weigh tasks that compute nothing: no problem unless they take a notable part of compute time.

    ``name``: of the kinds in the evidence; ``says`` gets the part of compute time, and the longest kinds.
    """
    part = share_of_compute(view, chosen)
    if not part or part < view.thresholds.layout_share:
        return None
    rows = moves(view, chosen, ends, of_shapes=of_shapes)
    return Detected(
        title=says(share(part), listed(rows, of_shapes=of_shapes)),
        evidence={"share_of_compute": part, "count": int(chosen.sum()), "kinds": len(rows), name: rows[:MOST_ROWS]},
        gain=(0, view.per_step(view.exposed(chosen))),
        refute=refute,
        next=fewer(view, rows),
    )


def _private_by_default(view: DeviceView) -> bool | None:
    """Tell whether torch_npu allows private formats where the program sets nothing."""
    if product_of_soc(view.profile.soc or "") == "Atlas A3":
        return False
    version = view.traits.torch_npu
    if version is None or _ON_BEFORE <= version[:2] < _OFF_SINCE:
        return None
    return version[:2] < _ON_BEFORE


PRIVATE_FORMATS: Final = Requirement(say("private formats allowed by torch_npu's default"), _private_by_default)
NO_PRIVATE_FORMATS: Final = say(
    "set torch.npu.config.allow_internal_format = False before the model is built, so that operators exchange ND and "
    "NCHW tensors only"
)


def _fewer_conversions(view: DeviceView, rows: list[MoveRow]) -> tuple[Option, ...]:
    """Return what changes conversions between operators, and those inside of operators, the longest first."""
    inside = [row for row in rows if row["by"] == "operator"]
    between = Requirement(
        say("conversions between operators, not inside aclnn calls"), lambda _: len(inside) < len(rows)
    )
    switch = Option(NO_PRIVATE_FORMATS, _SWITCH, (EAGER, between, PRIVATE_FORMATS))
    to_nz = [row for row in inside if _NZ in (row["source"], row["target"])]
    converts = Requirement(say("operators that convert to FRACTAL_NZ"), lambda _: bool(to_nz))
    store = STORE_NZ
    if to_nz:
        store = say("for {operators}, {advice}", operators=askers(to_nz, "operator"), advice=store)
    weights = Option(store, STORE_NZ_SOURCE, (INFERENCE, converts))
    ways = (weights, switch) if rows[0]["by"] == "operator" else (switch, weights)
    if inside:
        compare = say("compare other sizes or another dtype")
        if inside[0]["shape"] is not None:
            compare = say("compare other sizes than [{shape}], or another dtype", shape=inside[0]["shape"])
        rest = say("conversions inside {operators} do not depend on allow_internal_format: {compare}",
                   operators=askers(inside, "operator"), compare=compare)  # fmt: skip
        return (*ways, Option(rest, _KERNEL_NAMES))
    where = places(rows, rows[0]["by"])
    path = say("keep one format along the path around {where}", where=where)
    if not where.items:
        path = chain(say("keep one format along the path"), see_where(view))
    return (*ways, Option(path, _KERNEL_NAMES))


# -- Casts between dtypes: of what, for whom, and where in the code.

_CAST: Final = re.compile(r"(^|_)cast$", re.I)
_CALL_NAMES: Final = say(
    "kernel names: aclnnCast and aclnnInplaceCopy are the program's, other aclnn names the operator's"
)


@rule(
    say("casts between dtypes"),
    say("operator type Cast; Input and Output Data Types, and the operator in the kernel's name"),
    (OPERATOR_TYPES, ALL_ROWS),
)
def casts(view: DeviceView) -> Answer:
    """Find casts that take a notable part of compute time."""
    return _moved(
        view,
        of_types(view, _CAST),
        "casts",
        lambda o: (next(iter(o.dtypes), None), next(iter(o.out_dtypes), None)),
        lambda part, kinds: say("{share} of compute time converts dtypes: {casts}", share=part, casts=kinds),
        say("the values need both dtypes (then the cast stays), or other streams hide the casts"),
        _fewer_casts,
        of_shapes=True,
    )


def _fewer_casts(view: DeviceView, rows: list[MoveRow]) -> tuple[Option, ...]:
    """Return advice for each of those who ask for much, the longest casts first."""
    where = places(rows, "program")
    own = say(
        "the program casts at {where}: keep one dtype along the path (.float(), .to() and autocast each add a "
        "cast), and convert a value once",
        where=where,
    )
    if not where.items:
        keep = say(
            "the program casts: keep one dtype along the path (.float(), .to() and autocast each add a cast), and "
            "convert a value once"
        )
        own = chain(keep, see_where(view))
    texts = {
        "program": own,
        "unknown": say("who casts is not recorded (npuperf profile --activities cpu,npu --stack records it): keep one "
                       "dtype along the path, and convert a value once"),
        "operator": say("casts inside {operators}: they compute in another dtype than they get or return; compare "
                        "them with tensors of the other dtype", operators=askers(rows, "operator")),
        "compiler": say("casts were put between operators that do not support the dtype: use one that both sides have"),
    }  # fmt: skip
    return tuple(Option(texts[by], _CALL_NAMES) for by in who(view, rows))


# -- Copies and transposes: values that are stored anew in another order, and who asked for that.

_COPY: Final = re.compile(r"(^|_)(transposed?|asstrided|viewcopy|tensormove|contiguous)$", re.I)
#: In graphs slices are the program's own; in eager mode a slice is a view, and only storing it anew is a kernel.
_SLICE: Final = re.compile(r"(^|_)(strided)?sliced?$", re.I)
_EAGER_NAME: Final = re.compile(r"^aclnn")
_VIEWS: Final = say("kernel names and the torch operators around them; views cost nothing until they are stored anew")
_COMBINED: Final = say("Ascend Extension for PyTorch, environment variables: COMBINED_ENABLE")
_DDP: Final = say("PyTorch, DistributedDataParallel: gradient_as_bucket_view")
IN_BUCKETS: Final = say(
    "build DistributedDataParallel with gradient_as_bucket_view=True: gradients then lie in the buckets that are "
    "reduced, and are neither copied back nor kept twice (not for programs that call detach_() on gradients)"
)


@rule(
    say("copies and transposes"),
    say("operator types Transpose, AsStrided, ViewCopy, TensorMove, Slice and similar ones"),
    (OPERATOR_TYPES, ALL_ROWS),
)
def copies(view: DeviceView) -> Answer:
    """Find copies that take a notable part of compute time."""
    names = view.tasks.name
    eager = names.flag([bool(_EAGER_NAME.match(n)) for n in names.names])
    return _moved(
        view,
        of_types(view, _COPY) | (of_types(view, _SLICE) & eager),
        "copies",
        lambda _: (None, None),
        lambda part, kinds: say("{share} of compute time copies values: {copies}", share=part, copies=kinds),
        say("the next operator is slower by as much when it reads the values as they lie"),
        _fewer_copies,
    )


def _fewer_copies(view: DeviceView, rows: list[MoveRow]) -> tuple[Option, ...]:
    """Return what spares the gradients' copies of DDP, the program's own, and those inside operators."""
    least = view.thresholds.layout_share * int(view.tasks.dur[view.compute].sum())

    def matter(some: list[MoveRow]) -> bool:
        """Tell whether some rows are the longest, or take a notable part of compute time."""
        return rows[0] in some or sum(row["total_ns"] for row in some) >= least

    of_ddp = [row for row in rows if row["asked"] == BUCKETS]
    own = [row for row in rows if row["by"] != "operator" and row["asked"] != BUCKETS]
    ddp_matters, own_matter = matter(of_ddp), matter(own)
    views = any(not (row["type"] or "tensormove").lower().endswith("tensormove")
                for row in rows if row["by"] in ("program", "unknown"))  # fmt: skip
    buckets = Requirement(say("gradients copied from DDP's buckets"), lambda _: ddp_matters)
    by_program = Requirement(say("copies by the program's own operators"), lambda _: own_matter)
    stored = Requirement(say("views that are stored anew"), lambda _: views)
    where = places(own, own[0]["by"]) if own else None
    if where and where.items:
        drop = say("look at {where}: drop copies that nobody needs (.contiguous(), .clone(), copy_), and order "
                   "dimensions once, as the next operator reads them", where=where)  # fmt: skip
    else:
        drop = say("drop copies that nobody needs (.contiguous(), .clone(), copy_), and order dimensions once, as the "
                   "next operator reads them")  # fmt: skip
        drop = chain(drop, see_where(view))
    inside = say("copies inside {operators} are part of these calls: compare inputs whose dimensions lie in another "
                 "order", operators=askers(rows, "operator"))  # fmt: skip
    combine = say("set COMBINED_ENABLE=1: several view operators in a row are stored anew at once")
    return (
        Option(IN_BUCKETS, _DDP, (buckets,)),
        Option(drop, _VIEWS, (by_program,)),
        *([] if ddp_matters or own_matter else [Option(inside, _VIEWS)]),
        Option(combine, _COMBINED, (ON_NPU, EAGER, stored, still_unset("COMBINED_ENABLE", "1"))),
    )


# -- Moves right before a matmul that takes what they store.

_PRODUCT: Final = re.compile(r"mat_?mul|gemm", re.I)
#: Kernels on its stream before a matmul that may make its inputs.
_BEFORE: Final = 2
_TRANSPOSED: Final = say(
    "aclnnMatmul: both inputs may be transposed; torch passes x.T and x.transpose(-1, -2) on as views"
)


def rearranging(view: DeviceView) -> Mask:
    """Return the kernels that store values anew in another order or format, by their types."""
    return of_types(view, _COPY) | of_types(view, _FORMAT)


def _ends_known(view: DeviceView) -> float:
    """Return the part of the time of moves and matmuls of which shapes are recorded, of moves the output's, too."""
    tasks, moving = view.tasks, rearranging(view) | of_types(view, _CAST)
    known = {code: bool(Operands.parse(tasks.operands.names[code]).out_shapes)
             for code in distinct(tasks.operands.codes[moving]).tolist() if code >= 0}  # fmt: skip
    outs = tasks.operands.flag([known.get(code, False) for code in range(len(tasks.operands.names))])
    asked = moving | of_types(view, _PRODUCT)
    told = asked & tasks.shapes.known() & (outs | ~moving)
    total = int(tasks.dur[asked].sum())
    return int(tasks.dur[told].sum()) / total if total else 1.0


_ENDS: Final = Need(
    say("shapes of inputs and outputs"),
    _ends_known,
    lambda _: say("shapes of inputs and outputs are not recorded: record with npuperf profile --level 1 --shapes"),
)


class _Pair(NamedTuple):
    move: str
    product: str


class _End(NamedTuple):
    """Shapes of a kernel's inputs, as exported, and what else is recorded of its operands."""

    inputs: list[str]
    operands: Operands

    @classmethod
    def of(cls, tasks: Tasks, row: int) -> _End:
        text = tasks.operands[row]
        return cls(_shapes(tasks.shapes[row]), Operands.parse(text) if text else Operands())


def _makes(move: _End, taker: _End, transposes: bool) -> bool:
    """Tell a kernel that stores what has shape and dtype of an input of the next; transposes swap rows and columns."""
    outs, dtypes = move.operands.out_shapes, move.operands.out_dtypes
    asked = zip_longest(taker.inputs, taker.operands.dtypes, fillvalue="")
    if (
        len(outs) != 1
        or not outs[0]
        or not any(shape == outs[0] and (not dtypes or dtype in (dtypes[0], "")) for shape, dtype in asked)
    ):
        return False
    before = move.inputs[0].split(",")
    swapped = [*before[:-2], *before[-2:][::-1]]
    return not transposes or (len(before) > 1 and before != swapped and ",".join(swapped) == outs[0])


def _shapes(text: str | None) -> list[str]:
    return [cell.strip() for cell in (text or "").replace('"', "").split(";")]


class _Moved(NamedTuple):
    """Moves whose result the next matmul of their stream takes; the time of each pair of types, and of each kind."""

    tasks: Mask
    pairs: dict[_Pair, int]
    time: dict[str, int]


def _before_products(view: DeviceView) -> _Moved:
    """Find moves right before a matmul that takes what has their result's shape and dtype: inferred."""
    tasks, names = view.tasks, view.types.names
    kinds = {"transposes": _COPY, "casts": _CAST, "conversions": _FORMAT}
    flags = {kind: view.types.flag([bool(pattern.search(n)) for n in names]) for kind, pattern in kinds.items()}
    moving = view.compute & np.logical_or.reduce([*flags.values()])
    rows = np.flatnonzero(view.compute)
    rows = rows[np.argsort(tasks.stream[rows], kind="stable")]
    product = view.types.flag([bool(_PRODUCT.search(n)) for n in names])[rows]
    at = np.flatnonzero(product)
    moves_, takers = [], []
    for back in range(1, _BEFORE + 1):  # what lies between is a move, too
        at = at[at >= back]
        at = at[(tasks.stream[rows[at - back]] == tasks.stream[rows[at]]) & moving[rows[at - back]]]
        moves_.append(rows[at - back])
        takers.append(rows[at])
    move, taker = np.concatenate(moves_), np.concatenate(takers)
    transposes = flags["transposes"][move]
    ends = (column.codes[rows] for column in (tasks.operands, tasks.shapes) for rows in (move, taker))
    case = alike(*ends, transposes.astype(np.uint8))
    first = first_rows(case, int(case.max(initial=-1)) + 1).tolist()
    made = [_makes(_End.of(tasks, int(move[i])), _End.of(tasks, int(taker[i])), bool(transposes[i])) for i in first]
    kept = np.array([*made, False], np.bool_)[case] if len(case) else np.zeros(0, np.bool_)
    move, taker = move[kept], taker[kept]
    chosen = np.zeros(len(tasks), np.bool_)
    chosen[move] = True
    kind = alike(view.types.codes[move], view.types.codes[taker])
    total = sums_of(kind, tasks.dur[move], int(kind.max(initial=-1)) + 1).tolist()
    pairs = {
        _Pair(view.types[int(move[i])] or "N/A", view.types[int(taker[i])] or "N/A"): ns
        for i, ns in zip(first_rows(kind, len(total)).tolist(), total, strict=True)
    }
    time = {name: int(tasks.dur[chosen & flag].sum()) for name, flag in flags.items()}
    return _Moved(chosen, pairs, time)


@rule(
    say("transposes and casts before matmuls"),
    say("operator types, shapes and dtypes: the kernel before a matmul on its stream stores what has those of one of "
        "its inputs (inferred); a transpose swaps rows and columns alone"),
    (OPERATOR_TYPES, _ENDS, ALL_ROWS),
)  # fmt: skip
def moved_for_products(view: DeviceView) -> Answer:
    """Find moves that a matmul would not need: it reads transposed matrices, and can be given the other dtype."""
    chosen, pairs, time = _before_products(view)
    part = share_of_compute(view, chosen)
    if not part or part < view.thresholds.layout_share:
        return None
    order = sorted(pairs, key=lambda pair: -pairs[pair])
    named = [say("{move} before {product}", move=pair.move, product=pair.product) for pair in order[:_LISTED]]
    least = view.thresholds.layout_share * int(view.tasks.dur[view.compute].sum())

    def notable(kind: str, what: Message) -> Requirement:
        return Requirement(what, lambda _: time[kind] >= least or time[kind] == max(time.values()))

    return Detected(
        title=say("{share} of compute time moves or casts what the next matmul takes (inferred from shapes): {pairs}",
                  share=share(part), pairs=series(named)),
        evidence={"share_of_compute": part, "count": int(chosen.sum()), "time_ns": time,
                  "pairs": [{**pair._asdict(), "total_ns": pairs[pair]} for pair in order[:MOST_ROWS]]},
        gain=(0, view.per_step(view.exposed(chosen))),
        refute=say("other kernels read the result, too, or the matmul is slower by as much without the move"),
        next=(
            Option(say("give the matmul the transposed view: without .contiguous() it reads rows as columns"),
                   _TRANSPOSED, (notable("transposes", say("transposes of matrices")),)),
            Option(say("let what makes the input store it in the matmul's dtype (weights once, not in every step: "
                       "autocast casts parameters of FP32 in each forward)"),
                   say("PyTorch, Automatic Mixed Precision"), (notable("casts", say("casts")),)),
            Option(STORE_NZ, STORE_NZ_SOURCE, (INFERENCE, notable("conversions", say("conversions of formats")))),
            Option(say("compare sizes, or another dtype, for which the matmul takes its inputs as they are"),
                   _KERNEL_NAMES, (notable("conversions", say("conversions of formats")),)),
        ),
    )  # fmt: skip
