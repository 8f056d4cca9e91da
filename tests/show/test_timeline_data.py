"""How the timeline finds slices, in a JavaScript engine without a page: against a search through all of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

import npuperf.show

SCRIPT = Path(npuperf.show.__file__).parent / "assets" / "timeline_data.js"
ASK = """
for (const { packed, times, stretches } of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
  const slices = new TimelineSlices(packed);
  console.log(JSON.stringify({
    nearest: times.map((time) => slices.nearest(time)),
    at: times.map((time) => [0, 1, 2].map((depth) => slices.at(time, depth))),
    range: stretches.map(([start, end]) => slices.range(start, end)),
  }));
}
"""


def answers(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    driver = pytest.importorskip("playwright._impl._driver")
    node = driver.compute_driver_executable()[0]
    ran = subprocess.run(
        [node, "-e", SCRIPT.read_text("utf-8") + ASK],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_slices_are_found_as_by_looking_at_each() -> None:
    """Slices in each other, side by side, of no length, that begin together; times at their ends and between them."""
    chance, asked, expected = Random(1), [], []
    for count in [0, 1, *chance.choices(range(2, 12), k=60)]:
        start = sorted(chance.randrange(20) for _ in range(count))
        end = [begin + chance.choice([0, 1, 3, 15]) for begin in start]
        depth = [chance.randrange(3) for _ in start]
        steps = [b - a for a, b in zip([0, *start], start, strict=False)]
        lengths = [b - a for a, b in zip(start, end, strict=True)]
        times = [t / 2 for t in range(-2, 50)]
        stretches = [sorted(chance.choices(times, k=2)) for _ in range(20)]
        every = range(count)
        asked.append({
            "packed": {"start": steps, "length": lengths, "depth": depth}, "times": times, "stretches": stretches,
        })  # fmt: skip
        expected.append({
            "nearest": [min(abs(t - s) for s in start) if start else None for t in times],
            "at": [[max((i for i in every if depth[i] == d and start[i] <= t < end[i]), default=-1) for d in range(3)]
                   for t in times],
            "range": [[next((i for i in every if end[i] > a), count), sum(s <= b for s in start)]
                      for a, b in stretches],
        })  # fmt: skip
        asked[-1]["start"] = start
    for ask, told, known in zip(asked, answers(asked), expected, strict=True):
        start = ask["start"]
        told["nearest"] = [
            abs(t - start[i]) if i >= 0 else None for t, i in zip(ask["times"], told["nearest"], strict=True)
        ]
        assert told == known, ask
