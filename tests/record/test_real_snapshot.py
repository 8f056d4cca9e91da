"""Snapshots of the real torch_npu, over the CANN stand-in, held against the counters that it keeps itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from build import analyze_path
from npu_runs import TORCH
from preloaded import Loaded

from npuperf.device.allocator import replay_allocator
from npuperf.readers.log import ReadLog
from npuperf.readers.snapshot import read_snapshot

SCRIPT = f"""
import json, pickle, sys
{TORCH}
import torch_npu
torch.npu.set_device(0)
memory, (kind, folder) = torch_npu.npu.memory, sys.argv[1:]
memory._record_memory_history("all", context="alloc", stacks="python", max_entries=100000)
if kind == "short":
    total = torch.npu.mem_get_info()[1]
    torch.npu.set_per_process_memory_fraction((100 << 20) / total)
kept = []
try:
    for i in range(40):
        x = torch.empty((3 + i) * 300_001, dtype=torch.uint8, device="npu")
        y = torch.empty(100 + 700 * i, dtype=torch.uint8, device="npu")
        kept += [x] if i % 3 == 0 or kind == "short" else [y]
        if i == 20 and kind == "whole":
            kept = kept[::2]
            torch.npu.empty_cache()
except torch.OutOfMemoryError:
    pass
with open(f"{{folder}}/snapshot.pickle", "wb") as file:
    pickle.dump(memory._snapshot(), file)
with open(f"{{folder}}/stats.json", "w") as file:
    json.dump(dict(torch.npu.memory_stats()), file)
"""


def recorded(loaded: Loaded, folder: Path, kind: str) -> tuple[Path, dict[str, int]]:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    command = [loaded.python(), str(script), kind, str(folder)]
    subprocess.run(command, check=True, capture_output=True, env={**loaded}, timeout=300)
    return folder / "snapshot.pickle", json.loads((folder / "stats.json").read_text())


def test_every_counter_is_that_of_torch_npu(loaded: Loaded, tmp_path: Path) -> None:
    path, stats = recorded(loaded, tmp_path, "whole")
    (memory,) = read_snapshot(path, log := ReadLog()).values()
    assert memory.doubt is None and not log.lost and not memory.time_known
    for name, column in (("allocated", memory.counters.allocated), ("active", memory.counters.active),
                         ("reserved", memory.counters.reserved)):  # fmt: skip
        assert int(column[-1]) == stats[f"{name}_bytes.all.current"], name
        assert int(column.max()) == stats[f"{name}_bytes.all.peak"], name
    assert len(memory.blocks) == stats["allocation.all.allocated"]
    assert all(line is None or line.endswith("<module>") for line in memory.blocks.where.texts())
    # the rules that are replayed are those of the real allocator: every segment comes out again
    found = replay_allocator(memory)
    assert found is not None and found.recorded == stats["reserved_bytes.all.peak"]


def test_a_memory_fraction_is_not_taken_for_a_full_device(loaded: Loaded, tmp_path: Path) -> None:
    path, stats = recorded(loaded, tmp_path, "short")
    assert stats["num_ooms"] == 1
    (found,) = [f for f in analyze_path(path, no_cache=True).findings if f.rule == "out_of_memory"]
    assert found.evidence["allocated_bytes"] == stats["allocated_bytes.all.current"]
    assert found.evidence["device_had_room"] and "a limit of the process refused it" in str(found.title)
