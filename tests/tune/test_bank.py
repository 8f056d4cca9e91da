"""What knowledge bases hold, and what changed between two of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aoe_results import LISTED, tune

from npuperf.base.errors import InputError
from npuperf.tune.bank import compare, read_bank

MATMUL = "Ascend910B3_20_AiCore_MatMulV3_runtime_kb.json"


def record(m: int, base: int, number: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "info_dict": {"m": m, "n": 64, "trans": False},
        "knowledge": {"baseM": base, "depth": 2, **more},
        "op": "MatMulV3",
        "version": 0,
    }


def bank(folder: Path, records: list[Any], name: str = MATMUL, end: str = "\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    (folder / name).write_text(end.join(lines), "utf-8", newline="")
    return folder


def test_what_changed_in_a_bank(tmp_path: Path) -> None:
    """All records have one id; order, spelling of numbers and line ends do not matter."""
    before = bank(tmp_path / "a", [record(16, 64), record(32, 64), record(48, 64), "{}"], end="\r\n")
    same = json.dumps(record(32, 64)).replace('"n": 64', '"n": 64.0')
    after = bank(tmp_path / "b", ["\ufeff" + same, record(48, 128, dbL0A=1), record(80, 64)])
    found = compare(read_bank(before), read_bank(after))
    assert (found.records_before, found.records_after, found.unchanged) == (3, 3, 1)
    by_kind = {c.change: c for c in found.changes}
    assert json.loads(by_kind["removed"].info)["m"] == 16
    assert json.loads(by_kind["added"].info)["m"] == 80
    moved = [(f.field, f.before, f.after) for f in by_kind["changed"].fields]
    assert moved == [("baseM", "64", "128"), ("dbL0A", None, "1")]
    assert {(c.soc, c.cores, c.op) for c in found.changes} == {("Ascend910B3", 20, "MatMulV3")}
    assert found.warnings == ()


def test_true_is_not_one(tmp_path: Path) -> None:
    one, yes = record(16, 64), record(16, 64)
    one["info_dict"]["trans"], yes["info_dict"]["trans"] = 1, True
    found = compare(read_bank(bank(tmp_path / "a", [one])), read_bank(bank(tmp_path / "b", [yes])))
    assert sorted(c.change for c in found.changes) == ["added", "removed"]


def test_banks_with_faults(tmp_path: Path) -> None:
    broken = bank(tmp_path / "a", [record(16, 64), '{"id": 1, "info_d', record(16, 999), '["no record"]'])
    bank(broken, [record(16, 64)], name=MATMUL.replace("_20_", "_16_"))
    (broken / "notes.json").write_text("[]")
    found = read_bank(broken)
    assert len(found.records) == 2 and len(found.files) == 2
    said = "\n".join(map(str, found.faults()))
    assert f"{MATMUL}:2, 4: not a record" in said
    assert (
        f"{MATMUL}:3: cases that are already in the file" in said
        and found.records[min(found.records)].knowledge["baseM"] == 64
    )
    warnings = compare(found, found).warnings
    assert any("tuned for 16 and 20 cores" in str(w) for w in warnings)
    with pytest.raises(InputError, match="not a runtime knowledge base"):
        read_bank(broken / "notes.json")


def test_claims_that_the_bank_does_not_show(tmp_path: Path) -> None:
    """The result file says 2 added and 1 updated."""
    file = tmp_path / "aoe_result_opat_20260101120000000_pid7.json"
    file.write_text(json.dumps(LISTED))
    bank(tmp_path / "a", [record(16, 64)])
    bank(tmp_path / "b", [record(16, 64), record(32, 64)])
    wrong = tune("--from", file, "--diff", tmp_path / "a", tmp_path / "a")
    assert wrong.returncode == 0 and "was TUNE_BANK_PATH different" in " ".join(wrong.stdout.split())
    right = json.loads(tune("--from", file, "--diff", tmp_path / "a", tmp_path / "b", "--format", "json").stdout)
    (warning,) = right["warnings"]
    assert "the knowledge base shows 1: several operators may share one case" in warning
    assert right["bank"]["changes"][0]["change"] == "added"
    alone = json.loads(tune("--diff", tmp_path / "a", tmp_path / "b", "--format", "json").stdout)
    assert (alone["schema_version"], alone["bank"]) == ("2.0", right["bank"])
    shown = tune("--diff", tmp_path / "a", tmp_path / "b").stdout
    assert "1 → 2 records: 1 added, 0 changed, 0 removed, 1 unchanged" in shown
    assert "MatMulV3,added,Ascend910B3,20," in tune("--diff", tmp_path / "a", tmp_path / "b", "--format", "csv").stdout
    assert "| MatMulV3 | added |" in tune("--diff", tmp_path / "a", tmp_path / "b", "--format", "markdown").stdout
