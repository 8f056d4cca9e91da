"""Gates that are kept in files: presets by name, and YAML files that have a list of ``gates``, as recipes do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from npuperf.errors import InputError, UsageError
from npuperf.files import is_file, shown
from npuperf.messages import chain, say, series
from npuperf.notes import read_yaml

_PRESETS: Final = Path(__file__).with_name("presets.yaml")
_KEY: Final = "gates"
#: Nobody asks for more.
_MOST: Final = 200


def gates_of(name: str) -> tuple[str, ...]:
    """Return the gates of a preset, or of a YAML file.

    Raises UsageError where there is none of that name, or none in it, InputError where the file cannot be read.
    """
    if Path(name).suffix in (".yaml", ".yml") or "/" in name or (name not in _presets() and is_file(Path(name))):
        path = Path(name)
        if not is_file(path):
            raise UsageError(say("--gates {name}: no such file", name=shown(path)))
        return gates_in(path, read_yaml(path).get(_KEY))
    presets = _presets()
    if name not in presets:
        from difflib import get_close_matches

        near = get_close_matches(name, presets, n=1)
        listed = say("known: {names}; or give the path of a .yaml file", names=series(presets))
        hint = chain(say("did you mean {name}?", name=near[0]) if near else None, listed, by=" ")
        raise UsageError(say("--gates {name}: no such preset", name=repr(name[:_MOST])), hint=hint)
    return presets[name]


def gates_in(path: Path, gates: object) -> tuple[str, ...]:
    """Return what a YAML file has as its gates. Raises UsageError where these are none: no gates never pass."""
    if not isinstance(gates, list) or not gates:
        hint = say('a list of gates, each as --fail-on takes it: gates: ["host_wait>20%"]')
        raise UsageError(say("{path}: has no {key}", path=shown(path), key=_KEY), hint=hint)
    odd = [gate for gate in gates if not isinstance(gate, str)]
    if odd:
        hint = say('quote it: "warn: host_wait>20%" is a mapping for YAML without quotes')
        what = say("{path}: {key}: {value} is no text", path=shown(path), key=_KEY, value=repr(odd[0])[:_MOST])
        raise UsageError(what, hint=hint)
    if len(gates) > _MOST:
        raise InputError(say("{path}: more than {most} gates", path=shown(path), most=_MOST))
    return tuple(gates)


@cache
def _presets() -> Mapping[str, tuple[str, ...]]:
    return {str(name): tuple(gates) for name, gates in read_yaml(_PRESETS).items()}
