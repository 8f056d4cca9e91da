"""Which part of the program launched a task: forward, backward, gradients or optimizer, and what within them.

Told by what encloses the launch: autograd's own ranges and nodes, backward operators, the optimizer's range, modules,
and both ends of the arrows by which torch joins a forward operator to its backward one (they share a sequence number).
What nothing encloses is told by its thread, where only autograd launches on it, and else by what was launched before it
and after it in the same step: that is inferred, and what neither tells stays untold. A user's range tells nothing, as
it may hold anything: it is shown by its name.

Sources: torch's record_function in autograd's engine (``autograd::engine::evaluate_function: …``), in
``torch/optim/optimizer.py`` (``Optimizer.step#Adam.step``, ``Optimizer.zero_grad#…``), its module frames
(``nn.Module: Linear_0``), DistributedDataParallel's reducer (``torch.distributed.ddp.reducer::copy_bucket_to_grad``).
"""

from __future__ import annotations

import re
from math import fsum
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, Series, say, series, text
from npuperf.device.blame import main_thread
from npuperf.device.host_events import CODE, NONE, NOTHING, Nesting, inherited, nearest_said
from npuperf.model.groups import distinct, tally
from npuperf.model.host import HostOps
from npuperf.model.labels import I64, U8, Labels, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

#: The parts of training, in the order in which a step has them, and copies that belong to none of them.
PARTS: Final = {
    "forward": say("forward"),
    "backward": say("backward"),
    "gradients": say("gradients"),
    "optimizer": say("optimizer"),
    "copies": say("copies"),
}
_FORWARD, _BACKWARD, _GRADIENTS, _OPTIMIZER, _COPIES = range(len(PARTS))
#: Gradients set to zero: a part of the optimizer that says nothing of what comes before or after it.
_ZEROED: Final = len(PARTS)
#: What a part does, where names or shapes tell; always inferred, in the order in which a step does it.
PIECES: Final = {"embedding": say("embedding"), "lm_head": say("LM head"), "loss": say("loss")}
_EMBEDDING, _HEAD, _LOSS = range(len(PIECES))
_UNTOLD: Final = say("not told")
#: What a label names must cover this share of the phase's launches.
_MAIN_SHARE: Final = 0.6
_PART_SHARE: Final = 0.2

# -- Names of events that tell a part: those of torch and of libraries that train with it.

