"""Whole numbers in no more memory than they need."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from npuperf.model.labels import I64

#: Types that are tried, in this order.
_TYPES: Final = (np.int32, np.uint32)


def narrow(numbers: npt.NDArray[Any], *, signed: bool = False) -> I64:
    """Return the numbers in half the space where they fit, to be kept and looked up; reckoning takes 64 bits.

    ``signed``: for whoever cannot read numbers without a sign.
    """
    if not len(numbers) or numbers.dtype != np.int64 or numbers.strides == (0,):
        return numbers
    least, most = int(numbers.min()), int(numbers.max())
    for kind in _TYPES[:1] if signed else _TYPES:
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return cast(I64, numbers.astype(kind))
    return numbers
