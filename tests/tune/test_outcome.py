"""How a tuning run ended: every failure is told, none is a success, and the likely reason is given."""

from __future__ import annotations

import json
import random
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from aoe_results import ROOT
from conftest import STUB
from workplace import OP, Place, document, said, start, tuning_children


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        ("failed", "tuning failed"),
        ("incomplete", "tuning incomplete"),
        ("exit2", "an option that this aoe does not know"),
        ("kill", "killed by signal 9"),
        ("truncated", "killed by signal 9"),
        ("empty", "killed by signal 9"),
    ],
)
@pytest.mark.parametrize("schema", ["v1", "v3"])
def test_a_failure_is_never_a_success(place: Place, fail: str, words: str, schema: str) -> None:
    done = place.run(*OP, "--format", "json", FAKE_AOE_FAIL=fail, FAKE_AOE_SCHEMA=schema)
    assert done.returncode == 5
    assert words in said(done)
    found = document(done)
    assert found["status"] == ("failed" if fail in ("failed", "exit2") else "incomplete")
    assert not any("the bank shows none" in w for w in found["warnings"])  # it was not written yet
    assert any("empty" in w for w in found["warnings"]) == (fail == "empty")
    assert place.state()["status"] == "failed"
    if fail in ("kill", "truncated"):
        assert len(found["entries"]) >= 1  # what was tuned by then is kept
        assert found["recovered"] == (fail == "truncated")


def test_the_reason_is_found_before_what_is_said_later(place: Place) -> None:
    """A program's stdout is often written when it ends, and so after its errors."""
    (place.bin / "aoe").write_text("#!/bin/sh\necho '[ERROR] no device' >&2\necho 'Tuning process finished.'\nexit 1\n")
    done = place.run(*OP)
    assert done.returncode == 5 and "exit status 1: [ERROR] no device next: see" in said(done)


def test_a_model_that_is_gone_meanwhile_is_no_unknown_option(place: Place) -> None:
    model = place.root / "net.onnx"
    (place.bin / "aoe").write_text(f"#!/bin/sh\nrm {model}\nexit 2\n")
    told = said(place.run(*OP))
    assert f"exit status 2 ({model} is not there any more)" in told and "option" not in told


