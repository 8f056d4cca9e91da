"""Work for a second thread: done once, by whoever comes first, and never where it would cost more than it saves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from build import analyze_path

from npuperf import aside as room
from npuperf.aside import Aside, second_thread

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
MANY = 1 << 20
R = TypeVar("R")


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "spare_cores", lambda: 1)


def me() -> threading.Thread:
    return threading.current_thread()


def test_a_second_thread_does_it_meanwhile() -> None:
    with second_thread(MANY) as aside:
        assert aside(me)() is not me()


def test_without_a_second_thread_it_is_done_at_once() -> None:
    done: list[int] = []
    asked = [Aside()(lambda i=i: done.append(i)) for i in range(3)]  # type: ignore[misc]
    assert done == [0, 1, 2]
    assert [one() for one in reversed(asked)] == [None] * 3 and done == [0, 1, 2]


def test_who_needs_it_first_does_what_nobody_has_begun() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def long() -> threading.Thread:
        begun.set()
        assert go_on.wait(30)
        return me()

    with second_thread(MANY) as aside:
        first, second = aside(long), aside(me)
        assert begun.wait(30)
        assert second() is me()
        go_on.set()
        assert first() is not me()


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    with second_thread(MANY) as aside, pytest.raises(ZeroDivisionError):
        aside(lambda: 1 // 0)()


def test_after_an_error_nothing_more_is_begun() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), list[int]()

    def long() -> None:
        begun.set()
        assert go_on.wait(30)
        done.append(1)

    with pytest.raises(ValueError, match="of ours"), ExitStack() as after, second_thread(MANY) as aside:
        after.callback(lambda: done.append(3))
        aside(long)
        aside(lambda: done.append(2))
        assert begun.wait(30)
        threading.Timer(0.1, go_on.set).start()
        raise ValueError("of ours")
    assert done == [1, 3]  # what was begun has ended when we go on


@pytest.mark.parametrize("why", ["few rows", "no core", "short of memory"])
def test_everything_is_done_by_one_thread_where_two_would_not_help(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "spare_cores", lambda: int(why != "no core"))
    monkeypatch.setattr(room, "spilling", lambda: why == "short of memory")
    with second_thread(10 if why == "few rows" else MANY) as aside:
        assert aside(me)() is me()


@pytest.mark.parametrize("sample", ["transformer_ascend_pt", "micro_batch_ascend_pt"])
def test_two_threads_say_the_same_as_one(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = analyze_path(SAMPLES / sample)
    helped: list[threading.Thread] = []

    class Noted(Aside):
        def __call__(self, work: Callable[[], R]) -> Callable[[], R]:
            def noted() -> R:
                helped.append(me())
                return work()

            return super().__call__(noted)

    monkeypatch.setattr(room, "Aside", Noted)
    monkeypatch.setattr(room, "_WORTH", 0)
    assert analyze_path(SAMPLES / sample) == alone
    assert len(helped) >= 4 and me() is not helped[0]
