"""What is wrong with a command line, in our words: the framework's change with its releases and speak of validation."""

from __future__ import annotations

import re
from pathlib import Path
from reprlib import repr as brief
from typing import Any, Final

from npuperf.errors import UsageError
from npuperf.messages import Message, chain, say

_WANTED: Final = {int: say("a whole number"), float: say("a number"), Path: say("a path")}


def bad_value(param: Any, value: object, wanted: type | None, why: str = "") -> UsageError:
    """Return the error for a value that does not suit a parameter; ``why`` is said where we do not know better."""
    name = param.opts[0] if param.param_type_name == "option" else param.metavar or param.name
    if wanted not in _WANTED:
        return UsageError(say("{name} {value}: {why}", name=name, value=brief(value), why=why))
    if wanted is Path and value != "":  # the framework asks of a path only whether it may be read
        return UsageError(say("{name} {value}: permission to read it is denied", name=name, value=str(value)))
    limits = _limits(getattr(param, "min", None), getattr(param, "max", None))
    kind = chain(_WANTED[wanted], limits, by=" ")
    return UsageError(say("{name} {value}: {kind} is wanted", name=name, value=brief(value), kind=kind))


def _limits(least: float | None, most: float | None) -> Message | None:
    if least is None or most is None:
        return None if least is None else say("of at least {least}", least=f"{least:g}")
    return say("from {least} to {most}", least=f"{least:g}", most=f"{most:g}")


def in_our_words(error: Any) -> UsageError:
    """Return our error for any of the framework's: an option that does not exist, lacks its value, or is too many."""
    command = f"{error.ctx.command_path.replace('python -m ', '')} " if getattr(error, "ctx", None) else ""
    everything = say("{command} lists everything", command=f"{command}--help")
    name = getattr(error, "option_name", None)
    told = error.format_message().rstrip(".")
    if name is None:
        return UsageError(_told(told), hint=everything)
    if "not take a value" in told:
        return UsageError(say("{name}: takes no value", name=name), hint=everything)
    if not hasattr(error, "possibilities"):  # a known option, used wrongly
        return UsageError(say("{name}: its value is missing", name=name), hint=everything)
    near = _nearest(name, error.ctx)
    meant = say("did you mean {name}?", name=near) if near else None
    return UsageError(say("{name}: no such option", name=name), hint=chain(meant, everything, by=" "))


def _told(words: str) -> Message:
    """Return what the framework says of arguments; what we do not know of stays as it is."""
    extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", words, re.DOTALL)
    if extra is not None:
        return say("got unexpected extra arguments: {words}", words=extra[1])
    return say("a command is missing") if words == "Missing command" else say("{what}", what=words)


def _nearest(name: str, ctx: Any) -> str | None:
    from difflib import get_close_matches

    known = [flag for param in ctx.command.params for flag in (*param.opts, *param.secondary_opts)]
    return next(iter(get_close_matches(name, known, n=1, cutoff=0.5)), None)
