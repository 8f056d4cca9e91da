"""Arrow does without pandas for as long as nobody wants a frame."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from npuperf.readers.arrow_alone import spare_pandas
spare_pandas()
import pyarrow as pa
import pyarrow.compute as pc
column = pc.fill_null(pa.array([1, None]), 7)
print("pandas" in sys.modules, column.to_pylist())
print(pa.table({"a": column}).to_pandas()["a"].tolist(), "pandas" in sys.modules)
import pandas as pd
print(pa.array(pd.Series([1.5, float("nan")])).to_pylist())
"""


def test_pandas_is_loaded_when_a_frame_is_wanted_and_not_before() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False [1, 7]", "[1, 7] True", "[1.5, None]"]


def test_pandas_can_be_loaded_as_ever() -> None:
    code = (
        "from npuperf.readers import arrow_alone as a; a.spare_pandas(); import pandas; print(pandas.Series([1]).sum())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"
