"""Small programs whose pace is known, and what their analysis says of them."""

from __future__ import annotations

from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from build import H, K
from msgspec.structs import replace

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.messages import Message, Series
from npuperf.model.result import Finding, Result


def analyzed(path: Path, **asked: Any) -> Result:
    return run(AnalyzeRequest(path=path, **asked))


def answer(path: Path | Result, rule: str) -> Finding:
    result = path if isinstance(path, Result) else analyzed(path)
    (found,) = [f for f in result.findings if f.rule == rule]
    return found


def problem(path: Path | Result, rule: str) -> Finding:
    """The problem that a rule finds on the only device, with everything a reader needs."""
    result = path if isinstance(path, Result) else analyzed(path)
    found = answer(result, rule)
    assert_complete(found, step_length(result))
    return found


def busy(count: int = 100, **more: object) -> list[K]:
    """Device-bound: kernels of 100 µs back to back, all launched long before; steps 11 and 12."""
    made = [K(i * 100_000, 100_000, f"k{i}", "MatMulV2", "AI_CORE", block=24, launch=i * 5_000 - 500_000,
              launch_dur=2_000, step=11 + 2 * i // count) for i in range(count)]  # fmt: skip
    return [replace(k, **more) for k in made]  # type: ignore[arg-type]


def starved(count: int = 100, **more: object) -> list[K]:
    """Host-bound: kernels of 6 µs every 40 µs, 8 µs after their launch returns; steps 11 and 12.

    Between two kernels the device waits 26 µs for the host (40 - 6 - 8).
    """
    made = [K(i * 40_000, 6_000, f"k{i}", "Add", launch=i * 40_000 - 10_000, launch_dur=2_000,
              step=11 + 2 * i // count) for i in range(count)]  # fmt: skip
    return [replace(k, **more) for k in made]  # type: ignore[arg-type]


WAIT = 26_000  # of the host, before each kernel of starved() but the first


def beside(kernels: list[K], dur: int, **more: object) -> K:
    """One more kernel, 1 µs after everything, that nothing hides."""
    end = max(k.start + k.dur for k in kernels)
    return replace(K(end + 1_000, dur, "extra", launch=end - 300_000, step=12), **more)  # type: ignore[arg-type]


def assert_complete(found: Finding, window_ns: int) -> None:
    """A problem carries everything a reader needs to act and to doubt."""
    assert found.status == "problem"
    assert found.title and found.next and found.refute and found.source and found.evidence and found.preconditions
    assert found.needs is None
    for message in (found.title, found.next, found.refute, found.source):
        assert_whole(message)
    if found.gain_ns_per_step:
        low, high = found.gain_ns_per_step
        assert 0 <= low <= high <= window_ns
        assert found.gain_pct == pytest.approx((100 * low / window_ns, 100 * high / window_ns), rel=1e-6)


def assert_whole(message: Message) -> None:
    """Every parameter has its place in the sentence, and every place its parameter, in those within it, too."""
    sentences = [message.id] if message.plural is None else [message.id, message.plural]
    assert set().union(*map(placeholders, sentences)) == set(message.parameters)
    for value in message.parameters.values():
        for inner in value.items if isinstance(value, Series) else [value]:
            if isinstance(inner, Message):
                assert_whole(inner)


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


def step_length(result: Result) -> int:
    (device,) = result.devices
    return device.partition.span_ns // max(len(device.steps), 1)


def steps_of(found: Finding) -> str:
    """All that a finding advises, the best first."""
    return "; ".join(str(step) for step in (found.next, *found.alternatives))


def batches(op: str, queued: str | None = None) -> tuple[list[K], list[H]]:
    """20 batches: 5 launches in 50 µs, 5 kernels of 40 µs, then a wait in ``op``, back 6 µs after the last of them.

    Each wait costs 24 µs of idle time: 6 to return, 10 to launch, 8 of latency.
    """
    kernels, host, clock, free = [], [], 0, -10_000
    for n in range(20):
        for i in range(5):
            clock += 10_000
            start = max(clock + 8_000, free)
            free = start + 40_000
            kernels.append(K(start, 40_000, f"k{n}_{i}", launch=clock - 2_000, launch_dur=2_000, step=11 + n // 10))
        host.append(H("train.py(41): step", clock + 500, free + 7_000 - clock - 500, python=True))
        host.append(H(op, clock + 1_000, free + 6_500 - clock - 1_000, python=True))
        if queued:
            host.append(H(queued, clock + 1_100, 500, python=True))
        host.append(H("AscendCL@aclrtSynchronizeStream", clock + 2_000, free + 6_000 - clock - 2_000))
        clock = free + 6_000
    return kernels, host
