"""What tells operators apart: type, shapes and dtypes, in one spelling for comparisons, locks and gates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final
from zlib import crc32

from npuperf.model.groups import numbered
from npuperf.model.labels import Labels
from npuperf.model.operands import Operands
from npuperf.model.tasks import Tasks

#: Optimizers take hundreds of tensors: of longer lists the beginning is shown, and a checksum tells them apart.
_LONGEST: Final = 200


def operator_keys(types: Labels, tasks: Tasks) -> Labels:
    """Return what each task is: ``MatMulV2 [2,3;3,4] FLOAT16``, without what is not recorded.

    ``types``: of the tasks. Only combinations that occur become texts; a task without a type has no key.
    """
    columns = [column for column in (tasks.shapes, tasks.operands) if column.names]
    used, codes = numbered(types.codes)
    parts = [(code,) for code in used.tolist()]
    for column in columns:
        width = len(column.names) + 1
        used, codes = numbered(codes * width + column.codes + 1)
        parts = [(*parts[k // width], k % width - 1) for k in used.tolist()]
    return Labels.of([_text(types, tasks, part) for part in parts]).take(codes)


def operator_key(type: str, shapes: Sequence[str], dtypes: Sequence[str], out_dtypes: Sequence[str] = ()) -> str:
    """Spell one operator. Outputs are named where they have a dtype that no input has, as those of a cast.

    A shape is as exported (``2,3``, empty for a scalar); shapes and dtypes that repeat are written once: ``8 x3``,
    and one dtype stands for all.
    """
    parts = [type]
    if any(shapes):
        parts.append(f"[{_short(_runs(shapes))}]")
    into = _dtypes(dtypes)
    new = [dtype for dtype in dict.fromkeys(out_dtypes) if dtype and dtype not in dtypes]
    if into or new:
        parts.append(f"{into}->{','.join(new)}" if new else into)
    return " ".join(parts)


def _text(types: Labels, tasks: Tasks, part: tuple[int, ...]) -> str | None:
    """Spell a combination of codes: of the type, then of the columns that have names."""
    if part[0] < 0:
        return None
    codes = iter(part[1:])
    shapes = next(codes) if tasks.shapes.names else -1
    operands = next(codes) if tasks.operands.names else -1
    known = Operands.parse(tasks.operands.names[operands]) if operands >= 0 else Operands((), (), (), ())
    cells = _cells(tasks.shapes.names[shapes]) if shapes >= 0 else ()
    return operator_key(types.names[part[0]], cells, known.dtypes, known.out_dtypes)


def _cells(shapes: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in shapes.replace('"', "").split(";"))


def _dtypes(dtypes: Sequence[str]) -> str:
    distinct = {dtype for dtype in dtypes if dtype}
    return next(iter(distinct)) if len(distinct) == 1 else _short(_runs(dtypes)) if distinct else ""


def _runs(cells: Sequence[str]) -> str:
    counted = [(cell, len(list(run))) for cell, run in groupby(cells)]
    return ";".join(f"{cell} x{count}" if count > 1 and cell else ";" * (count - 1) + cell for cell, count in counted)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... {crc32(text.encode()):08x}"
