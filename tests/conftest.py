"""Options and places that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite the recorded screens")


@pytest.fixture(scope="session")
def sample() -> Path:
    """The profile that ships with the project."""
    return ROOT / "samples" / "transformer_ascend_pt"
