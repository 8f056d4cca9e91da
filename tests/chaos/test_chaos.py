"""A few runs of chaos among the tests; ``make chaos`` makes as many as there is time for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
needs_faults = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler"
)


@needs_faults
@pytest.mark.parametrize(("only", "runs"), [("text/*", 3), ("packed/short reads", 1)])
def test_whatever_befalls_a_command_it_answers_rightly_or_says_why(only: str, runs: int) -> None:
    call = [sys.executable, HERE / "chaos.py", "--runs", str(runs), "--seed", "1", "--only", only]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{runs} runs, 0 failures; " in done.stdout and " struck" in done.stdout


@needs_faults
@pytest.mark.parametrize("refused", range(1, 6))
def test_whichever_thread_is_refused_a_command_ends(tmp_path: Path, refused: int) -> None:
    library, one = tmp_path / "faults.so", tmp_path / "root" / "one"
    call = ["cc", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl", "-lpthread"]
    subprocess.run(call, check=True)
    shutil.copytree(HERE.parents[1] / "samples" / "transformer_ascend_pt", one)
    (tmp_path / "board").write_bytes(bytes(4096))
    environment = {
        **os.environ, "LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1", "CHAOS_ROOT": str(one.parent),
        "CHAOS_BOARD": str(tmp_path / "board"), "CHAOS_FAULT": f"thread 11 {refused} 1000000",
    }  # fmt: skip
    call = [sys.executable, "-m", "npuperf", "analyze", one, "--no-cache"]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0 or (done.returncode == 3 and "npuperf: " in done.stderr), done.stderr
