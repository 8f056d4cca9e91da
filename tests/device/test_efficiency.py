"""Peak × time in parts: a simulated run counted from its plan, random kernels counted ns by ns, real recordings.

Nothing here asks npuperf for a sum: FLOP are those that the plan was made with, counters those in the file.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from build import EPOCH, analyze_path, us
from msgspec import Struct

from npuperf.model.efficiency_result import Efficiency
from npuperf.model.result import Device

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
sys.path.insert(0, str(ROOT / "benchmarks"))
import simulate  # noqa: E402

#: 24 cube cores at 1800 MHz, a multiply-add in 16 × 16 × 16 of them.
PEAK = 24 * 1_800_000_000 * 8192


def flop(efficiency: Efficiency) -> dict[str, float]:
    return {part.part: part.flop for part in efficiency.parts}


def ns(efficiency: Efficiency) -> dict[str, int]:
    return {part.part: part.ns for part in efficiency.parts}


def adds_up(efficiency: Efficiency) -> None:
    whole = efficiency.peak_flop_per_s * efficiency.span_ns / 1e9
    assert sum(ns(efficiency).values()) == efficiency.span_ns
    assert sum(flop(efficiency).values()) == pytest.approx(whole, rel=1e-12)
    assert sum(part.share for part in efficiency.parts) == pytest.approx(1, rel=1e-12)
    assert min(ns(efficiency).values()) >= 0 and min(flop(efficiency).values()) >= 0
    idle = flop(efficiency)["cube_idle"]
    assert sum(cause.flop for cause in efficiency.idle) == pytest.approx(idle, rel=1e-9)


# -- A simulated training run: its plan says how many operations the products of a step have.


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Device, Path]:
    out = tmp_path_factory.mktemp("trained") / "a_ascend_pt"
    simulate.write_context(out)
    writer = simulate.Writer(out, "Block Dim", frames=True)
    for step in simulate.simulate(((11 + i, simulate.training_step()) for i in range(4)), 7):
        writer.step(*step)
    writer.close()
    return analyze_path(out).devices[0], out / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"


#: Forward and backward of two layers: each a projection of 1024 to 1024 and to 512, an MLP of 1536, all for 2048
#: tokens; causal attention of 8 heads of 64 has 2048 × 2049 / 2 pairs, two products forward and five backward.
PRODUCTS = 2 * 2 * 2 * 2048 * (1024 * 1024 + 512 * 1024 + 1536 * 1024 + 1024 * 1536)
ATTENTION = 2 * (2 + 5) * 2 * (2048 * 2049 // 2) * 512


def test_mfu_of_a_planned_run(trained: tuple[Device, Path]) -> None:
    device, _ = trained
    for step in device.steps:
        found = step.efficiency
        assert found is not None
        assert (found.cube_cores, found.clock_mhz, found.basis, found.peak_flop_per_s) == (24, 1800, "counters", PEAK)
        assert found.span_ns == step.partition.span_ns
        by_hand = (PRODUCTS + ATTENTION) / (PEAK * step.partition.span_ns / 1e9)
        assert found.useful_flop[0] == pytest.approx(PRODUCTS + ATTENTION, rel=1e-12)
        assert found.hfu[0] == pytest.approx(by_hand, rel=1e-9)
        assert found.mfu.kernels == found.hfu  # nothing is computed anew
        assert (found.formula_share, found.contradictions, found.odd) == (1, 0, 0)
        adds_up(found)


def test_busy_work_is_what_the_file_has(trained: tuple[Device, Path]) -> None:
    device, table = trained
    found = device.efficiency
    assert found is not None and found.cube_busy_flop is not None
    busy = Counter[str]()
    with table.open() as file:
        for row in csv.DictReader(file):
            if row["aic_total_cycles"] not in ("", "N/A", "0"):
                busy[row["Type"]] += float(row["aic_total_cycles"]) * float(row["aic_mac_ratio"]) * 8192
    assert found.cube_busy_flop == pytest.approx(busy.total(), rel=1e-6)  # counters are of 32 bits
    parts = flop(found)
    done = parts["useful"] + parts["useful_or_padded"] + parts["padded"] + parts["cube_busy_without_formula"]
    assert done == pytest.approx(busy.total(), rel=1e-6)
    # What a product is padded by is 5 % of it; of causal attention that is not known: its mask may hide less.
    assert parts["padded"] == pytest.approx(busy["MatMulV2"] - 4 * PRODUCTS, rel=1e-6)
    assert parts["useful_or_padded"] + parts["useful"] == pytest.approx(busy.total() - parts["padded"], rel=1e-6)


def test_the_parts_of_time_are_those_of_the_partition(trained: tuple[Device, Path]) -> None:
    device, _ = trained
    for found, split in (
        (device.efficiency, device.partition),
        (device.judged and device.judged.efficiency, device.window),
        *((step.efficiency, step.partition) for step in device.steps),
        *((phase.efficiency, phase.partition) for phase in device.phases),
    ):
        assert found is not None
        adds_up(found)
        part = ns(found)
        cube = [part[name] for name in ("useful", "useful_or_padded", "padded", "cube_busy_without_formula")]
        assert sum(cube) + part["cube_uncounted"] + part["cube_idle"] + part["vector"] == split.compute_ns
        assert part["communication"] == split.comm_exposed_ns and part["other"] == split.other_exposed_ns
        assert (part["host_wait"], part["launch_latency"]) == (split.host_wait_ns, split.launch_latency_ns)
        assert (part["dependency"], part["unattributed"]) == (split.dependency_wait_ns, split.unattributed_ns)


def test_where_no_kernel_has_cube_cores_nothing_is_busy(trained: tuple[Device, Path]) -> None:
    device, _ = trained
    without = [phase.efficiency for phase in device.phases if phase.bound == "communication"]
    assert without and all(one is not None and one.cube_busy_flop == 0 and one.formula_share is None for one in without)


def test_phases_and_steps_share_what_there_is(trained: tuple[Device, Path]) -> None:
    """Windows that follow each other have together what one over all of them has."""
    device, _ = trained
    whole = device.judged and device.judged.efficiency
    assert whole is not None
    for windows in ([step.efficiency for step in device.steps], [phase.efficiency for phase in device.phases]):
        assert sum(one.span_ns for one in windows if one) == whole.span_ns
        assert sum(one.useful_flop[0] for one in windows if one) == pytest.approx(whole.useful_flop[0], rel=1e-9)
        busy = sum(one.cube_busy_flop or 0 for one in windows if one)
        assert busy == pytest.approx(whole.cube_busy_flop, rel=1e-9)


def test_what_may_be_computed_anew_makes_the_mfu_an_interval(tmp_path: Path) -> None:
    """Backward asks for the products of forward once more, with no module and no arrow to say so."""
    ops = simulate.training_step()
    first = next(at for at, op in enumerate(ops) if op.backward)
    products = [simulate.replace(op, backward=True) for op in ops[:first] if op.type == "MatMulV2"]
    out = tmp_path / "a_ascend_pt"
    simulate.write_context(out)
    writer = simulate.Writer(out, "Block Dim", frames=False)
    for step in simulate.simulate([(n, [*ops[:first], *products, *ops[first:]]) for n in (11, 12, 13)], 3):
        writer.step(*step)
    writer.close()
    (device,) = analyze_path(out).devices
    for one in device.steps:
        found = one.efficiency
        assert found is not None
        whole = PEAK * one.partition.span_ns / 1e9
        again = PRODUCTS // 2  # those of forward are half of all
        assert found.recomputed_flop == pytest.approx((0, again), rel=1e-12)
        assert found.useful_flop[0] == pytest.approx(PRODUCTS + ATTENTION + again, rel=1e-12)
        assert found.mfu.kernels[0] == pytest.approx((PRODUCTS + ATTENTION) / whole, rel=1e-9)
        assert found.mfu.kernels[1] == found.hfu[1]


def test_modules_have_what_they_launch(tmp_path: Path) -> None:
    """Forward is in two modules of a model; backward, which no module is around, is what is left."""
    module = {"model.py(88): attention": "nn.Module: Attention_0", "model.py(131): mlp": "nn.Module: MLP_0"}
    ops = [simulate.replace(op, frame=module.get(op.frame, "nn.Module: Model_0")) for op in simulate.training_step()]
    out = tmp_path / "a_ascend_pt"
    simulate.write_context(out)
    writer = simulate.Writer(out, "Block Dim", frames=True)
    for step in simulate.simulate([(n, ops) for n in (11, 12, 13)], 5):
        writer.step(*step)
    writer.close()
    (device,) = analyze_path(out).devices
    assert device.judged is not None and device.judged.efficiency is not None
    found = device.judged.efficiency
    rows = {one.module: one for one in found.modules}
    attention = 3 * 2 * (2 * 2048 * (1024 * 1024 + 512 * 1024) + 2 * 2 * (2048 * 2049 // 2) * 512)
    mlp = 3 * 2 * 2 * 2048 * (1024 * 1536 + 1536 * 1024)
    assert rows["Attention_0"].useful_flop[0] == pytest.approx(attention, rel=1e-12)
    assert rows["MLP_0"].useful_flop == pytest.approx((mlp, mlp), rel=1e-12)
    assert (rows["Attention_0"].kernels, rows["MLP_0"].kernels) == (3 * 2 * 3, 3 * 2 * 2)
    assert sum(one.useful_flop[0] for one in found.modules) == pytest.approx(found.useful_flop[0], rel=1e-12)
    assert sum(one.cube_busy_flop or 0 for one in found.modules) == pytest.approx(found.cube_busy_flop, rel=1e-9)
    assert [one.module for one in found.modules][-1] is None
    assert all(not one.efficiency or not one.efficiency.modules for one in device.steps)


# -- Kernel tables by hand.


class Row(Struct, frozen=True):
    """A kernel: ns after EPOCH, cube cycles and mac ratio (None: not recorded), shapes as the exporter writes them."""

    start: int
    dur: int
    type: str = "MatMulV3"
    core: str = "AI_CORE"
    block: int = 20
    stream: int = 2
    cycles: float | str | None = None
    mac: float | str = 0.0
    scalar: float = 0.0
    mte2: float = 0.0
    shapes: str = ""
    out: str = ""


HEADER = (
    "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,"
    "Stream ID,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,"
    "aicore_time(us),aic_total_cycles,aic_mac_ratio,aic_scalar_ratio,aic_mte2_ratio,cube_utilization(%)"
)
CORES, MHZ = 20, 1800
HERE = CORES * MHZ * 1_000_000 * 8192


def written(path: Path, rows: list[Row], witnesses: int = 4) -> Path:
    """A kernel table. The first rows tell the chip: kernels of 100 µs on all cores that do nothing but count cycles."""
    first = [Row(i * 200_000, 100_000, "Probe", cycles=100 * CORES * MHZ) for i in range(witnesses)]
    lines = [HEADER]
    for r in [*first, *rows]:
        time = r.dur / 1000
        operands = ",".join([f'"{r.shapes}"', "DT_BF16;DT_BF16", "ND;ND", f'"{r.out}"', "DT_BF16", "ND"])
        if not r.shapes:
            operands = ",".join(["N/A"] * 6)
        counters = ",".join(["N/A"] * 6)
        if r.cycles is not None:
            known = isinstance(r.cycles, (int, float)) and r.dur and r.block
            used = 100 * float(r.cycles) / (CORES * MHZ * time) if known else 0
            at_work = float(r.cycles) / MHZ / min(r.block, CORES) if known else 0
            counters = f"{at_work:.3f},{r.cycles},{r.mac},{r.scalar},{r.mte2},{used:.3f}"
        lines.append(f"1,0,{r.type},{r.type},{r.core},{us(EPOCH + r.start)}\t,{us(r.dur)},0,{r.block},0,{r.stream},"
                     f"{operands},{counters}")  # fmt: skip
    path.mkdir(parents=True, exist_ok=True)
    (path / "kernel_details.csv").write_text("\n".join(lines) + "\n")
    return path / "kernel_details.csv"


AFTER = 1_000_000


def whole(path: Path, **asked: object) -> Efficiency:
    found = analyze_path(path, **asked).devices[0].efficiency
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(6))
def test_random_kernels_side_by_side(tmp_path: Path, seed: int) -> None:
    """Time of cube cores is while any kernel has them, whatever runs beside; counted here for every ns."""
    made = random.Random(seed)
    rows, busy = [], 0.0
    for stream in (2, 5):
        at = AFTER + made.randrange(3_000)
        for _ in range(12):
            dur, cube = made.randrange(200, 4_000), made.random() < 0.6
            block = made.randint(1, CORES // 2)  # two kernels of half the cores fit side by side
            cycles, mac = round(0.9 * dur * MHZ * block / 1000), round(made.uniform(0.1, 0.9), 3)
            rows.append(
                Row(at, dur, "Odd", "AI_CORE", block, stream, cycles, mac)
                if cube
                else Row(at, dur, "Add", "AI_VECTOR_CORE", 40, stream)
            )
            busy += cycles * mac * 8192 * cube
            at += dur + made.choice([0, 0, made.randrange(2_000)])
    found = whole(written(tmp_path, rows, 4))
    adds_up(found)
    state = bytearray(max(r.start + r.dur for r in rows))  # 0 idle, 1 vector, 2 cube
    for r in [*(Row(i * 200_000, 100_000) for i in range(4)), *rows]:
        cube = r.core == "AI_CORE"
        for at in range(r.start, r.start + r.dur):
            state[at] = max(state[at], 1 + cube)
    part, per_ns = ns(found), HERE / 1e9
    assert part["vector"] == state.count(1)
    assert part["unattributed"] == state.count(0)
    assert found.cube_busy_flop == pytest.approx(busy, rel=1e-6)
    assert flop(found)["cube_busy_without_formula"] == pytest.approx(busy, rel=1e-6)
    assert flop(found)["cube_idle"] == pytest.approx(per_ns * state.count(2) - busy, rel=1e-6)
    assert found.formula_share == 0 and found.useful_flop == (0, 0)


#: 2 × 1024 × 512 × 256 FLOP; on 20 cores at 1800 MHz that is no less than 911 ns.
SMALL = {"shapes": "1024,256;512,256", "out": "1024,512"}
SMALL_FLOP = 2 * 1024 * 512 * 256


def cycles_of(dur: int, share: float = 0.9) -> int:
    return round(share * dur * MHZ * CORES / 1000)


def test_shapes_that_ask_for_more_than_was_done_are_a_contradiction(tmp_path: Path) -> None:
    """Twice what they ask for was done, exactly that, half of it: the last cannot be, whatever the reason."""
    dur = 4_000
    ratios = [SMALL_FLOP * more / (cycles_of(dur) * 8192) for more in (2, 1.001, 0.5)]
    rows = [Row(AFTER + i * 10_000, dur, cycles=cycles_of(dur), mac=round(r, 3), **SMALL) for i, r in enumerate(ratios)]  # type: ignore[arg-type]
    found = whole(written(tmp_path, rows))
    adds_up(found)
    assert (found.contradictions, found.odd) == (1, 0)
    done = [cycles_of(dur) * round(r, 3) * 8192 for r in ratios]
    assert found.useful_flop[0] == pytest.approx(2 * SMALL_FLOP, rel=1e-3)
    assert flop(found)["padded"] == pytest.approx(done[0] - SMALL_FLOP, rel=2e-3)
    assert flop(found)["cube_busy_without_formula"] == pytest.approx(done[2], rel=1e-6)
    assert found.formula_share == pytest.approx(2 * dur / (3 * dur + 400_000))


def test_of_too_many_shapes_those_that_take_most_time_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of 1024, 1040, … rows, of which every other takes twice as long."""
    monkeypatch.setattr("npuperf.device.cube_work._ASKED", 3)
    sizes = [1024 + 16 * i for i in range(6)]
    rows = [
        Row(AFTER + i * 10_000, 4_000 * (1 + i % 2), shapes=f"{m},256;512,256", out=f"{m},512")
        for i, m in enumerate(sizes)
    ]
    found = whole(written(tmp_path, rows, 0), soc="Ascend910B3")
    adds_up(found)
    assert found.useful_flop[0] == pytest.approx(sum(2 * m * 512 * 256 for m in sizes[1::2]))
    assert found.formula_share == pytest.approx(2 / 3) and found.contradictions == 0


