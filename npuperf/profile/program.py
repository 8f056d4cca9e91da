"""How the program is started: with the agent inside, or under msprof."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from npuperf.documents.recorded import RecordingPlan, Setting, Window
from npuperf.errors import InputError, UsageError
from npuperf.messages import Message, say, say_n, series
from npuperf.profile.arguments import e2e_arguments, msprof_arguments, torch_arguments
from npuperf.profile.command import Command
from npuperf.profile.environment import SILENCERS, distortions, for_program
from npuperf.profile.folder import RunFolder
from npuperf.profile.msprof import find_msprof, not_found
from npuperf.profile.plan import AGENT, INJECT
from npuperf.profile.request import ProfileRequest, flag

#: A script of the vendor's own guide records one or two steps after the first ten, in which operators are compiled.
_FIRST_STEPS = 10
#: More kinds of data than this at once, and the vendor's guide does not trust the times any more (our number).
_MANY_KINDS = 3


@dataclass(frozen=True, slots=True)
class Launch:
    """What is started. ``cautions`` say what makes the figures doubtful."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    cautions: tuple[Message, ...]

    def added(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that differ from ``environment``."""
        return {n: v for n, v in self.environment.items() if environment.get(n) != v}


def prepare(command: Command, request: ProfileRequest, folder: RunFolder, environment: Mapping[str, str]) -> Launch:
    """Decide what is started; raises InputError or UsageError when msprof is wanted and cannot be used."""
    cautions = [*_cautions(request), *distortions(environment)]
    if request.engine == "msprof":
        return Launch(_under_msprof(command, request, folder, environment), dict(environment), tuple(cautions))
    chosen, removed = for_program(environment, INJECT, folder.plan)
    return Launch(command.argv, chosen, (*removed, *cautions))


def preview(
    launch: Launch, request: ProfileRequest, folder: RunFolder, environment: Mapping[str, str]
) -> RecordingPlan:
    """Describe what would be started; nothing is made."""
    window = None
    if request.engine != "msprof" and not request.whole_run:
        first = request.first_recorded
        last = first + request.active - 1
        window = Window(first=first, last=last, repeat=request.repeat, step_on=request.step_on)
    return RecordingPlan(
        argv=launch.argv,
        added=launch.added(environment),
        folder=str(folder.path),
        engine=request.engine,
        window=window,
        ranks=request.ranks,
        settings=tuple(_settings(request)),
        cautions=launch.cautions,
    )


def _settings(request: ProfileRequest) -> Iterator[Setting]:
    """Yield what the profiler would be given; msprof's arguments are part of its command."""
    groups = {"profileConfig": e2e_arguments(request)} if request.engine == "e2e" else torch_arguments(request)
    unused = {"msprof": tuple(groups), "cpu": ("experimental",)}.get(request.engine, ())
    for name, arguments in groups.items():
        if name not in unused:
            yield from (Setting(of=name, name=a.keyword, value=a.value) for a in arguments)


def _under_msprof(
    command: Command, request: ProfileRequest, folder: RunFolder, environment: Mapping[str, str]
) -> tuple[str, ...]:
    msprof = find_msprof(environment)
    if msprof is None:
        raise not_found(environment)
    if not msprof.works:
        raise InputError(say("{why}; recording needs the driver", why=msprof.note))
    if any(name in environment for name in SILENCERS):
        hint = say("unset {names}", names=series(SILENCERS, " "))
        raise UsageError(say("this shell runs under msprof already"), hint=hint)
    arguments = msprof_arguments(request)
    unknown = [a for a in arguments if "--" in msprof.help and a.split("=")[0] not in msprof.help]
    asked = [a for a in unknown if a not in msprof_arguments(ProfileRequest(engine="msprof"))]
    if asked:
        what = say("msprof of this CANN has no {options}", options=series(asked))
        raise UsageError(what, hint=say("msprof --help lists what it has"))
    known = [a for a in arguments if a not in unknown]
    relay = (sys.executable, "-I", str(AGENT / "relay.py"), str(folder.exit_status))
    return (str(msprof.binary), f"--output={folder.raw}", *known, *relay, *command.argv)


def _cautions(request: ProfileRequest) -> list[Message]:
    """Warn of options that make figures doubtful."""
    found = []
    if request.engine != "msprof" and not request.whole_run and request.first_recorded < _FIRST_STEPS:
        found.append(
            say(
                "step {step} is recorded already: operators are still being compiled in the first {first} steps; "
                "use --wait {first}",
                step=request.first_recorded,
                first=_FIRST_STEPS,
            )
        )
    if request.engine != "msprof" and request.whole_run:
        found.append(
            say("the whole run is recorded: its first steps compile operators, and the data grows with every step")
        )
    names = ("shapes", "stack", "memory", "modules", "flops", "l2_cache", "op_attr", "op_args", "host_sys", "sys_io")
    kinds = [flag(n) for n in (*names, "sys_interconnection", "mstx") if getattr(request, n)]
    kinds += ["--level 2"] if request.level == "2" else []
    if len(kinds) > _MANY_KINDS:
        found.append(
            say_n(
                "{n} kind of data at once ({kinds}) slows the program down: record them in several runs",
                "{n} kinds of data at once ({kinds}) slow the program down: record them in several runs",
                len(kinds),
                kinds=series(kinds),
            )
        )
    return found
