"""How the program is started: with the agent inside, or under msprof."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from npuperf.cann import set_env_script
from npuperf.errors import InputError, UsageError
from npuperf.profile.command import Command
from npuperf.profile.environment import SILENCERS, distortions, for_program
from npuperf.profile.folder import RunFolder
from npuperf.profile.msprof import find_msprof, searched
from npuperf.profile.options import Options, msprof_arguments
from npuperf.profile.plan import AGENT, INJECT

#: A script of the vendor's own guide records one or two steps after the first ten, in which operators are compiled.
_FIRST_STEPS = 10
#: More kinds of data than this at once, and the vendor's guide does not trust the times any more (our number).
_MANY_KINDS = 3


@dataclass(frozen=True, slots=True)
class Launch:
    """What is started. ``added`` are the environment variables that differ from the caller's."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    warnings: tuple[str, ...]

    def added(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that differ from ``environment``."""
        return {n: v for n, v in self.environment.items() if environment.get(n) != v}


def prepare(command: Command, options: Options, folder: RunFolder, environment: Mapping[str, str]) -> Launch:
    """Decide what is started; raises InputError or UsageError when msprof is wanted and cannot be used."""
    warnings = [*_cautions(options), *distortions(environment)]
    if options.engine == "msprof":
        return Launch(_under_msprof(command, options, folder, environment), dict(environment), tuple(warnings))
    chosen, removed = for_program(environment, INJECT, folder.plan)
    return Launch(command.argv, chosen, (*removed, *warnings))


def _under_msprof(
    command: Command, options: Options, folder: RunFolder, environment: Mapping[str, str]
) -> tuple[str, ...]:
    msprof = find_msprof(environment)
    if msprof is None:
        hint = f"source {set_env_script(environment)}"
        raise InputError(f"msprof was not found (looked at {searched(environment)})", hint=hint)
    if not msprof.works:
        raise InputError(f"{msprof.note}; collecting needs the driver")
    if any(name in environment for name in SILENCERS):
        raise UsageError("this shell runs under msprof already", hint=f"unset {' '.join(SILENCERS)}")
    arguments = msprof_arguments(options)
    unknown = [a for a in arguments if "--" in msprof.help and a.split("=")[0] not in msprof.help]
    asked = [a for a in unknown if a not in msprof_arguments(Options(engine="msprof"))]
    if asked:
        raise UsageError(f"msprof of this CANN has no {', '.join(asked)}", hint="msprof --help lists what it has")
    known = [a for a in arguments if a not in unknown]
    relay = (sys.executable, "-I", str(AGENT / "relay.py"), str(folder.exit_status))
    return (str(msprof.binary), f"--output={folder.raw}", *known, *relay, *command.argv)


def shown(argv: tuple[str, ...], added: Mapping[str, str]) -> str:
    """Return a command line to paste."""
    return " ".join([*(f"{n}={shlex.quote(v)}" for n, v in sorted(added.items())), shlex.join(argv)])


def _cautions(options: Options) -> list[str]:
    """Warn of options that make figures doubtful."""
    found = []
    first = options.wait + options.warmup
    if options.engine != "msprof" and not options.whole_run and first < _FIRST_STEPS:
        found.append(
            f"step {first} is recorded already: operators are still being compiled in the first {_FIRST_STEPS} steps; "
            f"use --wait {_FIRST_STEPS}"
        )
    if options.engine != "msprof" and options.whole_run:
        found.append("the whole run is recorded: its first steps compile operators, and the data grows with every step")
    names = ("shapes", "stack", "memory", "modules", "flops", "l2_cache", "op_attr", "op_args", "host_sys", "sys_io")
    kinds = [n for n in (*names, "sys_interconnection", "mstx") if getattr(options, n)]
    kinds += ["level 2"] if options.level == "2" else []
    if len(kinds) > _MANY_KINDS:
        listed = ", ".join(k.replace("_", "-") for k in kinds)
        found.append(
            f"{len(kinds)} kinds of data at once ({listed}) slow the program down: record them in several runs"
        )
    return found
