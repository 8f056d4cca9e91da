"""static_memory_policy, as programs set it: read from their text, whichever way it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuperf.model.tuning import Check
from npuperf.tune.preflight import static_memory
from npuperf.tune.request import ModelFile, Script, TuningJob


def check(folder: Path, text: str | None, **environment: str) -> Check:
    """``text``: of train.py, None if there is no such file."""
    if text is not None:
        (folder / "train.py").write_text(text)
    script = Script(("python3", "train.py", "--steps", "1"), adapter=True, folder=folder)
    return static_memory(TuningJob("op", script), environment)


@pytest.mark.parametrize(
    ("line", "status", "value"),
    [
        ('custom_op.parameter_map["static_memory_policy"].i = 0', "ok", "0"),
        ("custom_op.parameter_map['static_memory_policy'].i = 2  # reuse", "warn", "2"),
        ("npu.global_options().memory_config.static_memory_policy=4", "warn", "4"),
        ("config = NPURunConfig(hcom_parallel=True, static_memory_policy=2, precision_mode='x')", "warn", "2"),
        ('options = {"ge.exec.staticMemoryPolicy": "2"}', "warn", '"2"'),
        ('options = {"ge.exec.staticMemoryPolicy": "0"}', "ok", '"0"'),
        ("run_config.static_memory_policy = args.policy", "unknown", "args.policy"),
        ("# static_memory_policy = 2", "unknown", None),
        ("x = 1  # static_memory_policy = 2", "unknown", None),
        ("print('static memory')", "unknown", None),
    ],
)
def test_a_program_sets_it(tmp_path: Path, line: str, status: str, value: str | None) -> None:
    found = check(tmp_path, f"import tensorflow as tf\n\n{line}\n")
    assert found.status == status
    said = str(found.found)
    if value is None:
        assert said == "not set in train.py; modules that it imports were not read"
    else:
        assert said.endswith(f"train.py:3 sets it to {value}")


def test_one_that_is_wrong_is_enough(tmp_path: Path) -> None:
    text = 'a["static_memory_policy"].i = 0\nb["static_memory_policy"].i = 2\n'
    found = check(tmp_path, text)
    assert found.status == "warn" and "train.py:2 sets it to 2" in str(found.found)


def test_only_a_programs_text_sets_it(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("static_memory_policy = 2")
    assert str(check(tmp_path, "x = 1").found) == "not set in train.py; modules that it imports were not read"


def test_what_cannot_be_read(tmp_path: Path) -> None:
    assert check(tmp_path, None).status == "unknown"
    shell = TuningJob("op", Script(("bash", "run.sh"), adapter=True, folder=tmp_path))
    assert static_memory(shell, {}).status == "unknown"
    assert static_memory(TuningJob("op", ModelFile(Path("a.onnx"))), {}).status == "ok"


def test_the_variable_must_not_be_set_at_all(tmp_path: Path) -> None:
    """The vendor's page: it must not be set beside the option."""
    found = check(tmp_path, "x.static_memory_policy = 0\n", GE_USE_STATIC_MEMORY="0")
    assert (found.status, str(found.found)) == ("warn", "GE_USE_STATIC_MEMORY=0")
