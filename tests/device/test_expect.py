"""The gate on core limits: obeyed, violated, cannot tell; on the command line, too."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from build import HEADER, K, analyze_path, ascend_pt, kernel_details
from conftest import run_cli

from npuperf.base.errors import UsageError
from npuperf.device.expect import parse_expectation
from npuperf.model.document import Gate


def kernels() -> list[K]:
    """Stream 2 keeps within 16,32; stream 5 was given 8,16 and has kernels above it on either side."""
    rows = [
        ("MatMul_1", "MatMul", "AI_CORE", 2, 16, 0),
        ("Add_2", "Add", "AI_VECTOR_CORE", 2, 32, 0),
        ("Fused_3", "Fused", "MIX_AIC", 2, 16, 32),
        ("MatMul_4", "MatMul", "AI_CORE", 5, 8, 0),
        ("MatMul_5", "MatMul", "AI_CORE", 5, 24, 0),
        ("Add_6", "Add", "AI_VECTOR_CORE", 5, 17, 0),
        ("Fused_7", "Fused", "MIX_AIC", 5, 8, 17),
        ("Fused_8", "FusedV", "MIX_AIV", 5, 16, 9),
        ("Cumsum_9", "Cumsum", "AI_CPU", 5, 99, 0),
    ]
    return [K(i * 1_000, 900, n, t, c, s, b, m) for i, (n, t, c, s, b, m) in enumerate(rows)]


def gate(path: Path, text: str) -> Gate:
    (found,) = analyze_path(path, expect=(parse_expectation("--expect-cores", text),)).gates
    return found


@pytest.mark.parametrize(
    ("text", "status", "above"),
    [
        ("2=16,32", "pass", []),
        ("2=15,32", "fail", ["MatMul", "Fused"]),
        ("2=16,31", "fail", ["Add", "Fused"]),
        ("5=8,16", "fail", ["MatMul", "Add", "Fused", "FusedV"]),
        ("5=24,17", "pass", []),
        ("MatMul*=8,1", "fail", ["MatMul", "MatMul"]),
        ("MatMul_4..Add_6=8,16", "fail", ["MatMul", "Add"]),
        ("Add_6..Fused_7=1,17", "fail", ["Fused"]),
        ("Cumsum_9=1,1", "cannot_tell", []),
        ("9=1,1", "cannot_tell", []),
        ("Add_6..Nothing=1,1", "cannot_tell", []),
    ],
)
def test_every_kernel_of_the_range_on_either_side(text: str, status: str, above: list[str], tmp_path: Path) -> None:
    found = gate(ascend_pt(tmp_path, kernels()), text)
    assert (found.status, sorted(o.type or "" for o in found.over)) == (status, sorted(above))
    if status != "cannot_tell":
        assert (found.value, found.limit) == (len(above), 0)


def test_the_main_and_the_secondary_side_of_mix_kernels(tmp_path: Path) -> None:
    found = gate(ascend_pt(tmp_path, kernels()), "5=8,16")
    assert {o.type: (o.cube, o.vector) for o in found.over} == {
        "MatMul": (24, 0), "Add": (0, 17), "Fused": (8, 17), "FusedV": (9, 16)
    }  # fmt: skip


def test_blocks_that_are_not_recorded_cannot_be_judged(tmp_path: Path) -> None:
    rows = [K(0, 10, "A", "A", "AI_CORE", 2, 0), K(20, 10, "B", "B", "AI_CORE", 2, 8)]
    found = gate(ascend_pt(tmp_path, rows), "2=8,16")
    assert found.status == "cannot_tell" and found.reason and "1 of 2 kernels" in str(found.reason)
    assert gate(ascend_pt(tmp_path / "over", [*rows, K(40, 10, "C", "C", "AI_CORE", 2, 9)]), "2=8,16").status == "fail"


def test_blocks_of_the_secondary_side_that_are_not_recorded(tmp_path: Path) -> None:
    """The main side's blocks are there: it is Mix Block Dim that is missing."""
    rows = [K(0, 10, "A", "A", "MIX_AIC", 2, 8, -1), K(20, 10, "B", "B", "AI_CORE", 2, 8)]
    found = gate(ascend_pt(tmp_path, rows), "2=8,16")
    assert found.status == "cannot_tell" and str(found.reason).startswith("Mix Block Dim is not recorded for 1 of 2")


@pytest.mark.parametrize(
    ("limit", "status", "words"),
    [
        ("9=100,200", 2, "100 cube cores"),
        ("2=24,49", 2, "49 vector cores"),
        ("2=0,48", 2, "0 cube cores"),
        ("Mat*=25,48", 2, "25 cube cores"),
        ("2=24,48", 0, ""),
        ("2=16,32", 0, ""),
    ],
)
def test_a_limit_that_the_chip_cannot_have_is_refused(limit: str, status: int, words: str, tmp_path: Path) -> None:
    """The chip has 24 cube and 48 vector cores; a limit is at least one core and never more than there are."""
    done = run_cli(["analyze", str(ascend_pt(tmp_path, kernels(), cores="24,48")), "--expect-cores", limit])
    assert done.returncode == status, done.stderr
    if status:
        assert words in done.stderr and "this chip has 24 cube and 48 vector cores" in done.stderr


