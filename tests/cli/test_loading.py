"""Modules are loaded without a search for garbage, which goes on afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from npuperf.cli.loading import loading


class Ring:
    """An object that only a search for garbage frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_garbage_is_searched_for_again_afterwards() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    later = weakref.ref(Ring())
    gc.collect()
    assert later() is None


def test_a_search_that_was_off_stays_off_and_errors_pass() -> None:
    gc.disable()
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert not gc.isenabled()


def test_after_an_error_garbage_is_searched_for_as_well() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()
