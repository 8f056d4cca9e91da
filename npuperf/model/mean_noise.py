"""How much of a difference of means may be chance."""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.model.labels import I64

#: Standard errors that a difference must exceed.
_SURE: Final = 2


def noise_of(*samples: I64) -> float | None:
    """Return by how much a sum or difference of these samples' means may be off, None where one is a single value."""
    if any(len(values) < 2 for values in samples):
        return None
    return _SURE * float(np.sqrt(sum(values.var(ddof=1) / len(values) for values in samples)))
