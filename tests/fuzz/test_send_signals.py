"""A few signals at random moments (``make signals`` sends more), and an engine that waits in C while it is recorded."""

from __future__ import annotations

import importlib.util
import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch (pip install '.[dev]')", allow_module_level=True)

from send_signals import KINDS, Pair, kind_of

#: A seed of every kind of program.
SEEDS = [next(seed for seed in count() if kind_of(seed) == kind) for kind in KINDS]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as at_the_end:
        yield Pair(tmp_path_factory.mktemp("signals"), at_the_end)


@pytest.mark.long
def test_programs_end_as_they_do_alone(pair: Pair) -> None:
    seen: Counter[str] = Counter()
    assert [fault for seed in SEEDS for fault in pair.signalled_once(seed, seen)] == []
    assert set(KINDS) <= set(seen)


@pytest.mark.long
def test_a_spawned_engine_that_waits_in_c_is_ended(pair: Pair) -> None:
    """By its server, with ``terminate()``: a handler of ours in Python would never run."""
    in_the_window = next(seed for seed in count() if random.Random(seed).randrange(100) % 3 == 1)
    ended = [programs.run("spawned", in_the_window) for programs in (pair.alone, pair.mine)]
    assert ended == [(0, f"engine {-signal.SIGTERM}\n", 0)] * 2
    states = [json.loads(file.read_text())["state"] for file in pair.run.status.glob("*.json")]
    assert "recording" in states
