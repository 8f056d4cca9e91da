"""Work grows with the number of kernels, also where each has a name, a type and a line of its own.

Counted are the cells of arrays that numpy makes or looks at, and the calls of functions, at two sizes: what goes over
all kernels for each of them would be sixteen times as much at four times the size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from build import H, K, ascend_pt
from msgspec import Struct
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.against.run import run
from npuperf.analyze.examine import Earlier, examine
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.device import DeviceProfile
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording
from npuperf.readers.source import read_source
from npuperf.show.formats import render

SIZE, TIMES, MOST = 300, 4, 4.5


class Counted(np.ndarray[Any, Any]):
    """An array that counts its cells, and those of all arrays that are made of it."""

    cells = 0

    def __array_finalize__(self, made_of: Any) -> None:
        Counted.cells += self.size

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):  # nothing is made or looked at, yet
            Counted.cells -= found.size
        return found

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return counted(super().__array_function__(function, types, args, kwargs))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if array.ndim == 0 else array.view(Counted)


def counted(value: Any) -> Any:
    """Let every array in a value count."""
    if isinstance(value, np.ndarray):
        return value.view(Counted) if value.ndim else value
    if isinstance(value, tuple | list) and any(isinstance(v, np.ndarray) for v in value):
        return type(value)(counted(v) for v in value)
    if isinstance(value, dict):
        return {key: counted(v) for key, v in value.items()}
    if isinstance(value, Struct):
        return replace(value, **{name: counted(getattr(value, name)) for name in value.__struct_fields__})
    return value


def cells(work: Callable[[], object]) -> int:
    before = Counted.cells
    work()
    return Counted.cells - before


def calls(work: Callable[[], object]) -> int:
    made = 0

    def seen(frame: FrameType, event: str, arg: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def folder(root: Path, size: int, *, host: bool) -> Path:
    """Kernels that are all different, as are the operators, lines and waits behind them if the ``host`` is recorded."""
    cores = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV")
    kernels, doings, now = [], [], 0
    for i in range(size):
        kernels.append(
            K(
                start=now + (9_000 if i % 3 else 30_000),
                dur=4_000 + 7 * i % 900,
                name=f"aclnnT{i}x_T{i}x_T{i}x",
                type=f"T{i}x",
                core=cores[i % 4],
                stream=2 + i % 2,
                block=1 + i % 24,
                step=i * 8 // size,
                launch=now + 3_000 if host else None,
                launch_dur=2_000,
                shapes=f"{i + 1},4",
            )
        )
        doings += [H(f"train.py({i}): f{i}", now, 8_000, True), H(f"aten::op{i}", now + 500, 7_000, True)]
        now += 10_000
        if i % 10 == 9:
            doings.append(H(f"train.py({i}): wait{i}", now, 70_000, True))
            doings.append(H("AscendCL@aclrtSynchronizeStream", now + 500, 60_000))
            now += 80_000
    return ascend_pt(root, kernels, cores="24,48", host=doings if host else ())


def profile_of(path: Path) -> DeviceProfile:
    (source,) = open_recording(path).sources
    (profile,) = read_source(source, ReadLog()).profiles
    return profile


@pytest.mark.parametrize("host", [False, True], ids=["table", "timeline"])
def test_every_pass_is_linear_in_distinct_kernels(tmp_path: Path, host: bool) -> None:
    thresholds, cells_at, calls_at, whole_at = load_thresholds(), [], [], []
    for size in (SIZE, SIZE * TIMES):
        path = folder(tmp_path / str(size), size, host=host)
        request = AnalyzeRequest(path=path)
        profile = profile_of(path)
        looked_at: DeviceProfile = counted(profile)

        def look(profile: DeviceProfile = looked_at, request: AnalyzeRequest = request) -> object:
            return examine(profile, request, thresholds, Earlier(), ReadLog())

        def tell(request: AnalyzeRequest = request) -> object:
            result = run(request)
            return render(result, "json"), render(result, "text")

        if size == SIZE:
            look(), tell()  # modules are loaded
        cells_at.append(cells(look))
        calls_at.append(calls(look))
        whole_at.append(calls(tell))
    for less, more in (cells_at, calls_at, whole_at):
        assert more <= MOST * less
