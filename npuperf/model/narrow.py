"""Whole numbers in no more memory than they need."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from npuperf.model.labels import I64

#: Types that are tried, in this order: usually; for whoever needs a sign; for what is small more often than not.
_TYPES: Final = (np.int32, np.uint32)
SIGNED: Final = (np.int32,)
SMALL: Final = (np.int16, np.int32, np.uint32)


def narrow(numbers: npt.NDArray[Any], types: tuple[type[np.integer[Any]], ...] = _TYPES) -> I64:
    """Return the numbers in less space where they fit, to be kept and looked up; reckoning takes 64 bits."""
    if not len(numbers) or numbers.dtype.kind != "i" or numbers.strides == (0,):
        return numbers
    least, most = int(numbers.min()), int(numbers.max())
    for kind in types:
        limits = np.iinfo(kind)
        if limits.bits < numbers.dtype.itemsize * 8 and limits.min <= least and most <= limits.max:
            return cast(I64, numbers.astype(kind))
    return numbers