_OF_OPTIMIZER: Final = re.compile(r"^Optimizer\.step\b|^aten::_fused_(adam|adamw|sgd|adagrad)_$|^npu::npu_apply_adam")
_OF_ZEROING: Final = re.compile(r"^Optimizer\.zero_grad\b")
#: Kernels that update parameters, by the operator types of CANN.
_UPDATE: Final = re.compile(r"Apply(Adam|Ada|Momentum|RMSProp|CenteredRMSProp|GradientDescent|Ftrl|Lamb|Proximal)")
_OF_GRADIENTS: Final = re.compile(r"^aten::_amp_foreach_non_finite_check_and_unscale_$")
_OF_BACKWARD: Final = re.compile(
    r"^autograd::engine::evaluate_function|^(torch::autograd::)?\w+Backward\d*$|^\w+::\w*_backward(_\w+)?$"
    r"|^torch::autograd::AccumulateGrad|^torch\.distributed\.ddp\.reducer::|^torch::distributed::reducer::"
)
_MODULE: Final = re.compile(r"^nn\.Module: (.+)$")
_OF_FORWARD: Final = re.compile(r"^nn\.Module: |^DistributedDataParallel\.forward$|^[^:]*\(\d+\): forward$")
_OF_LOSS: Final = re.compile(
    r"^\w+::_?\w*(cross_entropy|nll_loss|log_softmax|ctc_loss|kl_div)\w*$|^aten::\w+_loss(_\w+)?$"
    r"|^(\w*(CrossEntropy|CtcLoss|KlDiv|LogSoftmax)\w*|\w*[A-Za-z0-9]Loss(2D)?)Backward\d*$|^nn\.Module: \w*Loss_\d+$"
    r"|\(\d+\): \w*cross_entropy\w*$"
)
_OF_EMBEDDING: Final = re.compile(
    r"^aten::embedding(_\w+)?$|^Embedding\w*Backward\d*$|^nn\.Module: (Vocab\w*|Word|Token)?Embedding(Bag)?_\d+$"
)
_OF_HEAD: Final = re.compile(r"^nn\.Module: \w*(LM|Lm)_?Head\w*_\d+$")
#: Functions of libraries in recorded call stacks: traces keep only the user's own as events.
_STACK_OF_OPTIMIZER: Final = re.compile(r"(^|[/;\s])(torch|torch_npu|apex)/optim(izers)?/\w+\.py\(\d+\): step\b")
_STACK_OF_GRADIENTS: Final = re.compile(
    r"(^|[/;\s])torch/nn/utils/clip_grad\.py\(|(^|[/;\s])(megatron|mindspeed)/[\w/]*(finalize_model_grads|clip_grads)\.py\("
)
_STACK_OF_LOSS: Final = re.compile(r"(^|[/;\s])torch/nn/functional\.py\(\d+\): (cross_entropy|\w+_loss|kl_div)\b")
_LOSS_KERNEL: Final = re.compile(r"(NLLLoss|CrossEntropyLoss|SoftmaxCrossEntropy|LogSoftmax)", re.I)
_PRODUCT: Final = re.compile(r"matmul|gemm|^Mm$", re.I)
#: Which part a name tells, and which piece; the first that fits counts.
_NAMES: Final = (
    (_OPTIMIZER, _OF_OPTIMIZER),
    (_ZEROED, _OF_ZEROING),
    (_GRADIENTS, _OF_GRADIENTS),
    (_BACKWARD, _OF_BACKWARD),
    (_FORWARD, _OF_FORWARD),
)
_OF_PIECES: Final = ((_LOSS, _OF_LOSS), (_EMBEDDING, _OF_EMBEDDING), (_HEAD, _OF_HEAD))
#: What lies between two launches of known parts in one step, NOTHING is the step's border; else it is not told.
_BETWEEN: Final = {
    (_FORWARD, _FORWARD): _FORWARD,
    (_BACKWARD, _GRADIENTS): _GRADIENTS,
    (_BACKWARD, _OPTIMIZER): _GRADIENTS,
    (_GRADIENTS, _GRADIENTS): _GRADIENTS,
    (_GRADIENTS, _OPTIMIZER): _GRADIENTS,
    (_OPTIMIZER, _OPTIMIZER): _OPTIMIZER,
}


class Sections(Struct, frozen=True):
    """Per task: the part of training that launched it, whether that is inferred, what it does, the range around it.

    ``part`` has no names where nothing of the recording tells a backward pass or an optimizer; ``range``: the user's
    range, or the module, around the launch; ``anew``: a forward operator or module that lies in a backward pass.
    """

    part: Labels
    inferred: Mask
    piece: Labels
    range: Labels
    anew: Mask

    def label(self, first: int, last: int, weight: I64) -> Message | None:
        """Name the tasks ``first`` … ``last-1`` by what most of their time, ``weight``, belongs to."""
        here, own = slice(first, last), weight[first:last]
        ranges = [name for name, share in _shares(self.range.filter(here), own)[:1] if share >= _MAIN_SHARE]
        parts = self._parts(here, own) if self.part.names and own.any() else []
        if not parts:
            return say("{range}", range=ranges[0]) if ranges else None
        listed = series(parts)
        return say("{parts} in {range}", parts=listed, range=ranges[0]) if ranges else say("{parts}", parts=listed)

    def _parts(self, here: slice, weight: I64) -> list[Message]:
        """Name the notable parts of some tasks, and notable pieces of them, in the order of a step."""
        part = self.part.filter(here)
        shares = dict(_shares(part, weight))
        sure = dict(_shares(Labels(np.where(self.inferred[here], NONE, part.codes), part.names), weight))
        pieces = dict(_shares(self.piece.filter(here), weight))
        named = []
        for name, title in PARTS.items():
            if shares.get(name, 0) >= _PART_SHARE:
                told = 2 * sure.get(name, 0) >= shares[name]
                named.append(title if told else say("{part} (inferred)", part=title))
        of_pieces = [title for name, title in PIECES.items() if pieces.get(name, 0) >= _PART_SHARE]
        named += [say("{part} (inferred)", part=title) for title in of_pieces]
        return [*named, _UNTOLD] if 1 - fsum(shares.values()) >= _PART_SHARE else named


