"""Options that do not go together, and errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from aoe_results import tune
from msgspec.structs import replace
from workplace import OP, Place, busy_profile

from npuperf.base.errors import UsageError
from npuperf.tune.request import TuneRequest
from npuperf.tune.tuning_plan import draw_plan


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
        (["--from", "{folder}", "more"], 2, "more: cannot be combined with"),
        (["--from", "{folder}", "-o", "{folder}/there"], 2, "--force"),
    ],
)
def test_errors_teach(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    (tmp_path / "there").write_text("")
    done = tune(*(a.format(folder=tmp_path) for a in arguments))
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert (tmp_path / "there").read_text() == ""


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (TuneRequest(rollback=True, from_=Path("a")), "--from, --rollback: only one of them can be used"),
        (TuneRequest(from_=Path("a"), resume=True), "--from: cannot be combined with --verify or --resume"),
        (
            TuneRequest(rollback=True, command=("train.py",)),
            "train.py: cannot be combined with --from, --diff, --merge or --rollback",
        ),
        (
            TuneRequest(diff=(Path("a"), Path("b")), mode="op"),
            "--mode: cannot be combined with --from, --diff, --merge or --rollback",
        ),
        (TuneRequest(merge=(Path("a"), Path("b"))), "--merge: --into is missing"),
        (TuneRequest(into=Path("c")), "--into: nothing to merge"),
        (TuneRequest(verify=True, dry_run=True), "--dry-run: shows what would be tuned"),
        (TuneRequest(rollback=True, fail_on=("added<1",)), "--fail-on: judges the results of a tuning"),
        (TuneRequest(mode="op", fail_on=("step_time>5ms",)), "no such metric"),
    ],
)
def test_a_request_that_contradicts_itself(request_: TuneRequest, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        request_.check()
    assert words in str(refused.value)


def test_what_a_recipe_sets_is_ignored_where_it_does_not_fit(tmp_path: Path) -> None:
    """A mode and gates where results are only read; a number of operators where no profile is."""
    by_recipe = frozenset({"mode", "fail_on", "top"})
    TuneRequest(diff=(Path("a"), Path("b")), mode="op", fail_on=("added<1",), by_recipe=by_recipe).check()
    model = tmp_path / "net.onnx"
    model.touch()
    asked = TuneRequest(
        mode="op", model=model, run=tmp_path / "none", top=3, top_given=True, dry_run=True, by_recipe=by_recipe
    )
    assert draw_plan(asked, None, {}).job.types == ()
    with pytest.raises(UsageError, match="no profile in"):
        draw_plan(replace(asked, by_recipe=frozenset()), None, {})
