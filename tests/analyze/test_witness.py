"""A kernel table that was cut is found by what other files of the recording tell, and a whole one never fails."""

from __future__ import annotations

import csv
import io
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from build import H, K, analyze_path, ascend_pt, kernel_details

from npuperf.advise import load_thresholds
from npuperf.against.compare import compare_results
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.witness import _check
from npuperf.model.result import Result, WitnessCheck

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "msinsight"
REAL = ("text/level0/rank0_ascend_pt", "text/level1/rank0_ascend_pt", "text/level1/rank1_ascend_pt",
        "cluster4/rank_0_ascend_pt", "cluster4/rank_2_ascend_pt")  # fmt: skip
Rows = list[dict[str, str]]


def table_of(folder: Path) -> Path:
    (table,) = folder.rglob("kernel_details.csv")
    return table


def rows_of(table: Path) -> Rows:
    return list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8-sig"))))


def write(table: Path, rows: Rows) -> None:
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)


def compute(rows: Rows) -> Rows:
    return [r for r in rows if not r["Name"].startswith("hcom_")]


def time_of(rows: Rows) -> float:
    """Durations added up, µs: kernels of these recordings do not overlap."""
    return sum(float(r["Duration(us)"]) for r in rows)


# --- how a table is cut, each time by more than 5 % and less than all of compute -------------------------------------


def by_time(rows: Rows) -> Rows:
    return sorted(rows, key=lambda r: float(r["Start Time(us)"]))


