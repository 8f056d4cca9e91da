"""One process's host where no device task is recorded, as of a run on the CPU alone."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from npuperf.model.device import Context, HostSteps
from npuperf.model.host import HostOps
from npuperf.model.labels import I64, Labels


class TorchOperators(Struct, frozen=True):
    """Torch operators with what went into them, ordered by start: epoch ns, a row each, nested ones as well.

    ``shapes`` and ``dtypes``: of the tensors among the inputs, separated by ``;`` (``2,3;3,4``), missing where they
    are not recorded.
    """

    start: I64
    thread: I64
    name: Labels
    shapes: Labels
    dtypes: Labels

    @classmethod
    def empty(cls) -> TorchOperators:
        """Return a table without operators."""
        none, labels = np.empty(0, np.int64), Labels.missing(0)
        return cls(none, none, labels, labels, labels)

    def __len__(self) -> int:
        return len(self.start)


class HostProfile(Struct, frozen=True):
    """Everything read about a process of which no device task is recorded. ``rank`` None: the files do not name it."""

    source: str
    rank: int | None
    operators: TorchOperators
    host: HostOps = field(default_factory=HostOps)
    host_steps: HostSteps = field(default_factory=HostSteps.empty)
    context: Context = field(default_factory=Context)
    soc: str | None = None
    kineto: bool = False