@pytest.mark.parametrize(
    ("cycles", "mac"),
    [(-5, 0.5), (72_000, -0.1), (72_000, 1.2), (72_000_000, 0.9), ("inf", 0.5)],
    ids=["negative", "a negative ratio", "a ratio above 1", "more than the chip can", "infinite"],
)
def test_odd_counters_are_left_out_and_counted(tmp_path: Path, cycles: float | str, mac: float) -> None:
    dur = 4_000
    good = Row(AFTER, dur, cycles=cycles_of(dur), mac=0.5, **SMALL)  # type: ignore[arg-type]
    found = whole(written(tmp_path, [good, Row(AFTER + 10_000, dur, cycles=cycles, mac=mac, **SMALL)]))  # type: ignore[arg-type]
    adds_up(found)
    assert found.odd == (0 if cycles == "inf" else 1) and found.contradictions == 0
    assert found.cube_busy_flop == pytest.approx(cycles_of(dur) * 0.5 * 8192, rel=1e-6)
    assert found.useful_flop[0] == pytest.approx(2 * SMALL_FLOP, rel=1e-9)  # what it had to do is known all the same
    # of the time beside that nobody knows anything: it is not called idle
    assert found.uncounted == 1
    assert flop(found)["cube_uncounted"] == pytest.approx(dur * HERE / 1e9 - SMALL_FLOP, rel=1e-9)
    sound = (4 * 100_000 + dur) * HERE / 1e9 - cycles_of(dur) * 0.5 * 8192
    assert flop(found)["cube_idle"] == pytest.approx(sound, rel=1e-6)


