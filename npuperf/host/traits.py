"""What kind of run a profile shows: every rule asks this, and no rule decides it by itself."""

from __future__ import annotations

import re
from typing import Final, Literal

import numpy as np
from msgspec import Struct, field

from npuperf.host.mode import Mode, mode_of
from npuperf.model.device import DeviceProfile
from npuperf.model.environment import Environment
from npuperf.model.labels import Mask
from npuperf.model.tasks import Work
from npuperf.model.thresholds import Thresholds

#: A version's numbers, most significant first, e.g. (8, 3) of ``8.3.RC1``.
Version = tuple[int, ...]

_BACKWARD: Final = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_UPDATE: Final = re.compile(r"^Optimizer\.step|^Optimizer\.zero_grad|^ApplyAdam|^ApplyMomentum|^ApplyRms", re.I)
_GRADIENT: Final = re.compile(r"Grad(V\d+)?$|Backprop(Input|Filter|InputV\d|FilterV\d)?$|GradWithArgmax")
_RANDOM: Final = re.compile(
    r"dropout|bernoulli|^aten::(rand|randn|randint|randperm|normal_?|uniform_?|multinomial|exponential_?)(_like)?$"
    r"|DSARandom|StatelessRandom|DropOutGenMask|DropOutDoMask",
    re.I,
)
#: Ranges that torch puts around code that torch.compile made.
#: No number of threads has more.
_DIGITS: Final = 9
_COMPILED: Final = re.compile(r"^Torch-Compiled Region\b|^## Call CompiledFxGraph\b")


class Traits(Struct, frozen=True, kw_only=True):
    """The run, as far as it can be told; None: what would tell was not recorded.

    ``training``: a backward pass or an optimizer's update is recorded; ``random``: operators that draw random numbers
    are; ``dynamic``: kernels of dynamic shape are. False needs evidence of the contrary: the operators are recorded,
    and none of them is of the kind. ``compiled``: code that torch.compile made runs; ``overhead``: how many times
    longer a recorded step takes than others.
    """

    platform: Literal["npu", "gpu"]
    mode: Mode
    training: bool | None = None
    random: bool | None = None
    dynamic: bool | None = None
    compiled: bool | None = None
    torch: Version | None = None
    torch_npu: Version | None = None
    cann: Version | None = None
    overhead: float | None = None
    environment: Environment = field(default_factory=Environment)

    @property
    def blocking(self) -> bool:
        """Whether every launch waited for its kernel, so that the host's part is not the program's own."""
        return self.environment.get("ASCEND_LAUNCH_BLOCKING") not in (None, "", "0")

    @property
    def runtime_threads(self) -> int | None:
        """How many threads GE was told to schedule dynamic graphs with; None where that is not recorded."""
        value = self.environment.get("MAX_RUNTIME_CORE_NUMBER")
        if value is None:
            return None
        return int(value) if value.strip().isdecimal() and len(value) <= _DIGITS else 1

    def slowed(self, thresholds: Thresholds) -> bool:
        """Tell whether recording made the steps so much longer that its host times may be the recording's own."""
        return is_slowed(self.overhead, thresholds)

    @classmethod
    def of(cls, profile: DeviceProfile, thresholds: Thresholds) -> Traits:
        """Tell what kind of run a profile shows."""
        context = profile.context
        return cls(
            platform="gpu" if profile.kineto else "npu",
            mode=mode_of(profile),
            training=_training(profile),
            random=_recorded(profile, _RANDOM),
            dynamic=_dynamic(profile, thresholds),
            compiled=_recorded(profile, _COMPILED),
            torch=version(context.torch),
            torch_npu=version(context.torch_npu),
            cann=version(context.cann),
            overhead=context.overhead,
            environment=context.environment,
        )


def is_slowed(overhead: float | None, thresholds: Thresholds) -> bool:
    """Tell whether recording cost a notable part of the steps; what was not measured is not held against it."""
    return overhead is not None and overhead - 1 > thresholds.recording_cost_share


def version(text: str | None) -> Version | None:
    """Return the leading numbers of a version, None where there are none."""
    found = re.match(r"\D*(\d{1,9}(?:\.\d{1,9})*)", text or "")
    return tuple(int(part) for part in found.group(1).split(".")) if found else None


def _training(profile: DeviceProfile) -> bool | None:
    """A backward pass or an update among host events or kernels; no sign of either counts where both are recorded."""
    host = profile.host.events.name.has(_BACKWARD, _UPDATE)
    kernels = profile.tasks.type.has(_GRADIENT, _UPDATE) or profile.tasks.name.has(_GRADIENT, _UPDATE)
    if host or kernels:
        return True
    return False if _knows_operators(profile) else None


def _recorded(profile: DeviceProfile, pattern: re.Pattern[str]) -> bool | None:
    if profile.host.events.name.has(pattern) or profile.tasks.type.has(pattern) or profile.tasks.name.has(pattern):
        return True
    return False if _knows_operators(profile) else None


def _dynamic(profile: DeviceProfile, thresholds: Thresholds) -> bool | None:
    """One kernel of dynamic shape is enough; that there is none is known only of those whose state is recorded."""
    tasks = profile.tasks
    compute: Mask = np.equal(tasks.work, Work.COMPUTE)
    if (tasks.dynamic & compute).any():
        return True
    known, total = int(tasks.dur[compute & tasks.state.known()].sum()), int(tasks.dur[compute].sum())
    return False if total and known >= thresholds.enough_data * total else None


def _knows_operators(profile: DeviceProfile) -> bool:
    """Tell whether an operator of some kind would have been seen: torch operators are recorded."""
    return len(profile.host.ops) > 0
