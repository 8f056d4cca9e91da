"""What ships beside the rules as YAML: facts with their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

#: The one in C is ten times as fast; not every PyYAML has it.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_shipped(name: str) -> Any:
    """Read a file of this folder."""
    return yaml.load(Path(__file__).with_name(name).read_text("utf-8"), Loader=_LOADER)
