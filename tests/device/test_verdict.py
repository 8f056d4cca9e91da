"""Verdicts on situations whose answer is known, because a small simulator made them that way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from build import HEADER, H, K, analyze_path, ascend_pt, kernel_details, row
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.device.verdict import Pace, give_verdict
from npuperf.model.result import Elasticity, Partition, Result, Verdict

LATENCY = 8_000  # from the end of a launch to the earliest start, ns
LAUNCH = 2_000  # of the host's time per kernel, the part inside the launch call
BACK_TO_BACK = 400  # between two kernels of a busy stream


@dataclass(frozen=True)
class Op:
    """What the program does next: host time before the launch, device time, and how they depend."""

    host: int
    device: int
    stream: int = 2
    after: int | None = None  # wait for everything on that stream
    sync: bool = False  # the host waits for this kernel


def simulate(program: Iterable[Op]) -> list[K]:
    """Host launches in order; each stream runs its kernels in order; communication is stream 9."""
    clock, free, kernels = 0, dict.fromkeys((2, 5, 9), -BACK_TO_BACK), []
    for i, op in enumerate(program):
        clock += op.host
        ready = max(clock + LATENCY, free[op.stream] + BACK_TO_BACK)
        if op.after is not None:
            ready = max(ready, free[op.after] + BACK_TO_BACK)
        kernel = K(
            ready, op.device, f"k{i}", "Add", stream=op.stream, step=11, launch=clock - LAUNCH, launch_dur=LAUNCH
        )
        if op.stream == 9:
            name = f"hcom_allReduce__{i}_0_1"
            kernel = replace(kernel, name=name, type="hcom_allReduce_", core="COMMUNICATION", stream="N/A", block=0)
        kernels.append(kernel)
        free[op.stream] = ready + op.device
        if op.sync:
            clock = max(clock, free[op.stream])
    return kernels


def wait_times(kernels: list[K]) -> list[str]:
    """Rows with the exporter's Wait Time (FORMATS 3.5): the gap to the end of the row before, over all streams."""
    rows, end = [], None
    for k in sorted(kernels, key=lambda k: k.start):
        cells = row(k).split(",")
        cells[7] = "0" if end is None else str(max(k.start - end, 0) / 1000)
        rows.append(",".join(cells))
        end = k.start + k.dur
    return rows


def host_bound() -> list[K]:
    return simulate([Op(40_000, 6_000)] * 200)


def device_bound() -> list[K]:
    return simulate([Op(8_000, 150_000)] * 200)


def communication_bound() -> list[K]:
    """Layers whose next one needs the sum: 30 µs of compute, then 200 µs of communication that hides nothing."""
    layer = [Op(5_000, 30_000, after=9), Op(5_000, 200_000, stream=9, after=2)]
    return simulate(layer * 100)


def hidden_communication() -> list[K]:
    """The same traffic beside enough independent compute."""
    layer = [Op(5_000, 30_000), Op(5_000, 200_000, stream=9, after=2), *[Op(5_000, 60_000)] * 4]
    return simulate(layer * 60)


def one_stall() -> list[K]:
    """Device-bound, and once the host is away for longer than the queue lasts: 14 ms of host, then 10 of compute."""
    busy = [Op(8_000, 100_000)] * 100
    return simulate([*busy, Op(13_000_000, 100_000), *busy])


def busy_but_paced() -> list[K]:
    """The device is busy 70 % of the time, and every kernel starts one latency after its launch."""
    return simulate([Op(20_000, 14_000)] * 200)


def sync_every_kernel() -> list[K]:
    """The host waits for every kernel: it is never ahead, whatever the kernels cost."""
    return simulate([Op(15_000, 30_000, sync=True)] * 200)


def sync_every_step() -> list[K]:
    """Device-bound steps with one synchronisation each."""
    return simulate(Op(8_000, 100_000, sync=i % 50 == 49) for i in range(200))


def two_streams() -> list[K]:
    """Two streams that the host feeds fast enough."""
    return simulate([Op(8_000, 90_000), Op(8_000, 90_000, stream=5)] * 100)


MEASURED = [
    (host_bound, "host"),
    (device_bound, "compute"),
    (communication_bound, "communication"),
    (hidden_communication, "compute"),
    (one_stall, "host"),
    (busy_but_paced, "host"),
    (sync_every_kernel, "host"),
    (sync_every_step, "compute"),
    (two_streams, "compute"),
]


