"""``npuperf.load``: pandas tables that share one reading with the analysis."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from build import K, ascend_pt

import npuperf
from npuperf.base.errors import InputError, UsageError
from npuperf.base.messages import say
from npuperf.cli.api import ReadableFrame
from npuperf.readers import recording
from npuperf.show import language

SAMPLES = Path(__file__).resolve().parent.parent / "samples"


def profile(root: Path) -> Path:
    """Four kernels of 10 µs on one stream, launched 20 µs before they start."""
    starts = range(0, 4 * 30_000, 30_000)
    kernels = [K(s, 10_000, step=11 + i // 2, launch=s - 20_000, launch_dur=1_000) for i, s in enumerate(starts)]
    return ascend_pt(root, kernels, cores="24,48")


def test_everything_shares_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    real = recording.read_source
    monkeypatch.setattr(recording, "read_source", lambda *asked: read.append(asked[0]) or real(*asked))
    run = npuperf.load(profile(tmp_path))
    assert read == []
    assert (len(run.kernels), len(run.launches), len(run.steps), len(run.devices)) == (4, 4, 2, 1)
    assert run.verdict is run.result.verdict
    assert run.partition["span_ns"].tolist() == [100_000]
    assert run.operators[["type", "count", "total_ns"]].values.tolist() == [["Add", 4, 40_000]]
    assert len(read) == 1


def test_partition_begins_with_the_first_task(tmp_path: Path) -> None:
    """The host begins its step 30 µs before the first kernel: there the step begins, and not the device's partition."""
    kernels = [K(s, 10_000, step=11, launch=s - 20_000, launch_dur=1_000) for s in (0, 30_000)]
    run = npuperf.load(ascend_pt(tmp_path, kernels, {11: (-30_000, 60_000)}, cores="24,48"))
    first = run.tasks["start_ns"].min()
    assert run.partition[["start_ns", "span_ns"]].values.tolist() == [[first, 40_000]]
    assert run.steps[["start_ns", "span_ns"]].values.tolist() == [[first - 30_000, 90_000]]
    assert run.devices["span_ns"].tolist() == [90_000]


def test_tables_hold_plain_sentences(tmp_path: Path) -> None:
    run = npuperf.load(profile(tmp_path))
    assert {type(title) for title in run.findings["title"]} == {str}
    assert set(run.findings["status"]) <= {"problem", "ok", "cannot_tell"}
    assert {type(label) for label in run.phases["label"]} <= {str, type(None)}


def test_a_run_says_what_it_is(tmp_path: Path) -> None:
    shown = repr(npuperf.load(profile(tmp_path)))
    assert shown.startswith("npuperf.load(")
    assert "2 steps · " in shown
    assert len(shown.splitlines()) <= 14
    with language.speaking("zh"):
        assert "2 步 · " in repr(npuperf.load(tmp_path))


def test_steps_and_findings_print_as_sentences(tmp_path: Path) -> None:
    """What a part of them is prints as a table, as of any frame."""
    run = npuperf.load(profile(tmp_path))
    steps = repr(run.steps).splitlines()
    assert [line.split(":")[0] for line in steps] == ["step 11", "step 12", "[2 × 17"]
    assert type(run.steps.head(1)) is pd.DataFrame
    problem = next(f for f in run.result.findings if f.status == "problem")
    first, *others, _ = repr(run.findings).splitlines()
    assert first.startswith(str(problem.title))
    assert first.endswith("→ " + str(problem.next))
    unknown = [f for f in run.result.findings if f.status == "cannot_tell"]
    assert others == [f"cannot tell: {f.title!s}: {f.needs!s}" for f in unknown]
    assert "<li>step 11: " in run.steps._repr_html_()


def test_what_prints_is_escaped_and_bounded(tmp_path: Path) -> None:
    many = ReadableFrame.of(pd.DataFrame({"a": range(90)}), [say("{name}", name=f"<b>\x1b[31m{n}") for n in range(90)])
    assert "\x1b" not in repr(many)
    assert "<b>" not in many._repr_html_()
    lines = repr(many).splitlines()
    assert (len(lines), lines[10], lines[-1]) == (22, "… 70 more", "[90 × 1: a]")


def test_kernels_have_their_line_of_code_and_no_empty_categories() -> None:
    run = npuperf.load(SAMPLES / "transformer_ascend_pt")
    kernels = run.kernels
    matmul = kernels[(kernels["torch_op"] == "aten::embedding")]
    assert set(matmul["where"]) == {"train.py:52 step"}
    for name in kernels.select_dtypes("category"):
        assert set(kernels[name].cat.categories) == set(kernels[name].dropna()), name


def test_nothing_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no profile found"):
        npuperf.load(tmp_path)


def test_runs_are_compared(tmp_path: Path) -> None:
    """The second kernel of either step takes 5 µs longer, and is launched where it was."""
    old = npuperf.load(profile(tmp_path / "old"))
    kernels = [
        K(s, 10_000 + i % 2 * 5_000, step=11 + i // 2, launch=s - 20_000, launch_dur=1_000)
        for i, s in enumerate(range(0, 4 * 30_000, 30_000))
    ]
    new = npuperf.load(ascend_pt(tmp_path / "new", kernels, cores="24,48"))
    compared = new.compare(old)
    assert compared.delta_ns == sum(part.delta_ns for part in compared.waterfall)
    assert [part.delta_ns for part in compared.waterfall if part.part == "compute"] == [5_000]
    assert old.compare(new).delta_ns == -compared.delta_ns
    assert new.compare(old, old).samples == compared.samples  # one recording, however often it is given
    tables = new.changes(old)
    assert tables["waterfall"]["delta_ns"].sum() == compared.delta_ns
    assert {"comparison", "waterfall", "parity", "compared", "shifts"} <= tables.keys()
    with pytest.raises(UsageError, match="at least one"):
        new.compare()
