"""What is known of an internal error, kept for whoever mends it: where it happened, in which versions, asked how.

Nothing of the user's is in it: options by name alone, the stack without values, the error without its words.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from npuperf.base import __version__
from npuperf.base.trust import state_folder

#: Reports that are kept; the oldest go first.
_KEPT: Final = 10
_LIBRARIES: Final = ("typer", "rich", "numpy", "pandas", "pyarrow", "msgspec", "torch", "torch_npu")
_PACKAGE: Final = Path(__file__).resolve().parents[1]


def keep_report(error: BaseException, arguments: list[str]) -> Path | None:
    """Write down an internal error in this user's own folder; return the file, or None where it cannot be written."""
    with suppress(OSError, ValueError):
        folder = state_folder() / "errors"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as out:
            out.write(_report(error, arguments))
        for old in sorted(folder.glob("*.txt"))[:-_KEPT]:
            old.unlink(missing_ok=True)
        return file
    return None


def _report(error: BaseException, arguments: list[str]) -> str:
    libraries = "".join(f"{name} {found}\n" for name in _LIBRARIES if (found := _version(name)))
    return (
        f"npuperf {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}\n"
        f"{libraries}command: npuperf {' '.join(map(_without_value, _own(arguments)))}\n\n{_stack(error)}"
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _own(arguments: list[str]) -> list[str]:
    """Return the arguments without the command of the user's."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _without_value(argument: str) -> str:
    """Return a verb or an option's name; of everything else only that it was there."""
    if argument.startswith("-"):
        return argument.partition("=")[0] if argument.startswith("--") else argument[:2]
    return argument if argument in ("profile", "analyze", "tune") else "…"


def _stack(error: BaseException) -> str:
    """Return where the error and those before it were raised: places of code, no values."""
    chain: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        frames = traceback.extract_tb(seen.__traceback__)
        places = "".join(f"  {_place(f.filename)}:{f.lineno} in {f.name}\n" for f in frames)
        chain.append(f"{type(seen).__module__}.{type(seen).__qualname__}\n{places}")
        seen = seen.__cause__ or seen.__context__
    return "\nwhich came after\n".join(chain)


def _place(filename: str) -> str:
    """Return a file as it is called in its package: where that is installed is nobody's business."""
    path = Path(filename)
    for base in (_PACKAGE.parent, *map(Path, sorted(filter(None, sys.path), key=len, reverse=True))):
        with suppress(ValueError):
            return str(path.relative_to(base))
    return path.name