def verdict(path: Path) -> Verdict:
    return analyze_path(path).verdict


def table(folder: Path, kernels: list[K]) -> Path:
    return kernel_details(folder / "kernel_details.csv", kernels)


@pytest.mark.parametrize(("situation", "bound"), MEASURED, ids=lambda x: getattr(x, "__name__", x))
def test_with_launches_the_verdict_is_measured(tmp_path: Path, situation: Callable[[], list[K]], bound: str) -> None:
    result = analyze_path(ascend_pt(tmp_path, situation()))
    assert (result.verdict.bound, result.verdict.basis) == (bound, "measured"), result.verdict
    (device,) = result.devices
    assert (device.verdict.bound, device.steps[0].verdict.bound) == (bound, bound)
    assert device.clock.launch_latency_ns == LATENCY
    assert result.verdict.reason and result.verdict.evidence


@pytest.mark.parametrize(
    ("situation", "bound", "basis"),
    [
        (host_bound, "host", "inferred"),
        (device_bound, "compute", "measured"),
        (communication_bound, "communication", "measured"),
        (hidden_communication, "compute", "measured"),
        (one_stall, "unknown", "inferred"),
        (busy_but_paced, "host", "inferred"),
        (sync_every_step, "compute", "measured"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_without_launches_it_is_measured_only_where_idle_is_negligible(
    tmp_path: Path, situation: Callable[[], list[K]], bound: str, basis: str
) -> None:
    result = analyze_path(table(tmp_path, situation()))
    assert (result.verdict.bound, result.verdict.basis) == (bound, basis), result.verdict
    (device,) = result.devices
    assert device.partition.unattributed_ns == device.partition.idle_ns
    if basis == "inferred":
        assert "no launch recorded" in str(result.verdict.reason) and "trace_view.json" in str(result.verdict.reason)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(3_000, 80_000), st.integers(1_000, 200_000)), min_size=1, max_size=6),
    st.integers(1, 60),
)
def test_without_launches_host_bound_is_never_measured(costs: list[tuple[int, int]], repeat: int) -> None:
    kernels = simulate([Op(host, device) for host, device in costs] * repeat)
    with TemporaryDirectory() as folder:
        (device,) = analyze_path(table(Path(folder), kernels)).devices
    for found in (device.verdict, device.steps[0].verdict):
        assert (found.bound, found.basis) != ("host", "measured")
        idle = device.partition.idle_ns / device.partition.span_ns
        assert found.basis == ("inferred" if idle >= 0.1 else "measured")


@settings(max_examples=20)
@given(st.integers(10_000, 100_000), st.floats(0.05, 0.75), st.integers(50, 150))
def test_a_host_slower_than_the_device_is_the_bound(host: int, load: float, count: int) -> None:
    """Each kernel takes ``load`` of the host's time per launch: the device waits in every period."""
    kernels = simulate([Op(host, int(load * host))] * count)
    with TemporaryDirectory() as folder:
        assert verdict(ascend_pt(Path(folder), kernels)).bound == "host"


@settings(max_examples=20)
@given(st.integers(3_000, 50_000), st.floats(1.5, 20), st.integers(120, 200))
def test_a_device_slower_than_the_host_is_the_bound(host: int, load: float, count: int) -> None:
    """The host gains on the device with every kernel, so that after the first few it is far ahead."""
    kernels = simulate([Op(host, int(load * host) + 2 * LATENCY)] * count)
    with TemporaryDirectory() as folder:
        assert verdict(ascend_pt(Path(folder), kernels)).bound == "compute"


def test_few_kernels_without_launches_give_no_statistics(tmp_path: Path) -> None:
    few = table(tmp_path, simulate([Op(40_000, 6_000)] * 29))
    found = verdict(few)
    assert (found.bound, found.basis, "29 kernels are too few" in str(found.reason)) == ("unknown", "inferred", True)
    assert verdict(table(tmp_path, simulate([Op(40_000, 6_000)] * 30))).bound == "host"


