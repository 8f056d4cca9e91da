"""One quantity, one figure: what docs/quantities.md lists is the same on screen, in tables, JSON, digests and gates."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest
from small_programs import analyzed

from npuperf.model.document import Gate
from npuperf.model.job_result import Cluster
from npuperf.model.result import Device, Partition, Result
from npuperf.show.formats import View, render

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
RECORDINGS = {
    path.name if path.is_relative_to(ROOT) else str(path.relative_to(DATA)): path
    for path in (
        ROOT / "samples" / "transformer_ascend_pt",
        ROOT / "samples" / "micro_batch_ascend_pt",
        ROOT / "samples" / "pipeline_job",
        *(DATA / f"msinsight/{form}/{level}" for form in ("text", "db") for level in ("level0", "level1")),
        DATA / "msinsight/cluster4",
        DATA / "msprof-analyze/timeline",
        DATA / "msprof-analyze/arithmetic_utilization",
        DATA / "op_summary_2026/op_summary_block_over_cores.csv",
        DATA / "hta/ns_resolution_gpu.json.gz",
        DATA / "hta/simple_add_gpu.json.gz",
    )
}
PAGE, BESIDE_PAGE = (ROOT / "docs" / "quantities.md").read_text("utf-8").split("## Beside the partition")


def rows(page: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| ") and "`" in line
    ]


ROWS = rows(PAGE)
#: Of each quantity: its field in a partition, its parts in a digest, its gate.
FIELD = {row[0]: re.findall(r"`(\w+)`", row[2])[0] for row in ROWS}
PARTS = {row[0]: re.findall(r"`(\w+)`", row[3]) for row in ROWS}
GATE = {row[0]: row[4].strip("`") for row in ROWS if row[4]}
#: How the rows of the screen's split begin.
ON_SCREEN = {
    "span": "span", "compute": "compute", "exposed communication": "exposed communication",
    "exposed other": "exposed copies and other work", "idle": "idle", "host wait": "waiting for the host",
}  # fmt: skip


@cache
def result(name: str) -> Result:
    if not RECORDINGS[name].exists():
        pytest.skip("not here")
    gates = tuple(f"{gate}>0{'ns' if gate == 'step_time' else '%'}" for gate in GATE.values())
    return analyzed(RECORDINGS[name], fail_on=gates)


def judged(device: Device) -> Partition:
    return device.judged.partition if device.judged is not None else device.partition


def measured(name: str) -> list[Device]:
    return [device for device in result(name).devices if device.partition.span_ns]


def test_the_page_lists_every_part() -> None:
    assert {*FIELD.values()} == {*Partition.__struct_fields__}
    assert len(ROWS) == len(Partition.__struct_fields__)


@pytest.mark.parametrize("name", RECORDINGS)
def test_steps_and_phases_add_up_part_by_part(name: str) -> None:
    for device in measured(name):
        for field in FIELD.values():
            whole = getattr(judged(device), field)
            if device.phases:  # a rank of which only communication is recorded has none
                assert sum(getattr(phase.partition, field) for phase in device.phases) == whole, field
            if device.whole_steps:
                assert sum(getattr(step.partition, field) for step in device.whole_steps) == whole, field


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_table_of_devices_has_the_same_figures(name: str) -> None:
    rows = list(csv.DictReader(io.StringIO(render(result(name), "csv", View(table="devices")))))
    assert len(rows) == len(result(name).devices)
    for row, device in zip(rows, result(name).devices, strict=True):
        for field in FIELD.values():
            assert int(row[field]) == getattr(judged(device), field), field


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_digest_sums_the_same_over_all_devices(name: str) -> None:
    digest = result(name).digest
    devices = measured(name)
    if digest is None or not devices or result(name).cluster is not None:
        pytest.skip("a job's digest holds what its ranks do not tell alone")
    for quantity, parts in PARTS.items():
        if parts:
            found = sum(part.ns for part in digest.parts if part.part in parts)
            assert found == sum(getattr(judged(d), FIELD[quantity]) for d in devices), quantity


@pytest.mark.parametrize("name", RECORDINGS)
def test_gates_measure_the_same(name: str) -> None:
    """Of every device the median of its steps, else of all that was judged; the worst device counts."""
    devices = measured(name)
    found: dict[str, Gate] = {gate.expr.split(">")[0]: gate for gate in result(name).gates}
    for quantity, gate in GATE.items():
        value = found[gate].value
        if value is None or quantity == "span":
            continue
        shares = []
        for device in devices:
            each = [step.partition for step in device.whole_steps] or [judged(device)]
            shares.append(median(100 * getattr(p, FIELD[quantity]) / p.span_ns for p in each))
        assert value == pytest.approx(max(shares)), quantity


@pytest.mark.parametrize("name", [name for name in RECORDINGS if "job" not in name and "level" not in name])
def test_the_screen_shows_the_same(name: str) -> None:
    if result(name).cluster is not None:
        pytest.skip("a job has another first screen")
    screen = render(result(name), "text", View(width=100))
    (device,) = result(name).devices
    split = screen.split("where the time goes")[1].split("\n\n")[0].replace("\u202f", " ")
    for quantity, words in ON_SCREEN.items():
        ns = getattr(judged(device), FIELD[quantity])
        row = next((line for line in split.splitlines() if line.strip().startswith(words)), None)
        if row is None:
            assert not ns, quantity
        elif quantity != "host wait" or "launches" not in row:
            shown = re.search(rf"{re.escape(words)}\s+([\d \u00a0,]+\.\d+)", row)
            assert shown and float(re.sub(r"[^\d.]", "", shown.group(1))) == round(ns / 1e6, 3), (quantity, row)


# -- Beside the partition: each function yields pairs of what must be equal.


def blamed(found: Result) -> Iterator[tuple[object, object]]:
    for device in found.devices:
        if device.blame:  # none without launches, or without any wait
            yield sum(cause.ns for cause in device.blame), judged(device).host_wait_ns


def streams(found: Result) -> Iterator[tuple[object, object]]:
    for device in found.devices:
        for stream in device.streams:
            p = stream.partition
            yield p.span_ns, judged(device).span_ns
            yield p.compute_ns + p.comm_exposed_ns + p.other_exposed_ns + p.idle_ns, p.span_ns


def operators(found: Result) -> Iterator[tuple[object, object]]:
    """Whether kernels overlap or not, no device computes longer than its operators add up to."""
    ran = found.operators if found.judged_operators is None else found.judged_operators
    computed = sum(judged(d).compute_ns for d in found.devices)
    summed = sum(o.total_ns for o in ran if o.core != "COMMUNICATION")
    if ran and found.cluster is None:  # of a job the longest ones are listed
        yield max(summed, computed), summed
    table = csv.DictReader(io.StringIO(render(found, "csv", View(table="operators"))))
    yield [int(row["total_ns"]) for row in table], [o.total_ns for o in ran]


def efficiency(found: Result) -> Iterator[tuple[object, object]]:
    """Of a device as its window is: its FLOP are those of the peak, but for rounding of floating point."""
    for device in found.devices:
        known = device.efficiency if device.judged is None else device.judged.efficiency
        if known is None or not known.parts:
            continue
        split, ns = judged(device), {part.part: part.ns for part in known.parts}
        whole = known.peak_flop_per_s * split.span_ns / 1e9
        yield sum(ns.values()), split.span_ns
        yield sum(part.flop for part in known.parts), pytest.approx(whole, rel=1e-9)
        yield ns["communication"], split.comm_exposed_ns
        yield ns["other"], split.other_exposed_ns
        waits = ("host_wait", "launch_latency", "dependency", "unattributed")
        yield sum(ns[name] for name in waits), split.idle_ns


def job(found: Result) -> Cluster:
    assert found.cluster is not None
    return found.cluster


def steps_of_ranks(found: Result) -> Iterator[tuple[object, object]]:
    for rank, device in zip(job(found).ranks, found.devices, strict=True):
        spans = [step.partition.span_ns for step in device.whole_steps]
        yield rank.step_ns, sum(spans) // len(spans)


#: Exposed operations of groups with one member, ns, added up in communication.json: the ranks' communication has none.
ALONE = {"cluster4/rank_2_ascend_pt": 15_200, "cluster4/rank_3_ascend_pt": 15_140}


def times_of_ranks(found: Result) -> Iterator[tuple[object, object]]:
    for rank, device in zip(job(found).ranks, found.devices, strict=True):
        p, comm = judged(device), rank.comm
        yield (rank.compute_ns, rank.host_wait_ns or 0, rank.idle_ns), (p.compute_ns, p.host_wait_ns, p.idle_ns)
        yield (comm.exposed_wait_ns, comm.exposed_unknown_ns), (p.comm_wait_ns, p.comm_unknown_ns)
        yield comm.exposed_transfer_ns + ALONE.get("/".join(rank.source.split("/")[-2:]), 0), p.comm_transfer_ns


def stays(found: Result) -> Iterator[tuple[object, object]]:
    for rank in job(found).ranks:
        yield rank.comm.total_ns, rank.comm.transfer_ns + rank.comm.wait_ns + rank.comm.unknown_ns
        yield sum(rank.comm.wait_by_kind.values()), rank.comm.wait_ns
    table = csv.DictReader(io.StringIO(render(found, "csv", View(table="ranks"))))
    fields = ("transfer_ns", "wait_ns", "unknown_ns")
    yield (
        [[int(row[f]) for f in fields] for row in table],
        [[getattr(rank.comm, f) // job(found).steps for f in fields] for rank in job(found).ranks],
    )


def sums_of_ranks(found: Result) -> tuple[int, int]:
    ranks = job(found).ranks
    return sum(r.comm.transfer_ns for r in ranks), sum(r.comm.wait_ns for r in ranks)


def collectives(found: Result) -> Iterator[tuple[object, object]]:
    listed = job(found).collectives
    yield (
        (sum(c.transfer_ns * len(c.ranks) for c in listed), sum(sum(c.wait_ns) for c in listed)),
        sums_of_ranks(found),
    )


def groups(found: Result) -> Iterator[tuple[object, object]]:
    yield (
        (sum(g.transfer_ns for g in job(found).groups), sum(g.wait_ns for g in job(found).groups)),
        sums_of_ranks(found),
    )
    yield sum(g.unknown_ns for g in job(found).groups), sum(r.comm.unknown_ns for r in job(found).ranks)


def roots(found: Result) -> Iterator[tuple[object, object]]:
    waits = sum(root.wait_ns for root in job(found).roots)
    yield abs(waits - sums_of_ranks(found)[1]) <= len(job(found).roots), True  # each is rounded
    yield round(sum(root.share for root in job(found).roots), 9), 1.0


def step_of_the_job(found: Result) -> Iterator[tuple[object, object]]:
    (gate,) = (gate for gate in found.gates if gate.expr.startswith("step_time"))
    yield gate.value, job(found).step_ns
    shown = re.search(
        r"([\d.]+) (m?s)/step", render(found, "text", View(width=100)).split("\n\n")[0].replace("\u202f", " ")
    )
    assert shown
    yield shown.group(1), f"{job(found).step_ns / (1e6 if shown.group(2) == 'ms' else 1e9):.2f}"


BESIDE: dict[str, Callable[[Result], Iterator[tuple[object, object]]]] = {
    "causes of waiting for the host": blamed,
    "parts of streams": streams,
    "operators' time": operators,
    "parts of efficiency": efficiency,
    "step of a rank": steps_of_ranks,
    "compute, host wait, idle, exposed of a rank": times_of_ranks,
    "stay": stays,
    "transfer and wait of operations": collectives,
    "transfer, wait, unknown of groups": groups,
    "wait by root": roots,
    "step of the job": step_of_the_job,
}
OF_JOBS = [*BESIDE][4:]


def test_the_page_lists_the_others_too() -> None:
    assert [row[0] for row in rows(BESIDE_PAGE)] == [*BESIDE]


@pytest.mark.parametrize("quantity", BESIDE)
@pytest.mark.parametrize("name", RECORDINGS)
def test_the_others_equal_what_the_page_says(name: str, quantity: str) -> None:
    found = result(name)
    if quantity in OF_JOBS and found.cluster is None:
        pytest.skip("no job")
    for one, other in BESIDE[quantity](found):
        assert one == other