def test_kernels_without_counters_have_a_part_of_their_own(tmp_path: Path) -> None:
    """Three of them: by their shapes one multiplies for a while, one has blocks for half of the cores, one neither."""
    rows = [
        Row(AFTER, 4_000, cycles=cycles_of(4_000), mac=0.5, **SMALL),  # type: ignore[arg-type]
        Row(AFTER + 10_000, 4_000, **SMALL),  # type: ignore[arg-type]
        Row(AFTER + 20_000, 4_000, "Odd", block=10),
        Row(AFTER + 30_000, 4_000, "Odd", block=20),
    ]
    path = written(tmp_path, rows)
    found = whole(path)
    adds_up(found)
    assert (found.uncounted, found.odd) == (3, 0)
    unit = 4_000 * HERE / 1e9
    assert flop(found)["cube_uncounted"] == pytest.approx(2.5 * unit - SMALL_FLOP, rel=1e-9)
    probes = 100 * unit
    assert flop(found)["cube_idle"] == pytest.approx(probes + 1.5 * unit - cycles_of(4_000) * 0.5 * 8192, rel=1e-6)
    idle = {cause.cause: cause.flop for cause in found.idle}
    assert idle["cores_unused"] == pytest.approx(0.5 * unit, rel=1e-9)  # cores without a block multiply nothing
    # What runs beside it is not known either: at most all that its time and the counted one leave is open.
    beside = [Row(AFTER, 4_000, cycles=cycles_of(4_000), mac=0.5), Row(AFTER + 2_000, 4_000, "Odd", stream=5)]
    found = whole(written(tmp_path / "beside", beside))
    adds_up(found)
    done = cycles_of(4_000) * 0.5 * 8192
    assert flop(found)["cube_uncounted"] == pytest.approx(unit, rel=1e-9)
    assert flop(found)["cube_idle"] == pytest.approx(probes + 0.5 * unit - done, rel=1e-6)


