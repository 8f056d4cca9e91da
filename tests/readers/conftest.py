"""Both ways of reading a trace, for tests that must hold for either."""

from __future__ import annotations

import pytest
from ways import in_stretches


@pytest.fixture(params=["whole", "stretches"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read traces this way."""
    if request.param == "stretches":
        in_stretches(monkeypatch)
    return str(request.param)