def test_the_numbers_judged_are_those_of_the_simulation(tmp_path: Path) -> None:
    """Each of 199 periods of 20 µs: 6 µs idle of which all is latency (8 µs), 14 µs of compute."""
    result = analyze_path(ascend_pt(tmp_path, busy_but_paced()))
    p = result.devices[0].partition
    assert (p.span_ns, p.compute_ns, p.idle_ns) == (199 * 20_000 + 14_000, 200 * 14_000, 199 * 6_000)
    assert (p.host_wait_ns, p.launch_latency_ns) == (0, 199 * 6_000)
    evidence = result.verdict.evidence
    assert evidence["idle_share"] == pytest.approx(p.idle_ns / p.span_ns)
    assert evidence["host_paced_share"] == pytest.approx(1.0)


def test_host_wait_and_latency_of_the_simulation(tmp_path: Path) -> None:
    """Periods of 40 µs with 6 µs of work: the launch ends 26 µs after the last kernel, then 8 µs of latency."""
    p = analyze_path(ascend_pt(tmp_path, host_bound())).devices[0].partition
    assert (p.host_wait_ns, p.launch_latency_ns, p.dependency_wait_ns) == (199 * 26_000, 199 * 8_000, 0)


def test_waiting_for_a_dependency_is_not_the_host(tmp_path: Path) -> None:
    """Launches return at once, one latency before an idle device starts; then each kernel waits for another event."""
    kernels = simulate([Op(20_000, 4_000, sync=True)] * 20)
    clock = kernels[-1].start + 100_000
    for i in range(60):
        kernels.append(K(clock + i * 100_000, 40_000, f"w{i}", step=11, launch=clock - 80_000 + i * 1_000))
    result = analyze_path(ascend_pt(tmp_path, kernels))
    (device,) = result.devices
    assert device.clock.launch_latency_ns == LATENCY
    assert device.partition.dependency_wait_ns >= 59 * (60_000 - LATENCY)
    assert result.verdict.bound != "host"


def test_a_host_far_ahead_from_the_first_kernel_on_is_not_the_bound(tmp_path: Path) -> None:
    """A recording starts in the middle of a run: the queue is deep, and kernels wait for events, not for the host.

    Every kernel was launched 0.9 ms or more before it starts. The first one tells nothing about launch latency.
    """
    kernels = [K(i * 100_000, 40_000, f"k{i}", launch=i * 1_000 - 900_000) for i in range(60)]
    result = analyze_path(ascend_pt(tmp_path, kernels))
    p = result.devices[0].partition
    assert (p.idle_ns, p.host_wait_ns) == (59 * 60_000, 0)
    assert result.verdict.bound != "host", result.verdict


def test_copies_that_take_most_of_the_time_are_neither(tmp_path: Path) -> None:
    kernels: list[K] = []
    for i in range(60):
        start = i * 100_000
        kernels.append(K(start, 10_000, f"k{i}", launch=start - 400_000))
        kernels.append(K(start + 10_000, 89_000, "MEMCPY_ASYNC", core="PCIE_DMA_SQE", launch=start - 390_000))
    found = verdict(ascend_pt(tmp_path, kernels))
    assert (found.bound, found.basis) == ("unknown", "measured")
    assert "copies" in str(found.reason)


# --- excerpts ------------------------------------------------------------------------------------------------------


