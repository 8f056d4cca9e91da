"""Servers as vLLM and SGLang start them: steps are those of the engine, in whatever process; answers stay the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import ROOT, until
from npu_runs import OFF, Run, command
from preloaded import Loaded

PROGRAMS = Path(__file__).with_name("serving_programs.py")
#: Requests that are answered, whatever is recorded meanwhile: eight tokens each, and 200 steps go by before.
REQUESTS = 40


def served(loaded: Loaded, folder: Path, kind: str, where: str, *before: str) -> tuple[list[str], int, str, str]:
    """Start a server, ask it from four clients at once, and end it; return its answers, status and output."""
    folder.mkdir()
    place = folder / "port"
    child = subprocess.Popen(
        [*before, sys.executable, str(PROGRAMS), kind, str(place), where],
        cwd=folder,
        env=loaded if where == "npu:0" else loaded | OFF,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: place.exists() or child.poll() is not None)
    port, pid = place.read_text().split()
    answers = {}

    def client(first: int) -> None:
        for i in range(first, REQUESTS, 4):
            asked = json.dumps([i, 7]).encode()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", asked, timeout=120) as answer:
                answers[i] = answer.read().decode()

    clients = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    os.kill(int(pid), signal.SIGTERM)
    out, err = child.communicate(timeout=120)
    return [answers[i] for i in range(REQUESTS)], child.returncode, out.splitlines()[0], err


@pytest.mark.long
@pytest.mark.parametrize(("kind", "where"), [("vllm", "npu:0"), ("sglang", "cpu")])
def test_a_server_under_load_is_recorded_and_answers_as_it_would(
    loaded: Loaded, tmp_path: Path, kind: str, where: str
) -> None:
    """With the recipe for it; the engine stops while the profiler does, and no request is lost."""
    recipe = str(ROOT / "recipes" / "serving.yaml")
    with ThreadPoolExecutor() as side_by_side:
        plain = side_by_side.submit(served, loaded, tmp_path / "plain", kind, where)
        before = (*command("--recipe", recipe, "-o", tmp_path / "result"), "--")
        *mine, err = served(loaded, tmp_path / "mine", kind, where, *before)
    assert mine == list(plain.result()[:3]), err
    assert mine[1:] == [0, "served [0, 0]" if kind == "sglang" else "served [0]"] and len(mine[0][0].split()) == 10
    run = Run(0, "", err, tmp_path / "result")
    assert run.recorded == [[*range(201, 211)]] and run.steps == {*range(201, 211)}
