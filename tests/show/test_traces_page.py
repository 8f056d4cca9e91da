"""docs/traces.md is true: its commands run, one after the other, and what they write opens."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from trace_reader import read_strictly

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "traces.md").read_text("utf-8")


def test_commands_run(tmp_path: Path) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    commands = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    assert commands.count("npuperf analyze") == 4
    script = commands.replace("npuperf analyze", f"{sys.executable} -m npuperf analyze").replace(
        "python -c", f"{sys.executable} -c"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    overlay = read_strictly(tmp_path / "overlay.json", text_times=True)
    full = read_strictly(tmp_path / "full.json.gz")
    assert str(full.epoch) in done.stderr
    assert f'"{full.epoch}"' in PAGE
    assert {n.split(":")[0] for n in read_strictly(tmp_path / "job.json.gz").processes.values()} >= {"rank 0", "rank 3"}
    original = json.loads((tmp_path / "original.json").read_text())
    assert json.loads((tmp_path / "both.json").read_text()) == original + json.loads(
        (tmp_path / "overlay.json").read_text()
    )
    for track in {overlay.track(s) for s in overlay.slices}:
        assert f"| {track} |" in PAGE
