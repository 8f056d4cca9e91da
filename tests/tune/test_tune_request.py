"""Options that do not go together, and errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from aoe_results import tune
from workplace import OP, Place, busy_profile


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--merge", "a", "--into", "c"), "takes two folders"),
        ((*OP, "--timeout", "0"), "more than 0"),
        (("--diff", "a", "b", "--fail-on", "rubbish"), "--fail-on"),
        (("--rollback", "--dry-run"), "--dry-run"),
        (("--verify", "--dry-run"), "--dry-run"),
        (("--mode", "op", "--top", "3", "--dry-run", "--", "python3", "tf.py"), "aoe_config_file"),
    ],
)
def test_options_that_do_not_go_together(place: Place, arguments: tuple[str, ...], words: str) -> None:
    (place.root / "tf.py").write_text("import tensorflow as tf\n")
    busy_profile(place.root / "result")
    done = place.run(*arguments)
    assert done.returncode == 2 and words in done.stderr


def test_nothing_is_replaced_unasked(place: Place) -> None:
    assert place.run(*OP).returncode == 0
    (place.root / "keep.json").write_text("mine")
    for more in ((), ("--dry-run",)):
        done = place.run("--from", place.runs[0], *more, "-o", "keep.json")
        assert done.returncode == 2 and (place.root / "keep.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "--mode is missing"),
        (["--from", "{folder}/none"], 3, "no such file or folder"),
        (["--from", "{folder}"], 3, "no aoe_result"),
        (["--from", "{folder}", "more"], 2, "take nothing else"),
        (["--from", "{folder}", "-o", "{folder}/there"], 2, "--force"),
    ],
)
def test_errors_teach(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    (tmp_path / "there").write_text("")
    done = tune(*(a.format(folder=tmp_path) for a in arguments))
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert (tmp_path / "there").read_text() == ""
