"""The history of memory that the agent lets torch_npu keep: a torch_npu of the tests' own, whose memory is planned."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from build import analyze_path
from memory_plan import MIB, Training
from memory_snapshot import PADDING, Allocator, dump

from npuperf.model.recorded import ProcessStatus
from npuperf.readers.recording import open_recording
from npuperf.record.agent.history import ENTRIES, History
from npuperf.record.evidence import prove
from npuperf.record.export import keep_snapshots
from npuperf.record.folder import RunFolder, this_host

LINE = ("/home/u/train.py", 41, "forward")


class TorchNpu:
    """What the agent calls of torch_npu, with the allocator behind it; the device opens when it is told to."""

    def __init__(self) -> None:
        self.allocator = Allocator(device_bytes=100 * MIB)
        self.asked: list[Any] = []
        self.waiting: list[Any] = []
        self.observers: list[Any] = []
        memory = SimpleNamespace(
            _record_memory_history=lambda enabled, **how: self.asked.append((enabled, how)),
            _snapshot=lambda: self.allocator.snapshot(),
        )
        self.npu = SimpleNamespace(_lazy_call=self.waiting.append, memory=memory)
        self._C = SimpleNamespace(_npu_attach_out_of_memory_observer=self.observers.append)

    def open(self) -> None:
        for call in self.waiting:
            call()

    def malloc(self, size: int) -> None:
        if self.allocator.malloc(size - PADDING, 7, LINE) < 0:
            for observer in self.observers:
                observer(0, size, 0, 0)


def followed(folder: Path) -> tuple[History, TorchNpu, list[Any]]:
    told: list[Any] = []
    history, module = History(str(folder), told.append), TorchNpu()
    history.follow(module)
    return history, module, told


def test_history_begins_with_the_device_and_is_bounded(tmp_path: Path) -> None:
    _, module, told = followed(tmp_path)
    assert not module.asked and not module.observers  # asking earlier would open device 0
    module.open()
    assert module.asked == [("all", {"context": "alloc", "stacks": "python", "max_entries": ENTRIES})]
    assert len(module.observers) == 1 and not told


def test_memory_that_runs_out_is_written_at_once_and_says_why(tmp_path: Path) -> None:
    _, module, _ = followed(tmp_path)
    module.open()
    module.malloc(60 * MIB)
    for _ in range(5):  # a program that goes on, and fails again
        module.malloc(60 * MIB)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"oom_{os.getpid()}_{n}.pickle" for n in (1, 2, 3)]
    found = [
        f
        for f in analyze_path(tmp_path / f"oom_{os.getpid()}_1.pickle", no_cache=True).findings
        if f.status == "problem"
    ]
    assert [f.rule for f in found] == ["out_of_memory"]
    assert (found[0].evidence["asked_bytes"], found[0].evidence["device_free_bytes"]) == (60 * MIB, 40 * MIB)


def test_the_snapshot_lies_in_the_profile_and_what_failed_beside_it(tmp_path: Path) -> None:
    profile = Training().write(tmp_path, memory=False)
    history, module, _ = followed(tmp_path)
    module.open()
    module.malloc(90 * MIB)
    module.malloc(90 * MIB)
    history.keep([str(profile)])
    assert sorted(p.name for p in profile.glob("*.pickle")) == [
        f"oom_{os.getpid()}_1.pickle",
        f"snapshot_{os.getpid()}.pickle",
    ]
    assert not list(tmp_path.glob("*.pickle"))
    (proof,) = prove(open_recording(tmp_path))
    assert (proof.blocks, proof.failures) == (1, 1) and proof.kernels
    (device,) = analyze_path(tmp_path, no_cache=True).devices
    assert device.memory is not None and device.memory.peak_bytes == 90 * MIB


def test_nothing_that_fails_costs_the_program_anything(tmp_path: Path) -> None:
    history, module, told = followed(tmp_path)
    del module.npu.memory._record_memory_history  # an older torch_npu
    module.open()
    assert len(told) == 1 and "AttributeError" in str(told[0])
    history.keep([])
    assert not list(tmp_path.iterdir())
    broken, module, told = followed(tmp_path / "nowhere")
    module.open()
    broken.keep([])
    assert len(told) == 1 and "FileNotFoundError" in str(told[0])


def test_a_history_that_the_environment_asks_for_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOM_SNAPSHOT_ENABLE", "1")
    history, module, _ = followed(tmp_path)
    module.open()
    assert not module.asked
    history.keep([])
    assert [p.name for p in tmp_path.iterdir()] == [f"snapshot_{os.getpid()}.pickle"]


def test_what_torch_npu_wrote_of_a_process_is_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "result")
    folder.raw.mkdir(parents=True)
    allocator = Allocator(device_bytes=100 * MIB)
    allocator.malloc(60 * MIB, 7, LINE)
    allocator.malloc(60 * MIB, 7, LINE)
    for pid in (7, 8):
        dump(allocator.snapshot(), tmp_path / f"oom_snapshot_{pid}_20261126083000.pickle")
    process = ProcessStatus(state="waiting", pid=7, host=this_host())
    keep_snapshots(folder, {"OOM_SNAPSHOT_PATH": str(tmp_path)}, [process])
    assert not list(folder.raw.iterdir())  # it was not asked for: a file of an earlier run
    keep_snapshots(folder, {"OOM_SNAPSHOT_PATH": str(tmp_path), "OOM_SNAPSHOT_ENABLE": "1"}, [process])
    assert [p.name for p in folder.raw.iterdir()] == ["oom_snapshot_7_20261126083000.pickle"]
    (proof,) = prove(open_recording(folder.path))
    assert proof.holds and (proof.kernels, proof.blocks, proof.failures) == (0, 1, 1)