def parts_of(label: Message) -> frozenset[str]:
    """Return the parts (in English) that a label of :meth:`Sections.label` names, inferred ones too, and its range."""
    values = label.parameters
    parts, around = values.get("parts"), values.get("range")
    named = [part for part in parts.items if part != _UNTOLD] if isinstance(parts, Series) else []
    titles = [part.parameters.get("part", part) if isinstance(part, Message) else part for part in named]
    if not isinstance(parts, Series) and around is None:
        titles = [label]
    return frozenset(text(title) for title in titles) | ({str(around)} if around is not None else frozenset())


def _shares(labels: Labels, weight: I64) -> list[tuple[str, float]]:
    """Return the names of some tasks with their share of the weight, the largest first."""
    codes, _, sums = tally(labels.codes, weight)
    total = int(weight.sum())
    order = np.argsort(-sums, kind="stable")
    named = ((int(codes[i]), int(sums[i])) for i in order.tolist())
    return [(labels.names[code], ns / total) for code, ns in named if code >= 0 and ns]


def find_sections(tasks: Tasks, types: Labels, host: HostOps, nesting: Nesting, thresholds: Thresholds) -> Sections:
    """Find part, piece and range of every task, by its torch operator, else by its launch; ``types``: of the tasks."""
    nothing, never = Labels.missing(len(tasks)), np.zeros(len(tasks), np.bool_)
    if not len(nesting.events):
        return Sections(nothing, never, nothing, nothing, never)
    thread, time = tasks.launch_thread.copy(), np.where(tasks.launched, tasks.launch_start, 0)
    if len(host.ops):
        known = tasks.op >= 0
        thread = np.where(known, host.ops.thread[tasks.op], thread)
        time = np.where(known, host.ops.start[tasks.op], time)
    inner = nesting.at(thread, time)
    ranges = _ranges(nesting, inner)
    marks, computed_anew = _marked_parts(host, nesting)
    part, anew = marks.take(inner, mode="wrap"), computed_anew.take(inner, mode="wrap") & (inner != NONE)
    part[inner == NONE] = NOTHING
    part[types.flag([bool(_UPDATE.match(name)) for name in types.names])] = _OPTIMIZER
    stack = host.stack.take(tasks.op) if len(host.stack) else nothing
    for pattern, named in ((_STACK_OF_OPTIMIZER, _OPTIMIZER), (_STACK_OF_GRADIENTS, _GRADIENTS)):
        part[stack.flag([bool(pattern.search(text)) for text in stack.names]) & (part == NOTHING)] = named
    if not (flags := np.bincount(part, minlength=256))[_BACKWARD] and not flags[_OPTIMIZER]:
        return Sections(nothing, never, nothing, ranges, never)  # no training, or none that is recorded
    program, autograd = _threads(host, nesting, marks)
    part[(part == NOTHING) & _on(thread, autograd)] = _BACKWARD
    told = part != NOTHING
    timed = np.flatnonzero((inner != NONE) & (told | _on(thread, program)))
    inferred = never
    part[timed], inferred[timed] = _by_order(part[timed], tasks.step[timed], time[timed])
    part[part == _ZEROED] = _OPTIMIZER
    part[(part == NOTHING) & (tasks.work == Work.OTHER)] = _COPIES
    codes = np.where(part == NOTHING, NONE, part.astype(np.int32))
    piece = _pieces(tasks, types, nesting, inner, stack, thresholds)
    return Sections(Labels(codes, tuple(PARTS)).narrowed(), inferred, piece.narrowed(), ranges, anew)


