"""What an answer depends on, as one key: the files with samples of their content, the question, and who answers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from npuperf import __version__
from npuperf.errors import InputError
from npuperf.files import open_input

if TYPE_CHECKING:
    import hashlib

#: Files up to this many bytes are read whole; of others head and tail, and samples evenly in between.
_WHOLE: Final = 256 << 10
_END: Final = 64 << 10
_SAMPLES, _SAMPLE = 16, 4 << 10
#: What changed within this time (ns) may change again without looking different: such files are not yet done.
_FRESH: Final = 2_000_000_000
#: Libraries that read and compute.
_LIBRARIES: Final = ("numpy", "pyarrow", "adbc-driver-sqlite", "msgspec", "PyYAML")
_PACKAGE: Final = Path(__file__).resolve().parent.parent


class EntryKey(Struct, frozen=True):
    """``root``: the path that it is about, real and absolute; ``digest`` of everything that an answer depends on."""

    root: str
    digest: str

    @classmethod
    def of(cls, root: Path, files: Iterable[Path], *question: object) -> EntryKey | None:
        """Return the key, or None where files cannot be told from others: unreadable, special, or still written.

        ``question``: whatever else the answer depends on, each with a ``repr`` that says all of it.
        """
        try:
            prints = [_fingerprint(file) for file in sorted(set(files))]
        except (InputError, ValueError):
            return None
        what = repr((_answerer(), prints, question))
        digest = _sha256(what.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(os.path.realpath(root), digest)


def paths_of(found: Any) -> Iterator[Path]:
    """Yield every file that a struct names in its fields, and what a database's writer left beside it.

    ``root`` is what it is called by.
    """
    for name in found.__struct_fields__:
        value = getattr(found, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Path) and name != "root":
                yield item
                yield from (log for log in _logs(item) if log.is_file())


def _logs(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")] if path.suffix == ".db" else []


def _sha256(begin: bytes = b"") -> hashlib._Hash:
    import hashlib  # a small recording has no key

    return hashlib.sha256(begin)


def _fingerprint(path: Path) -> tuple[str, int, int, str]:
    """Return where a file is, its size, the time of its last change (ns), and a hash of samples."""
    with open_input(path) as file:
        found = os.fstat(file.fileno())
        if found.st_mtime_ns > time.time_ns() - _FRESH:
            raise ValueError(f"{path}: not a file that stays as it is")
        seen = _sha256()
        for start, size in _samples(found.st_size):
            seen.update(os.pread(file.fileno(), size, start))
    return str(path.absolute()), found.st_size, found.st_mtime_ns, seen.hexdigest()


def _samples(size: int) -> Iterator[tuple[int, int]]:
    """Yield start and size of what is read of a file."""
    if size <= _WHOLE:
        yield 0, size
        return
    yield 0, _END
    for at in range(1, _SAMPLES + 1):
        yield at * size // (_SAMPLES + 1), _SAMPLE
    yield size - _END, _END


@lru_cache(maxsize=1)
def _answerer() -> tuple[object, ...]:
    """Return who answers: npuperf, to the state of its own files, and what it runs on."""
    return (__version__, _state(), sys.version, tuple(map(_version, _LIBRARIES)))


def _state() -> str:
    """Hash path, size and time of change of the package's own files, so that who edits them sees no stale answer."""
    seen = _sha256()
    for folder, folders, names in os.walk(_PACKAGE):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = os.path.join(folder, name)  # noqa: PTH118 - hundreds of files, on every start
            found = os.stat(path)  # noqa: PTH116
            seen.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return seen.hexdigest()


def _version(library: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""
