"""What the host recorded about itself: torch operators, Python frames, steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Final

import numpy as np
from msgspec import Struct, field

from npuperf.model.groups import distinct
from npuperf.model.intervals import rows_of
from npuperf.model.labels import I64, Columns, Labels
from npuperf.model.names import is_step
from npuperf.model.tasks import NO_TIME, Tasks

_NESTED: Final = 16
#: Events that are looked through at once for those around a time.
_BLOCK: Final = 256
#: Events that ended before a time, inside the same outer one, stepped over to find what is around it.
_NEAR: Final = 64
_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.*)$")
#: Frames of libraries, and of whoever runs the user's code.
LIBRARY_FRAME: Final = (
    r"(^|/)(torch|torch_npu|torchair|torchvision|transformers|megatron|mindspeed|numpy)/|site-packages/|dist-packages/"
    r"|(^|/)torchinductor_[^/]*/|(^|/)lib/python3|(^|/)npuperf/(record/)?agent/|^<|^nn\.Module"
    # Of Python's own modules torch leaves out the folder; a file of the user's by such a name would break torch itself.
    r"|^(abc|argparse|ast|contextlib|copy|dataclasses|enum|functools|glob|inspect|linecache|operator|os|pathlib|pickle"
    r"|queue|random|selectors|shutil|signal|socket|ssl|subprocess|tempfile|threading|tokenize|traceback|types|typing"
    r"|warnings|weakref)\.py\("
    r"|^(asyncio|collections|concurrent|importlib|json|logging|multiprocessing|re|unittest)/\w+(/\w+)*\.py\("
)
_LIBRARY = re.compile(LIBRARY_FRAME)
#: Frames in which a profiler does its own work: npuperf's agent, torch_npu's profiler, torch's.
PROFILER_FRAME: Final = r"(^|/)(npuperf/(record/)?agent/session|torch(_npu)?/profiler/profiler)\.py\("
_PROFILER = re.compile(PROFILER_FRAME)


def is_profiler_frame(text: str) -> bool:
    """Tell a frame in which a profiler does its own work."""
    return bool(_PROFILER.search(text))


def is_user_frame(text: str) -> bool:
    """Tell a frame of the user's own code (``train.py(41): forward``) from library code."""
    return bool(_FRAME.match(text)) and not _LIBRARY.search(text)


def user_frame(stack: str) -> str | None:
    """Return the innermost frame of the user's own code in a recorded call stack.

    Stacks come innermost first, separated by ``;`` and line ends; library frames do not help the reader.
    """
    for part in stack.replace("\r", "").replace("\n", "").split(";"):
        if is_user_frame(part.strip()):
            return shorten(part.strip())
    return None


def shorten(frame: str) -> str:
    """Render a frame as ``dir/file.py:41 forward``, keeping at most one folder."""
    match = _FRAME.match(frame)
    if match is None:
        return frame
    tail = "/".join(match["file"].split("/")[-2:])
    return f"{tail}:{match['line']} {match['function']}"


