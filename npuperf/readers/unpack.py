"""The bytes of a file: as few of them as tell what it is, or all of them, unpacked on the way."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from npuperf.base.files import open_input
from npuperf.base.messages import Message, say

#: A file's kind and its header show within so many bytes, mostly within the first few.
HEAD_BYTES: Final = 1 << 16
_FEW_BYTES: Final = 1 << 10
_PACKED_BYTES: Final = 1 << 16


def sniff(path: Path, enough: Callable[[bytes], bool]) -> bytes:
    """Return a file's first bytes (unpacked): until they are enough, ``HEAD_BYTES`` or the file ends."""
    head = b""
    with open_unpacked(path) as file:
        while len(head) < HEAD_BYTES and not enough(head) and (block := file.read(_FEW_BYTES)):
            head += block
    return head


class Gunzip:
    """Reads a gzip file piece by piece; of a damaged one it gives everything before the damage."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unpack = zlib.decompressobj(wbits=31)
        self.damage: Message | None = None

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, nothing at the end or at the damage."""
        while self.damage is None:
            left = self._unpack.unconsumed_tail or self._unpack.unused_data
            packed = left or self._file.read(min(size, _PACKED_BYTES))
            if self._unpack.eof:  # another member may follow
                if not packed:
                    return b""
                self._unpack = zlib.decompressobj(wbits=31)
            elif not packed:
                self.damage = say("it ends early")
                return self._unpack.flush()
            before = self._unpack.copy()
            try:
                block = self._unpack.decompress(packed, size)
            except zlib.error as error:
                self.damage = say("{error}", error=str(error))
                return _up_to_damage(before, packed)
            if block:
                return block
        return b""


class Ahead:
    """Reads a packed file one block ahead, on a thread of its own: unpacking needs no interpreter lock."""

    def __init__(self, file: Gunzip, thread: Executor, size: int) -> None:
        self.file = file
        self._ahead = partial(thread.submit, partial(file.read, size))
        self._next = self._ahead()

    def read(self, size: int) -> bytes:
        """Return the next block, whatever its size; nothing at the end or at the damage."""
        block = self._next.result()
        if block:
            self._next = self._ahead()
        return block


@contextlib.contextmanager
def read_ahead(file: BinaryIO | Gunzip, size: int) -> Iterator[BinaryIO | Ahead]:
    """Read blocks of ``size`` bytes of a packed file ahead; what is not packed is read when it is asked for."""
    if not isinstance(file, Gunzip):
        yield file
        return
    with ThreadPoolExecutor(1) as thread:
        yield Ahead(file, thread, size)


def _up_to_damage(unpack: Any, packed: bytes) -> bytes:
    """Decompress byte by byte, to lose nothing that comes before a damaged one."""
    blocks = []
    with contextlib.suppress(zlib.error):
        for i in range(len(packed)):
            blocks.append(unpack.decompress(packed[i : i + 1]))
    return b"".join(blocks)


@contextlib.contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO | Gunzip]:
    """Open a file, and unpack it on the way if it is packed; raises InputError when it cannot be read."""
    with open_input(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield Gunzip(file) if packed else file
