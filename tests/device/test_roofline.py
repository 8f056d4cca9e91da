"""Roofs worked out by hand for a device of 20 cube cores at 1650 MHz, by brute force, and on real recordings.

By hand: 20 · 1650e6 · 8192 = 270.336e12 FLOP/s, L2 20 · 1650e6 · 196 = 6.468e12 bytes/s, HBM 1.6e12 bytes/s.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pytest
from build import EPOCH, analyze_path
from msgspec import Struct

from npuperf.device.cube_work import Costs, CubeWork, Peak
from npuperf.device.operators import type_labels
from npuperf.device.partition import alone, window
from npuperf.device.pipes import Pipes
from npuperf.device.roofline import LIMITS, Rates, Recoverable, Roofline
from npuperf.model.chip import Cores, memory_of_soc
from npuperf.model.labels import Labels, operand_labels
from npuperf.model.result import Operator, Result
from npuperf.model.tasks import Tasks, Work

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
PEAK = Peak(20 * 1650e6 * 8192, "counters", 20, 1650.0)
RATES = Rates.of(PEAK, Cores(20, 40), None)


class K(Struct, frozen=True):
    """A kernel: ns, shapes and types as exported; ``start``: None, after the one before."""

    type: str
    dur: int
    shapes: str = "16"
    out: str = "16"
    dtype: str = "FLOAT"
    core: str = "AI_VECTOR_CORE"
    start: int | None = None
    work: Work = Work.COMPUTE
    pmu: dict[str, float] = {}


def matmul(dur: int, m: int = 1024, k: int = 2048, n: int = 512, start: int | None = None) -> K:
    return K("MatMulV2", dur, f"{m},{k};{k},{n}", f"{m},{n}", "DT_BF16", "AI_CORE", start)


def table(kernels: list[K]) -> Tasks:
    end, starts = EPOCH, []
    for one in kernels:
        starts.append(end if one.start is None else EPOCH + one.start)
        end = max(end, starts[-1] + one.dur)
    start = np.array(starts, np.int64)
    dtypes = [";".join([one.dtype] * (one.shapes.count(";") + 1)) for one in kernels]
    counters = dict.fromkeys(name for one in kernels for name in one.pmu)
    return Tasks.build(
        start,
        start + np.array([one.dur for one in kernels]),
        np.array([one.work for one in kernels], np.uint8),
        type=Labels.of([one.type for one in kernels]),
        core=Labels.of([one.core for one in kernels]),
        shapes=Labels.of([one.shapes for one in kernels]),
        operands=operand_labels({
            "dtypes": Labels.of(dtypes),
            "out_dtypes": Labels.of([";".join([one.dtype] * (one.out.count(";") + 1)) for one in kernels]),
            "out_shapes": Labels.of([one.out for one in kernels]),
        }),
        pmu={name: np.array([one.pmu.get(name, np.nan) for one in kernels], np.float32) for name in counters},
    )  # fmt: skip


def roofed(kernels: list[K], rates: Rates = RATES) -> Roofline:
    tasks = table(kernels)
    types = type_labels(tasks)
    costs = Costs.of(tasks, types)
    return Roofline.of(tasks, types, costs, CubeWork.of(tasks, costs, PEAK), Pipes.of(tasks), rates)


def told(kernels: list[K], at: int = 0, rates: Rates = RATES) -> tuple[str, float, int, int]:
    """What limits one of the kernels, the time of its nearest roof, and what could be won."""
    found = roofed(kernels, rates)
    return LIMITS[found.limit[at]], float(found.roof[at]), int(found.least[at]), int(found.most[at])


def test_each_roof_by_hand() -> None:
    # 2 · 1024 · 2048 · 512 / 270.336e12 = 7943.8 ns; 7 340 032 bytes: 4587.5 from HBM
    limit, roof, least, most = told([matmul(20_000)])
    assert (limit, least, most) == ("cube", 0, 20_000 - 7944)
    assert roof == pytest.approx(2**31 / 270.336e12 * 1e9, rel=1e-12)
    # three times 64 MiB: 31 126.6 ns from L2, 125 829.1 from HBM
    add = K("Add", 150_000, "4096,4096;4096,4096", "4096,4096")
    assert told([add]) == ("hbm", pytest.approx(3 * 2**26 / 1.6e12 * 1e9, rel=1e-12), 0, 150_000 - 31_127)
    quick = K("Add", 100_000, "4096,4096;4096,4096", "4096,4096")
    assert told([quick]) == ("l2", pytest.approx(3 * 2**26 / 6.468e12 * 1e9, rel=1e-12), 0, 100_000 - 31_127)
    # 2 GiB: L2 holds 192 MiB before and 192 MiB afterwards, so that 1 744 830 464 bytes pass HBM: 1 090 519.0 ns
    move = K("TensorMove", 1_500_000, "268435456", "268435456")
    assert told([move]) == ("hbm", pytest.approx(2**31 / 1.6e12 * 1e9, rel=1e-12), 0, 1_500_000 - 1_090_520)
    partly = K("TensorMove", 1_200_000, "268435456", "268435456")
    assert told([partly]) == ("hbm", pytest.approx((2**31 - 384 * 2**20) / 1.6e12 * 1e9), 0, 1_200_000 - 1_090_520)
    # 18 · 2**24 operations on 40 vector cores of 256 a cycle: 17 873.5 ns; 8 bytes for three: 20 750.9 from L2
    gelu = K("GeluGrad", 22_000, "4096,4096;4096,4096;4096,4096", "4096,4096", "DT_BF16")
    assert told([gelu])[:2] == ("l2", pytest.approx(2**27 / 6.468e12 * 1e9))


def test_vector_cores_by_hand() -> None:
    """Of a chip whose memory is not known: 18 · 2**24 / (40 · 1650e6 · 256) = 17 873.5 ns."""
    rates = Rates.of(Peak(28 * 1650e6 * 8192, "chip", 28, 1650.0), Cores(20, 40), None)
    assert rates.memory is None and rates.roofs().hbm_bytes_per_s is None
    gelu = K("GeluGrad", 50_000, "4096,4096;4096,4096;4096,4096", "4096,4096", "DT_BF16")
    assert told([gelu], rates=rates) == ("vector", pytest.approx(18 * 2**24 / 16.896e12 * 1e9), 0, 50_000 - 17_874)


def test_hbm_is_of_the_chip_or_of_none_that_is_faster() -> None:
    assert [memory_of_soc(soc, 20) for soc in ("Ascend310P3", "Ascend950PR_9599", "unheard")] == [None] * 3
    of_chip, of_all = memory_of_soc("Ascend910B3", None), memory_of_soc("Ascend910B4", None)
    assert of_chip is not None and (of_chip.hbm_rate, of_chip.l2, of_chip.of_chip) == (1.6e12, 192 << 20, True)
    assert of_all is not None and (of_all.hbm_rate, of_all.of_chip) == (1.6e12, False)
    assert memory_of_soc(None, 24) is not None and memory_of_soc(None, 28) is None


def test_the_shortest_kernel_is_what_launching_takes() -> None:
    small = [K("Cast", 1200), K("Cast", 1500), K("Cast", 3000)]
    assert told(small, 1) == ("launch", 1200.0, 0, 300)
    assert told(small, 2) == ("unknown", pytest.approx(128 / 1600), 1500, 1800)  # it takes more than twice as long
    # 6 MiB from HBM: 3932.2 ns, which is nearer than launching
    assert told([K("Cast", 1200), K("Add", 9000, "524288;524288", "524288")], 1)[0] == "hbm"
    # matrix products take longer than launching: the shortest on other cores is as little
    assert told([matmul(20_000), K("Cast", 1200)])[2:] == (0, 20_000 - 7944)
    assert told([K("Cast", 11_000)])[0] == "unknown"  # and the only kernel tells nothing
    assert told([K("Cast", 11_000)])[3] == 10_999


def test_equals_are_held_against_a_tenth_of_them() -> None:
    for times in ([20_000], [20_000, 30_000], [20_000, 30_000, 50_000], list(range(20_000, 45_000, 1000))):
        order = sorted(times)
        best = order[min(max(-(-len(order) // 10), 2), len(order)) - 1]
        found = roofed([matmul(dur) for dur in times])
        assert found.least.tolist() == [max(dur - best, 0) for dur in times]
    other = roofed([matmul(20_000), matmul(20_000), matmul(30_000, n=640)])
    assert other.least.tolist() == [0, 0, 0]  # of another size


def test_what_shapes_cannot_be_has_no_roof() -> None:
    """One kernel in 5 us does what takes 7.9: so no equal one has a roof, and that one is counted."""
    kernels = [matmul(20_000), matmul(5000), matmul(20_000, n=640)]
    found = roofed(kernels)
    assert np.isnan(found.roof).tolist() == [True, True, False]
    assert [LIMITS[code] for code in found.limit] == ["unknown", "unknown", "cube"]
    assert found.recoverable(table(kernels)).within(window(EPOCH, EPOCH + 10**6)) == [
        Recoverable(1, 0, int(found.most[2]), 1)
    ]


def test_groups_and_lengths_are_data() -> None:
    """The weights of experts that no token hits are not read: 900 MB of them take no time for certain."""
    experts = K("GroupedMatmul", 1_000_000, "16,2048;64,2048,4096;64", "16,4096", "DT_BF16", "AI_CORE")
    assert told([experts])[0] == "unknown" and told([experts])[3] == 0


def test_counters_tell_scalar_work_and_busy_units() -> None:
    ratios = {"aiv_vec_ratio": 0.1, "aiv_scalar_ratio": 0.8, "aiv_mte2_ratio": 0.2, "aiv_mte3_ratio": 0.1}

    def limit(dur: int = 150_000, **changed: float) -> str:
        return told([K("Add", dur, "4096,4096;4096,4096", "4096,4096", pmu={**ratios, **changed})])[0]

    assert limit() == "scalar"
    assert limit(aiv_mte2_ratio=0.7) == "hbm"  # scalar units work beside the others
    assert limit(aiv_scalar_ratio=0.4, aiv_vec_ratio=0.0, aiv_mte2_ratio=0.0) == "hbm"  # not for most of the cycles
    assert limit(aiv_scalar_ratio=0.2, aiv_vec_ratio=0.6) == "vector"
    assert limit(aiv_scalar_ratio=0.2, aiv_vec_ratio=0.6, aiv_mte2_ratio=0.9) == "hbm"
    assert limit(10**8, aiv_scalar_ratio=0.2) == "unknown"  # a thousandth of its roof
    bare = told([K("TridiagonalSolve", 90_000, pmu=ratios)])
    assert bare[0] == "scalar" and np.isnan(bare[1]) and bare[2:] == (0, 0)
    both = {**ratios, "aic_mac_ratio": 0.6, "aic_scalar_ratio": 0.1, "aic_mte2_ratio": 0.1}
    assert told([K("Custom", 90_000, core="MIX_AIC", pmu=both)])[0] == "cube"  # one side works


def test_only_exposed_time_is_won() -> None:
    """Beside a kernel of another type nothing is won; beside communication at most, but not for certain."""
    twice = [matmul(20_000), matmul(20_000)]
    beside = K("Mul", 30_000, "4096;4096", "4096", start=100_000)
    found = roofed([*twice, beside, matmul(40_000, start=110_000)])
    # from 130 to 150 us it is alone; of the 20 us that it is slower for, 20 may be hidden
    assert (int(found.least[3]), int(found.most[3])) == (0, 20_000)
    sends = K("hcom_send", 30_000, core="COMMUNICATION", start=100_000, work=Work.COMMUNICATION)
    found = roofed([*twice, sends, matmul(45_000, start=110_000)])
    assert (int(found.least[2]), int(found.most[2])) == (25_000 - 20_000, 45_000 - 7944)
    together = roofed([*twice, matmul(40_000, start=100_000), matmul(40_000, start=110_000)])
    assert together.most.tolist()[2:] == [32_056, 10_000]  # of both 50 us are taken


@pytest.mark.parametrize("seed", range(60))
def test_time_alone_by_brute_force(seed: int) -> None:
    made = random.Random(seed)
    rows = sorted((made.randint(0, 60), made.randint(0, 25), made.randint(0, 3)) for _ in range(made.randint(1, 14)))
    start, end, kind = (np.array(column) for column in zip(*((s, s + d, k) for s, d, k in rows), strict=True))
    expected = [0] * len(rows)
    for at in range(90):
        here = [i for i in range(len(rows)) if start[i] <= at < end[i]]
        if here and len({int(kind[i]) for i in here}) == 1:
            expected[here[0]] += 1
    assert alone(start, end, kind).tolist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_random_kernels_by_brute_force(seed: int) -> None:
    """Each kernel by its own sums, in plain numbers, one after the other and some beside each other."""
    made = random.Random(seed)
    kernels, at = [], 0
    for _ in range(made.randint(2, 40)):
        dur, start = round(10 ** made.uniform(3, 5.5)), at + made.choice([0, 0, 500, -300])
        size = made.choice([64, 1024, 4096])
        one = matmul(dur, size, 512, 512) if made.random() < 0.4 else K("Mul", dur, f"{size},512;{size},512",
                                                                        f"{size},512")  # fmt: skip
        kernels.append(K(one.type, dur, one.shapes, one.out, one.dtype, one.core, max(start, 0)))
        at = max(at, start + dur)
    kernels.sort(key=lambda one: one.start or 0)
    found = roofed(kernels)
    sums: dict[str, tuple[float, float]] = {}
    for one in kernels:
        rows = int(one.shapes.split(",")[0])
        cube = 2 * rows * 512 * 512 / 270.336e3 if one.core == "AI_CORE" else 0.0
        vector = 0.0 if one.core == "AI_CORE" else rows * 512 / 16.896e3
        size = 2 * (2 * rows * 512 + 512 * 512) if one.core == "AI_CORE" else 12 * rows * 512
        sums[one.shapes] = (max(cube, vector, size / 6468), size / 1600)
    impossible = {one.shapes for one in kernels if sums[one.shapes][0] > one.dur * 1.001 + 1}
    floors = {
        core: min((one.dur for one in kernels if one.core == core), default=0) for core in ("AI_CORE", "AI_VECTOR_CORE")
    }
    small = min((f for f in floors.values() if f), default=0)
    for i, one in enumerate(kernels):
        if one.shapes in impossible:
            assert np.isnan(found.roof[i]) and found.least[i] == found.most[i] == 0
            continue
        floor = floors[one.core] if floors[one.core] <= 5000 else small if small <= 5000 else 0
        certain, far = max(sums[one.shapes][0], floor), sums[one.shapes][1]
        near = max(sums[one.shapes][0], far if far <= one.dur else 0)
        near = min(floor if floor > near and floor >= one.dur / 2 else near, one.dur)
        assert found.roof[i] == pytest.approx(near, rel=1e-9)
        assert 0 <= found.least[i] <= found.most[i] <= max(one.dur - certain, 0) + 1
    assert sum(found.most.tolist()) <= max((one.start or 0) + one.dur for one in kernels)


def test_sums_of_devices_add_up() -> None:
    """Of an operator on two devices, its limit is that of most of the time."""
    first, second = [matmul(20_000)], [matmul(9000), matmul(9000), matmul(60_000)]
    one, other, both = (
        roofed(kernels).sums(table(kernels), np.zeros(len(kernels), np.int64), 1)[0]
        for kernels in (first, second, [*first, *second])
    )
    assert (one + other).ns == both.ns == 98_000 and one.limit == other.limit == "cube"
    assert (one + other).roof_ns == pytest.approx(4 * 2**31 / 270.336e12 * 1e9)
    assert (one.most, other.most, (one + other).most) == (12_056, 2 * 1056 + 52_056, 12_056 + 54_168)
    assert (one.least, other.least, both.least) == (0, 51_000, 11_000 + 51_000)  # each against its own device's best
    assert (one + other).flop == pytest.approx(4 * 2**31) and (one + other).placed[1] == 4 * 7_340_032


# -- Documents, and real recordings.


def analyzed(path: str) -> Result:
    if not (DATA / path).exists():
        pytest.skip("no recording")
    return analyze_path(DATA / path)


def operator(result: Result, type: str, core: str) -> Operator:
    return next(one for one in result.operators if (one.type, one.core) == (type, core))


@pytest.mark.parametrize(
    "path",
    [
        "msinsight/cluster4/rank_0_ascend_pt",
        "msinsight/cluster4/rank_2_ascend_pt",
        "msinsight/text/level1/rank0_ascend_pt",
        "msinsight/text/level1/rank1_ascend_pt",
        "op_summary_2026/op_summary_pipe_utilization.csv",
    ],
)
def test_no_real_kernel_is_faster_than_its_roof(path: str) -> None:
    """Nor can more be won than the time in which an operator runs, or all of them do."""
    result = analyzed(path)
    (device,) = result.devices
    assert device.efficiency is not None and device.efficiency.roof_contradictions == 0
    won = device.efficiency.recoverable_ns
    assert won is not None and won[0] <= won[1] <= device.partition.compute_ns
    sums = [one.recoverable_ns for one in result.operators if one.recoverable_ns is not None]
    assert won == (sum(least for least, _ in sums), sum(most for _, most in sums))
    for one in result.operators:
        assert one.recoverable_ns is None or 0 <= one.recoverable_ns[0] <= one.recoverable_ns[1] <= one.total_ns
        assert one.roof_share is None or 0 < one.roof_share <= 1


def test_matrix_products_of_a_real_recording_by_its_rows() -> None:
    """2 · M · N · K / 270.336e12 or, where the kernel is slower, all bytes at 1.6e12: of each row."""
    result = analyzed("msinsight/cluster4/rank_0_ascend_pt")
    file = DATA / "msinsight/cluster4/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
    near = time = 0.0
    with file.open(newline="", encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            if (row["Type"], row["Accelerator Core"]) != ("MatMulV3", "AI_CORE"):
                continue
            first, second = (
                [int(n) for n in cell.split(",")] for cell in row["Input Shapes"].strip('"').split(";")[:2]
            )
            out = [int(n) for n in row["Output Shapes"].strip('"').split(",")]
            products = out[0] * out[1]
            inner = round((first[0] * first[1] * second[0] * second[1] / products) ** 0.5)
            size = {"DT_BF16": 2, "FLOAT": 4}[row["Output Data Types"]] * products + 2 * (
                first[0] * first[1] + second[0] * second[1]
            )
            dur = float(row["Duration(us)"]) * 1000
            far = size / 1600
            near += max(2 * products * inner / 270.336e3, far if far <= dur else 0.0)
            time += dur
    found = operator(result, "MatMulV3", "AI_CORE")
    assert found.roof_share == pytest.approx(near / time, rel=1e-6) and found.bound_by == "cube"


def test_edited_shapes_have_no_roof() -> None:
    result = analyzed("msprof-analyze/pipe_utilization/kernel_details.csv")
    assert operator(result, "MatMulV3", "AI_CORE").recoverable_ns is None
    assert operator(result, "FlashAttentionScore", "MIX_AIC").recoverable_ns is not None
