"""What a process may do that is ours alone: Arrow without pandas, memory kept for what comes next, arrays in files."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa

from npuperf.model import spill
from npuperf.model.memory import keep_freed


class _NoPandas(MetaPathFinder):
    """Says that there is no pandas, and leaves everything else to others."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Find nothing. Raises ModuleNotFoundError for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def be_alone() -> None:
    """Settle in a process that is ours alone: a program that we are only a part of might want it otherwise."""
    spare_pandas()
    keep_freed()
    spill.allow()


def spare_pandas() -> None:
    """Keep Arrow from loading pandas.

    Handed its first list or number, Arrow loads pandas to see whether that is a Series: a fifth of the time that a
    small recording takes. Where it finds none it asks no more until somebody wants a frame; a program that we are only
    a part of might hand it a Series before that.
    """
    if "pandas" in sys.modules:
        return
    nobody = _NoPandas()
    sys.meta_path.insert(0, nobody)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(nobody)
