"""Heat maps as images: where no script runs, and no style is kept."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from npuperf.webpage.matrix import FIRST, LAST, Layer, grouped
from npuperf.webpage.svg import escaped

#: Of more rows several share a line of the image: no more lines are drawn.
MOST_LINES: Final = 128
#: How large an image is about, in pixels, and no cell of it higher than this.
_WIDTH, _HEIGHT, _CELL = 480, 256, 24
#: Colours of nothing, and from the least to the most: as those of ``charts.css`` in light.
_NOTHING, _LOW, _HIGH = (255, 255, 255), (0xDF, 0xEA, 0xFA), (0x0A, 0x2F, 0x66)
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
#: Of PNG: eight bits are the number of a colour; a line may be given as its difference from the one above.
_INDEXED, _UP = 3, 2


def heat_image(layer: Layer, columns: int, said: str) -> Markup:
    """Return a layer of a matrix as an image; ``said``: what it shows, for those who do not see it."""
    lines = lines_of_codes(layer.codes, columns)
    high = min(max(_HEIGHT // len(lines), 1), _CELL)
    return _image(lines, max(_WIDTH // columns, 1), high, "heat", said)


def ramp() -> Markup:
    """Return the colours from the least to the most."""
    return _image([bytes(range(FIRST, LAST + 1, 2))], 1, 10, "ramp", "")


def lines_of_codes(codes: bytes, columns: int) -> list[bytes]:
    """Return the lines of an image: of rows that share one, the most in every column."""
    rows = [codes[at : at + columns] for at in range(0, len(codes), columns)]
    return [bytes(map(max, *rows[low:high], bytes(columns))) for low, high in grouped(len(rows), MOST_LINES).bounds]


def _image(lines: Sequence[bytes], wide: int, high: int, class_: str, said: str) -> Markup:
    data = b64encode(png(lines, wide, high)).decode("ascii")
    return Markup('<img src="data:image/png;base64,{}" alt="{}" class="{}" width="{}" height="{}">').format(
        data, escaped(said), class_, wide * len(lines[0]), high * len(lines)
    )


def png(lines: Sequence[bytes], wide: int, high: int) -> bytes:
    """Return codes of cells as an image, each so many pixels wide and high; what is not known is transparent."""
    width, height = wide * len(lines[0]), high * len(lines)
    pixels = (b"".join(bytes((code,)) * wide for code in line) for line in lines)
    again = bytes((_UP, *bytes(width))) * (high - 1)
    content = b"".join(b"\0" + line + again for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, _INDEXED, 0, 0, 0)
    chunks = (
        (b"IHDR", head),
        (b"PLTE", _colours()),
        (b"tRNS", b"\0"),
        (b"IDAT", zlib.compress(content, 9)),
        (b"IEND", b""),
    )
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _colours() -> bytes:
    """Return the colours of codes: not known, nothing, and then from the least to the most."""
    part = [(code - FIRST) / (LAST - FIRST) for code in range(FIRST, LAST + 1)]
    shades = (round(low + (high - low) * p) for p in part for low, high in zip(_LOW, _HIGH, strict=True))
    return bytes((*_NOTHING, *_NOTHING, *shades))
