"""Recordings of memory whose every byte is planned, in the exporters' own spelling: what was asked for, and when.

The counters are those of an allocator that reports three events per block: handed out, free for others, given back.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from build import EPOCH, H, K, ascend_pt, us
from msgspec import Struct, field
from msgspec.structs import replace

MIB = 1 << 20
#: Between the two reports of a block that no other stream uses, ns.
_APART = 2_000


class Block(Struct, frozen=True):
    """A block; times in ns after EPOCH. ``freed`` None: not within the window; ``waits``: ns for another stream."""

    start: int
    freed: int | None
    size: int
    name: str = "aten::empty"
    waits: int = 0
    stream: int = 2


class Plan(Struct, frozen=True):
    """What lived ``before`` the window, blocks, and ``older`` ones that are given back (time, bytes).

    ``reserved``: at first, and what it becomes later (``grows``: time, bytes); ``outside``: bytes of modules;
    ``unnamed``: of the process, of no module. ``sampled``: times of samples. ``unwritten``: places of blocks without a
    row, as where rows are lost.
    """

    before: int
    blocks: tuple[Block, ...] = ()
    older: tuple[tuple[int, int], ...] = ()
    reserved: int = 4096 * MIB
    outside: dict[str, int] = field(default_factory=lambda: {"HCCL": 400 * MIB, "RUNTIME": 60 * MIB})
    unnamed: int = 90 * MIB
    sampled: tuple[int, ...] = (0, 1_000_000)
    unwritten: frozenset[int] = frozenset()
    grows: tuple[tuple[int, int], ...] = ()

    def reserved_at(self, time: int) -> int:
        """Return what the allocator has of the device."""
        return next((size for t, size in reversed(self.grows) if t <= time), self.reserved)

    def counters(self) -> list[tuple[int, int, int]]:
        """Return time, allocated and active after every event, by adding up."""
        moves: list[tuple[int, int, int]] = [(t, -size, -size) for t, size in self.older]
        for block in self.blocks:
            moves.append((block.start, block.size, block.size))
            if block.freed is not None and block.waits:  # given back, and free for others later
                moves += [(block.freed, -block.size, 0), (block.freed + block.waits, 0, -block.size)]
            elif block.freed is not None:  # free for others, and only then reported as given back
                moves += [(block.freed, -block.size, -block.size), (block.freed + _APART, 0, 0)]
        told, allocated, active = [], self.before, self.before
        for time, a, b in sorted(moves):
            allocated, active = allocated + a, active + b
            told.append((time, allocated, active))
        return told

    def peak(self) -> tuple[int, int]:
        """Return the most that is allocated, and when it first is."""
        most = max(a for _, a, _ in self.counters())
        return most, next(t for t, a, _ in self.counters() if a == most)


def mb(size: int) -> str:
    """Spell bytes in MB as the exporter does: every digit."""
    return repr(size / MIB)


def write_memory(plan: Plan, output: Path, *, columns: int = 15, device: int = 0, epoch: int = EPOCH) -> Path:
    """Write operator_memory.csv, memory_record.csv and npu_module_mem.csv; ``columns``: 10 of releases before 6.0."""
    output.mkdir(parents=True, exist_ok=True)
    counters = plan.counters()

    def after(time: int) -> tuple[int, int]:
        return next((a, b) for t, a, b in reversed(counters) if t <= time)

    def at(time: int | None) -> str:
        return "" if time is None else us(epoch + time) + "\t"

    new = columns == 15
    rows = [
        "Name,Size(KB),Allocation Time(us),Release Time(us),"
        + ("Active Release Time(us),Duration(us),Active Duration(us)," if new else "Duration(us),")
        + "Allocation Total Allocated(MB),Allocation Total Reserved(MB),"
        + ("Allocation Total Active(MB)," if new else "")
        + "Release Total Allocated(MB),Release Total Reserved(MB),"
        + ("Release Total Active(MB),Stream Ptr," if new else "")
        + "Device Type"
    ]
    for place, block in enumerate(plan.blocks):
        if place in plan.unwritten:
            continue
        ended = block.freed is not None
        back = None if not ended else block.freed if block.waits or not new else block.freed + _APART
        active = None if not ended else block.freed + block.waits
        first, last = after(block.start), after(back) if back is not None else None
        cells = [block.name, repr(block.size / 1024), at(block.start), at(back), *([at(active)] if new else [])]
        cells += [
            "" if not ended else us(back - block.start),
            *(["" if not ended else us(active - block.start)] if new else []),
        ]
        cells += [mb(first[0]), mb(plan.reserved_at(block.start)), *([mb(first[1])] if new else [])]
        cells += [mb(last[0]), mb(plan.reserved_at(back))] if last else ["", ""]
        cells += ([mb(last[1]) if last else "", str(block.stream)] if new else []) + [f"NPU:{device}"]
        rows.append(",".join(cells))
    (output / "operator_memory.csv").write_text("\r\n".join(rows) + "\r\n", newline="")
    rows = [
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),"
        + ("Total Active(MB),Stream Ptr," if new else "")
        + "Device Type"
    ]
    beside = sum(plan.outside.values()) + plan.unnamed
    rows += [f"APP,{at(t)},,{mb(plan.reserved_at(t) + beside)},{',,' if new else ''}NPU:{device}" for t in plan.sampled]
    for time, allocated, active in counters:
        for component in ("PTA", "PTA+GE"):
            more = [mb(active), "2"] if new else []
            rows.append(
                ",".join([component, at(time), mb(allocated), mb(plan.reserved_at(time)), *more, f"NPU:{device}"])
            )
    (output / "memory_record.csv").write_text("\r\n".join(rows) + "\r\n", newline="")
    modules = {**plan.outside, "APP": plan.reserved, "SLOG": 0}
    rows = ["Component,Timestamp(us),Total Reserved(MB),Device"]
    rows += [f"{name},{at(t)},{mb(size)},NPU:{device}" for name, size in modules.items() for t in plan.sampled]
    (output / "npu_module_mem.csv").write_text("\r\n".join(rows) + "\r\n", newline="")
    return output


# -- A training of a few layers, on the host and on the device.

#: Host time of the parts of a step, ns after its beginning, for each layer, and where the optimizer and the step end.
_LAYER, _OPTIMIZER, STEP = 100_000, 1_000_000, 1_500_000


class Training(Struct, frozen=True):
    """Steps of some layers: each keeps an activation from forward to backward, and makes a gradient in backward.

    The optimizer gives gradients back. ``leak``: bytes that each step keeps for good; ``late``: bytes of an activation
    of layer 0 that is given back only at the end of the step; ``spike``: bytes of a block of backward that lives for a
    moment, in the middle of it; ``state``: what the optimizer keeps from the first step on. ``modules``: whether the
    host's ranges of the layers' forward are recorded; each layer keeps ``small`` beside its activation; ``calls``:
    what else the host does.
    """

    steps: int = 4
    layers: int = 4
    activation: int = 64 * MIB
    gradient: int = 16 * MIB
    before: int = 1000 * MIB
    leak: int = 0
    late: int = 0
    spike: int = 0
    state: int = 0
    modules: bool = False
    small: int = 0
    calls: tuple[H, ...] = ()

    def times(self, step: int) -> tuple[int, int]:
        """Return when a step begins and ends on the host."""
        return step * STEP, (step + 1) * STEP

    def plan(self) -> Plan:
        """Return the blocks of all steps."""
        blocks: list[Block] = []
        for step in range(self.steps):
            begin, end = self.times(step)
            for layer in range(self.layers):
                forward = begin + layer * _LAYER + 10_000
                backward = begin + (2 * self.layers - 1 - layer) * _LAYER + 10_000
                given_back = backward + 50_000
                if self.late and layer == 0:
                    blocks.append(Block(forward + 1_000, end - 30_000, self.late, "aten::late"))
                blocks.append(Block(forward, given_back, self.activation, "aten::mm"))
                if self.small:
                    blocks.append(Block(forward + 2_000, given_back - 5_000, self.small, "aten::gelu"))
                blocks.append(Block(backward, begin + _OPTIMIZER + 60_000, self.gradient, "aten::mm"))
                if self.spike and layer == self.layers // 2:
                    blocks.append(Block(backward + 5_000, backward + 20_000, self.spike, "aten::cat"))
            if self.leak:
                blocks.append(Block(begin + 20_000, None, self.leak, "aten::leaky"))
            if self.state and step == 0:
                blocks.append(Block(begin + _OPTIMIZER + 10_000, None, self.state, "aten::zeros_like"))
        last = self.steps * STEP
        return Plan(self.before, tuple(sorted(blocks, key=lambda b: b.start)), sampled=tuple(range(0, last, STEP // 2)))

    def write(self, root: Path, *, memory: bool = True) -> Path:
        """Write the profile; without ``memory`` the same without its files."""
        kernels, host = [], [*self.calls]
        steps = {}
        for step in range(self.steps):
            begin, end = self.times(step)
            steps[step + 1] = (begin, end - 10_000)
            backward = begin + self.layers * _LAYER
            if self.modules:
                host.append(H("nn.Module: Net_0", begin + 1_000, self.layers * _LAYER - 5_000, python=True))
            for i in range(2 * self.layers):
                at = begin + i * _LAYER
                launch = at + 40_000
                if self.modules and i < self.layers:
                    host.append(H(f"nn.Module: Layer_{i}", at + 2_000, 90_000, python=True))
                host.append(H("aten::mm", at + 5_000, 50_000, python=True))
                kernels.append(
                    K(
                        launch + 10_000,
                        60_000,
                        type="MatMul",
                        core="AI_CORE",
                        step=step + 1,
                        launch=launch,
                        launch_dur=3_000,
                    )
                )
            host.append(
                H(
                    "autograd::engine::evaluate_function: MmBackward0",
                    backward,
                    self.layers * _LAYER - 1_000,
                    python=True,
                )
            )
            launch = begin + _OPTIMIZER + 40_000
            host.append(H("Optimizer.step#SGD.step", begin + _OPTIMIZER, 300_000, python=True))
            kernels.append(K(launch + 10_000, 100_000, step=step + 1, launch=launch, launch_dur=3_000))
        folder = ascend_pt(root, kernels, steps, cores="24,48", host=host)
        if memory:
            write_memory(self.plan(), folder / "ASCEND_PROFILER_OUTPUT")
        return folder


def sample(out: Path) -> None:
    """Write samples/memory_ascend_pt: each step keeps a block, and puts its gradients together for a moment."""
    training = Training(
        steps=4, layers=3, activation=192 * MIB, gradient=48 * MIB, before=1400 * MIB, leak=8 * MIB, late=96 * MIB,
        spike=700 * MIB, state=300 * MIB, modules=True,
    )  # fmt: skip
    calls = [
        H(block.name, block.start - 300, 2_000, python=True)
        for block in training.plan().blocks
        if block.name != "aten::mm"
    ]
    for begin, end in map(training.times, range(training.steps)):
        calls.append(H("train.py(31): step", begin + 500, end - begin - 20_000, python=True))
        forward = range(begin, begin + training.layers * _LAYER, _LAYER)
        calls += [H("model.py(24): forward", layer + 2_500, 56_000, python=True) for layer in forward]
    with TemporaryDirectory() as folder:
        shutil.copytree(replace(training, calls=tuple(calls)).write(Path(folder)), out)


if __name__ == "__main__":
    sample(Path(sys.argv[1]))
