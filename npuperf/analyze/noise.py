"""How much of a difference of means may be chance."""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.model.labels import I64

#: Standard errors that a difference must exceed.
_SURE: Final = 2


def noise_of(*samples: I64) -> float:
    """Return by how much a sum or difference of these samples' means may be off; one value alone tells nothing: 0."""
    return _SURE * float(np.sqrt(sum(_variance(values) for values in samples)))


def _variance(values: I64) -> float:
    """Return the variance of the mean."""
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else 0.0
