"""What the text of a program to tune says about options that must be off while tuning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from npuperf.documents.tuning import Check, CheckStatus
from npuperf.errors import InputError
from npuperf.files import open_input
from npuperf.messages import Message, say, series
from npuperf.tune.job import Script, TuningJob

_NAME: Final = "static memory"
_REQUIRED: Final = say("static_memory_policy 0, which is its default, and GE_USE_STATIC_MEMORY unset")
#: All ways to write it: parameter_map["static_memory_policy"].i = 2, memory_config.static_memory_policy = 2,
#: NPURunConfig(static_memory_policy=2), {"ge.exec.staticMemoryPolicy": "2"}; comments end the line before.
_POLICY: Final = re.compile(
    r"""^[^#\n]*?(?:static_memory_policy|staticMemoryPolicy)["']?\]?(?:\.[is])?\s*[=:]\s*(?P<value>[^\s,)}#][^,)}#\n]*)""",
    re.MULTILINE,
)
_LARGEST: Final = 1 << 22


def static_memory(job: TuningJob, environment: Mapping[str, str]) -> Check:
    """Check that memory is not allocated statically, by the environment and by what the program itself sets."""
    variable = environment.get("GE_USE_STATIC_MEMORY")
    if variable:
        return _check("warn", say("GE_USE_STATIC_MEMORY={value}", value=variable))
    if not isinstance(job.source, Script):
        return _check("ok", say("as required"))
    texts = {file: text for file in _files(job.source) if (text := _text(file)) is not None}
    if not texts:
        return _check("unknown", say("the program's text was not found among the words of its command"))
    found = [(file, text, match) for file, text in texts.items() for match in _POLICY.finditer(text)]
    places = [_place(*one) for one in found]
    values = [match["value"].strip().strip("\"'") for _, _, match in found]
    if any(value != "0" and value.isdecimal() for value in values):
        return _check("warn", series_of(places))
    if found and all(value == "0" for value in values):
        return _check("ok", series_of(places))
    if found:
        return _check("unknown", say("set to what only the run can tell: {places}", places=series_of(places)))
    names = series(file.name for file in texts)
    return _check("unknown", say("not set in {files}; modules that it imports were not read", files=names))


def series_of(places: list[Message]) -> Message:
    """Return places as one message."""
    return say("{places}", places=series(places))


def _check(status: CheckStatus, found: Message) -> Check:
    return Check(name=_NAME, status=status, required=_REQUIRED, found=found, hard=False)


def _files(script: Script) -> list[Path]:
    folder = script.folder or Path()
    return [folder / word for word in script.command if word.endswith(".py")]


def _text(file: Path) -> str | None:
    try:
        with open_input(file) as opened:
            return opened.read(_LARGEST).decode("utf-8", "replace")
    except InputError:
        return None


def _place(file: Path, text: str, match: re.Match[str]) -> Message:
    line = text.count("\n", 0, match.start("value")) + 1
    return say("{file}:{line} sets it to {value}", file=file.name, line=line, value=match["value"].strip())