@pytest.mark.parametrize("shapes", ["", "N/A", "12,x;3,4", "1024,256;100,7", "-3,4;4,5"])
def test_shapes_that_tell_nothing_make_no_work_useful(tmp_path: Path, shapes: str) -> None:
    row = Row(AFTER, 4_000, cycles=cycles_of(4_000), mac=0.5, shapes=shapes, out="1024,512")
    found = whole(written(tmp_path, [row]))
    adds_up(found)
    assert found.useful_flop == (0, 0)
    assert flop(found)["cube_busy_without_formula"] == pytest.approx(cycles_of(4_000) * 0.5 * 8192, rel=1e-6)


def test_why_cube_cores_are_idle(tmp_path: Path) -> None:
    """A kernel on half of the cores, one that reads from memory for most of its time, one whose scalar unit is busy."""
    rows = [
        Row(AFTER, 100_000, "A", block=10, cycles=90 * MHZ * 10, mac=1.0, mte2=0.2),
        Row(AFTER + 200_000, 100_000, "B", cycles=90 * MHZ * 20, mac=0.1, mte2=0.8, scalar=0.3),
        Row(AFTER + 400_000, 100_000, "C", cycles=90 * MHZ * 20, mac=0.1, mte2=0.2, scalar=0.9),
    ]
    found = whole(written(tmp_path, rows))
    unit = HERE / 1e9 * 100_000  # what all cores can do in 100 µs
    idle = {cause.cause: cause.flop / unit for cause in found.idle}
    assert idle["cores_unused"] == pytest.approx(0.5, rel=1e-4)
    assert idle["memory"] == pytest.approx(0.05 + 0.91, rel=1e-4)
    assert idle["scalar"] == pytest.approx(0.91, rel=1e-4)
    assert idle["unknown"] == pytest.approx(4, rel=1e-4)  # the kernels that tell the chip


