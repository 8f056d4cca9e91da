"""Core use over time against a count of every nanosecond, and waits for cores by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from build import K, analyze_path, ascend_pt

from npuperf.device.cores import Sweep, cores_over_time
from npuperf.model.chip import Cores
from npuperf.model.labels import Labels
from npuperf.model.result import CoresOverTime, Device
from npuperf.model.tasks import Tasks, Work

CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU")


@dataclass(frozen=True)
class Row:
    start: int
    dur: int
    core: str
    block: int
    mix: int
    stream: int
    type: str

    def side(self, cube: bool) -> int:
        main = ("AI_CORE", "MIX_AIC") if cube else ("AI_VECTOR_CORE", "MIX_AIV")
        other = "MIX_AIV" if cube else "MIX_AIC"
        return max(self.block if self.core in main else self.mix if self.core == other else 0, 0)


def random_rows(seed: int, streams: int = 3, count: int = 40) -> list[Row]:
    source = random.Random(seed)
    clock = dict.fromkeys(range(streams), 0)
    rows = []
    for _ in range(count):
        stream = source.randrange(streams)
        start = clock[stream] + source.choice([0, 0, source.randint(1, 9)])
        dur = source.choice([0, source.randint(1, 25)])
        clock[stream] = start + dur
        core = source.choice(CORES)
        mix = source.randint(0, 12) if core.startswith("MIX") else 0
        rows.append(
            Row(start, dur, core, source.choice([-1, 0, source.randint(1, 20)]), mix, stream, f"T{len(rows) % 4}")
        )
    return sorted(rows, key=lambda r: (r.start, r.start + r.dur))


def tasks_of(rows: list[Row]) -> Tasks:
    start = np.array([r.start for r in rows], np.int64)
    return Tasks.build(
        start,
        start + np.array([r.dur for r in rows], np.int64),
        np.full(len(rows), Work.COMPUTE, np.uint8),
        stream=np.array([r.stream for r in rows], np.int64),
        block=np.array([r.block for r in rows], np.int64),
        mix_block=np.array([r.mix for r in rows], np.int64),
        core=Labels.of([r.core for r in rows]),
        type=Labels.of([r.type for r in rows]),
    ).sorted()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("chip", [(8, 16), (5, 0)])
def test_every_nanosecond_is_counted(seed: int, chip: tuple[int, int]) -> None:
    rows = random_rows(seed)
    whole = (0, max(r.start + r.dur for r in rows))
    span = whole if seed % 2 else (whole[1] // 4, whole[1] // 2)
    sweep = Sweep.of(tasks_of(rows), Cores(*chip, None), span)
    known = [r for r in rows if min(r.side(True), chip[0]) + min(r.side(False), chip[1]) > 0]
    cube, vector = [0] * 5, [0] * 5
    together: dict[tuple[int, ...], int] = {}
    overlap: dict[tuple[int, int], int] = {}
    for t in range(*span):
        now = [r for r in known if r.start <= t < r.start + r.dur]
        if not now:
            continue
        streams = tuple(sorted({r.stream for r in now}))
        together[streams] = together.get(streams, 0) + 1
        for pair in ((a, b) for a in streams for b in streams if a < b):
            overlap[pair] = overlap.get(pair, 0) + 1
        for total, cores, side in ((cube, chip[0], True), (vector, chip[1], False)):
            wanted = sum(min(r.side(side), cores) for r in now)
            total[0] += 1
            total[1] += wanted > 0
            total[2] += wanted >= cores
            total[3] += wanted > cores
            total[4] += min(wanted, cores)
    if not together:
        assert sweep is None
        return
    assert sweep is not None
    use = cores_over_time(sweep)
    for found, expected, cores in ((use.cube, cube, chip[0]), (use.vector, vector, chip[1])):
        if found is None:
            assert not expected[1] or not cores
            continue
        figures = [found.kernel_ns, found.busy_ns, found.full_ns, found.over_ns, found.occupied_core_ns]
        assert figures == expected
        assert found.occupied_core_ns + found.idle_core_ns == cores * found.kernel_ns
    assert {tuple(s.streams): s.ns for s in use.together} == together
    assert {p.streams: p.overlap_ns for p in use.pairs if p.overlap_ns} == overlap
    assert_idle_adds_up(use, chip)


def assert_idle_adds_up(use: CoresOverTime, chip: tuple[int, int]) -> None:
    """What types leave idle, what sets of streams leave idle and what a side has idle are the same core time."""
    kernel_ns = sum(s.ns for s in use.together)
    for name, side, cores in (("cube", use.cube, chip[0]), ("vector", use.vector, chip[1])):
        expected = side.idle_core_ns if side else cores * kernel_ns
        assert sum(getattr(t, f"idle_{name}_core_ns") for t in use.by_type) == expected
        assert sum(getattr(s, f"idle_{name}_core_ns") for s in use.together) == expected


def swept(rows: list[Row], cores: Cores, span: tuple[int, int]) -> Sweep:
    found = Sweep.of(tasks_of(rows), cores, span)
    assert found is not None
    return found


def test_idle_core_time_of_kernels_running_together_is_shared() -> None:
    """10 cubes: A has 4 for 10 ns, B has 2 for the last 6 of them: 6·4 to A alone, 4·6 = 24 shared 12 : 12."""
    rows = [Row(0, 10, "AI_CORE", 4, 0, 0, "A"), Row(4, 6, "AI_CORE", 2, 0, 1, "B")]
    use = cores_over_time(swept(rows, Cores(10, 0, None), (0, 10)))
    assert {t.type: t.idle_cube_core_ns for t in use.by_type} == {"A": 24 + 12, "B": 12}
    assert [(s.streams, s.ns, s.idle_cube_core_ns) for s in use.together] == [([0, 1], 6, 24), ([0], 4, 24)]


def test_the_picture_is_the_mean_of_equal_slices() -> None:
    """32 slices of 2 ns: half of the cores for 16 ns, all for 16 ns, nothing for 31 ns, all in the last one."""
    rows = [
        Row(0, 16, "AI_CORE", 4, 0, 0, "A"), Row(16, 16, "AI_CORE", 8, 0, 0, "B"), Row(63, 1, "AI_CORE", 8, 0, 0, "C")
    ]  # fmt: skip
    use = cores_over_time(swept(rows, Cores(8, 0, None), (0, 64)))
    assert use.cube and use.cube.slices == [0.5] * 8 + [1.0] * 8 + [0.0] * 15 + [0.5]


def test_more_streams_than_bits() -> None:
    rows = [Row(i, 70, "AI_CORE", 1, 0, i, "A") for i in range(70)]
    use = cores_over_time(swept(rows, Cores(100, 0, None), (0, 200)))
    assert use.cube and use.cube.occupied_core_ns == 70 * 70
    assert sum(s.ns for s in use.together) == 139


@pytest.mark.parametrize("count", [61, 62, 63, 90])
def test_of_more_than_62_streams_those_with_the_fewest_kernels_are_one(count: int) -> None:
    """Those with even numbers have two kernels each, the others one; none runs beside another."""
    order = [*range(count), *range(0, count, 2)]
    rows = [Row(i, 1, "AI_CORE", 1, 0, stream, "A") for i, stream in enumerate(order)]
    numbers = swept(rows, Cores(100, 0, None), (0, 200)).numbers
    told = {*range(count)} if count <= 62 else {-2, *sorted(range(count), key=lambda n: (n % 2, n))[:61]}
    assert sorted(numbers) == sorted(told)


def test_kernels_slowed_by_shared_cores_are_told_from_others() -> None:
    """8 cubes, two kernels of 8 for 10 ns side by side: each had half; the vector kernel beside them lost nothing."""
    rows = [
        Row(0, 10, "AI_CORE", 8, 0, 0, "A"), Row(0, 10, "AI_CORE", 8, 0, 1, "B"),
        Row(0, 10, "AI_VECTOR_CORE", 4, 0, 2, "C"),
    ]  # fmt: skip
    assert swept(rows, Cores(8, 16, None), (0, 10)).undisturbed().tolist() == [5, 5, 10]


# --- waits for cores -------------------------------------------------------------------------------------------------


def device(path: Path, **options: object) -> Device:
    (found,) = analyze_path(path, **options).devices  # type: ignore[arg-type]
    return found


def used(folder: Path, kernels: list[K]) -> CoresOverTime:
    found = device(ascend_pt(folder, kernels, cores="24,48")).cores.over_time
    assert found is not None
    return found


def marked(kernels: list[K]) -> list[K]:
    """The same kernels in a profile that records event waits."""
    return [*kernels, K(900_000, 1_000, "EVENT_WAIT", "EVENT_WAIT", "EVENT_WAIT", 99, 0)]


def blocked(extra: list[K] | None = None) -> list[K]:
    """Stream 5 is launched at 20 µs, ready at 22 µs, and starts when stream 2 lets go of the cores at 100 µs."""
    return [
        K(2_000, 98_000, core="AI_CORE", block=24, stream=2, launch=0),
        *(extra or []),
        K(100_000, 50_000, core="AI_CORE", block=24, stream=5, launch=20_000),
        K(202_000, 10_000, core="AI_CORE", block=24, stream=2, launch=200_000),
    ]


def test_a_wait_for_cores_is_counted_from_when_the_kernel_was_ready(tmp_path: Path) -> None:
    use = used(tmp_path, marked(blocked()))
    (wait,) = use.contention
    assert (wait.stream, wait.holders, wait.kernels) == (5, [2], 1)
    assert wait.least_ns == wait.most_ns == wait.full_ns == 100_000 - 22_000
    assert use.contended_ns == (78_000, 78_000)
    assert use.contention_reason is None


def test_without_recorded_event_waits_a_wait_may_be_for_an_event(tmp_path: Path) -> None:
    use = used(tmp_path, blocked())
    assert use.contended_ns == (0, 78_000)
    assert use.contention_reason and "no events are recorded" in str(use.contention_reason)


@pytest.mark.parametrize("records", [0, 1, 2])
def test_a_kernel_behind_an_event_wait_may_have_waited_for_the_event(tmp_path: Path, records: int) -> None:
    """The event comes at 60 µs: at most 40 µs were a wait for cores, perhaps none, whatever is recorded in between."""
    wait = [K(30_000, 30_000, "EVENT_WAIT", "EVENT_WAIT", "EVENT_WAIT", 5, 0)]
    wait += [K(60_000, 0, "EVENT_RECORD", "EVENT_RECORD", "EVENT_RECORD", 5, 0)] * records
    use = used(tmp_path, marked(blocked(wait)))
    assert use.contended_ns == (0, 40_000)


@pytest.mark.parametrize(("mine", "short", "full"), [(8, 0, 0), (9, 78_000, 0), (24, 78_000, 0)])
def test_free_cores_that_are_too_few_are_a_wait_too(tmp_path: Path, mine: int, short: int, full: int) -> None:
    kernels = [
        K(2_000, 98_000, core="AI_CORE", block=16, stream=2, launch=0),
        K(100_000, 50_000, core="AI_CORE", block=mine, stream=5, launch=20_000),
        K(202_000, 10_000, core="AI_CORE", block=24, stream=2, launch=200_000),
    ]
    use = used(tmp_path, marked(kernels))
    assert sum(w.most_ns for w in use.contention) == short
    assert sum(w.full_ns for w in use.contention) == full


def test_a_vector_kernel_does_not_wait_for_cube_cores(tmp_path: Path) -> None:
    kernels = blocked()
    kernels[1] = K(100_000, 50_000, core="AI_VECTOR_CORE", block=48, stream=5, launch=20_000)
    use = used(tmp_path, marked(kernels))
    assert use.contention == []


def test_unknown_cores_are_said_and_told_cores_are_used(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, marked(blocked()))
    unknown = device(folder)
    assert unknown.cores.over_time is None
    assert unknown.cores.reason and "--cores" in str(unknown.cores.reason)
    told = device(folder, cores=Cores(24, 48, "--cores"))
    assert told.cores.over_time and told.cores.over_time.contended_ns == (78_000, 78_000)


def test_without_launches_nothing_tells_when_a_kernel_was_ready(tmp_path: Path) -> None:
    kernels = [K(k.start, k.dur, core=k.core, block=k.block, stream=k.stream) for k in blocked()]
    use = used(tmp_path, kernels)
    assert use.contended_ns is None
    assert use.contention_reason and "launches" in str(use.contention_reason)
