"""What tells operators apart: type, shapes and dtypes, in one spelling for comparisons, locks and gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np

from npuperf.model.groups import numbered
from npuperf.model.labels import Labels
from npuperf.model.operands import Operands
from npuperf.model.tasks import Tasks

if TYPE_CHECKING:  # of most recordings there is none
    from npuperf.model.host_profile import TorchOperators

#: Optimizers take hundreds of tensors: of longer lists the beginning is shown, and a checksum tells them apart.
_LONGEST: Final = 200


def operator_keys(types: Labels, tasks: Tasks) -> Labels:
    """Return what each task is: ``MatMulV2 [2,3;3,4] FLOAT16``, without what is not recorded.

    ``types``: of the tasks. Only combinations that occur become texts; a task without a type has no key.
    """
    return _keyed((types, tasks.shapes, tasks.operands), _of_kernel)


def torch_operator_keys(operators: TorchOperators) -> Labels:
    """Return what each torch operator is: ``aten::mm [2,3;3,4] float``, as far as its inputs are recorded."""
    return _keyed((operators.name, operators.shapes, operators.dtypes), _of_torch)


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


def _keyed(columns: tuple[Labels, ...], spell: Callable[[str, str | None, str | None], str]) -> Labels:
    """Return a text for each row, made once for each combination that occurs; none where the first column has none."""
    used, codes = numbered(columns[0].codes)
    parts = [(code,) for code in used.tolist()]
    for column in columns[1:]:
        width = len(column.names) + 1
        used, codes = numbered(codes * width + column.codes + 1) if column.names else (np.arange(len(parts)), codes)
        parts = [(*parts[k // width], k % width - 1) for k in used.tolist()]
    cells = [[c.names[code] if code >= 0 else None for c, code in zip(columns, part, strict=True)] for part in parts]
    return Labels.of([spell(name, *rest) if name is not None else None for name, *rest in cells]).take(codes)


def _of_kernel(type: str, shapes: str | None, operands: str | None) -> str:
    known = Operands.parse(operands) if operands is not None else Operands((), (), (), ())
    return operator_key(type, _cells(shapes), known.dtypes, known.out_dtypes)


def _of_torch(name: str, shapes: str | None, dtypes: str | None) -> str:
    return operator_key(name, _cells(shapes), _cells(dtypes))


def _cells(text: str | None) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in text.replace('"', "").split(";")) if text else ()


def _dtypes(dtypes: Sequence[str]) -> str:
    distinct = {dtype for dtype in dtypes if dtype}
    return next(iter(distinct)) if len(distinct) == 1 else _short(_runs(dtypes)) if distinct else ""


def _runs(cells: Sequence[str]) -> str:
    counted = [(cell, len(list(run))) for cell, run in groupby(cells)]
    return ";".join(f"{cell} x{count}" if count > 1 and cell else ";" * (count - 1) + cell for cell, count in counted)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... {crc32(text.encode()):08x}"
