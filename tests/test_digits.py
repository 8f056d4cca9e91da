"""The last digits of what is said do not depend on the Python that says it."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from pathlib import Path
from types import GenericAlias
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, run_cli
from sample_documents import documents

from npuperf.model.labels import _number_of

SUM = sum


def test_floats_are_added_without_rounding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since Python 3.12 sum() of floats rounds otherwise than before; math.fsum rounds once, everywhere."""
    rounded = set()

    def watched(values: Iterable[Any], /, start: Any = 0) -> Any:
        added, place = SUM(values, start), sys._getframe(1)
        if type(added) is float and str(place.f_globals.get("__name__")).startswith("npuperf."):
            rounded.add(f"{place.f_code.co_filename}:{place.f_lineno}")
        return added

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NPUPERF_NO_CACHE", "1")
    monkeypatch.setattr(builtins, "sum", watched)
    documents()
    for sample in sorted(Path("samples").iterdir()):
        assert run_cli(["analyze", str(sample), "-o", str(tmp_path / f"{sample.name}.html")]).returncode == 0
    assert rounded == set()


def test_what_an_array_holds_is_found_whatever_numpy_calls_its_type() -> None:
    """Up to 2.4 ``NDArray[np.int64]`` is ``ndarray[…, dtype[int64]]``, then an alias of its own with one argument."""
    deep = GenericAlias(np.ndarray, (tuple[Any, ...], GenericAlias(np.dtype, (np.int64,))))
    assert _number_of(deep) is np.int64
    assert _number_of(GenericAlias(list, (np.int64,))) is np.int64
