"""The hot passes of ``analyze`` over a small made-up run, each counted by itself: what it executes, not how long.

    python tests/passes.py calls FOLDER
    valgrind --tool=callgrind --instr-atstart=no python tests/passes.py instructions FOLDER LIBRARY

Every pass runs once before it is counted, so that modules are loaded and what is kept is kept. ``calls`` prints how
often each calls a function of npuperf; ``instructions`` leaves a dump of callgrind's behind for each of those in which
most is not Python's, in this order.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from itertools import takewhile
from pathlib import Path
from types import FrameType

from npuperf.advise import load_thresholds
from npuperf.against.run import run
from npuperf.analyze.examine import Earlier, examine
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.study import Study
from npuperf.readers.kernels import merge, read_kernels
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording
from npuperf.readers.source import read_source
from npuperf.readers.timeline import interpret
from npuperf.readers.trace import read_trace
from npuperf.show.formats import render

PACKAGE = str(Path(__file__).resolve().parent.parent / "npuperf")
#: From Python 3.12 on they are no functions any more.
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")


def passes(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each pass; it works on what those before it made."""
    text, database = folder / "text_ascend_pt", folder / "db" / "text_ascend_pt"
    request, thresholds = AnalyzeRequest(path=text), load_thresholds()
    (source,), (stored,) = open_recording(text).sources, open_recording(database).sources
    yield "trace", lambda: read_trace(source.timeline, ReadLog())
    yield "damaged trace", lambda: read_trace([folder / "damaged.json"], ReadLog())
    trace = read_trace(source.timeline, ReadLog())
    yield "timeline", lambda: interpret(copy(trace), source.timeline)  # which takes what it is given apart
    yield "table", lambda: read_kernels(source, ReadLog())
    kernels, timeline = read_kernels(source, ReadLog()), interpret(copy(trace), source.timeline)
    yield "join", lambda: merge(kernels, timeline, source, ReadLog())
    yield "database", lambda: read_source(stored, ReadLog())
    (profile,) = read_source(source, ReadLog()).profiles
    yield "study", lambda: Study.of(profile, thresholds)
    yield "examine", lambda: examine(profile, request, thresholds, Earlier(), ReadLog())
    result = run(request)
    yield "screen", lambda: render(result, "text")
    yield "document", lambda: render(result, "json")


class Calls:
    """Counts calls of npuperf's functions, in all threads."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note an event of the interpreter."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in INLINED:
            self.count += 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count while this is open."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]


def count_calls(folder: Path) -> dict[str, int]:
    """Return the calls of each pass."""
    found = {}
    for name, work in passes(folder):
        work()
        calls = Calls()
        with calls.counting():
            work()
        found[name] = calls.count
    return found


def count_instructions(folder: Path, library: str) -> list[str]:
    """Let callgrind, under which this runs, count each pass; return their names.

    It begins to look once, when all have run: it forgets what it has translated whenever it begins or ends. What works
    on columns is left out: to translate it takes longer than all else, and its calls tell as much.
    """
    callgrind = ctypes.CDLL(library)
    all_passes = list(takewhile(lambda named: named[0] != "study", passes(folder)))
    for _, work in all_passes:
        work()
    gc.collect()
    gc.freeze()  # as analyze does; else it would depend on the others whose pass a search through everything falls into
    callgrind.look()
    for _, work in all_passes:
        callgrind.start()
        work()
        callgrind.stop()
    return [name for name, _ in all_passes]


if __name__ == "__main__":
    what, where, *more = sys.argv[1:]
    print(json.dumps(count_calls(Path(where)) if what == "calls" else count_instructions(Path(where), *more)))