def end(rows: Rows) -> Rows:
    ordered = by_time(rows)
    return ordered[: len(ordered) * 2 // 3]


def beginning(rows: Rows) -> Rows:
    ordered = by_time(rows)
    return ordered[len(ordered) // 3 :]


def middle(rows: Rows) -> Rows:
    ordered = by_time(rows)
    return ordered[: len(ordered) // 3] + ordered[len(ordered) * 2 // 3 :]


def one_type(rows: Rows) -> Rows:
    times: Counter[str] = Counter()
    for r in compute(rows):
        times[r["Type"] if r["Type"] != "N/A" else r["Name"].rpartition("_")[2]] += float(r["Duration(us)"])  # type: ignore[assignment]
    ((longest, _),) = times.most_common(1)
    return [r for r in rows if r not in compute(rows) or longest not in (r["Type"], r["Name"].rpartition("_")[2])]


def nearly_all(rows: Rows) -> Rows:
    """What one real folder had: a thirty-seventh of the compute that its step_trace_time.csv counts."""
    return by_time(rows)[: len(rows) // 30]


CUTS: Sequence[Callable[[Rows], Rows]] = (end, beginning, middle, one_type, nearly_all)


@pytest.fixture
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if not (DATA / request.param).is_dir():
        pytest.skip("public recordings are not here")
    copy = tmp_path / Path(request.param).name
    shutil.copytree(DATA / request.param, copy)
    return copy


def failing(result: Result) -> list[WitnessCheck]:
    return [w for device in result.devices for w in device.witnesses if not w.holds]


@pytest.mark.parametrize("real", REAL, indirect=True)
@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.__name__)
@pytest.mark.parametrize("timeline", [True, False], ids=["timeline", "table alone"])
def test_a_cut_table_of_a_real_recording_is_found(real: Path, cut: Callable[[Rows], Rows], timeline: bool) -> None:
    table = table_of(real)
    whole = rows_of(table)
    rows = cut(whole)
    missing = 1 - time_of(compute(rows)) / time_of(compute(whole))
    assert missing > 0.05, "else there would be nothing to find"
    write(table, rows)
    traces = list(real.rglob("trace_view.json"))
    if not timeline:
        for trace in traces:
            trace.unlink()
    elif not traces:
        pytest.skip("this one has no timeline")
    result = analyze_path(real)
    (device,) = result.devices
    assert (result.verdict.bound, device.verdict.bound) == ("unknown", "unknown")
    (by_steps,) = [w for w in device.witnesses if w.total == "compute"]
    assert by_steps.missing_share == pytest.approx(missing, abs=1e-4)
    assert by_steps in failing(result)
    said = str(result.verdict.reason)
    assert "missing" in said and any(w.source in said for w in failing(result))
    assert any("rows are missing" in str(w) for w in result.input.warnings)
    assert not [f for f in result.findings if f.status == "ok" and f.rule in ("ai_cpu", "casts", "copies", "layout")]
    assert all(w.reason is not None for w in result.what_if), "nothing is replayed"


@pytest.mark.parametrize("real", REAL, indirect=True)
def test_a_whole_recording_passes_every_check(real: Path) -> None:
    result = analyze_path(real)
    (device,) = result.devices
    assert device.witnesses and all(w.missing_share < 1e-4 for w in device.witnesses)
    assert "missing" not in str(result.verdict.reason)


def test_a_database_that_lost_tasks_is_found(tmp_path: Path) -> None:
    source = DATA / "db" / "level1" / "rank0_ascend_pt"
    if not source.is_dir():
        pytest.skip("public recordings are not here")
    folder = tmp_path / source.name
    shutil.copytree(source, folder)
    (path,) = folder.rglob("ascend_pytorch_profiler*.db")
    with closing(sqlite3.connect(path)) as db:
        kernels = "TASK t JOIN COMPUTE_TASK_INFO c ON c.globalTaskId = t.globalTaskId"
        ids = [i for (i,) in db.execute(f"SELECT t.globalTaskId FROM {kernels} ORDER BY startNs")]
        gone = ids[len(ids) // 2 :]
        db.executemany("DELETE FROM TASK WHERE globalTaskId = ?", [(i,) for i in gone])
        db.executemany("DELETE FROM COMPUTE_TASK_INFO WHERE globalTaskId = ?", [(i,) for i in gone])
        db.commit()
    result = analyze_path(folder)
    (check,) = failing(result)
    assert (check.total, check.source) == ("compute", "analysis.db")
    assert check.told == 8_903_431 and check.missing_share > 0.5  # told: of the page on real profiles, too
    assert result.verdict.bound == "unknown"


# --- recordings of our own: complete ones of many shapes, and what each witness finds --------------------------------

MS = 1_000_000
STEPS = range(10, 16)
LENGTH = 10 * MS


def program(*, streams: int = 1, collectives: bool = True, tail: int = 0, early: int = 0) -> list[K]:
    """Six steps of 10 ms: ten kernels of 300 µs each, on each stream, and a collective of 2 ms that they overlap.

    ``tail``: by how much the device is behind the host, so that the last kernels of a step begin in the next one;
    ``early``: kernels before the first step, as of warming up.
    """
    kernels = [K(-20 * MS + i * MS, 400_000, f"warm{i}") for i in range(early)]
    for at, step in enumerate(STEPS):
        begin = at * LENGTH + tail
        for stream in range(2, 2 + streams):
            kernels += [
                K(begin + i * 800_000 + 50_000 * stream, 300_000, f"k{i}", ("MatMulV2", "Add", "Add")[i % 3],
                  stream=stream, step=step, launch=at * LENGTH + i * 700_000)
                for i in range(10)
            ]  # fmt: skip
        if collectives:
            kernels.append(K(begin + 7 * MS, 2 * MS, f"hcom_allReduce__001_{at}_1", "hcom_allReduce_", "COMMUNICATION",
                             "N/A", 0, step=step))  # fmt: skip
    return kernels


def compute_time(kernels: list[K], begin: int, end: int) -> int:
    """The time in which a kernel ran that began between two times, ns, µs by µs: a slow second way."""
    ran = {t for k in kernels if k.core != "COMMUNICATION" and begin <= k.start < end
           for t in range(k.start // 1000, (k.start + k.dur) // 1000)}  # fmt: skip
    return 1000 * len(ran)


def recording(root: Path, kernels: list[K], *, statistic: bool = True, split: bool = True, **built: object) -> Path:
    """A folder with everything that an exporter writes of these kernels, and their totals."""
    steps = {step: (at * LENGTH, (at + 1) * LENGTH) for at, step in enumerate(STEPS)}
    host = [
        H("aten::add", at * LENGTH + i * 700_000, 100_000, python=True) for at in range(len(STEPS)) for i in range(10)
    ]
    folder = ascend_pt(root, kernels, steps, host=host)
    output = folder / "ASCEND_PROFILER_OUTPUT"
    own = [k for k in kernels if k.core != "COMMUNICATION"]
    if split:
        lines = ["Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"]
        for step, (begin, end) in steps.items():
            computing = compute_time(kernels, begin, end) / 1000
            together = sum(k.dur for k in kernels if k.core == "COMMUNICATION" and begin <= k.start < end) / 1000
            lines.append(f"0,{step},{computing},{together},0,{together},{10_000 - computing - together},10000,0")
        (output / "step_trace_time.csv").write_text("\n".join(lines) + "\n")
    if statistic:
        lines = ["Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)"]
        for type_ in sorted({k.type for k in own}):
            mine = [k.dur / 1000 for k in own if k.type == type_]
            total = sum(mine)
            lines.append(f"0,{type_},AI_VECTOR_CORE,{len(mine)},{total},{min(mine)},{total / len(mine)},{max(mine)},1")
        (output / "op_statistic.csv").write_text("\n".join(lines) + "\n")
    return folder


SHAPES = {
    "plain": program(),
    "two streams that overlap": program(streams=2),
    "no collectives": program(collectives=False),
    "a device behind its host": program(tail=4 * MS),
    "warming up": program(early=8),
}


@pytest.mark.parametrize("kernels", SHAPES.values(), ids=SHAPES)
def test_a_complete_recording_never_fails(tmp_path: Path, kernels: list[K]) -> None:
    result = analyze_path(recording(tmp_path, kernels))
    (device,) = result.devices
    assert {w.source for w in device.witnesses} >= {"step_trace_time.csv", "op_statistic.csv", "trace_view.json"}
    assert all(w.holds and w.missing_share == 0 for w in device.witnesses)
    assert not any("missing" in str(said) for said in (device.verdict.reason, *result.input.warnings))


@pytest.mark.parametrize("kernels", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("witness", ["step_trace_time.csv", "op_statistic.csv", "trace_view.json"])
def test_each_witness_finds_a_cut_end_alone(tmp_path: Path, kernels: list[K], witness: str) -> None:
    folder = recording(tmp_path, kernels)
    output = folder / "ASCEND_PROFILER_OUTPUT"
    for other in {"step_trace_time.csv", "op_statistic.csv", "trace_view.json"} - {witness}:
        (output / other).unlink()
    left = [k for k in kernels if k.start < 3 * LENGTH]
    kernel_details(output / "kernel_details.csv", left)
    result = analyze_path(folder)
    assert {w.source for w in failing(result)} - {"ProfilerStep# ranges"} == {witness}
    assert result.verdict.bound == "unknown" and "rows are missing" in str(result.verdict.reason)


def test_steps_of_the_host_without_a_task_are_missing(tmp_path: Path) -> None:
    """Table and device's timeline both end early, as those of a run whose device data did not fit: the host went on."""
    folder = recording(tmp_path, [k for k in program() if k.start < 3 * LENGTH], split=False, statistic=False)
    result = analyze_path(folder)
    (check,) = failing(result)
    assert (check.total, check.told, check.found, check.unit) == ("steps", 6, 3, "count")
    assert result.verdict.bound == "unknown"


def test_a_little_less_is_a_fact_and_turns_no_verdict(tmp_path: Path) -> None:
    """Two of 60 kernels are 3.3 %: the verdict stands, and no gate on their number passes."""
    kernels = program()
    folder = recording(tmp_path / "cut", kernels, split=False)
    left = [k for k in kernels if not (k.step == 15 and k.name in ("k8", "k9"))]
    kernel_details(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", left)
    (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").unlink()
    result = analyze_path(folder, fail_on=("count.launches>1000",))
    (check,) = [w for w in result.devices[0].witnesses if w.total == "kernels"]
    assert (check.told, check.found, check.holds) == (60, 58, True)
    assert check.missing_share == pytest.approx(2 / 60)
    assert not any("rows are missing" in str(w) for w in result.input.warnings)
    (gate,) = result.gates
    assert gate.status == "cannot_tell" and "2 kernels that other files count" in str(gate.reason)


def test_gates_and_comparisons_of_a_cut_table_cannot_tell(tmp_path: Path) -> None:
    """Half of the launches are gone: no gate passes for that, and nothing is called the same."""
    kernels = program()
    whole = recording(tmp_path / "whole", kernels)
    folder = recording(tmp_path / "cut", kernels)
    left = [k for i, k in enumerate(kernels) if k.core == "COMMUNICATION" or i % 2]
    kernel_details(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", left)
    gates = (
        "count.launches>+0",
        "step_time>+50%",
        "idle>99",
        "op:Add>1s",
        "comm.exposed>99",
        "bytes.comm>+0",
        "host_wait>99",
    )
    result = run(AnalyzeRequest(path=folder, baseline=(whole,), fail_on=gates))
    assert {g.expr: g.status for g in result.gates} == dict.fromkeys(gates, "cannot_tell")
    (again,) = (analyze_path(whole),)
    found = compare_results([again], [result], load_thresholds(None))
    assert found.verdict == "cannot_tell" and "rows are missing" in str(found.reason)
    assert all(g.status == "pass" for g in run(AnalyzeRequest(path=whole, baseline=(whole,), fail_on=gates[:1])).gates)


def test_counts_of_another_device_are_no_witness(tmp_path: Path) -> None:
    """Two devices in one folder, each with its own rows everywhere: what is of both is not held against one."""
    kernels = program(collectives=False)
    folder = recording(tmp_path, kernels, split=False)
    output = folder / "ASCEND_PROFILER_OUTPUT"
    both = [*kernels, *(K(k.start, k.dur, k.name, k.type, k.core, k.stream, step=k.step, device=1) for k in kernels)]
    kernel_details(output / "kernel_details.csv", both)
    (output / "trace_view.json").unlink()
    statistic = (output / "op_statistic.csv").read_text().splitlines()
    (output / "op_statistic.csv").write_text(
        "\n".join([*statistic, *("1" + line[1:] for line in statistic[1:])]) + "\n"
    )
    result = analyze_path(folder)
    assert [[(w.told, w.found) for w in d.witnesses if w.total == "kernels"] for d in result.devices] == [
        [(60, 60)]
    ] * 2
    assert not failing(result)
    (output / "op_statistic.csv").write_text("\n".join(line.partition(",")[2] for line in statistic) + "\n")
    assert not any(d.witnesses for d in analyze_path(folder).devices), "whose these are is not told"


@pytest.mark.parametrize(
    ("total", "told", "found", "missing", "words"),
    [
        ("kernel_time", 2_000_000, 1_500_000, 0.25, "1.50 ms here, 2.00 ms in x (25.0 % missing)"),
        ("kernel_time", 2_000_000, 1_999_000, 0.0, "2.00 ms here, 2.00 ms in x"),  # files round to µs
        ("kernels", 2_000, 1_500, 0.25, "1500 here, 2000 in x (25.0 % missing)"),
        ("kernels", 2_000, 2_001, 0.0, "2001 here, 2000 in x"),
    ],
)
def test_totals_are_told_in_their_units(total: Any, told: int, found: int, missing: float, words: str) -> None:
    check = _check(total, "x", told, found, load_thresholds())
    assert (check.missing_share, str(check.figures).partition(": ")[2], check.holds) == (missing, words, not missing)
