"""Where knowledge bases lie, merging them, going back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import run_cli
from workplace import OP, SOC, Place, bank, lines, record, said

from npuperf.base.errors import InputError, UsageError
from npuperf.tune.bank import graph_bank, merge, winning_place


def test_what_is_there_wins_then_the_first(tmp_path: Path) -> None:
    local = bank(tmp_path / "c", [record(1, 10)])
    done = merge(
        [bank(tmp_path / "a", [record(1, 11), record(2, 12)]), bank(tmp_path / "b", [record(2, 13), record(3, 14)])],
        local,
    )
    assert lines(local) == {1: 10, 2: 12, 3: 14}
    assert (done.records, [t.records for t in done.taken], done.conflicts) == (3, [1, 1], 2)
    assert done.backup and lines(Path(done.backup)) == {1: 10}
    assert lines(tmp_path / "a") == {1: 11, 2: 12}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"soc": "Ascend910B1"}, "different chips"),
        ({"cores": 16}, "16 and 20 cores"),
        ({"cann": "9.0.0"}, "different versions of CANN"),
    ],
)
def test_what_must_not_be_mixed_is_refused(second: dict[str, Any], words: str, tmp_path: Path) -> None:
    sources = [bank(tmp_path / "a", [record(1, 1)], cann="8.5.0"), bank(tmp_path / "b", [record(2, 2)], **second)]
    with pytest.raises(UsageError, match=words):
        merge(sources, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_merging_from_the_shell(tmp_path: Path) -> None:
    sources = [str(bank(tmp_path / n, [record(i, i)])) for i, n in enumerate("ab")]
    done = run_cli(["tune", "--merge", *sources, "--into", str(tmp_path / "c")])
    assert done.returncode == 0 and "2 records" in done.stdout and "do not say which version" in said(done)
    assert run_cli(["tune", "--merge", *sources]).returncode == 2
    broken = tmp_path / "d" / SOC
    broken.mkdir(parents=True)
    (broken / f"{SOC}_20_AiCore_MatMulV3_runtime_kb.json").write_text("{half\n")
    done = run_cli(["tune", "--merge", sources[0], str(tmp_path / "d"), "--into", str(tmp_path / "e")])
    assert done.returncode == 2 and "not a record" in done.stderr


def test_rolling_back(place: Place) -> None:
    home = place.root / "home" / "Ascend" / "latest" / "data" / "aoe" / "custom" / "op"
    bank(home, [record(5, 50)])
    assert place.run(*OP).returncode == 0
    assert len(lines(home)) == 5
    done = place.run("--rollback")
    assert done.returncode == 0 and (home.parent / "op.before-1").is_dir()
    assert lines(home) == {5: 50}
    (kept,) = home.parent.glob("op.before-*")
    assert len(lines(kept)) == 5


def test_rolling_back_keeps_what_a_bank_says_of_itself(place: Place) -> None:
    """A merged bank knows its version of CANN; the snapshot's own note is not put into the bank."""
    where = bank(place.root / "bank", [record(5, 50)], cann="8.5.0")
    note = (where / "npuperf-bank.json").read_text()
    assert place.run(*OP, "--bank", "bank").returncode == 0
    assert place.run("--rollback").returncode == 0
    assert (where / "npuperf-bank.json").read_text() == note
    plain = bank(place.root / "plain", [record(5, 50)])
    assert place.run(*OP, "--bank", "plain").returncode == 0
    assert place.run("--rollback").returncode == 0
    assert not (plain / "npuperf-bank.json").exists()


def test_rolling_back_where_links_stand(place: Place) -> None:
    """A linked folder is replaced by what it held; what the link points to is not touched."""
    home = place.root / "home" / "Ascend" / "latest" / "data" / "aoe" / "custom" / "op"
    bank(place.root / "shared", [record(5, 50)])
    home.mkdir(parents=True)
    (home / SOC).symlink_to(place.root / "shared" / SOC, target_is_directory=True)
    assert place.run(*OP).returncode == 0
    done = place.run("--rollback")
    assert done.returncode == 0, done.stderr
    assert lines(home) == {5: 50} and len(lines(place.root / "shared")) == 5


