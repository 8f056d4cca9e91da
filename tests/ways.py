"""The ways of reading a trace: by the compiled reader or all of it decoded; a table; a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuperf.base.errors import InputError
from npuperf.model.labels import Labels
from npuperf.readers import pieces, plain_events, sqlite, table
from npuperf.readers.log import ReadLog
from npuperf.readers.trace import SLICE_INTS, SLICE_TEXTS, read_trace

#: In bulk by the compiled reader, and row by row.
DATABASE_WAYS = ("in bulk", "by row")
ARROWS = ("HostToDevice", "async_npu", "async_task_queue", "fwdbwd")


def in_small_pieces(patch: pytest.MonkeyPatch, size: int = 600) -> None:
    """Read files in pieces of ``size`` bytes, so that small ones are read by the compiled reader, too."""
    patch.setattr(pieces, "PIECE_BYTES", min(size, pieces.PIECE_BYTES))


def decoded_only(patch: pytest.MonkeyPatch) -> None:
    """Read as where npuperf was installed without a compiler."""
    patch.setattr(plain_events, "_library", lambda: None)
    patch.setattr(sqlite, "_compiled", lambda: None)
    patch.setattr(table, "_library", lambda: None)


def read_databases(patch: pytest.MonkeyPatch, way: str) -> None:
    """Read databases in one of DATABASE_WAYS."""
    if way == "by row":
        patch.setattr(sqlite, "_compiled", lambda: None)


def told(path: Path) -> list[Any]:
    """Everything that reading a trace tells, to be compared."""
    log = ReadLog()
    try:
        trace = read_trace([path], log)
    except InputError as error:
        return [str(error), log]
    columns = {name: np.asarray(getattr(trace.slices, name), np.int64).tolist() for name in SLICE_INTS}
    texts: dict[str, Labels] = {name: getattr(trace.slices, name) for name in SLICE_TEXTS}
    codes = {name: (labels.codes.tolist(), labels.names) for name, labels in texts.items()}
    links = {name: trace.flows.link(name) for name in ARROWS}
    arrows = {
        name: [x.tolist() for x in (k.from_tid, k.from_time, k.to_pid, k.to_tid, k.to_time)]
        for name, k in links.items()
    }
    who = [trace.processes, trace.process_labels, trace.process_order, trace.threads, trace.header, trace.clock]
    return [columns, codes, arrows, trace.flows.events, set(trace.flows.links), who, log]
