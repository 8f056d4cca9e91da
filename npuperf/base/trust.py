"""What this user had npuperf run, and where: only that is run again without a question.

A run directory may come from a stranger, and it names programs. So a record of our own is kept, never in the
directory: in the user's state folder lies an empty file for each, whose name is a keyed digest of the directory's real
path and of what was run there. Nobody without this user's secret can make one, and nothing can be read from it.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from npuperf.base.files import begun_in

# -- The secret with which this user signs: a run directory may come from a stranger, and its entries with it.

_BYTES: Final = 32


@lru_cache(maxsize=1)
def secret() -> bytes:
    """Return this user's secret, made when it is first asked for. Raises OSError or ValueError where none can be."""
    path = state_folder() / "cache.key"
    with suppress(FileNotFoundError):
        return _read(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with begun_in(path.parent) as (begun, file):
        file.write(os.urandom(_BYTES))
        file.flush()
        os.fsync(file.fileno())  # a secret that is empty after a crash would be the end of the cache
        with suppress(FileExistsError):  # made by another process at the same time
            path.hardlink_to(begun)
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


#: More are forgotten, those that were longest not asked for first.
_MOST: Final = 4096


def remember(folder: Path, *what: object) -> None:
    """Note that this user had something run in a folder; where that cannot be noted, the next command asks."""
    with suppress(OSError, ValueError):
        entry = _entry(folder, what)
        entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry.touch(mode=0o600)
        _make_room(entry.parent)


def remembers(folder: Path, *what: object) -> bool:
    """Tell whether this user had just this run in just this folder."""
    try:
        entry = _entry(folder, what)
        os.utime(entry, follow_symlinks=False)
    except (OSError, ValueError):
        return False
    return True


def _entry(folder: Path, what: tuple[object, ...]) -> Path:
    import hmac  # which loads hashlib: a small recording signs nothing

    import msgspec  # of no use to most who sign or ask

    said = json.dumps([os.path.realpath(folder), msgspec.to_builtins(what, enc_hook=str)], sort_keys=True)
    digest = hmac.new(secret(), b"npuperf made 1\n" + said.encode(), "sha256").hexdigest()
    return state_folder() / "made" / digest


def _make_room(entries: Path) -> None:
    found = [Path(entry) for entry in os.scandir(entries)]
    if len(found) > _MOST:
        for old in sorted(found, key=lambda entry: entry.lstat().st_mtime)[: len(found) - _MOST]:
            old.unlink(missing_ok=True)