def test_merging_leaves_other_files_alone(tmp_path: Path) -> None:
    into = tmp_path / "c"
    bank(into, [record(1, 10)])
    other = into / "MyNotes_runtime_kb.json"
    other.write_text("mine")
    bank(tmp_path / "a", [record(2, 20)])
    bank(tmp_path / "b", [record(3, 30)])
    merge([tmp_path / "a", tmp_path / "b"], into)
    assert other.read_text() == "mine"
    unreadable = next(f for f in (tmp_path / "b").rglob("*_runtime_kb.json"))
    unreadable.unlink()
    unreadable.mkdir()
    with pytest.raises(InputError, match="has no records"):
        merge([tmp_path / "a", tmp_path / "b"], into)


@pytest.mark.parametrize(
    ("cann", "there", "place"),
    [
        ("8.5.0", (), "latest"), ("9.0.0", (), "cann"), (None, (), "latest"), ("9.0.0", ("latest",), "latest"),
        ("8.1.RC1", ("cann",), "cann"), ("9.0.0", ("latest", "cann"), "cann"), ("8.5.0", ("latest", "cann"), "latest"),
    ],
)  # fmt: skip
def test_where_banks_lie(cann: str | None, there: tuple[str, ...], place: str, tmp_path: Path) -> None:
    for name in there:
        (tmp_path / "Ascend" / name / "data/aoe/custom/op").mkdir(parents=True)
    found = winning_place("op", None, {}, tmp_path, cann)
    assert found == tmp_path / "Ascend" / place / "data/aoe/custom/op"


def test_where_subgraph_banks_lie(tmp_path: Path) -> None:
    """In the home there is a folder for each SoC; TUNE_BANK_PATH names the bank itself."""
    (tmp_path / "home" / "Ascend310P3").mkdir(parents=True)
    assert graph_bank(tmp_path / "home", "Ascend310P3") == tmp_path / "home" / "Ascend310P3"
    assert graph_bank(tmp_path / "home", "Ascend910A") == graph_bank(tmp_path / "home", None) == tmp_path / "home"


@pytest.mark.parametrize("op", ["../../../../away", "a/b", "x\0y", "x" * 300, "", "[x]"])
def test_the_name_of_an_operator_leads_nowhere_else(op: str, tmp_path: Path) -> None:
    """It becomes part of a file's name, and a bank may come from a stranger."""
    sources = [bank(tmp_path / "a", [{**record(1, 1), "op": op}]), bank(tmp_path / "b", [record(2, 2)])]
    before = sorted(tmp_path.rglob("*"))
    done = run_cli(["tune", "--merge", *map(str, sources), "--into", str(tmp_path / "c")])
    assert done.returncode == 2 and "not a record" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_chip_that_leads_elsewhere_is_no_chip(tmp_path: Path) -> None:
    source = bank(tmp_path / "a", [record(1, 1)])
    bank(tmp_path / "b", [record(2, 2)], soc="Away")
    (tmp_path / "b" / "Away" / "unified_bank" / "Away_20_AiCore_MatMulV3_runtime_kb.json").rename(
        tmp_path / "b" / ".._20_AiCore_MatMulV3_runtime_kb.json"
    )
    done = run_cli(["tune", "--merge", str(source), str(tmp_path / "b"), "--into", str(tmp_path / "c")])
    assert done.returncode == 3 and "has no records" in done.stderr
    assert not (tmp_path / "unified_bank").exists()


def test_half_a_character_is_merged_as_it_was(tmp_path: Path) -> None:
    sources = [
        bank(tmp_path / "a", [{**record(1, 1), "knowledge": {"baseM": "\ud800"}}]),
        bank(tmp_path / "b", [record(2, 2)]),
    ]
    assert run_cli(["tune", "--merge", *map(str, sources), "--into", str(tmp_path / "c")]).returncode == 0
    assert lines(tmp_path / "c") == {1: "\ud800", 2: 2}
