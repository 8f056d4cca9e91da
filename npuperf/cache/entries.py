"""Entries of a cache: one file each, whole or not there, signed, and the oldest ones gone when there is no more room.

    entry = "npuperf cache 1\n" signature line-of-JSON pieces

The line says what the entry is about (``root``), under which key it lies, and how long each piece is. The signature is
over it and all pieces, so that neither what is in an entry nor what it answers can be exchanged. Nobody depends on a
cache: what cannot be read is not there, what cannot be written is not written, and neither is said.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from npuperf.cache.codec import pack, unpack
from npuperf.cache.fingerprint import EntryKey
from npuperf.cache.owner import secret

T = TypeVar("T")

_MAGIC: Final = b"npuperf cache 1\n"
_DIGEST: Final = "sha256"
#: Bytes before the line.
_HEAD: Final = len(_MAGIC) + 32
#: Beyond this a line is none of ours.
_LINE: Final = 64 << 10
_ENTRY: Final = re.compile(r"[0-9a-f]{64}\.entry")
_BEGUN: Final = ".begun-"
#: After this many seconds nobody writes an entry any more that was begun.
_LEFT_BEHIND: Final = 3600


class Cache(Struct, frozen=True):
    """A folder of entries; together they have at most ``limit`` bytes."""

    folder: Path
    limit: int

    def get(self, key: EntryKey, kind: type[T]) -> T | None:
        """Return what was kept under a key, if this user kept it and it is whole."""
        path = self._path(key)
        try:
            value = unpack(_verified(_content(path, self.limit), key))
        except Exception:  # whatever is wrong with an entry, the answer can be found again
            return None
        with suppress(OSError):
            os.utime(path)  # it is not the oldest any more
        return value if isinstance(value, kind) else None

    def put(self, key: EntryKey, value: object) -> None:
        """Keep a value under a key, if that can be."""
        with suppress(Exception):  # an answer is there; that it is not kept must not harm it
            pieces = _signed(pack(value), key)
            if sum(map(len, pieces)) <= self.limit:
                self._write(self._path(key), pieces)
                self._make_room()
                self._tidy()

    def clear(self, root: Path) -> tuple[int, int]:
        """Remove the entries about a path and what lies below it; return how many, and their bytes.

        Those that lie there themselves are, whatever it was called when they were written.
        """
        wanted = os.path.realpath(root)
        every = _is_below(os.path.realpath(self.folder), wanted)
        found = list(self._entries())
        removed = [size for path, size, _ in found if (every or _is_below(_root(path), wanted)) and _remove(path)]
        self._tidy()
        with suppress(OSError):
            self.folder.rmdir()  # if nothing else is there
        return len(removed), sum(removed)

    def _path(self, key: EntryKey) -> Path:
        return self.folder / f"{key.digest}.entry"

    def _write(self, path: Path, pieces: Sequence[bytes | memoryview]) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        begun = None
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=_BEGUN, delete=False) as file:
                begun = Path(file.name)
                for piece in pieces:
                    file.write(piece)
            begun.replace(path)
        except BaseException:
            if begun is not None:
                begun.unlink(missing_ok=True)
            raise

    def _make_room(self) -> None:
        """Remove the entries that were longest not asked for."""
        room = self.limit
        for path, size, _ in sorted(self._entries(), key=lambda entry: -entry[2]):
            room -= size
            if room < 0:
                _remove(path)

    def _tidy(self) -> None:
        """Remove what was begun and never ended."""
        for path in self.folder.glob(f"{_BEGUN}*"):
            with suppress(OSError):
                if path.lstat().st_mtime < time.time() - _LEFT_BEHIND:
                    path.unlink()

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


def _content(path: Path, limit: int) -> memoryview:
    """Read an entry; what is no plain file, or larger than any of ours, is none."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
        raise ValueError(f"{path}: not an entry")
    return memoryview(path.read_bytes())


def _signed(pieces: list[memoryview], key: EntryKey) -> list[bytes | memoryview]:
    line = {"root": key.root, "key": key.digest, "pieces": [piece.nbytes for piece in pieces]}
    head = json.dumps(line).encode() + b"\n"
    return [_MAGIC, _signature((head, *pieces)), head, *pieces]


def _verified(content: memoryview, key: EntryKey) -> list[memoryview]:
    """Return the pieces of an entry. Raises ValueError unless this user wrote it, for this key."""
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
    made = hmac.new(secret(), _MAGIC, _DIGEST)
    for piece in pieces:
        made.update(piece)
    return made.digest()


def _root(path: Path) -> str | None:
    """Return what an entry says it is about; good enough to remove it."""
    try:
        with path.open("rb") as file:
            about, _ = _line(file.read(_HEAD + _LINE)[_HEAD:])
        return str(about["root"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _is_below(root: str | None, folder: str) -> bool:
    return root is not None and (root == folder or root.startswith(folder.rstrip(os.sep) + os.sep))
