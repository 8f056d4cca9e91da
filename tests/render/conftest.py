"""Documents of every kind, and the place where sample paths are short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from specimens import documents

from npuperf.documents.document import Document


@pytest.fixture(scope="session")
def everything() -> Iterator[dict[str, Document]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).resolve().parents[2])
        yield documents()
