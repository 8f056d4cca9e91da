"""Real pairs: what the waterfall says is what the raw files say by themselves (``real_pairs.py``), to the ns."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest
import real_pairs
from real_pairs import Raw

from npuperf.advise import load_thresholds
from npuperf.against.compare import compare_results
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.comparison import Comparison
from npuperf.model.result import Result

DATA = Path(__file__).parents[3] / "shared" / "data"
TEXT, DB = "msinsight/text/level", "msinsight/db/level"
RANK = "msinsight/cluster4/rank_{}_ascend_pt"
#: Baseline, run, and whether both name operators alike, so that every key is held against the files.
PAIRS = {
    "text, rank 0 and 1": (f"{TEXT}1/rank0_ascend_pt", f"{TEXT}1/rank1_ascend_pt", True),
    "db, rank 0 and 1": (f"{DB}1/rank0_ascend_pt", f"{DB}1/rank1_ascend_pt", True),
    "text and db, rank 0": (f"{TEXT}1/rank0_ascend_pt", f"{DB}1/rank0_ascend_pt", True),
    "text and db, rank 1": (f"{TEXT}1/rank1_ascend_pt", f"{DB}1/rank1_ascend_pt", True),
    "text, Level0 and Level1": (f"{TEXT}0/rank0_ascend_pt", f"{TEXT}1/rank0_ascend_pt", False),
    "db, Level0 and Level1": (f"{DB}0/rank0_ascend_pt", f"{DB}1/rank0_ascend_pt", False),
    "two stages of a pipeline": (RANK.format(0), RANK.format(2), False),
    "op_summary": ("op_summary_2026/op_summary_block_over_cores.csv",
                   "op_summary_2026/op_summary_pipe_utilization.csv", False),
    "two GPUs": ("hta/simple_add_gpu.json.gz", "hta/alexnet_gpu.json.gz", True),
}  # fmt: skip
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")


@cache
def analyzed(path: str) -> Result:
    return run(AnalyzeRequest(path=DATA / path))


@cache
def raw(path: str) -> Raw:
    return real_pairs.read(DATA / path)


def compare(old: str, new: str) -> Comparison:
    return compare_results([analyzed(old)], [analyzed(new)], load_thresholds(), allow_mismatch=True)


@pytest.mark.parametrize("name", PAIRS)
def test_the_step_and_its_parts(name: str) -> None:
    """All of it, compute, and exposed communication."""
    old, new, _ = PAIRS[name]
    found, (a, b) = compare(old, new), (raw(old), raw(new))
    assert (a.windows, b.windows) == (1, 1)
    assert (found.old_step_ns, found.new_step_ns, found.delta_ns) == (a.span_ns, b.span_ns, b.span_ns - a.span_ns)
    assert sum(part.delta_ns for part in found.waterfall) == found.delta_ns
    sums = defaultdict(lambda: (0, 0))
    for part in found.waterfall:
        sums[part.part] = sums[part.part][0] + part.old_ns, sums[part.part][1] + part.new_ns
    assert sums["compute"] == (a.compute_ns, b.compute_ns)
    assert sums["comm_unknown"] == (a.communication_ns, b.communication_ns)
    assert found.verdict == "cannot_tell"  # one step each


@pytest.mark.parametrize("name", [name for name, (*_, alike) in PAIRS.items() if alike])
def test_every_operator(name: str) -> None:
    """Time and kernels of each on both sides, and what of the difference is by count, what by speed."""
    old, new, _ = PAIRS[name]
    operators = raw(old).operators, raw(new).operators
    expected = Counter(
        row(key[0], *(side.get(key, (0, 0)) for side in operators)) for key in {**operators[0], **operators[1]}
    )
    known = {key[0] for side in operators for key in side}
    told = Counter(
        (
            type_of(part.key or "", known),
            (part.old_ns, round(part.old_count)),
            (part.new_ns, round(part.new_count)),
            (part.count_ns, part.speed_ns),
        )
        for part in compare(old, new).waterfall
        if part.part == "compute"
    )
    assert told == expected


def row(type_: str, old: tuple[int, int], new: tuple[int, int]) -> tuple[object, ...]:
    return type_, old, new, real_pairs.split(old, new)


def type_of(key: str, known: set[str]) -> str:
    """Return the type that a key begins with: the longest of the names in the files."""
    return max((name for name in known if key == name or key.startswith(f"{name} ")), key=len)


@pytest.mark.parametrize("name", PAIRS)
def test_with_the_sides_exchanged_every_part_is_negated(name: str) -> None:
    old, new, _ = PAIRS[name]
    there, back = compare(old, new), compare(new, old)
    assert (back.old_step_ns, back.new_step_ns) == (there.new_step_ns, there.old_step_ns)
    forth = Counter((p.part, p.old_ns, p.new_ns, p.delta_ns, p.count_ns, p.speed_ns) for p in there.waterfall)
    assert forth == Counter((p.part, p.new_ns, p.old_ns, -p.delta_ns, -p.count_ns, -p.speed_ns) for p in back.waterfall)


@pytest.mark.parametrize(
    "path", [*dict.fromkeys(path for old, new, _ in PAIRS.values() for path in (old, new)), "msinsight/cluster4",
             "hta/ns_resolution_gpu.json.gz", "msprof-analyze/cluster", "msprof-analyze/timeline"]
)  # fmt: skip
def test_a_recording_against_itself(path: str) -> None:
    found = compare(path, path)
    assert (found.verdict, found.delta_ns, found.workload) == ("same", 0, found.workload)
    assert not [p for p in found.waterfall if p.delta_ns] and not found.parity and not found.findings
    assert not found.shifts and not found.aligned


def test_levels_are_told_apart() -> None:
    """At Level0, as text, no calls of the runtime are recorded; in the database they are."""
    text = {d.what: (d.old, d.new) for d in compare(*PAIRS["text, Level0 and Level1"][:2]).parity}
    assert text["calls of the runtime"] == (None, "recorded")
    assert text["profiler level"] == ("Level0", "Level1")
    db = {d.what for d in compare(*PAIRS["db, Level0 and Level1"][:2]).parity}
    assert "profiler level" in db and "calls of the runtime" not in db


def test_gpu_against_cpu_says_nothing_of_operators() -> None:
    found = compare("hta/ns_resolution_gpu.json.gz", "hta/cpu_only.json.gz")
    assert (found.verdict, found.waterfall, found.delta_ns) == ("cannot_tell", (), None)


def test_what_only_one_stage_of_a_pipeline_runs_replaces_nothing() -> None:
    """Rank 2 has the loss: the product with the vocabulary, and what it takes to make probabilities of it."""
    old, new, _ = PAIRS["two stages of a pipeline"]
    files = {key: sums for key, sums in raw(new).operators.items() if "151936" in key[1] and key[0] != "Cast"}
    loss = {p.key: p for p in compare(old, new).waterfall if "151936" in (p.key or "") and "Cast" not in (p.key or "")}
    here = Counter((part.new_ns, part.new_count) for part in loss.values() if part.change == "added")
    there = {key for key in raw(old).operators if "151936" in key[1]}
    assert here == Counter((ns, count) for key, (ns, count) in files.items() if key not in there)
    assert sum(ns for ns, _ in here.elements()) > 100_000_000