def _marked_parts(host: HostOps, nesting: Nesting) -> tuple[U8, Mask]:
    """Return the part that each event belongs to by its name, its arrow, or what is around it; else NOTHING.

    What lies in a module but in a backward pass, too, was computed anew for that, and is backward: also return which.
    """
    events = nesting.events
    table = np.array([*map(_part_of, events.name.names), NOTHING], np.uint8)
    own = table.take(events.name.codes, mode="wrap")
    arrows = host.arrows
    for thread, time, part in (
        (arrows.forward_thread, arrows.forward_time, _FORWARD),
        (arrows.thread, arrows.time, _BACKWARD),
    ):
        at = nesting.at(thread, time)
        at = at[at >= 0]
        own[at[own[at] == NOTHING]] = part
    # Of most events nothing is told but by what is around them: what lies in what is asked of the marked ones alone.
    at = nearest_said(nesting.parent, own != NOTHING)
    marked = np.flatnonzero(own != NOTHING)
    place = np.full(len(own) + 1, NONE, np.int32)  # among the marked ones; the last is that of NONE
    place[marked] = np.arange(len(marked), dtype=np.int32)
    said, around = own.take(marked), np.append(at, NONE).take(nesting.parent.take(marked), mode="wrap")
    within = inherited(place.take(around, mode="wrap"), np.where(said == _FORWARD, np.uint8(NOTHING), said))
    anew = np.append((said == _FORWARD) & (within == _BACKWARD), np.False_)
    said = np.append(np.where(within == NOTHING, np.uint8(_FORWARD), within), np.uint8(NOTHING))
    place = place.take(at, mode="wrap")
    return said.take(place, mode="wrap"), anew.take(place, mode="wrap")


def _part_of(name: str) -> int:
    """Return the part that an event's name tells, else NOTHING."""
    return next((part for part, pattern in _NAMES if pattern.search(name)), NOTHING)


def _threads(host: HostOps, nesting: Nesting, marks: U8) -> tuple[set[int], set[int]]:
    """Return the threads that run the program, and those on which only autograd runs."""
    thread = nesting.events.thread
    own = (marks == _FORWARD) | (marks == _OPTIMIZER) | (marks == _ZEROED) | (nesting.causes == CODE["step"])
    program = {main_thread(host), *distinct(thread[own]).tolist()}
    return program, {*distinct(thread[marks == _BACKWARD]).tolist()} - program


def _on(thread: I64, these: set[int]) -> Mask:
    """True where a thread is one of a few."""
    found = np.zeros(len(thread), np.bool_)
    for one in these:
        found |= thread == one
    return found


def _by_order(part: U8, step: I64, time: I64) -> tuple[U8, Mask]:
    """Return the parts of tasks of the program's threads, those untold by what was launched before and after them.

    And which are inferred: what lies between two forward operators is within the forward pass, whatever it is.
    ``time``: of their launches. Only tasks of the same step count. What lies before the first forward operator, or
    between the last one and the backward pass, is part of neither: metrics, copies. Where no forward operator is told
    from others, all that comes before a backward pass is taken for forward, and where no optimizer is, all after it for
    the optimizer.
    """
    order = np.lexsort((time, step))
    ordered, place = part[order], np.arange(len(part))
    counts = (ordered != NOTHING) & (ordered != _ZEROED)  # programs set gradients to zero anywhere
    border = np.flatnonzero(np.append(True, np.diff(step[order]) != 0))
    group = np.searchsorted(border, place, side="right") - 1
    before = np.maximum.accumulate(np.where(counts, place, -1))
    before = np.where(before >= border[group], ordered.take(before, mode="wrap"), NOTHING)
    after = np.minimum.accumulate(np.where(counts, place, len(place))[::-1])[::-1]
    within = after < np.append(border, len(place))[group + 1]
    after = np.where(within, ordered.take(after, mode="clip"), NOTHING)
    rules = dict(_BETWEEN)
    if not (ordered == _FORWARD).any():
        rules |= {(earlier, _BACKWARD): _FORWARD for earlier in (NOTHING, _OPTIMIZER, _BACKWARD)}
    if not (ordered == _OPTIMIZER).any():
        rules |= {(earlier, NOTHING): _OPTIMIZER for earlier in (_BACKWARD, _GRADIENTS)}
    found, untold = ordered.copy(), ordered == NOTHING
    for (earlier, later), is_then in rules.items():
        found[untold & (before == earlier) & (after == later)] = is_then
    result, inferred = np.empty_like(part), np.empty(len(part), np.bool_)
    result[order] = found
    inferred[order] = untold & (found != NOTHING) & ~((before == _FORWARD) & (after == _FORWARD))
    return result, inferred