class Spans(Columns, frozen=True, dict=True):
    """Host events of one kind, ordered by thread, then start: epoch ns, thread (of 32 bits where these do), text."""

    start: I64
    end: I64
    thread: I64
    name: Labels

    def around(self, thread: int, time: int) -> Iterator[int]:
        """Yield the indices of the events around ``time`` on ``thread``, the innermost (latest start) first."""
        rows = rows_of(self.thread, thread)
        first = rows.start
        at = first + int(self.start[rows].searchsorted(time, side="right")) - 1
        while at >= first:
            if self.end[at] >= time:
                yield at
                at -= 1
            else:
                at = self._reaching(first, at, time)

    def _reaching(self, first: int, stop: int, time: int) -> int:
        """Return the latest event from ``first`` to before ``stop`` that ends at ``time`` or later, less if none does.

        First of the block of ``stop``, then of the latest one in which any event does.
        """
        block = stop // _BLOCK
        found = np.flatnonzero(self.end[block * _BLOCK : stop] >= time)
        if not len(found):
            blocks = np.flatnonzero(self._block_ends[first // _BLOCK : block] >= time)
            if not len(blocks):
                return -1
            block = first // _BLOCK + int(blocks[-1])
            found = np.flatnonzero(self.end[block * _BLOCK : (block + 1) * _BLOCK] >= time)
        return block * _BLOCK + int(found[-1])

    @cached_property
    def _block_ends(self) -> I64:
        """When the last event of each block of the table ends, ns."""
        return np.maximum.reduceat(self.end, np.arange(0, len(self), _BLOCK))

    def innermost(self, thread: int, time: int) -> int:
        """Return the index of the innermost event around ``time`` on ``thread``, or -1."""
        return next(self.around(thread, time), -1)

    def latest(self, thread: I64, time: I64) -> I64:
        """Return for each time the latest-started event around it on its thread, -1 if none is near.

        Only a few events that have ended, inside the same outer one, are stepped over.
        """
        at = np.full(len(time), -1, np.int64)
        first = np.zeros(len(time), np.int64)
        for one in distinct(thread).tolist():
            mine = np.flatnonzero(thread == one)
            rows = rows_of(self.thread, one)
            at[mine] = rows.start + np.searchsorted(self.start[rows], time[mine], side="right") - 1
            first[mine] = rows.start
        for _ in range(_NEAR if len(self) else 0):
            ended = (at >= first) & (self.end[at] < time)
            if not ended.any():
                break
            at = np.where(ended, at - 1, at)
        return np.where((at >= first) & (self.end[at] >= time), at, -1) if len(self) else at


class Arrows(Columns, frozen=True):
    """Forward and backward operators that belong together, ordered by the backward operator's thread and start."""

    thread: I64
    time: I64
    forward_thread: I64
    forward_time: I64

    @classmethod
    def build(cls, thread: I64, time: I64, forward_thread: I64, forward_time: I64) -> Arrows:
        """Order the arrows."""
        order = np.lexsort((time, thread))
        return cls(thread[order], time[order], forward_thread[order], forward_time[order])

    def forward_of(self, thread: int, start: int) -> tuple[int, int] | None:
        """Return thread and start of the forward operator of the backward operator that starts at ``start``."""
        rows = rows_of(self.thread, thread)
        at = rows.start + int(self.time[rows].searchsorted(start))
        if at < rows.stop and self.time[at] == start:
            return int(self.forward_thread[at]), int(self.forward_time[at])
        return None


class HostOps(Struct, frozen=True):
    """Torch operators with the way back to the code line that called them.

    ``stack`` is the recorded call stack, if any; ``frames`` are Python functions of the user's own code;
    ``events`` are all host events of any layer, operators and frames included.
    """

    ops: Spans = field(default_factory=Spans.empty)
    stack: Labels = field(default_factory=lambda: Labels.missing(0))
    frames: Spans = field(default_factory=Spans.empty)
    arrows: Arrows = field(default_factory=Arrows.empty)
    events: Spans = field(default_factory=Spans.empty)

    @property
    def has_lines(self) -> bool:
        """Tell whether lines of code can be known at all: frames or stacks are recorded."""
        return len(self.frames) > 0 or len(self.stack.names) > 0

    def submitted(self, tasks: Tasks) -> I64:
        """Return when the host asked for each task, NO_TIME where that is not recorded.

        That is when its torch operator begins, as queues launch later; without one when it was launched.
        """
        time = np.where(tasks.launched, tasks.launch_start, NO_TIME)
        return np.where(tasks.op >= 0, self.ops.start[tasks.op], time) if len(self.ops) else time

    def torch_op(self, op: int) -> str | None:
        """Return the innermost framework operator (``aten::mm``) around operator ``op``; -1 gives None.

        torch_npu's arrows start at its own inner event (``aclnnMm``), which users do not write.
        """
        if op < 0:
            return None
        for i in self._enclosing(op):
            name = self.ops.name[i]
            if name and "::" in name:
                return name
        name = self.ops.name[op]
        return None if name and is_step(name) else name

    def code_line(self, op: int) -> str | None:
        """Return the line of the user's code that led to operator ``op``, or None if it was not recorded."""
        if op < 0 or not self.has_lines:
            return None
        return self._line(self._enclosing(op), int(self.ops.thread[op]), int(self.ops.start[op]))

    def line_at(self, thread: int, time: int) -> str | None:
        """Return the line of the user's code that ``thread`` was in, by its frames or its operators' stacks."""
        if not self.has_lines:
            return None
        return self._line(self.ops.around(thread, time), thread, time)

    def _line(self, around: Iterator[int], thread: int, time: int, *, forward: bool = True) -> str | None:
        """Return the line by what is innermost: the recorded stack of an operator ``around``, or a frame.

        A stack has the line that was run, a frame only that of its function. Backward operators have neither, and
        stand where their forward operator does.
        """
        frame = self.frames.innermost(thread, time)
        begun = int(self.frames.start[frame]) if frame >= 0 else None
        operators = list(islice(around, _NESTED))
        for op in operators:
            if begun is not None and self.ops.start[op] < begun:
                break
            if line := self._recorded(op):
                return line
        if text := self.frames.name[frame] if frame >= 0 else None:
            return shorten(text)
        found = (self.arrows.forward_of(thread, int(self.ops.start[i])) for i in operators) if forward else iter(())
        behind = next((f for f in found if f), None)
        return self._line(self.ops.around(*behind), *behind, forward=False) if behind else None

    def _recorded(self, op: int) -> str | None:
        """Return the line of an operator's recorded stack; that of a whole step only says where the step begins."""
        stack = self.stack[op] if len(self.stack) else None
        if not stack or is_step(self.ops.name[op] or ""):
            return None
        return user_frame(stack)

    def _enclosing(self, op: int) -> Iterator[int]:
        """Yield ``op`` and the operators around it, from the inside out."""
        thread, time, end = int(self.ops.thread[op]), int(self.ops.start[op]), self.ops.end[op]
        return (i for i in self.ops.around(thread, time) if self.ops.end[i] >= end)


# -- Python frames that say what happens: functions of modules that are known, never a path's resemblance.
#
# A frame says which function runs, and nothing more. Functions of torch that load data or compile are known by module
# and name; whoever executes what was compiled (generated code, wrappers around it) is not among them, nor is any file
# of the user's.

_FRAMES_FRAME: Final = re.compile(r"^(?P<module>.+?)\(\d+\): (?P<function>.*)$")
_BUILTIN: Final = re.compile(r"^<built-in ")
#: Modules without which a name needs no closer look.
_CANDIDATE: Final = re.compile(
    r"torch/(utils/data|_dynamo|_functorch|_inductor)/|triton/compiler/|torchair/|torch(_npu)?/(cuda|npu)/graphs\.py"
    r"|torch_npu/npu/memory\.py"
)
_COLLECT: Final = re.compile(r"^<built-in (function collect>|method collect of module )")
#: Modules (paths in a package, anchored at its name) and functions whose frames stand for a cause.
_KNOWN: Final = tuple(
    (cause, re.compile(rf"(?:^|/){module}$"), re.compile(rf"^(?:.*\.)?(?:{functions})$"))
    for cause, module, functions in (
        ("data_loading", r"torch/utils/data/(dataloader|_utils/\w+)\.py", r".*"),
        # Called where no compiled code fits, and done before the new code runs.
        ("compile", r"torch/_dynamo/convert_frame\.py", r"_compile|compile_inner|_convert_frame|_convert_frame_assert"),
        ("compile", r"torch/_dynamo/output_graph\.py", r"_?call_user_compiler|compile_and_call_fx_graph"),
        ("compile", r"torch/_functorch/aot_autograd\.py", r"aot_module_simplified|create_aot_dispatcher_function"),
        ("compile", r"torch/_inductor/compile_fx\.py",
         r"compile_fx|_?compile_fx_inner|fx_codegen_and_compile|codegen_and_compile|(fw|bw)_compiler(_base|_freezing)?"),
        ("compile", r"torch/_inductor/graph\.py", r"compile_to_module|compile_to_fn|codegen"),
        ("compile", r"torch/_inductor/async_compile\.py", r"wait|_wait_futures"),
        ("compile", r"triton/compiler/compiler\.py", r"compile"),
        # What is waited for, collected and emptied before a capture, and the capture itself.
        ("capture", r"torch/cuda/graphs\.py", r"__enter__|__exit__|capture_begin|capture_end|make_graphed_callables"),
        ("capture", r"torch_npu/npu/graphs\.py",
         r"__enter__|__exit__|capture_begin|capture_end|make_graphed_callables"),
        ("capture", r"torch/_inductor/cudagraph_trees\.py", r"record_function|_record|run_eager|try_end_curr_warmup"),
        ("memory", r"torch_npu/npu/memory\.py", r"empty_cache"),
        ("compile", r"torchair/(core/)?\w*_?concrete_graph\w*(/\w+)?\.py", r"compile"),
    )
)  # fmt: skip


def is_frame(name: str) -> bool:
    """Tell a Python function, or a built-in one, from other host events."""
    return bool(_FRAMES_FRAME.match(name) or _BUILTIN.match(name))


def frame_cause(name: str) -> str:
    """Return the cause that a Python frame stands for: ``python`` unless its module and function say more."""
    if is_profiler_frame(name):
        return "profiler"
    if _COLLECT.match(name):
        return "gc"
    found = _FRAMES_FRAME.match(name) if _CANDIDATE.search(name) else None
    if found is None:
        return "python"
    for cause, module, functions in _KNOWN:
        if module.search(found["module"]) and functions.match(found["function"]):
            return cause
    return "python"


# -- Lines of code for many times at once: those that HostOps finds one by one, which takes too long for thousands.


class Lines(Struct, frozen=True):
    """What tells lines of code: frames, operators whose recorded stack has a line, backward operators with arrows.

    ``stacks``: the lines of these operators; ``arrow``: the arrow of each of the backward ones.
    """

    host: HostOps
    frames: Enclosing
    recorded: Enclosing
    stacks: Labels
    backward: Enclosing
    arrow: I64

    @classmethod
    def of(cls, host: HostOps) -> Lines:
        """Look at what the host recorded."""
        ops, stack = host.ops, host.stack if len(host.stack) else Labels.missing(len(host.ops))
        found = [user_frame(text) for text in stack.names]
        lines = Labels.of(found).take(stack.codes.astype(np.int64))
        step = ops.name.flag([is_step(name) for name in ops.name.names])
        told = lines.known() & ~step
        arrow = _arrows(host)
        return cls(
            host=host,
            frames=Enclosing.of(host.frames),
            recorded=Enclosing.of(ops.filter(told)),
            stacks=lines.filter(told),
            backward=Enclosing.of(ops.filter(arrow >= 0)),
            arrow=arrow[arrow >= 0],
        )

    def of_ops(self, op: I64) -> Labels:
        """Return for each torch operator the line that :meth:`HostOps.code_line` finds; none for -1."""
        known = np.flatnonzero(op >= 0)
        ops = self.host.ops
        found = self.at(ops.thread[op[known]], ops.start[op[known]], ops.end[op[known]])
        place = np.full(len(op), -1)
        place[known] = np.arange(len(known))
        return found.take(place)

    def at(self, thread: I64, time: I64, until: I64 | None = None, *, forward: bool = True) -> Labels:
        """Return for each time on a thread the line that :meth:`HostOps.line_at` finds.

        ``until``: only operators that last so long count.
        """
        until = time if until is None else until
        frame, op = self.frames.innermost(thread, time, time), self.recorded.innermost(thread, time, until)
        inner = op >= 0
        both = np.flatnonzero(inner & (frame >= 0))
        inner[both] = self.recorded.spans.start[op[both]] >= self.frames.spans.start[frame[both]]
        texts = self.host.frames.name.take(frame).compact()
        lines = self.stacks.take(np.where(inner, op, -1)).fill(Labels(texts.codes, tuple(map(shorten, texts.names))))
        if not forward or not len(self.arrow):
            return lines
        behind = np.where(inner | (frame >= 0), -1, self.backward.innermost(thread, time, until))
        rows = np.flatnonzero(behind >= 0)
        arrow, arrows = self.arrow[behind[rows]], self.host.arrows
        place = np.full(len(time), -1)
        place[rows] = np.arange(len(rows))
        then = self.at(arrows.forward_thread[arrow], arrows.forward_time[arrow], forward=False)
        return lines.fill(then.take(place))


class Enclosing(Struct, frozen=True):
    """Events with a way out of those that have ended. ``longer``: the latest earlier one of its thread that ends later.

    -1 where there is none.
    """

    spans: Spans
    longer: I64

    @classmethod
    def of(cls, spans: Spans) -> Enclosing:
        """Find for each event the way out; pointers double their reach every round."""
        longer = np.arange(-1, len(spans) - 1)
        fresh = np.ones(len(spans), np.bool_)
        np.not_equal(spans.thread[1:], spans.thread[:-1], out=fresh[1:])
        longer[fresh] = -1
        open_ = np.flatnonzero(longer >= 0)
        while len(open_):
            open_ = open_[spans.end[longer[open_]] <= spans.end[open_]]
            longer[open_] = longer[longer[open_]]
            open_ = open_[longer[open_] >= 0]
        return cls(spans, longer)

    def innermost(self, thread: I64, time: I64, until: I64) -> I64:
        """Return the latest-started event of each thread that has begun at a time and lasts ``until`` then at least."""
        at = np.full(len(time), -1)
        for one in distinct(thread).tolist() if len(self.spans) else ():
            mine = np.flatnonzero(thread == one)
            rows = rows_of(self.spans.thread, one)
            last = rows.start + np.searchsorted(self.spans.start[rows], time[mine], side="right") - 1
            at[mine] = np.where(last >= rows.start, last, -1)
        open_ = np.flatnonzero(at >= 0)
        while len(open_):
            open_ = open_[self.spans.end[at[open_]] < until[open_]]
            at[open_] = self.longer[at[open_]]
            open_ = open_[at[open_] >= 0]
        return at


def _arrows(host: HostOps) -> I64:
    """Return for each operator the arrow that leads from where it begins to its forward operator, -1 without one."""
    arrows, ops = host.arrows, host.ops
    found = np.full(len(ops), -1)
    for thread in distinct(arrows.thread).tolist():
        own, theirs = rows_of(ops.thread, thread), rows_of(arrows.thread, thread)
        at = np.minimum(theirs.start + np.searchsorted(arrows.time[theirs], ops.start[own]), theirs.stop - 1)
        found[own] = np.where(arrows.time[at] == ops.start[own], at, -1)
    return found
