"""Files of pages: whether one is ours, and may be written over."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from npuperf.files import open_input

#: How much of a file is read to see whether it is a page of ours, and what such a page says of itself.
_HEAD: Final = 1 << 10
_OURS: Final = b'<meta name="generator" content="npuperf'


def is_page(path: Path) -> bool:
    """Tell whether a file is a page that npuperf wrote. Raises InputError where it is none, or cannot be read."""
    with open_input(path) as file:
        return _OURS in file.read(_HEAD)
