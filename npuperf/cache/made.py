"""What this user had npuperf run, and where: only that is run again without a question.

A run directory may come from a stranger, and it names programs. So a record of our own is kept, never in the
directory: in the user's state folder lies an empty file for each, whose name is a keyed digest of the directory's real
path and of what was run there. Nobody without this user's secret can make one, and nothing can be read from it.
"""

from __future__ import annotations

import hmac
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from npuperf.cache.owner import secret, state_folder

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
    said = json.dumps([os.path.realpath(folder), msgspec.to_builtins(what, enc_hook=str)], sort_keys=True)
    digest = hmac.new(secret(), b"npuperf made 1\n" + said.encode(), "sha256").hexdigest()
    return state_folder() / "made" / digest


def _make_room(entries: Path) -> None:
    found = [Path(entry) for entry in os.scandir(entries)]
    if len(found) > _MOST:
        for old in sorted(found, key=lambda entry: entry.lstat().st_mtime)[: len(found) - _MOST]:
            old.unlink(missing_ok=True)
