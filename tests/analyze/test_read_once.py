"""Every verb reads its input once: bytes that the process reads, by the system's own count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from build import K, ascend_pt
from conftest import ROOT

COUNT = """
import contextlib, io, sys
from pathlib import Path

def bytes_read():
    return int(next(line for line in open("/proc/self/io") if line.startswith("rchar")).split()[1])

def analyze(path):
    sys.argv = ["npuperf", "analyze", path, "--format", "json"]
    from npuperf.cli import main
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()

def profile(path):
    from npuperf.cli.profile import _analyze
    from npuperf.record.evidence import prove
    from npuperf.readers.recording import open_recording
    recording = open_recording(Path(path), keep=True)
    assert all(proof.holds for proof in prove(recording))
    with contextlib.redirect_stdout(io.StringIO()):
        _analyze(Path(path), recording)

verb = {"analyze": analyze, "profile": profile}[sys.argv[1]]
small, big = sys.argv[2:]
verb(small)  # what is loaded now is not read again
before = bytes_read()
verb(big)
print(bytes_read() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux counts what processes read")
@pytest.mark.parametrize("verb", ["analyze", "profile"])
def test_a_verb_reads_its_input_once(verb: str, tmp_path: Path) -> None:
    """``profile`` reads to prove that the data is there; ``--analyze`` goes on with what was read."""
    kernels = [K(i * 30_000, 10_000, f"k{i % 99}", step=i // 2_000, launch=i * 30_000 - 20_000) for i in range(8_000)]
    small = ascend_pt(tmp_path / "small", kernels[:200], cores="24,48")
    big = ascend_pt(tmp_path / "big", kernels, cores="24,48")
    size = sum(file.stat().st_size for file in big.rglob("*") if file.is_file())
    command = [sys.executable, "-c", COUNT, verb, str(small), str(big)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert size > 3_000_000
    assert 0.9 * size < int(done.stdout) < 1.1 * size
