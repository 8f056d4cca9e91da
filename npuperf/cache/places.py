"""Where entries lie: in the run directory that they are about, else in the user's own folder."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from npuperf.cache.owner import own_folder
from npuperf.errors import InputError
from npuperf.files import MANIFEST, total_bytes
from npuperf.folders import Walk, few
from npuperf.messages import Message

if TYPE_CHECKING:
    from npuperf.cache.entries import Cache

#: Set, nothing is kept and nothing that was kept is used.
_OFF: Final = "NPUPERF_NO_CACHE"
#: How many bytes one folder of entries may have: 500M, 2G.
_SIZE: Final = "NPUPERF_CACHE_SIZE"
_USUAL_SIZE: Final = 2 << 30
#: Files of fewer bytes are analyzed about as fast as an answer is looked up.
_WORTH_KEEPING: Final = 4 << 20


def cache_of(path: Path, files: Iterable[Path]) -> Cache | None:
    """Return the cache for what lies at a path, or None where there is none or it would not pay for these files."""
    if os.environ.get(_OFF) or total_bytes(files) < _WORTH_KEEPING:
        return None
    from npuperf.cache.entries import Cache  # of no use to a small recording

    folder = next(_folders(path), None)
    return Cache(folder, _limit()) if folder else None


def clear(path: Path, told: list[Message] | None = None) -> tuple[int, int]:
    """Remove all entries about a path and what lies below it; return how many, and their bytes.

    What lies behind links below it may be somebody else's. ``told`` gets what could not be entered.
    """
    from npuperf.cache.entries import Cache

    runs = (folder for run in _runs_below(path, [] if told is None else told) for folder in _folders(run))
    cleared = [Cache(folder, _limit()).clear(path) for folder in dict.fromkeys((*_folders(path), *runs))]
    return sum(number for number, _ in cleared), sum(size for _, size in cleared)


def _runs_below(path: Path, told: list[Message]) -> Iterator[Path]:
    """Yield the run directories below a path."""
    walk = Walk(path, links=False)
    try:
        yield from (folder.path for folder in walk if MANIFEST in folder.files)
    except InputError as error:
        if path.exists():  # else there is nothing to clear but entries that still tell of it
            told.append(error.what)
    told += few(walk.told)


def _folders(path: Path) -> Iterator[Path]:
    """Yield the folders that may have entries about a path, the best first."""
    own = path / ".cache"
    with suppress(OSError):
        ours = (path / MANIFEST).is_file() and path.stat().st_uid == os.geteuid() and os.access(path, os.W_OK)
        if ours and not own.is_symlink():
            yield own
    with suppress(ValueError):  # no home
        yield own_folder("XDG_CACHE_HOME", ".cache")


def scratch_folders(path: Path) -> Iterator[Path]:
    """Yield the folders where files may lie as long as what lies at a path is worked on, the one with most room first.

    The places of entries, which are made if they are not there, and that of temporary files.
    """
    room: dict[Path, int] = {}
    for folder in (*_folders(path), Path(tempfile.gettempdir())):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            room[folder] = shutil.disk_usage(folder).free
    yield from sorted(room, key=lambda folder: -room[folder])


def _limit() -> int:
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)([KMGT]?)", os.environ.get(_SIZE, "").strip().upper())
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " ")) if found else _USUAL_SIZE
