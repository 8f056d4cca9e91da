"""A chip whose streams compete for cores: an own scheduler, which shares nothing with npuperf.

    python tests/streams.py OUT        writes the sample of two micro-batches in a static graph

Streams run in order; a kernel begins once it is launched, its stream is free, what it waits for has ended, and all the
cores it wants are free. Without limits this makes measured profiles; with limits, and with work that divides over
fewer cores or does not, it makes the truth that predictions are held against.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from build import H, K, ascend_pt

LAUNCH, LATENCY, GAP = 1_000, 5_000, 500
Divide = Callable[[int, int, int], float]
Limits = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Work:
    """A kernel: its stream, how long it takes with all cores (ns), its blocks; launched when, after which other."""

    stream: int
    dur: int
    cube: int = 0
    vector: int = 0
    type: str = ""
    launch: int | None = None
    after: int | None = None
    step: int | str = ""

    def core(self) -> str:
        if self.cube and self.vector:
            return "MIX_AIC"
        return "AI_CORE" if self.cube else "AI_VECTOR_CORE"


def divided(block: int, chip: int, limit: int) -> float:
    """Perfectly divisible work: the fewer cores, the longer."""
    return max(min(block, chip) / limit, 1.0)


def in_waves(block: int, chip: int, limit: int) -> float:
    """The blocks stay and run in more waves."""
    return math.ceil(block / limit) / math.ceil(block / chip)


def least(block: int, chip: int, limit: int) -> float:
    return min(divided(block, chip, limit), in_waves(block, chip, limit))


def most(block: int, chip: int, limit: int) -> float:
    return max(divided(block, chip, limit), in_waves(block, chip, limit))


def schedule(
    work: Sequence[Work], chip: tuple[int, int], limits: Limits | None = None, model: Divide = divided
) -> list[tuple[int, int]]:
    """Return start and end of each kernel; unless it says otherwise kernel i is launched at i · LAUNCH."""
    times: list[tuple[int, int]] = [(0, -1)] * len(work)
    queues = {s: [i for i, w in enumerate(work) if w.stream == s] for s in {w.stream for w in work}}
    free_at = dict.fromkeys(queues, -GAP)
    running: list[tuple[int, tuple[int, int]]] = []  # until when, on how many cores
    now = 0
    while any(queues.values()):
        running = [r for r in running if r[0] > now]
        ready: dict[int, int] = {}
        for s, queue in queues.items():
            if queue and (work[queue[0]].after is None or times[work[queue[0]].after][1] >= 0):  # type: ignore[index]
                w, i = work[queue[0]], queue[0]
                event = GAP + times[w.after][1] if w.after is not None else 0
                ready[s] = max((i * LAUNCH if w.launch is None else w.launch) + LATENCY, free_at[s] + GAP, event)
        for s in sorted((s for s in ready if ready[s] <= now), key=lambda s: (ready[s], s)):
            i = queues[s][0]
            w, limit = work[i], (limits or {}).get(s, chip)
            wanted = (w.cube, w.vector)
            cores = tuple(min(b, most_) for b, most_ in zip(wanted, limit, strict=True))
            if all(sum(c[side] for _, c in running) + cores[side] <= chip[side] for side in (0, 1)):
                queues[s].pop(0)
                slower = max(model(b, c, cap) for b, c, cap in zip(wanted, chip, limit, strict=True) if b)
                times[i] = (now, now + round(w.dur * slower))
                free_at[s] = times[i][1]
                running.append((times[i][1], (cores[0], cores[1])))
        now = min((t for t in (*(r[0] for r in running), *ready.values()) if t > now), default=now + 1)
    return times


def span(times: list[tuple[int, int]]) -> int:
    return max(e for _, e in times) - min(s for s, _ in times)


def kernels_of(
    work: Sequence[Work], times: list[tuple[int, int]], *, names: str = "aclnn", launched: bool = True
) -> list[K]:
    """The kernels as a profile shows them; ``launched``: each with a launch of its own."""
    return [
        K(
            start,
            end - start,
            f"{names}{w.type or f'Op{w.stream}'}_{i}",
            w.type or f"Op{w.stream}",
            w.core(),
            w.stream,
            w.cube or w.vector,
            w.vector if w.cube else 0,
            w.step,
            (i * LAUNCH if w.launch is None else w.launch) if launched else None,
        )
        for i, (w, (start, end)) in enumerate(zip(work, times, strict=True))
    ]


CHIP = (24, 48)
MAIN, SIDE = 3, 9


def micro_batches(steps: int = 3, layers: int = 4) -> list[Work]:
    """A decode step of two micro-batches: attention of one beside the experts of the other; they meet at the end.

    The host is far ahead; a step's graph begins on both streams when the one before has ended.
    """
    work: list[Work] = []
    for step in range(steps):
        join = len(work) - 1 if work else None
        for layer in range(layers):
            for stream, us, cube, vector, type_ in (
                (MAIN, 8.2, 0, 32, "AddRmsNorm"),
                (MAIN, 31.5, 16, 0, "MatMulV3"),
                (MAIN, 92.4, 16, 32, "FusedInferAttentionScore"),
                (MAIN, 28.7, 16, 0, "MatMulV3"),
                (MAIN, 9.1, 0, 16, "MoeGatingTopK"),
                (SIDE, 24.6, 24, 0, "GroupedMatmul"),
                (SIDE, 6.3, 0, 48, "SwiGlu"),
                (SIDE, 15.8, 24, 0, "GroupedMatmul"),
            ):
                first = layer == 0 and type_ in ("AddRmsNorm", "GroupedMatmul")
                after = join if first else None
                work.append(Work(stream, round(us * 1_000), cube, vector, type_, step * 50_000, after, step + 20))
        work.append(Work(MAIN, 6_000, 0, 32, "Add", step * 50_000, len(work) - 1, step + 20))
    return work


def write_sample(out: Path) -> Path:
    """Write the sample: kernels of a static graph, which has one launch per step, with its event waits."""
    work = micro_batches()
    times = schedule(work, CHIP)
    kernels = kernels_of(work, times, names="", launched=False)
    waits = []
    for i, w in enumerate(work):
        if w.after is not None and work[w.after].stream != w.stream:
            earlier = [times[j][1] for j in range(i) if work[j].stream == w.stream]
            begin, event = max(earlier) + 100, times[w.after][1]
            waits.append(K(begin, max(event - begin, 50), "EVENT_WAIT", "EVENT_WAIT", "EVENT_WAIT", w.stream, 0))
    host, steps = [], {}
    for step in sorted({int(w.step) for w in work}):
        mine = [i for i, w in enumerate(work) if w.step == step]
        launch = work[mine[0]].launch or 0
        host.append(H("AscendCL@aclmdlExecuteAsync", launch - 40_000, 40_000))
        steps[step] = (launch - 50_000, launch)
    made = ascend_pt(out / "made", [*kernels, *waits], steps, cores="24,48", host=host)
    target = out / "micro_batch_ascend_pt"
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(made, target)
    shutil.rmtree(out / "made")
    return target


if __name__ == "__main__":
    print(write_sample(Path(sys.argv[1])))