def written(folder: Path, rows: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "kernel_details.csv"
    path.write_text("\r\n".join([HEADER, *rows]) + "\r\n", newline="")
    return path


def is_excerpt(result: Result) -> bool:
    return any("rows are missing" in str(w) for w in result.input.warnings)


@pytest.mark.parametrize("situation", [host_bound, device_bound, busy_but_paced, communication_bound, two_streams])
def test_a_whole_table_is_no_excerpt(tmp_path: Path, situation: Callable[[], list[K]]) -> None:
    kernels = situation()
    result = analyze_path(written(tmp_path, wait_times(kernels)))
    assert not is_excerpt(result)
    assert result.verdict.bound == verdict(table(tmp_path / "plain", kernels)).bound


@pytest.mark.parametrize("keep", [2, 5, 20])
def test_every_nth_row_of_a_table_gives_no_verdict(tmp_path: Path, keep: int) -> None:
    """A device that never idles looks idle once rows are cut out: the Wait Times that are left contradict it."""
    result = analyze_path(written(tmp_path, wait_times(device_bound())[::keep]))
    assert is_excerpt(result)
    (device,) = result.devices
    for found in (result.verdict, device.verdict, *(s.verdict for s in device.steps)):
        assert (found.bound, found.basis) == ("unknown", "inferred")


def test_an_excerpt_with_launches_gives_no_verdict_either(tmp_path: Path) -> None:
    kernels = device_bound()
    folder = ascend_pt(tmp_path, kernels)
    written(folder / "ASCEND_PROFILER_OUTPUT", wait_times(kernels)[::5])
    result = analyze_path(folder)
    assert is_excerpt(result)
    assert result.verdict.bound == "unknown"


def test_excerpts_of_several_devices_give_no_verdict_over_all(tmp_path: Path) -> None:
    rows = [line for d in (0, 1) for line in wait_times([replace(k, device=d) for k in device_bound()])[::5]]
    result = analyze_path(written(tmp_path, rows))
    assert is_excerpt(result)
    assert [d.verdict.bound for d in result.devices] == ["unknown", "unknown"]
    assert result.verdict.bound == "unknown", result.verdict


def test_rounded_start_times_give_no_verdict(tmp_path: Path) -> None:
    """A spreadsheet keeps 15 digits: epochs come back as multiples of 10 ms or more."""
    kernels = [K(i * 10_000_000, 3_000_000, f"k{i}") for i in range(40)]
    result = analyze_path(table(tmp_path, kernels))
    assert any("spreadsheet" in str(w) for w in result.input.warnings)
    assert result.verdict.bound == "unknown"


# --- several devices, chosen steps ---------------------------------------------------------------------------------


def rank(folder: Path, number: int, kernels: list[K]) -> None:
    made = ascend_pt(folder / f"rank{number}", kernels)
    (made / "profiler_info_0.json").unlink()
    (made / f"profiler_info_{number}.json").write_text(json.dumps({"rank_id": number}))


def test_over_several_ranks_the_sum_decides_and_says_who_differs(tmp_path: Path) -> None:
    for number, kernels in enumerate([device_bound(), device_bound(), host_bound()]):
        rank(tmp_path, number, kernels)
    result = analyze_path(tmp_path)
    assert [d.verdict.bound for d in result.devices] == ["compute", "compute", "host"]
    assert result.verdict.bound == "compute"
    assert "3 devices" in str(result.verdict.reason) and "1 host" in str(result.verdict.reason)


def test_each_step_is_judged_on_its_own(tmp_path: Path) -> None:
    """Step 11 is device-bound, step 12, after a pause, host-bound; either can be chosen alone."""
    first = device_bound()
    shift = max(k.start + k.dur for k in first) + 1_000_000
    second = [replace(k, start=k.start + shift, launch=(k.launch or 0) + shift, step=12) for k in host_bound()]
    folder = ascend_pt(tmp_path, [*first, *second])
    (device,) = analyze_path(folder).devices
    assert [(s.step, s.verdict.bound) for s in device.steps] == [(11, "compute"), (12, "host")]
    for step, bound in ((11, "compute"), (12, "host")):
        assert analyze_path(folder, step=step).verdict.bound == bound


# -- Operators launched one by one before a graph whose kernels have no launches of their own.


def mixed(graph: int) -> list[K]:
    """Two steps: 20 kernels of 8 µs as the host launches them, every 40 µs; then kernels of a graph, back to back."""
    kernels, at = [], 0
    for step in (11, 12):
        for _ in range(20):
            kernels.append(K(at, 8_000, step=step, launch=at - 12_000, launch_dur=2_000))
            at += 40_000
        for _ in range(graph):
            kernels.append(K(at, 40_000, "MatMul_7", "MatMulV2", "AI_CORE", block=24, step=step))
            at += 40_500
        at += 20_000
    return kernels


def test_kernels_of_a_graph_are_not_paced_by_the_host(tmp_path: Path) -> None:
    """0.8 ms of the host's pace, then 2.4 ms of a graph that needs no host: what is 10 % faster saves more there."""
    host = [H("aten::mm", -20_000, 1_000, python=True)]
    result = analyze_path(ascend_pt(tmp_path, mixed(graph=60), host=host))
    assert result.devices[0].partition.idle_ns > 0.15 * result.devices[0].partition.span_ns
    assert result.verdict.bound == "compute"


def test_a_small_graph_leaves_the_run_to_the_host(tmp_path: Path) -> None:
    host = [H("aten::mm", -20_000, 1_000, python=True)]
    assert analyze_path(ascend_pt(tmp_path, mixed(graph=4), host=host)).verdict.bound == "host"


# -- What is said of the exporter's own split of a step beside ours.


STEP_HEADER = "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"
STEP = {1: (0, 1_000_000)}


def why(root: Path, computing: str, free: str) -> tuple[bool, str]:
    """One step of 1 ms: 600 µs of kernels from its start, then a gap of 390 µs and 10 µs more."""
    rows = [K(0, 600_000, step=1), K(990_000, 10_000, step=1)]
    folder = ascend_pt(root, rows, STEP)
    table = f"{STEP_HEADER}\n0,1,{computing},0,0,0,{free},0,0\n"
    (folder / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").write_text(table)
    (device,) = analyze_path(folder).devices
    (check,) = device.vendor
    return check.agrees, str(check.why)


def test_the_difference_is_said_and_not_the_tolerance(tmp_path: Path) -> None:
    """610 µs of compute and 390 µs free are ours; theirs are 0.5 µs more and less: that is the difference."""
    agrees, words = why(tmp_path, "610.5", "389.5")
    assert agrees and "the largest difference is 500" in words, words
    assert re.search(r"\d[^,]* is tolerated", words) and "within" not in words
    agrees, words = why(tmp_path / "same", "610", "390")
    assert agrees and "the largest difference is 0 ns" in words, words


def test_how_far_the_host_was_ahead_is_said_of_the_time_of_which_it_is_known() -> None:
    """Of 1,000 ns of compute the launches of 100 are recorded, and of 50 of these the host was hardly ahead."""
    split = Partition(span_ns=2_000, compute_ns=1_000, comm_exposed_ns=0, other_exposed_ns=0, idle_ns=1_000,
                      host_wait_ns=1_000, launch_latency_ns=0, dependency_wait_ns=0, unattributed_ns=0)  # fmt: skip
    said = str(give_verdict(split, Pace(1_000, 100, 50, 10, 0), load_thresholds({})).reason)
    assert "50.0 % of the compute time of which that is known, 10.0 % of all, ran with the host less than" in said
    said = str(give_verdict(split, Pace(1_000, 1_000, 500, 10, 0), load_thresholds({})).reason)
    assert "50.0 % of compute time ran with the host less than" in said


def test_the_shares_of_waiting_for_the_host_are_said() -> None:
    """Of 2,000 ns the device waits 400 for launches and 300 while they are on their way."""
    split = Partition(span_ns=2_000, compute_ns=1_300, comm_exposed_ns=0, other_exposed_ns=0, idle_ns=700,
                      host_wait_ns=400, launch_latency_ns=300, dependency_wait_ns=0, unattributed_ns=0)  # fmt: skip
    pace = Pace(1_300, 1_300, 1_300, 10, 0)
    found = give_verdict(split, pace, load_thresholds({}))
    assert found.bound == "host"
    assert "waiting for the host (20.0 % of span) and launch latency (15.0 %) are together above" in str(found.reason)
    said = str(give_verdict(split, pace, load_thresholds({}), latency_known=False).reason)
    assert "waiting for the host, launch latency included, takes 20.0 % of span" in said
    slope = Elasticity(host=0.6, compute=0.35, communication=-0.01)
    found = give_verdict(split, pace, load_thresholds({}), elasticity=slope)
    assert (found.bound, found.basis) == ("host", "measured")
    said = str(found.reason)
    for words in ("by 6.0 %", "by 3.5 %", "by 0.0 %", "65.0 % of span is compute, 0.0 % exposed communication, "
                  "20.0 % waiting for the host and 15.0 % launch latency"):  # fmt: skip
        assert words in said, words
    said = str(give_verdict(split, pace, load_thresholds({}), elasticity=slope, latency_known=False).reason)
    assert "20.0 % waiting for the host, launch latency included" in said and "15.0 %" not in said
    idle = replace(split, host_wait_ns=0, launch_latency_ns=0, compute_ns=400, other_exposed_ns=450, idle_ns=1_150,
                   dependency_wait_ns=1_000, unattributed_ns=150)  # fmt: skip
    found = give_verdict(idle, pace, load_thresholds({}), elasticity=slope)
    assert found.bound == "unknown" and "(22.5 % of span) and waiting for dependencies (80.0 % together)" in str(
        found.reason
    )
