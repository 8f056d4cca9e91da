"""The secret with which this user signs: a run directory may come from a stranger, and its entries with it."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

_BYTES: Final = 32


@lru_cache(maxsize=1)
def secret() -> bytes:
    """Return this user's secret, made when it is first asked for. Raises OSError or ValueError where none can be."""
    path = state_folder() / "cache.key"
    with suppress(FileNotFoundError):
        return _read(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # which only its owner may read
        file.write(os.urandom(_BYTES))
        file.flush()
        os.fsync(file.fileno())  # a secret that is empty after a crash would be the end of the cache
        with suppress(FileExistsError):  # made by another process at the same time
            path.hardlink_to(file.name)
    return _read(path)


def state_folder() -> Path:
    """Return where npuperf keeps what it knows of this user. Raises ValueError where there is no home."""
    return own_folder("XDG_STATE_HOME", ".local/state")


def own_folder(variable: str, usual: str) -> Path:
    """Return npuperf's folder of a kind in the user's home. Raises ValueError where there is no home."""
    given = os.environ.get(variable, "")
    try:
        base = Path(given) if Path(given).is_absolute() else Path.home() / usual
    except RuntimeError as error:
        raise ValueError("no home") from error
    if not base.is_absolute():
        raise ValueError("a home that depends on where a command is started")
    return base / "npuperf"


def _read(path: Path) -> bytes:
    found = path.lstat()
    private = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    value = path.read_bytes() if private else b""
    if len(value) != _BYTES:
        raise ValueError(f"{path}: not a secret")
    return value
