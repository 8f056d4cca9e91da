"""Values that are right as they come, kept from typer's converter.

Releases of typer that convert with pydantic load it for a value that nobody gave, too, and build a validator for every
option. That takes longer than everything else which the command line does.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import typer

#: Longer numbers than anybody counts to are typer's.
_DIGITS: Final = 9
_NOT_SURE: Final = object()


def spare(parameters: list[Any]) -> list[Any]:
    """Return the parameters, for which typer builds a converter only when a value needs it.

    Whether a value is wrong is for typer to say. Its releases without this method have nothing to be spared.
    """
    for parameter in parameters:
        build = getattr(parameter, "get_runtime_param", None)
        if build is not None and not isinstance(build, _Converter):
            parameter.get_runtime_param = _Converter(build)
    return parameters


class _Converter:
    """A parameter's converter, and what typer calls to get it; ``build`` makes typer's own."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    def __call__(self) -> _Converter:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter as its function takes it."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        wanted = param.type_descriptor.annotation
        if wanted is Path and (why := _no_path(value)):
            raise _refused(param, value, None, why)
        known = _right(value, param)
        if known is not _NOT_SURE:
            return known
        if wanted is Path and value == "":  # which would be the current folder
            raise _refused(param, value, wanted)
        try:
            return self._build().coerce(value, param=param, ctx=ctx)
        except typer.BadParameter as error:
            raise _refused(param, value, wanted, error.message) from error


def _refused(*what: Any) -> Exception:
    from npuperf.cli.wording import bad_value  # rarely wanted

    return bad_value(*what)


def _no_path(value: Any) -> str | None:
    """Say why no file can be called so, if that is so: whoever looks for it would be told that as an error."""
    try:
        os.lstat(value)
    except (ValueError, TypeError) as error:
        return str(error)
    except OSError as error:
        return error.strerror if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) else None
    return None


def _right(value: Any, param: Any) -> Any:
    """Return a value that certainly suits a parameter, else _NOT_SURE."""
    wanted = param.type_descriptor.annotation
    if wanted == list[str]:
        texts = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return list(value) if texts else _NOT_SURE
    if wanted is int and isinstance(value, str):
        return _number(value, param.min, param.max)
    if wanted is Path and isinstance(value, str | Path) and value != "":
        return Path(value) if not os.path.exists(value) or os.access(value, os.R_OK) else _NOT_SURE  # noqa: PTH110
    return value if type(value) is wanted else _NOT_SURE


def _number(text: str, least: float | None, most: float | None) -> Any:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        return _NOT_SURE
    number = int(text)
    return number if (least is None or least <= number) and (most is None or number <= most) else _NOT_SURE