def test_without_counters_the_chips_clock_tells_the_peak(tmp_path: Path) -> None:
    rows = [Row(AFTER + i * 10_000, 4_000, **SMALL) for i in range(3)]  # type: ignore[arg-type]
    path = written(tmp_path, rows, 0)
    assert analyze_path(path).devices[0].efficiency is None
    found = whole(path, soc="Ascend910B3")
    adds_up(found)
    assert (found.basis, found.peak_flop_per_s, found.cube_busy_flop) == ("asked", HERE, None)
    assert found.useful_flop == pytest.approx((3 * SMALL_FLOP, 3 * SMALL_FLOP))
    assert flop(found)["padded"] == 0 and ns(found)["useful"] + ns(found)["cube_uncounted"] == 12_000
    assert found.uncounted == 3 and not found.idle


def test_what_no_time_is_enough_for_contradicts_without_counters_too(tmp_path: Path) -> None:
    """On 20 cores at 1800 MHz the product takes 911 ns at least."""
    rows = [Row(AFTER, 905, **SMALL), Row(AFTER + 10_000, 915, **SMALL)]  # type: ignore[arg-type]
    found = whole(written(tmp_path, rows, 0), soc="Ascend910B3")
    assert found.contradictions == 1 and found.useful_flop[0] == pytest.approx(SMALL_FLOP)