def test_without_core_counts_the_limit_itself_is_not_checked(tmp_path: Path) -> None:
    found = gate(ascend_pt(tmp_path, kernels()), "2=100,200")
    assert found.status == "pass" and "core counts are unknown" in str(found.reason)
    known = gate(ascend_pt(tmp_path / "known", kernels(), cores="24,48"), "2=24,48")
    assert str(known.reason) == "3 kernels within the limit"


def test_reasons(tmp_path: Path) -> None:
    rows = [
        K(0, 10, "allreduceAivKernel", "AivKernel", "AI_VECTOR_CORE", 2, 40),
        K(20, 10, "te_add_1", "Add", "AI_VECTOR_CORE", 2, 40),
        K(40, 10, "Mul_1", "Mul", "AI_VECTOR_CORE", 2, 40),
        K(60, 10, "Mul_2", "Mul", "AI_VECTOR_CORE", 2, 8),
        K(80, 10, "Sub_1", "Sub", "AI_VECTOR_CORE", 2, 40),
    ]
    found = gate(ascend_pt(tmp_path, rows), "2=8,16")
    words = {o.type: str(o.reason).split(":")[0] for o in found.over}
    assert words == {
        "AivKernel": "communication",
        "Add": "none of this type obeys",  # te_ does not tell what it is written in
        "Mul": "others of this type obey",
        "Sub": "none of this type obeys",
    }
    everything = gate(ascend_pt(tmp_path / "all", [rows[2], rows[4]]), "2=8,16")
    assert all("no kernel obeys" in str(o.reason) for o in everything.over)


@pytest.mark.parametrize("header", ["Block Dim", "Block Num"])
def test_both_spellings_of_the_column(header: str, tmp_path: Path) -> None:
    path = kernel_details(tmp_path / "kernel_details.csv", kernels())
    path.write_text(path.read_text().replace("Block Dim", header), newline="")
    assert header in path.read_text() and "Block Dim" in HEADER
    assert gate(path, "5=8,16").status == "fail"
    assert gate(path, "2=16,32").status == "pass"


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--expect-cores", "5"), ("--expect-cores", "5=8"), ("--expect-cores", "=8,16"), ("--expect-cores", "5=a,b"),
        ("--expect-cores", "5=8,16,24"), ("--expect-cores", "5=-8,16"),
        ("--expect-cores", f"5={'9' * 5000},16"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(option: str, text: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        parse_expectation(option, text)


def test_a_number_that_no_stream_has_is_none() -> None:
    assert parse_expectation("--expect-cores", "123456789=8,16").stream == 123456789
    assert parse_expectation("--expect-cores", f"{'9' * 5000}=8,16").stream is None


def test_the_gate_s_exit_status(tmp_path: Path) -> None:
    folder = str(ascend_pt(tmp_path, kernels()))
    expected = {("2=16,32",): 0, ("5=8,16",): 1, ("9=1,1",): 4, ("9=1,1", "5=8,16"): 1, ("2=16,32", "9=1,1"): 4}
    for texts, status in expected.items():
        options = [part for text in texts for part in ("--expect-cores", text)]
        done = run_cli(["analyze", folder, *options])
        assert done.returncode == status, (texts, done.stderr)
    assert "gate CANNOT TELL  9=1,1: no AI Core kernel matches; streams: 2, 5" in done.stdout
    done = run_cli(["analyze", folder, "--expect-cores", "5=8,16", "--format", "json"])
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["gates"]
    assert (found["status"], found["value"], len(found["over"])) == ("fail", 4, 4)
    done = run_cli(["analyze", folder, "--expect-cores", "5=8,16", "--format", "csv", "--table", "gates"])
    assert len(done.stdout.splitlines()) == 5


def test_wrong_options_are_usage_errors(tmp_path: Path) -> None:
    folder = str(ascend_pt(tmp_path, kernels(), cores="24,48"))
    for options in (["--expect-cores", "x"], ["--cores-of", "a=1,2"], ["--cores-of", "2"]):
        done = run_cli(["analyze", folder, *options])
        assert (done.returncode, done.stdout) == (2, "")
        assert "next:" in done.stderr


def test_ranges_do_not_nest(tmp_path: Path) -> None:
    """Brute force: from each begin outside of a range to the next end, on the same stream."""
    rng = random.Random(5)
    names = [rng.choice("abc") for _ in range(400)]
    kernels = [K(i * 1000, 500, name, name, "AI_CORE", 2, 8) for i, name in enumerate(names)]
    inside, i = 0, 0
    while i < len(names):
        end = next((j for j in range(i, len(names)) if names[j] == "b"), None) if names[i] == "a" else None
        inside += end - i + 1 if end is not None else 0
        i = end + 1 if end is not None else i + 1
    expect = (parse_expectation("--expect-cores", "a..b=1,1"),)
    (gate,) = analyze_path(ascend_pt(tmp_path, kernels, cores="24,48"), expect=expect).gates
    assert gate.value == inside > 50
