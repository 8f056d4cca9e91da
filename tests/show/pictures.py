"""Made-up Pictures: what a page draws of a device, by hand and at random, without a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from npuperf.base.messages import say
from npuperf.model.picture import COLOURS, NOTHING_KNOWN, Exact, Fact, Lane, LaneKind, LaneSlices, Picture

US, MS = 1_000, 1_000_000
PARTS = ("compute", "communication", "other", "host_wait", "launch_latency", "dependency_wait", "unattributed")


NUMBERS = ("facts", "launch", "launch_thread", "op", "op_thread", "cube", "vector")


@dataclass(frozen=True)
class S:
    """One slice, by names."""

    start: int
    end: int
    name: str
    colour: str = "compute"
    depth: int = 0
    where: str | None = None
    cause: str | None = None
    called: str | None = None
    facts: int = NOTHING_KNOWN
    launch: int = NOTHING_KNOWN
    launch_thread: int = NOTHING_KNOWN
    op: int = NOTHING_KNOWN
    op_thread: int = NOTHING_KNOWN
    cube: int = NOTHING_KNOWN
    vector: int = NOTHING_KNOWN


def slices(rows: Sequence[S], names: list[str]) -> LaneSlices:
    """Return rows as columns; names that are not yet there are added to ``names``."""

    def place(name: str | None) -> int:
        if name is None:
            return NOTHING_KNOWN
        if name not in names:
            names.append(name)
        return names.index(name)

    def column(values: Sequence[int]) -> np.ndarray:
        return np.array(values, np.int64)

    return LaneSlices(
        start=column([r.start for r in rows]),
        end=column([r.end for r in rows]),
        depth=column([r.depth for r in rows]),
        colour=np.array([COLOURS.index(r.colour) for r in rows], np.uint8),
        **{name: column([place(getattr(r, name)) for r in rows]) for name in ("name", "called", "where", "cause")},
        **{name: column([getattr(r, name) for r in rows]) for name in NUMBERS},
    )


def shares(rows: Sequence[S], span: int, buckets: int) -> dict[str, np.ndarray]:
    """Return what part of each bucket is of which colour; overlapping rows (depths) count once each."""
    found: dict[str, np.ndarray] = {}
    for row in rows:
        if row.depth:
            continue
        column = found.setdefault(row.colour, np.zeros(buckets))
        for b in range(row.start * buckets // span, min(buckets, -(-row.end * buckets // span))):
            low, high = b * span / buckets, (b + 1) * span / buckets
            column[b] += max(0.0, min(row.end, high) - max(row.start, low)) / (high - low)
    return {colour: np.round(255 * np.minimum(column, 1)).astype(np.uint8) for colour, column in found.items()}


def lane(
    kind: LaneKind, title: str, rows: Sequence[S], names: list[str], span: int, exact: Sequence[Exact], buckets: int
) -> Lane:
    """Return a lane of which the rows inside of the exact stretches are kept as slices."""
    inside = [r for r in rows if any(e.start <= r.start and r.end <= e.end for e in exact)]
    cut = tuple(0 for _ in exact)
    return Lane(kind, say("{name}", name=title), shares(rows, span, buckets), slices(inside, names), cut=cut)


#: A step of the small picture, after its start: host 0–100 us, kernels 40–200 us, a wait between them.
STEP = 250 * US
THREAD = 4711
FACTS: tuple[dict[Fact, str], ...] = ({"inputs": "64,128 BF16 ND; 128,32 BF16 ND", "operator": "aten::matmul"},)
STEPS = 16
HOSTILE = '<img src=x onerror="document.title=1">\u202egnp.exe\x00\x1b[31m'


def small(rank: int | None = None, slower: int = 0, buckets: int = 512, at: int = 0) -> Picture:
    """Return 16 steps of 250 us (and ``slower`` more each) of which the third and the ninth are exact.

    Per step, after its start: ``MatMulV2`` 40–120 us, ``Softmax`` 130–170 us, all-reduce 170–200 us; the device waits
    for the host 0–40 us (``aten::matmul``, train.py:12) and 120–130 us (launch latency), and ``slower`` at the end.
    """
    step = STEP + slower
    span = STEPS * step
    exact = tuple(
        Exact(n * step, (n + 1) * step, n, why, cut, typical=n == 8)
        for n, cut, why in ((2, 0, say("the longest step")), (8, 3, say("a typical step")))
    )
    parts: list[S] = []
    waits: list[S] = []
    main: list[S] = []
    other: list[S] = []
    host: list[S] = []
    cores: list[S] = []
    for n in range(STEPS):
        o = n * step
        by = {"launch_thread": THREAD, "op_thread": THREAD}
        matmul = S(o + 40 * US, o + 120 * US, "MatMulV2", launch=o + 20 * US, cube=20, vector=0, where="train.py:12",
                   called="aclnnMatmul_1", facts=0, op=o + 10 * US, **by)  # fmt: skip
        softmax = S(o + 130 * US, o + 170 * US, "Softmax", launch=o + 60 * US, cube=0, vector=40, op=o + 50 * US, **by)
        reduce = S(o + 170 * US, o + 200 * US, "hcom_allReduce_", "communication", launch=o + 80 * US,
                   launch_thread=THREAD)  # fmt: skip
        main += [matmul, softmax]
        other += [reduce]
        parts += [
            S(o, o + 40 * US, "host wait", "host_wait"),
            S(o + 40 * US, o + 120 * US, "compute", "compute"),
            S(o + 120 * US, o + 130 * US, "launch latency", "launch_latency"),
            S(o + 130 * US, o + 170 * US, "compute", "compute"),
            S(o + 170 * US, o + 200 * US, "communication", "communication"),
            S(o + 200 * US, o + step, "dependency wait", "dependency_wait"),
        ]
        waits += [S(o, o + 40 * US, "aten::matmul", "host_wait", where="train.py:12", cause="Python or torch operator")]
        host += [
            S(o, o + 100 * US, "ProfilerStep#" + str(n), "host_op"),
            S(o + 10 * US, o + 30 * US, "aten::matmul", "host_op", 1, where="train.py:12"),
            S(o + 50 * US, o + 70 * US, "aten::softmax", "host_op", 1),
            S(o + 72 * US, o + 90 * US, HOSTILE, "host_sync", 1, where="x.py:<script>alert(1)</script>"),
        ]
        cores += [S(matmul.start, matmul.end, "MatMulV2", "cube", cube=20, vector=0)]
        cores += [S(softmax.start, softmax.end, "Softmax", "vector", cube=0, vector=40)]
    names: list[str] = []
    made = [
        lane("parts", "time", parts, names, span, exact, buckets),
        lane("waits", "waits", waits, names, span, exact, buckets),
        lane("stream", "stream 7", main, names, span, exact, buckets),
        lane("stream", "stream 12", other, names, span, exact, buckets),
        replace(lane("host", "host thread 4711", host, names, span, exact, buckets), thread=THREAD),
        lane("cores", "cores", cores, names, span, exact, buckets),
    ]
    places = {("operator", "OnlyOnce"): (11 * step + 40 * US, 11 * step + 120 * US)}
    places |= {("step", str(n)): (n * step, (n + 1) * step) for n in range(STEPS)}
    origin = 1_700_000_000_000_000_000 + 7 * US * (rank or 0)
    return Picture(rank, 0, "worker", origin, span, tuple(made), tuple(names), exact, places, at, facts=FACTS)


def random_picture(seed: int, count: int = 24_000, lanes: int = 20, buckets: int = 8192, days: int = 3) -> Picture:
    """Return a large picture that hardly compresses: everything in it is drawn at random, over days."""
    rng = np.random.default_rng(seed)
    span = days * 24 * 3600 * 10**9 + 12_345_678_901
    names = tuple(f"{kind}_{rng.integers(10**9)}" for kind in rng.choice(["MatMul", "aten::op", "hcom"], 600))
    step = 300 * MS
    exact = tuple(Exact(s, s + step, 7 * i, say("a typical step")) for i, s in enumerate((span // 3, span // 2)))
    per = count // lanes
    made = []
    for i in range(lanes):
        kind: LaneKind = ("parts", "waits", "cores", "host", "host")[i] if i < 5 else "stream"  # type: ignore[assignment]
        colours = {
            "parts": PARTS,
            "cores": ("cube", "vector"),
            "waits": ("host_wait",),
            "host": ("host_op", "host_sync"),
        }
        own = colours.get(kind, ("compute", "communication") if i % 2 else ("compute",))
        kept = rng.integers(0, 255 // len(own) + 1, (len(own), buckets)).astype(np.uint8)
        found = _random_slices(rng, exact, per, own, len(names), kind)
        made.append(Lane(kind, say("{name}", name=f"{kind} {i}"), dict(zip(own, kept, strict=True)), found, cut=(0, 0)))
    places = {
        ("operator", name): (int(s), int(s) + 1000)
        for name, s in zip(names[:400], rng.integers(0, span, 400), strict=True)
    }
    places |= {("step", str(n)): (int(span * n / 200), int(span * (n + 1) / 200)) for n in range(200)}
    return Picture(0, 0, "", 1_700_000_000_000_000_000, span, tuple(made), names, exact, places)


def _random_slices(
    rng: np.random.Generator, exact: tuple[Exact, ...], n: int, own: Sequence[str], names: int, kind: str
) -> LaneSlices:
    """Return ``n`` slices that do not overlap, evenly over the exact stretches."""
    starts, ends = [], []
    for stretch in exact:
        borders = stretch.start + np.sort(rng.choice(stretch.end - stretch.start, n // len(exact) * 2, replace=False))
        starts.append(borders[::2])
        ends.append(borders[1::2])
    start, end = np.concatenate(starts).astype(np.int64), np.concatenate(ends).astype(np.int64)
    size = len(start)
    nothing = np.full(size, NOTHING_KNOWN, np.int64)
    tasks = kind == "stream"
    return LaneSlices(
        start=start,
        end=end,
        depth=rng.integers(0, 3, size) if kind == "host" else np.zeros(size, np.int64),
        colour=rng.choice([COLOURS.index(c) for c in own], size).astype(np.uint8),
        name=rng.integers(0, names, size),
        where=rng.integers(-1, names, size) if kind in ("waits", "host") else nothing,
        cause=rng.integers(0, 9, size) if kind == "waits" else nothing,
        called=nothing,
        facts=nothing,
        launch=start - rng.integers(1_000, 10_000_000, size) if tasks else nothing,
        launch_thread=nothing,
        op=nothing,
        op_thread=nothing,
        cube=rng.integers(0, 25, size) if tasks or kind == "cores" else nothing,
        vector=rng.integers(0, 49, size) if tasks or kind == "cores" else nothing,
    )
