"""A few runs of chaos among the tests; ``make chaos`` makes as many as there is time for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
@pytest.mark.parametrize(("only", "runs"), [("text/*", 3), ("packed/short reads", 1)])
def test_whatever_befalls_a_command_it_answers_rightly_or_says_why(only: str, runs: int) -> None:
    call = [sys.executable, HERE / "chaos.py", "--runs", str(runs), "--seed", "1", "--only", only]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{runs} runs, 0 failures; " in done.stdout and " struck" in done.stdout
