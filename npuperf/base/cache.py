"""Entries of a cache: one file each, whole or not there, signed, and the oldest ones gone when there is no more room.

    entry = "npuperf cache 1
" signature line-of-JSON pieces

The line says what the entry is about (``root``), under which key it lies, and how long each piece is. The signature is
over it and all pieces, so that neither what is in an entry nor what it answers can be exchanged. Nobody depends on a
cache: what cannot be read is not there, what cannot be written is not written, and neither is said.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from npuperf.base import __version__
from npuperf.base.codec import pack, unpack
from npuperf.base.errors import InputError
from npuperf.base.files import MANIFEST, Walk, begun_in, few, open_input, remove_left, total_bytes
from npuperf.base.messages import Message
from npuperf.base.trust import own_folder, secret

if TYPE_CHECKING:
    import hashlib

# -- What an answer depends on, as one key: the files with samples of their content, the question, and who answers.

#: Files up to this many bytes are read whole; of others head and tail, samples evenly in between, and what the file
#: system changes whenever anything is written, whoever sets the time of that back.
_WHOLE: Final = 16 << 20
_CHUNK: Final = 1 << 20
_END: Final = 64 << 10
_SAMPLES, _SAMPLE = 16, 4 << 10
#: What changed within this time (ns) may change again without looking different: such files are not yet done.
_FRESH: Final = 2_000_000_000
#: Libraries that read and compute.
_LIBRARIES: Final = ("numpy", "pyarrow", "msgspec", "PyYAML")
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
                if item.suffix == ".db":
                    logs = (item.with_name(item.name + suffix) for suffix in ("-wal", "-journal"))
                    yield from (log for log in logs if log.is_file())


def _sha256(begin: bytes = b"") -> hashlib._Hash:
    import hashlib  # a small recording has no key

    return hashlib.sha256(begin)


def _fingerprint(path: Path) -> tuple[object, ...]:
    """Return where a file is, its size, the time of its last change (ns), what tells a large one apart, and a hash."""
    with open_input(path) as file:
        found = os.fstat(file.fileno())
        if found.st_mtime_ns > time.time_ns() - _FRESH:
            raise ValueError(f"{path}: not a file that stays as it is")
        size, seen = found.st_size, _sha256()
        told: tuple[int, ...] = ()
        pieces = [(at, _CHUNK) for at in range(0, size, _CHUNK)]
        if size > _WHOLE:
            samples = [(at * size // (_SAMPLES + 1), _SAMPLE) for at in range(1, _SAMPLES + 1)]
            pieces = [(0, _END), *samples, (size - _END, _END)]
            told = (found.st_ino, found.st_ctime_ns)
        for start, length in pieces:
            file.seek(start)
            seen.update(file.read(length))
    return str(path.absolute()), size, found.st_mtime_ns, *told, seen.hexdigest()


@lru_cache(maxsize=1)
def _answerer() -> tuple[object, ...]:
    """Return who answers: npuperf, to the state of its own files, and what it runs on."""
    from importlib import metadata

    versions = dict.fromkeys(_LIBRARIES, "")
    for library in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions[library] = metadata.version(library)
    return (__version__, _state(), sys.version, tuple(versions.values()))


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


T = TypeVar("T")

_MAGIC: Final = b"npuperf cache 1\n"
_DIGEST: Final = "sha256"
#: Bytes before the line.
_HEAD: Final = len(_MAGIC) + 32
#: Beyond this a line is none of ours.
_LINE: Final = 64 << 10
_ENTRY: Final = re.compile(r"[0-9a-f]{64}\.entry")


class Cache(Struct, frozen=True):
    """A folder of entries; together they have at most ``limit`` bytes."""

    folder: Path
    limit: int

    def get(self, key: EntryKey, kind: type[T]) -> T | None:
        """Return what was kept under a key, if this user kept it and it is whole."""
        path = self._path(key)
        try:
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > self.limit:
                return None  # no plain file, or larger than any of ours
            value = unpack(_verified(memoryview(path.read_bytes()), key))
        except Exception:  # whatever is wrong with an entry, the answer can be found again
            return None
        with suppress(OSError):
            os.utime(path)  # it is not the oldest any more
        return value if isinstance(value, kind) else None

    def put(self, key: EntryKey, value: object) -> None:
        """Keep a value under a key, if that can be."""
        with suppress(Exception):  # an answer is there; that it is not kept must not harm it
            packed = pack(value)
            line = {"root": key.root, "key": key.digest, "pieces": [piece.nbytes for piece in packed]}
            head = json.dumps(line).encode() + b"\n"
            pieces: list[bytes | memoryview] = [_MAGIC, _signature((head, *packed)), head, *packed]
            if sum(map(len, pieces)) <= self.limit:
                self._write(self._path(key), pieces)
                self._make_room()

    def clear(self, root: Path) -> tuple[int, int]:
        """Remove the entries about a path and what lies below it; return how many, and their bytes.

        Those that lie there themselves are, whatever it was called when they were written.
        """
        wanted = os.path.realpath(root)
        every = _is_below(os.path.realpath(self.folder), wanted)
        removed = []
        for path, size, _ in list(self._entries()):
            about = None  # good enough to remove it
            with suppress(OSError, ValueError, LookupError, TypeError), path.open("rb") as file:
                about = str(_line(file.read(_HEAD + _LINE)[_HEAD:])[0]["root"])
            if (every or _is_below(about, wanted)) and _remove(path):
                removed.append(size)
        remove_left(self.folder)
        with suppress(OSError):
            self.folder.rmdir()  # if nothing else is there
        return len(removed), sum(removed)

    def _path(self, key: EntryKey) -> Path:
        return self.folder / f"{key.digest}.entry"

    def _write(self, path: Path, pieces: Sequence[bytes | memoryview]) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with begun_in(self.folder) as (begun, file):
            for piece in pieces:
                file.write(piece)
            file.close()
            begun.replace(path)

    def _make_room(self) -> None:
        """Remove the entries that were longest not asked for."""
        room = self.limit
        for path, size, _ in sorted(self._entries(), key=lambda entry: -entry[2]):
            room -= size
            if room < 0:
                _remove(path)

    def _entries(self) -> Iterator[tuple[Path, int, int]]:
        """Yield path, size and time (ns) of every entry; other files are not ours."""
        with suppress(OSError), os.scandir(self.folder) as found:
            for file in found:
                if _ENTRY.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                    about = file.stat(follow_symlinks=False)
                    yield Path(file.path), about.st_size, about.st_mtime_ns


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:  # somebody else did, or it is not ours
        return False
    return True


def _verified(content: memoryview, key: EntryKey) -> list[memoryview]:
    """Return the pieces of an entry. Raises ValueError unless this user wrote it, for this key."""
    import hmac  # which loads hashlib: a small recording signs nothing

    magic, signature, body = content[: len(_MAGIC)], content[len(_MAGIC) : _HEAD], content[_HEAD:]
    if bytes(magic) != _MAGIC or not hmac.compare_digest(_signature((body,)), signature):
        raise ValueError("not signed by this user")
    about, at = _line(bytes(body[:_LINE]))
    if (about["root"], about["key"]) != (key.root, key.digest):
        raise ValueError("about something else")
    pieces = []
    for size in about["pieces"]:
        pieces.append(body[at : at + size])
        at += size
    return pieces


def _line(body: bytes) -> tuple[Any, int]:
    """Return what the line at the begin of a body says, and where it ends."""
    end = body.index(b"\n") + 1
    return json.loads(body[:end]), end


def _signature(pieces: Iterable[bytes | memoryview]) -> bytes:
    import hmac  # which loads hashlib: a small recording signs nothing

    made = hmac.new(secret(), _MAGIC, _DIGEST)
    for piece in pieces:
        made.update(piece)
    return made.digest()


def _is_below(root: str | None, folder: str) -> bool:
    return root is not None and (root == folder or root.startswith(folder.rstrip(os.sep) + os.sep))


# -- Where entries lie: in the run directory that they are about, else in the user's own folder.

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
    folder = next(_folders(path), None)
    return Cache(folder, _limit()) if folder else None


def clear(path: Path, told: list[Message] | None = None) -> tuple[int, int]:
    """Remove all entries about a path and what lies below it; return how many, and their bytes.

    What lies behind links below it may be somebody else's. ``told`` gets what could not be entered.
    """
    walk = Walk(path, links=False)
    folders = [*_folders(path)]
    untold = []
    try:
        for found in walk:
            if MANIFEST in found.files:
                folders += _folders(found.path)
    except InputError as error:
        if path.exists():  # else there is nothing to clear but entries that still tell of it
            untold.append(error.what)
    if told is not None:
        told += [*untold, *few(walk.told)]
    cleared = [Cache(folder, _limit()).clear(path) for folder in dict.fromkeys(folders)]
    return sum(number for number, _ in cleared), sum(size for _, size in cleared)


def _folders(path: Path) -> Iterator[Path]:
    """Yield the folders that may have entries about a path, the best first."""
    own = path / ".cache"
    with suppress(OSError):
        ours = (path / MANIFEST).is_file() and path.stat().st_uid == os.geteuid() and os.access(path, os.W_OK)
        if ours and not own.is_symlink():
            yield own
    with suppress(ValueError):  # no home
        yield own_folder("XDG_CACHE_HOME", ".cache")


def _limit() -> int:
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)([KMGT]?)", os.environ.get(_SIZE, "").strip().upper())
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " ")) if found else _USUAL_SIZE