def test_the_end_of_a_traceback_is_a_reason(place: Place) -> None:
    (place.bin / "aoe").write_text("#!/bin/sh\necho 'torch.OutOfMemoryError: no room' >&2\necho epoch 3\nexit 1\n")
    assert "exit status 1: torch.OutOfMemoryError: no room next: see" in said(place.run(*OP))


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_a_program_said_is_kept_when_it_is_killed(place: Place, unbuffered: str) -> None:
    killed = "#!/usr/bin/env python3\nimport os\nprint('as far as here')\nos.kill(os.getpid(), 9)\n"
    (place.bin / "aoe").write_text(killed)
    done = place.run(*OP, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 5 and "killed by signal 9: as far as here next: see" in said(done)


def test_a_timeout_keeps_what_there_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on an hour when there is a result."""

    def now() -> float:
        return time.monotonic() + 3600 * any(place.root.glob("result/tune/*/aoe_result_*.json"))

    monkeypatch.setattr("npuperf.tune.supervise.time", SimpleNamespace(monotonic=now, sleep=time.sleep))
    done = place.run(*OP, "--timeout", "10", "--format", "json", FAKE_AOE_SECONDS="300", FAKE_AOE_OPS="6000")
    assert done.returncode == 5 and "--timeout is over" in said(done)
    found = document(done)
    assert found["status"] == "incomplete" and 1 <= len(found["entries"]) < 6000
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(place.bin) in " ".join(p.info["cmdline"] or [])]


def test_a_full_disk_is_no_success(place: Place) -> None:
    """aoe may write one kilobyte to a file, as if the disk were full; what it had written by then is kept."""
    real = place.bin / "real"
    (place.bin / "aoe").rename(real)
    (place.bin / "aoe").write_text(f'#!/bin/bash\nulimit -f 1\nexec {real} "$@"\n')
    (place.bin / "aoe").chmod(0o755)
    done = place.run(*OP, "--format", "json", FAKE_AOE_OPS="30")
    assert done.returncode == 5 and "exit status 1" in said(done)
    assert document(done)["status"] != "successful"
    assert "File too large" in (place.runs[-1] / "aoe.log").read_text()


def test_words_of_the_adapter_are_no_end_of_aoe(place: Place) -> None:
    place.change_aoe("Aoe process finished,", "Aoe success[0], ")
    assert place.run(*OP).returncode == 5


def test_tensorflow_without_its_last_words(place: Place) -> None:
    """Its adapter says them at a level that is not logged by default; the whole result says enough."""
    stub = (STUB / "tf_adapter_stub.py").read_text().replace('print(f"[GEOP] Aoe success', 'str(f"[GEOP] Aoe success')
    (place.root / "tf_adapter_stub.py").write_text(
        stub.replace(", flush=True)\n    return status", ")\n    return status")
    )
    (place.root / "train.py").write_text("import tf_adapter_stub\ntf_adapter_stub.graph()\n")
    command = ("--mode", "op", "--", sys.executable, "train.py")
    assert place.run(*command).returncode == 0
    assert place.run(*command, FAKE_AOE_FAIL="incomplete").returncode == 5


@pytest.mark.parametrize(
    ("printed", "cann", "code", "words"),
    [
        ("exec aoe tuning func failed[9].", "8.1.RC1", 5, "(AOE's status 9: dynamic graphs cannot be tuned)"),
        ("exec aoe tuning func failed[14].", "8.1.RC1", 5, "exec aoe tuning func failed[14]. next: see"),
        ("exec aoe tuning func failed[14].", "6.0.1", 5, "(AOE's status 14: dynamic graphs cannot be tuned)"),
        ("Exec aoe set session func failed, error code: 10", "6.3.RC2", 5,
         "(AOE's status 10: CANN 7.0 or later: ranges of shapes cannot be tuned; "
         "CANN 6.0 or before: invalid parameter)"),
        ("AoeFinalize failed. status is -1", "6.3.RC2", 5, "(AOE's status -1: failed)"),
        ("[GEOP] Aoe success[8].", "8.1.RC1", 0, "NOTHING TO TUNE"),
        ("[GEOP] Aoe success[8].", "6.0.1", 5, "left no readable result"),
        ("[GEOP] Aoe success[12].", "6.0.1", 0, "NOTHING TO TUNE"),
    ],
)  # fmt: skip
def test_a_status_is_explained_for_its_version(place: Place, printed: str, cann: str, code: int, words: str) -> None:
    """By the numbers of the two headers: 8 and 9 are 12 and 14 in the older one."""
    toolkit = place.root / "toolkit"
    toolkit.mkdir()
    (toolkit / "version.info").write_text(f"Version={cann}\n")
    (place.root / "train.py").write_text(
        f"import tensorflow as tf\nimport sys\nprint({printed!r})\nsys.exit({int('ailed' in printed)})\n"
    )
    (place.root / "modules/tensorflow").mkdir(parents=True)
    (place.root / "modules/tensorflow/__init__.py").touch()
    command = ("--mode", "op", "--", sys.executable, "train.py")
    where = {"PYTHONPATH": f"{ROOT}:{place.root / 'modules'}", "ASCEND_TOOLKIT_HOME": str(toolkit)}
    done = place.run(*command, **where)
    assert done.returncode == code, done.stderr
    assert words in said(done)


@pytest.mark.parametrize("seed", range(3))
def test_aoe_killed_at_any_moment(place: Place, seed: int) -> None:
    child = start(place, *OP, "--format", "json", FAKE_AOE_SECONDS="30", FAKE_AOE_OPS="600")
    time.sleep(random.Random(seed).uniform(0, 0.8))
    for victim in tuning_children(place):
        victim.kill()
    out, err = child.communicate(timeout=100)
    assert child.returncode == 5 and "Traceback" not in err
    assert json.loads(out)["status"] == "incomplete"
