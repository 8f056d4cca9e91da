"""The loop in which npuperf is killed at random moments, for every verb that runs for long."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator

#: Tries one seed, counts what it has seen, and yields what went wrong.
Attempt = Callable[[int, "Counter[str]"], Iterator[str]]


def try_moments(description: str, attempt: Attempt) -> int:
    """Read from the command line what is asked, try that many seeds, say what went wrong; return the exit status."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    seen: Counter[str] = Counter()
    tried = failures = 0
    try:
        for tried in range(asked.moments):
            for fault in attempt(asked.seed + tried, seen):
                failures += 1
                print(f"FAILED: --seed {asked.seed + tried} --moments 1: {fault}", flush=True)
        tried = asked.moments
    except KeyboardInterrupt:  # enough
        pass
    print(f"{tried} moments, {failures} failures; " + ", ".join(f"{n} {what}" for what, n in seen.items()))
    return 1 if failures else 0