def _ranges(nesting: Nesting, inner: I64) -> Labels:
    """Return the innermost range of the user's around each launch, else the module just below the model itself."""
    names = nesting.events.name
    own = nesting.nearest(inner, nesting.causes == CODE["range"])
    module = names.flag([bool(_MODULE.match(n)) for n in names.names])
    model, below = nesting.outermost(inner, module), np.full(len(inner), NONE)
    at = nesting.nearest(inner, module)
    while (moving := (at >= 0) & (at != model)).any():
        below = np.where(moving, at, below)
        at = nesting.nearest(np.where(moving, nesting.parent[at], NONE), module)
    found = names.take(np.where(own >= 0, own, np.where(below >= 0, below, model)))
    return Labels(found.codes, tuple(_MODULE.sub(r"\1", n) for n in found.names)).narrowed()


# -- What a part does: the embedding, the language model's head, the loss, of their forward and their backward passes.


def _pieces(tasks: Tasks, types: Labels, nesting: Nesting, inner: I64, stack: Labels, thresholds: Thresholds) -> Labels:
    """Tell by names of operators, nodes and modules, and the head by a product with the vocabulary in its shapes.

    ``stack``: the call stack of the operator behind each task.

    The vocabulary is what the loss chooses from (the last dimension of the logits), else the length of the embedding's
    table; other dimensions of products may be as large.
    """
    names = nesting.events.name
    table = np.array([*map(_piece_of, names.names), NOTHING], np.uint8)
    found = np.full(len(tasks), NOTHING, np.uint8)
    if (table != NOTHING).any():
        around = inherited(nesting.parent, table.take(names.codes, mode="wrap"))
        found = np.append(around, np.uint8(NOTHING)).take(inner, mode="wrap")
    found[types.flag([bool(_LOSS_KERNEL.match(name)) for name in types.names])] = _LOSS
    found[stack.flag([bool(_STACK_OF_LOSS.search(text)) for text in stack.names])] = _LOSS
    computes = tasks.work == Work.COMPUTE
    found[~computes] = NOTHING
    if tasks.shapes.names and (found != NOTHING).any():
        shapes = [[[*map(int, re.findall(r"\d+", cell))] for cell in text.split(";")] for text in tasks.shapes.names]
        tables = [[dims for dims in cells if len(dims) > 1] for cells in shapes]
        chosen_from = _dimensions(tasks.shapes, found == _LOSS, [[dims[-1] for dims in cells] for cells in tables])
        looked_up = _dimensions(tasks.shapes, found == _EMBEDDING, [[dims[0] for dims in c[:1]] for c in tables])
        least = thresholds.vocabulary_least
        sizes = {n for n in chosen_from if n >= least} or {n for n in looked_up if n >= least}
        if sizes:
            wide = tasks.shapes.flag([any(sizes.intersection(dims) for dims in cells) for cells in tables])
            product = types.flag([bool(_PRODUCT.search(name)) for name in types.names])
            found[wide & product & computes & (found == NOTHING)] = _HEAD
    return Labels(np.where(found == NOTHING, NONE, found.astype(np.int32)), tuple(PIECES))


def _piece_of(name: str) -> int:
    """Return the piece that an event's name tells, else NOTHING."""
    return next((piece for piece, pattern in _OF_PIECES if pattern.search(name)), NOTHING)


def _dimensions(shapes: Labels, chosen: Mask, sizes: list[list[int]]) -> set[int]:
    """Return the sizes, given per text of shapes, that occur in the shapes of some tasks."""
    return {size for code in distinct(shapes.codes[chosen]).tolist() if code >= 0 for size in sizes[code]}
