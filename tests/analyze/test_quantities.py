"""One quantity, one figure: what docs/quantities.md lists is the same on screen, in tables, JSON, digests and gates."""

from __future__ import annotations

import csv
import io
import re
from functools import cache
from pathlib import Path
from statistics import median

import pytest
from small_programs import analyzed

from npuperf.model.document import Gate
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
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "quantities.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and "`" in line
]
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