def test_nothing_but_vector_kernels(tmp_path: Path) -> None:
    found = whole(written(tmp_path, [Row(AFTER, 500, "Add", "AI_VECTOR_CORE", 40)], 0), soc="Ascend910B3")
    adds_up(found)
    assert found.formula_share is None and ns(found)["vector"] == 500


# -- Real recordings.


def recordings() -> list[Path]:
    base = DATA / "msinsight"
    return [base / "cluster4/rank_0_ascend_pt", base / "cluster4/rank_2_ascend_pt",
            base / "text/level1/rank0_ascend_pt", base / "text/level1/rank1_ascend_pt"]  # fmt: skip


@pytest.mark.parametrize("path", recordings(), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_real_recordings_add_up_and_nothing_contradicts(path: Path) -> None:
    if not path.exists():
        pytest.skip("no real recordings here")
    found = whole(path)
    adds_up(found)
    assert (found.contradictions, found.odd) == (0, 0)
    busy, cube_time = 0.0, 0.0
    with (path / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").open() as file:
        for row in csv.DictReader(file):
            if row["aic_total_cycles"] not in ("", "N/A", "0"):
                busy += float(row["aic_total_cycles"]) * float(row["aic_mac_ratio"]) * 8192
                cube_time += float(row["Duration(us)"])
    assert found.cube_busy_flop == pytest.approx(busy, rel=1e-6)
    assert found.formula_share is not None and found.formula_share >= 0.9
    assert found.useful_flop[0] <= busy <= found.peak_flop_per_s * cube_time / 1e6


def test_a_real_recording_is_busy_for_a_twelfth_of_its_peak() -> None:
    path = recordings()[0]
    if not path.exists():
        pytest.skip("no real recordings here")
    result = analyze_path(path)
    found = result.devices[0].efficiency
    assert found is not None
    assert (found.cube_cores, found.clock_mhz, found.peak_flop_per_s) == (20, 1650, 20 * 1_650_000_000 * 8192)
    assert found.cube_busy_share == pytest.approx(0.0871, abs=5e-5)
    (product,) = (o for o in result.operators if o.type == "MatMulV3")
    assert product.cube_busy_flop is not None
    assert product.cube_busy_flop / (found.peak_flop_per_s * product.total_ns / 1e9) == pytest.approx(0.70, abs=5e-3)


def test_shapes_that_somebody_edited_are_refused() -> None:
    path = DATA / "msprof-analyze" / "pipe_utilization"
    if not path.exists():
        pytest.skip("no real recordings here")
    result = analyze_path(path)
    found = result.devices[0].efficiency
    assert found is not None and found.contradictions == 9 + 1  # nine products, and an attention with 511 columns
    products = [o for o in result.operators if o.type.startswith("MatMul")]
    assert products and all(o.useful_flop is None for o in products)


def test_json_has_the_promised_fields(tmp_path: Path) -> None:
    from npuperf.show.formats import render

    path = written(tmp_path, [Row(AFTER, 4_000, cycles=cycles_of(4_000), mac=0.5, **SMALL)])  # type: ignore[arg-type]
    document = json.loads(render(analyze_path(path), "json"))
    found = document["devices"][0]["efficiency"]
    assert {"cube_cores", "clock_mhz", "basis", "peak_flop_per_s", "span_ns", "cube_busy_flop", "cube_busy_share",
            "useful_flop", "hfu", "mfu", "parts", "formula_share", "contradictions"} <= found.keys()  # fmt: skip
    assert {"kernels", "palm", "verl"} <= found["mfu"].keys()
    assert [part["part"] for part in found["parts"]] == [
        "useful", "useful_or_padded", "padded", "cube_busy_without_formula", "cube_uncounted", "cube_idle", "vector",
        "communication", "other", "host_wait", "launch_latency", "dependency", "unattributed",
    ]  # fmt: skip
