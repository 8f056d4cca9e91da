"""What advice presupposes, held against the run, and the choice among pieces of advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from npuperf.documents.analysis import Excluded, Precondition
from npuperf.host.traits import Version
from npuperf.messages import Message, say, series
from npuperf.scopes.view import DeviceView


class Requirement(Struct, frozen=True):
    """A presupposition: ``test`` gives None where the profile does not tell.

    ``evident``: advice need not name it then, as "set X" presupposes that X is not set.
    """

    what: Message
    test: Callable[[DeviceView], bool | None]
    evident: bool = False

    def check(self, view: DeviceView) -> Precondition:
        """Hold it against a run."""
        return Precondition(what=self.what, holds=self.test(view))


class Option(Struct, frozen=True):
    """A piece of advice with what it presupposes and where that is documented."""

    text: Message
    source: Message
    requires: tuple[Requirement, ...] = ()


class Choice(Struct, frozen=True):
    """The advice that applies, what it presupposes, what does not apply and why, and where each is documented."""

    next: Message | None
    alternatives: list[Message]
    preconditions: list[Precondition]
    excluded: list[Excluded]
    sources: tuple[Message, ...] = ()


def choose(options: Sequence[Option], view: DeviceView, most: int = 3) -> Choice:
    """Take the first options that nothing excludes, in the order of preference; at most ``most``.

    What is not recorded does not exclude, but the advice then names it as a condition.
    """
    taken: list[Message] = []
    sources: dict[Message, None] = {}
    held: list[Precondition] = []
    excluded: list[Excluded] = []
    for option in options:
        checked = [condition.check(view) for condition in option.requires]
        broken = [c.what for c in checked if c.holds is False]
        if broken:
            excluded.append(Excluded(advice=option.text, because=say("needs {conditions}", conditions=series(broken))))
        elif len(taken) < most:
            told = zip(option.requires, checked, strict=True)
            unknown = [c.what for condition, c in told if c.holds is None and not condition.evident]
            taken.append(_if(option.text, unknown))
            sources.setdefault(option.source)
            held += [c for c in checked if c not in held]
    return Choice(taken[0] if taken else None, taken[1:], held, excluded, tuple(sources))


def _if(text: Message, unknown: Sequence[Message]) -> Message:
    """Name what the profile does not tell."""
    if not unknown:
        return text
    return say("{advice} (given {unknown}, which the profile does not tell)", advice=text, unknown=series(unknown))


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _mode(*modes: str) -> Callable[[DeviceView], bool | None]:
    return lambda view: None if view.mode == "unknown" else view.mode in modes


ON_NPU: Final = Requirement(say("an NPU"), lambda view: view.traits.platform == "npu")
ON_GPU: Final = Requirement(say("a GPU"), lambda view: view.traits.platform == "gpu")
EAGER: Final = Requirement(say("eager execution"), _mode("eager"))
INFERENCE: Final = Requirement(say("no backward pass"), lambda view: _not(view.traits.training))
TRAINING: Final = Requirement(say("training"), lambda view: view.traits.training)
NOT_RANDOM: Final = Requirement(say("no operators that draw random numbers"), lambda view: _not(view.traits.random))
COMPILED: Final = Requirement(say("code that torch.compile made"), lambda view: view.traits.compiled)
NOT_COMPILED: Final = Requirement(say("no code that torch.compile made"), lambda view: _not(view.traits.compiled))
DYNAMIC_GRAPH: Final = Requirement(say("a graph of GE that is scheduled by the host"), _mode("ge", "ge_dynamic"))
DYNAMIC_SHAPES: Final = Requirement(say("kernels of dynamic shape"), lambda view: view.traits.dynamic)


#: Values of CPU_AFFINITY_CONF that bind nothing: ``MODE,…`` or ``mode:MODE,…`` with mode 0.
_UNBOUND: Final = re.compile(r"^\s*(mode:)?0?\s*(,|$)")


def _unbound(view: DeviceView) -> bool | None:
    have = view.traits.environment.get("CPU_AFFINITY_CONF")
    return None if have is None else bool(_UNBOUND.match(have))


UNBOUND: Final = Requirement(say("threads that CPU_AFFINITY_CONF does not bind yet"), _unbound, evident=True)


def at_least(package: str, *wanted: int) -> Requirement:
    """Require a version of ``torch``, ``torch_npu`` or ``cann``."""

    def test(view: DeviceView) -> bool | None:
        have: Version | None = getattr(view.traits, package)
        return None if have is None else have >= wanted

    return Requirement(say("{package} {version} or newer", package=package, version=".".join(map(str, wanted))), test)


def still_unset(name: str, *values: str) -> Requirement:
    """Require that an environment variable does not already have one of these values.

    Advice to set it need not say so where that is not recorded.
    """

    def test(view: DeviceView) -> bool | None:
        have = view.traits.environment.get(name)
        return None if have is None else have not in values

    return Requirement(say("{name} other than {values}", name=name, values=series(values)), test, evident=True)
