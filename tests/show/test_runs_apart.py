"""Tables of several runs, tables without rows, and names that would fill a screen."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest
from build import H, K, analyze_path, ascend_pt

from npuperf.model.result import Result
from npuperf.show.analysis_tables import TABLES
from npuperf.show.formats import View, render

SAMPLES = Path(__file__).parents[2] / "samples"
SAMPLE = SAMPLES / "transformer_ascend_pt"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The same rank twice, recorded before and after a change."""
    folder = tmp_path_factory.mktemp("two")
    for run in ("before", "after"):
        shutil.copytree(SAMPLE, folder / run / SAMPLE.name)
    return analyze_path(folder)


def shown(result: Result, table: str, output: str = "text") -> str:
    return render(result, output, View(table=table, width=200))


@pytest.mark.parametrize(
    "table", ["devices", "phases", "steps", "syncs", "kernels", "findings", "what_if", "blame", "vendor"]
)
def test_two_runs_are_told_apart_in_every_table(two: Result, table: str) -> None:
    text = shown(two, table)
    assert "before" in text and "after" in text
    rows = list(csv.DictReader(io.StringIO(shown(two, table, "csv"))))
    assert {row["run"] for row in rows} == {"before", "after"}
    assert [*rows[0]][:2] == ["rank", "device"] and [*rows[0]][-1] == "run", "other columns keep their places"


def test_two_runs_are_told_apart_on_the_screen(two: Result) -> None:
    text = render(two, "text", View(width=120))
    assert "after, rank 0, device 0: " in text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("devices, in % of span"))
    assert [line.split()[0] for line in lines[at + 2 : at + 4]] == ["after", "before"]


def test_one_run_has_no_such_column() -> None:
    result = analyze_path(SAMPLE)
    assert all(d.run is None for d in result.devices) and "run" not in shown(result, "devices").split("\n")[0]
    assert {d.run for d in analyze_path(SAMPLES / "pipeline_job").devices} == {None}, "its ranks tell them apart"


def test_tables_of_one_folder_are_called_by_their_files(tmp_path: Path) -> None:
    """Two op_summary files beside each other, neither of which names a rank."""
    table = (SAMPLE / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").read_text()
    for name in ("op_summary_old.csv", "op_summary_new.csv"):
        (tmp_path / name).write_text(table)
    assert [d.run for d in analyze_path(tmp_path).devices] == ["op_summary_new.csv", "op_summary_old.csv"]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("output", ["text", "markdown"])
def test_a_table_without_rows_says_why(tmp_path: Path, table: object, output: str) -> None:
    """A lonely kernel without steps, launches, counters, other ranks or a baseline leaves most tables empty."""
    path = tmp_path / "op_summary.csv"
    path.write_text("Op Name,Task Start Time(us),Task Duration(us)\nadd,1736413971558972.912,5.5\n")
    result = analyze_path(path)
    name = table.name  # type: ignore[attr-defined]
    said = shown(result, name, output)
    assert said.strip()
    rows = list(table.rows(result))  # type: ignore[attr-defined]
    assert ("no rows, as" in " ".join(said.split())) == (not rows)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("gates", "no gate was given (--fail-on, --gates, --expect-cores)"),
        ("comparison", "nothing is compared (npuperf analyze NEW --baseline OLD)"),
        ("links", "no two ranks here are known to be of one job"),
        ("suggestions", "there is no prof_rule*.json"),
    ],
)
def test_the_reason_is_the_table_s(table: str, why: str) -> None:
    assert why in " ".join(shown(analyze_path(SAMPLE), table).split())
    assert not shown(analyze_path(SAMPLE), table, "csv").startswith("no rows"), "CSV has its header alone"


def test_what_is_there_is_not_said_to_lack(tmp_path: Path) -> None:
    """step_trace_time.csv was read; that it has no row of the step that was asked for is another thing."""
    text = shown(analyze_path(SAMPLE, step=12), "host_sums")
    assert "api_statistic*.csv" in text
    folder = tmp_path / SAMPLE.name
    shutil.copytree(SAMPLE, folder)
    (path,) = folder.rglob("step_trace_time.csv")
    path.write_text("\n".join(path.read_text().splitlines()[:1]) + "\n")
    assert "there is no step_trace_time.csv" not in shown(analyze_path(folder), "vendor")


LONG = "triton_poi_fused_" + "_".join(f"mul_{i}" for i in range(120))
LINES = "elementwise_kernel<4,\n" + ",\n".join(f"at::native::Functor{i}" for i in range(12)) + ">"


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Kernels, operators of torch and call stacks whose names would each take eight lines or more."""
    kernels = [
        K(s * 10_000_000 + i * 200_000, 100_000, (LONG, LINES)[i % 2], (LONG, LINES)[i % 2], step=s,
          launch=s * 10_000_000 + i * 200_000 - 90_000, launch_dur=50_000)
        for s in range(3) for i in range(40)
    ]  # fmt: skip
    host = [H(LONG, k.launch - 5_000, 90_000, python=True) for k in kernels if k.launch is not None]
    steps = {s: (s * 10_000_000 - 100_000, (s + 1) * 10_000_000 - 100_000) for s in range(3)}
    folder = ascend_pt(tmp_path_factory.mktemp("names"), kernels, steps, host=host)
    (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").unlink()  # whose cells the builder does not quote
    return analyze_path(folder)


@pytest.mark.parametrize("full", [False, True])
def test_no_name_takes_more_than_three_lines(named: Result, full: bool) -> None:
    for view in (
        View(width=80, full=full),
        *(View(width=80, table=t) for t in ("operators", "kernels", "phases", "blame")),
    ):
        lines = render(named, "text", view).splitlines()
        ends = [i for i, line in enumerate(lines) if "mul_50_" in line or "Functor6" in line]
        assert not ends, [lines[i] for i in ends]
    assert "mul_119" in render(named, "text", View(width=80, table="kernels")), "its end is there"
    assert LONG in render(named, "csv", View(table="kernels")), "CSV has it whole"
