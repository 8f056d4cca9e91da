"""What the program does: that it imports torch and makes steps; and which steps count.

Each source of steps calls ``ended()`` when a step ends, unless it rests, until it is ended itself.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Python 3.7 and 3.8 cannot evaluate them
    Action = Callable[[Any], None]
    Failure = Callable[[str, BaseException], None]
    Ended = Callable[[], None]
    #: What is told of an object whose call has returned, and the turn of its thread.
    Event = Callable[[object, "Turn"], None]
    Undo = Callable[[], None]


def watch(actions: dict[str, Action], failed: Failure, around: Callable[[str], Any]) -> None:
    """Call ``actions[name]`` with the module after its import, ``failed(name, error)`` when the import raised.

    ``around(name)`` is entered for the import.
    """
    sys.meta_path.insert(0, _Watcher(dict(actions), failed, around))


class _Watcher(MetaPathFinder):
    """Finds nothing itself: it lets the other finders find, and stands by while the module is executed."""

    def __init__(self, waiting: dict[str, Action], failed: Failure, around: Callable[[str], Any]) -> None:
        self.waiting = waiting
        self.failed = failed
        self.around = around

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        action = self.waiting.get(fullname)
        if action is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.exec_module = execute
            try:
                with self.around(fullname):
                    execute(module)
            except BaseException as error:
                self.failed(fullname, error)
                raise
            self.waiting.pop(fullname, None)
            if not self.waiting and self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                action(module)
            except Exception as error:  # the program comes first: it runs without being profiled
                print(f"npuperf: not profiling this process: {type(error).__name__}: {error}", file=sys.stderr)

        loader.exec_module = exec_module
        return spec


#: Where torch keeps the switches of its compiler.
_FRAMES = "_C._dynamo.eval_frame"

WAIT, WARM_UP, RECORD, OVER = "wait", "warm up", "record", "over"


#: A step that no program comes to.
_NEVER = 1 << 60


class Window:
    """Which steps are recorded: cycles of ``wait``, ``warmup`` and ``active`` steps, ``repeat`` times (0: for ever).

    ``whole``: everything is. Where it is to begin at a time or with a range, it is ``told`` to, ``repeat`` times: steps
    count from there; with ``seconds`` it then ends by the clock, ``held`` where the program says so.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.whole = bool(plan["whole_run"])
        self.wait = plan["schedule"]["wait"]
        self.warmup = 0 if self.whole else plan["schedule"]["warmup"]
        self.active = plan["schedule"]["active"]
        self.repeat = plan["schedule"]["repeat"]
        self.seconds: float | None = plan.get("duration")
        delay = plan.get("delay")
        self.told = delay is not None or self.seconds is not None or bool(plan.get("start_on"))
        self.held = False
        self._times = self.repeat
        #: Steps by which everything is put off, because nothing could be recorded yet.
        self.delay = _NEVER if self.told else 0
        #: When it is to begin and to end, by ``time.monotonic()``; None: not by the clock, or not known yet.
        self.due: float | None = None
        self.ends: float | None = None
        if self.told and not plan.get("start_on"):
            self.due = time.monotonic() + plan["began"] - time.time() + (delay or 0)
        self._longer_until = 0

    @classmethod
    def never(cls) -> Window:
        """Return a window that does not come."""
        return cls({"whole_run": False, "schedule": {"wait": _NEVER, "warmup": 0, "active": 1, "repeat": 1}})

    def phase(self, step: int) -> str:
        """Say what happens in a step (counted from 0)."""
        if self.whole:
            return RECORD
        if self.held or self.seconds is not None:
            return OVER if self.ends is not None and time.monotonic() >= self.ends else RECORD
        if step < self._longer_until:
            return RECORD
        position = self._position(step)
        if position < 0:
            return OVER
        if position < self.wait:
            return WAIT
        return WARM_UP if position < self.wait + self.warmup else RECORD

    def begins(self, step: int) -> bool:
        """Tell whether the profiler must be there from this step on."""
        if self.told or self.held:
            return self.due is not None and time.monotonic() >= self.due
        return self.whole or (step >= self.delay + self.wait and self._position(step) == self.wait)

    def begin(self, step: int) -> None:
        """Begin now, in this step, where it is told when to."""
        if self.told:
            self.delay, self.due = step, None

    def again(self) -> bool:
        """Wait to be told again, if it is to be recorded once more."""
        self._times -= 1
        self.delay, self.due, self.ends = _NEVER, None, None
        return bool(self._times > 0)

    def start_clock(self) -> float:
        """Count seconds from now on, when the profiler is there; return the time."""
        now = time.monotonic()
        self.ends = None if self.seconds is None else now + self.seconds
        return now

    def put_off(self) -> None:
        """Begin a step later: nothing can be recorded yet."""
        if not self.told:
            self.delay += 1

    def extend(self, more: dict[str, Any], step: int) -> None:
        """Let what is being recorded in this step go on for longer: ``active`` steps, or ``duration`` seconds."""
        if self.ends is not None:
            self.ends += float(more.get("duration") or 0)
        elif not self.whole:
            steps, length = int(more.get("active") or 0), self.wait + self.warmup + self.active
            self._longer_until = max(self._longer_until, step - self._position(step) + length) + steps
            self.delay += steps

    def quiet_until(self, step: int) -> int:
        """Return a later step before which nothing begins, but for what begins at a time."""
        if self.told or self.held:
            return _NEVER
        length, first = self.wait + self.warmup + self.active, self.delay + self.wait
        return int(first if step < first else first + length * ((step - first) // length + 1))

    def catch_up(self, behind: int, step: int) -> None:
        """Go on from a later step; a window that should have begun on the way begins there."""
        if any(map(self.begins, range(behind + 1, step))):
            self.delay = step - self.wait

    def _position(self, step: int) -> int:
        length = self.wait + self.warmup + self.active
        since = step - self.delay
        repeat = 1 if self.told else self.repeat
        if repeat and since >= length * repeat:
            return -1
        return since % length if since >= 0 else 0


class Turn:
    """What one thread does: whether it is inside of a step, and how many it has made.

    A training's own work turns us out of the processor's caches, so that a step costs by how much memory of ours it
    touches. Steps before which there is nothing to do are counted and timed here, in this one object.
    """

    __slots__ = ("began", "inside", "leader", "mark", "note", "quiet_until", "seen", "step", "tell_at")

    def __init__(self) -> None:
        self.inside = False
        self.seen: set[int] = set()
        self.forget()

    def forget(self) -> None:
        """Count from 0 again."""
        self.step = 0
        #: Objects of this round, and the one that ends it (by ``id``); when a step by the clock began, s.
        self.seen.clear()
        self.leader = 0
        self.began: float | None = None
        #: When the step under way began, ns; 0: not known. ``note`` is told how long each has taken.
        self.mark = 0
        self.note: Callable[[int], object] = _never
        #: A step before which there is nothing to do but to count, and when to tell it next, ns.
        self.quiet_until = self.tell_at = 0


class Turns(dict):  # type: ignore[type-arg]  # Python 3.7 knows no dict[int, Turn]
    """What each thread does, by its ident: ``turns[threading.get_ident()]``.

    Idents are used again. So when a thread ends its turn goes to the negative of it, where that of the next one with
    this ident takes its place; what took its place before is summed by 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self._local = threading.local()

    def __missing__(self, ident: int) -> Turn:
        self._local.end = _End(self, ident)
        turn = self[ident] = Turn()
        return turn

    def made(self) -> list[Turn]:
        """Return those of all threads that have made steps."""
        return [turn for turn in list(self.values()) if turn.step]

    def alone(self, ident: int) -> None:
        """Forget what other threads do: they are not in a forked child."""
        for other in [other for other in self if other != ident]:
            del self[other]

    def end(self, ident: int) -> None:
        """Give the ident of a thread that ends free."""
        turn, before = self.pop(ident, None), self.pop(-ident, None)
        if before is not None:
            before.step += self[0].step if 0 in self else 0
            self[0] = before
        if turn is not None and turn.step:
            self[-ident] = turn


class _End:
    """Goes with its thread."""

    def __init__(self, turns: Turns, ident: int) -> None:
        self.turns, self.ident = turns, ident

    def __del__(self) -> None:
        self.turns.end(self.ident)


def once_per_round(ended: Ended) -> Event:
    """Turn events of several objects into steps: a step ends when an object comes round again, and at the first.

    Two optimizers that take turns make one step a round, an optimizer used five times makes five, and one that
    was replaced by another is not waited for. Every thread has rounds of its own.
    """

    def event(of: object, turn: Turn) -> None:
        again = not turn.seen or id(of) in turn.seen
        if again:
            turn.seen.clear()
            turn.leader = id(of)
        turn.seen.add(id(of))
        if again:
            ended()

    return event


def every(seconds: float, ended: Ended) -> Event:
    """Turn events into steps of at least this many seconds; a thread's first event starts its clock."""

    def event(_: object, turn: Turn) -> None:
        now = time.monotonic()
        if turn.began is None:
            turn.began = now
        elif now - turn.began >= seconds:
            turn.began = now
            ended()

    return event


def _below(kind: Any) -> list[Any]:
    """Return all classes that descend from one."""
    return [found for child in kind.__subclasses__() for found in (child, *_below(child))]


def forwards(torch: Any, event: Event, turns: Turns) -> Source:
    """Report every outermost module call when it is done."""
    outermost = Source(torch, event, turns)
    outermost.replace(torch.nn.Module, "__call__")
    return outermost


def loads_data(torch: Any) -> bool:
    """Tell whether this process is a DataLoader's worker: modules that prepare data there are no step of anything."""
    info = _find(torch, "utils.data.get_worker_info")
    return info is not None and info() is not None


class Source:
    """Methods in whose place others stand: ``event`` gets the object when the outermost call in a thread has returned,
    unless that is a step that only counts.
    """

    def __init__(self, torch: Any, event: Event, turns: Turns) -> None:
        self.event = event
        self._replaced: dict[tuple[Any, str], tuple[Any, Any]] = {}
        #: Functions that run other code than their own, with what they are when they do not.
        self._exchanged: Any = weakref.WeakKeyDictionary()
        self._torch = torch
        self.is_compiling, self.set_compiler = compiler(torch)
        is_traced = _find(torch, "compiler.is_dynamo_compiling") or self.is_compiling  # the former does less
        self._needs = is_traced, turns, threading.get_ident, time.perf_counter_ns, graph_task(torch), self

    def replace(self, kind: Any, name: str) -> None:
        """Wrap a method, once."""
        if (kind, name) not in self._replaced:
            original = vars(kind).get(name)
            mine = self._wrap(getattr(kind, name))
            self._replaced[kind, name] = original, mine
            setattr(kind, name, mine)

    def exchange(self, function: Any) -> None:
        """Have a function run our code, once, whoever calls it by whatever name; its own runs in a copy of it.

        Both are the same each time, so that what torch.compile has made of them fits again.
        """
        if function not in self._exchanged:
            own = function.__code__
            name, defaults, cells = function.__name__, function.__defaults__, function.__closure__
            copy = types.FunctionType(own, function.__globals__, name, defaults, cells)
            copy.__kwdefaults__ = function.__kwdefaults__
            vars(copy).update(vars(function))
            code = _call.__code__.replace(co_freevars=own.co_freevars)
            mine = types.FunctionType(code, globals(), name, None, cells)
            never_compile(self._torch, mine)
            mine.__kwdefaults__ = {"_npuperf": (copy, *self._needs)}
            self._exchanged[function] = mine, copy
        mine, copy = self._exchanged[function]
        if function.__code__ is copy.__code__:
            function.__kwdefaults__ = {**(copy.__kwdefaults__ or {}), **mine.__kwdefaults__}
            function.__code__ = mine.__code__  # last: another thread may call it meanwhile

    def end(self) -> None:
        """Give back what is still ours; what somebody has wrapped or replaced since is theirs, and ours only passes."""
        for function, (mine, copy) in self._exchanged.items():
            if function.__code__ is mine.__code__:
                function.__code__ = copy.__code__
                function.__kwdefaults__ = copy.__kwdefaults__
        for (kind, name), (original, mine) in self._replaced.items():
            mine.__code__ = _pass.__code__
            if vars(kind).get(name) is not mine:
                continue
            if original is None:  # inherited
                delattr(kind, name)
            else:
                setattr(kind, name, original)
        self._replaced.clear()

    def _wrap(self, method: Any) -> Any:
        mine = types.FunctionType(_call.__code__, globals())
        for function in (mine, _pass):
            never_compile(self._torch, function)
        mine.__kwdefaults__ = {"_npuperf": (method, *self._needs)}
        return functools.update_wrapper(mine, method)  # with its attributes: torch marks the steps it has wrapped


def _call(this: Any, *args: Any, _npuperf: Any, **kwargs: Any) -> Any:
    """Call a method, and tell that it has been: the code of those in whose place a :class:`Source` has put its own."""
    method, is_traced, turns, ident, clock, task, source = _npuperf  # no more: what is touched costs
    # While torch.compile traces this, it is to see nothing but the method.
    if is_traced():
        return method(this, *args, **kwargs)
    turn = turns.get(ident())
    if turn is None:
        before = source.set_compiler(None)  # nothing of ours is to be compiled
        turn = turns[ident()]
        source.set_compiler(before)
    if turn.inside:
        return method(this, *args, **kwargs)
    turn.inside = True
    try:
        result = method(this, *args, **kwargs)
    finally:
        turn.inside = False
    step, now = turn.step + 1, clock()
    if step < turn.quiet_until and turn.leader == id(this) and now < turn.tell_at and task() < 0:
        turn.step = step  # no function of ours is called here: most steps are such
        turn.note(now - turn.mark)
        turn.mark = now
        if len(turn.seen) > 1:
            turn.seen.clear()
            turn.seen.add(turn.leader)
        return result
    if not source.is_compiling():  # its graphs are modules, too
        before = source.set_compiler(None)
        try:
            source.event(this, turn)
        finally:
            source.set_compiler(before)
    return result


def _pass(this: Any, *args: Any, _npuperf: Any, **kwargs: Any) -> Any:
    """Only call the method: somebody has kept what stood in its place."""
    return _npuperf[0](this, *args, **kwargs)


class Optimizers(Source):
    """Reports every outermost ``optimizer.step()`` when it is done, from ``begin`` to ``end``, any number of times.

    torch's own hooks run inside the range that it records around ``step``; a profiler's step that begins in there is
    not seen as one by torch_npu. So the methods themselves run our code, class by class as they are instantiated. They
    stay the functions that they are: who keeps one, as learning rate schedulers do, is heard, and pays nothing else.
    """

    _construct: Any = None
    _init: Any = None
    _is_heard = False

    def begin(self, event: Event) -> None:
        """Hear those that there are, and those that will be."""
        self.event, self._is_heard = event, True
        base = self._torch.optim.Optimizer
        construct = self._construct = base.__init__

        def init(this: Any, *args: Any, **kwargs: Any) -> None:
            construct(this, *args, **kwargs)
            if self._is_heard:  # a class may have kept this
                self._hear(type(this))

        self._init = base.__init__ = init
        for kind in _below(base):
            if getattr(vars(kind).get("step"), "hooked", False):
                self._hear(kind)

    def end(self) -> None:
        """Hear none of them."""
        self._is_heard, base = False, self._torch.optim.Optimizer
        if base.__init__ is self._init:
            base.__init__ = self._construct
        super().end()

    def _hear(self, kind: Any) -> None:
        step = kind.step
        if isinstance(step, types.FunctionType) and hasattr(step.__code__, "replace"):  # Python 3.7 has no such codes
            self.exchange(step)
        else:
            self.replace(kind, "step")


class Ranges:
    """Calls ``begins`` just before the program begins a range of one name: a ``record_function``, or one of mstx."""

    def __init__(self, torch: Any, name: str, begins: Ended) -> None:
        self.name = name
        self._torch, self._begins = torch, begins
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._replace(torch.autograd.profiler.record_function, "__enter__", lambda scope, *_: scope.name)

    def watch(self, torch_npu: Any) -> None:
        """Hear those of mstx, too."""
        mstx = getattr(torch_npu.npu, "mstx", None)
        for method in ("range_start", "range_push"):
            if hasattr(mstx, method):
                self._replace(mstx, method, lambda message="", *_: message)

    def end(self) -> None:
        """Give back what is still ours."""
        while self._replaced:
            kind, method, mine, given = self._replaced.pop()
            if vars(kind).get(method) is mine:
                setattr(kind, method, given)

    def _replace(self, kind: Any, method: str, named: Callable[..., Any]) -> None:
        given, inner = vars(kind)[method], getattr(kind, method)
        is_compiling, set_compiler = compiler(self._torch)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and (named(*args) or kwargs.get("message")) == self.name:
                before = set_compiler(None)
                try:
                    self._begins()
                finally:
                    set_compiler(before)
            return inner(*args, **kwargs)

        never_compile(self._torch, call)
        mine: Any = staticmethod(call) if isinstance(given, staticmethod) else call
        setattr(kind, method, mine)
        self._replaced.append((kind, method, mine, given))


def never_compile(torch: Any, function: Any) -> None:
    """Let torch.compile run a function as it is, and go on with what it calls."""
    frames, code = _find(torch, _FRAMES), function.__code__
    with contextlib.suppress(AttributeError):  # a torch without a compiler, or with another switch
        if hasattr(frames, "skip_code"):  # the older one
            frames.skip_code(code)
        else:
            action = frames._FrameAction
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))


def compiler(torch: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return what tells whether torch.compile traces this thread, and what exchanges the compiler of its frames."""
    switch = getattr(_find(torch, _FRAMES), "set_eval_frame", _never)
    return _find(torch, "compiler.is_compiling") or _never, switch


def is_being_imported(*packages: str) -> bool:
    """Tell whether a module of these packages is half there: torch imports some of its own when they are first used."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in packages]
    return any(getattr(getattr(module, "__spec__", None), "_initializing", False) for module in modules)


def graph_task(torch: Any) -> Callable[[], int]:
    """Return what numbers the ``backward`` that this is inside of, in any of its threads; -1: none."""
    return _find(torch, "_C._current_graph_task_id") or (lambda: -1)


def _never(*_: Any) -> None:
    """Stand in for what is not there, as a compiler in an old torch."""


def _find(module: Any, path: str) -> Any:
    """Follow a dotted path of attributes; None where one is missing."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


class Backward:
    """Puts off what must not be done inside ``backward`` until it has returned: autograd gives a thread its state back
    then, so that a profiler that was started or stopped meanwhile is gone, or there again.
    """

    def __init__(self, torch: Any) -> None:
        self._task = graph_task(torch)
        self._torch = torch
        self._waiting: Ended | None = None
        self._undo: Undo | None = None

    def is_inside(self) -> bool:
        """Tell whether this is inside ``backward``, in any of its threads."""
        return self._task() >= 0

    def holds(self, then: Ended) -> bool:
        """Tell whether this is inside ``backward``, in any of its threads; ``then`` is called once, when it returns."""
        if not self.is_inside():
            return False
        self._waiting = then
        if self._undo is None:
            self._follow()
        return True

    def end(self) -> None:
        """Give the function back, where it is still ours."""
        if self._undo is not None:
            self._undo()
        self._undo = self._waiting = None

    def _follow(self) -> None:
        """Only programs that make steps in there pay for it; their first ``backward`` ends for us with the next."""
        autograd = self._torch.autograd
        name = "_engine_run_backward" if hasattr(autograd, "_engine_run_backward") else "backward"
        inner = getattr(autograd, name)

        @functools.wraps(inner)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._go_on()
            result = inner(*args, **kwargs)
            self._go_on()
            return result

        def undo() -> None:
            if getattr(autograd, name) is run:
                setattr(autograd, name, inner)

        never_compile(self._torch, run)
        setattr(autograd, name, run)
        self._undo = undo

    def _go_on(self) -> None:
        if self._waiting is not None and not self.is_inside():  # else within another backward
            then, self._waiting = self._waiting, None
            then()


class Listening:
    """Hears the program's steps from the wanted source, and the range with which recording begins.

    ``is_explicit``: the program tells its steps by itself.
    """

    def __init__(self, torch: Any, tick: Ended, begins: Ended, turns: Turns) -> None:
        self._torch, self._tick, self._begins, self._turns = torch, tick, begins, turns
        self.torch_npu: Any = None
        self.is_explicit = False
        self.backward = Backward(torch)
        self._optimizers: Optimizers | None = None
        self._others: list[Source] = []
        self._ranges: Ranges | None = None

    def watch(self, torch_npu: Any) -> None:
        """Hear its ranges, too."""
        self.torch_npu = torch_npu
        if self._ranges is not None:
            self._ranges.watch(torch_npu)

    def follow(self, plan: dict[str, Any]) -> None:
        """Listen to what the plan names."""
        how, name = plan["step_on"], plan.get("start_on")
        if name:
            self._ranges = Ranges(self._torch, name, self._begins)
            if self.torch_npu is not None:
                self._ranges.watch(self.torch_npu)
        if self.is_explicit:
            return
        event = once_per_round(self._tick)
        if how not in ("optimizer", "forward"):
            event = every(float(how), self._tick)
        if how != "forward":
            if self._optimizers is None:
                self._optimizers = Optimizers(self._torch, event, self._turns)
            self._optimizers.begin(event)
        if how != "optimizer":
            self._others.append(forwards(self._torch, event, self._turns))

    def unfollow(self) -> None:
        """Take out of the program what hears steps."""
        self.backward.end()
        while self._others:
            self._others.pop().end()
        if self._optimizers is not None:
            self._optimizers.end()

    def forget_ranges(self) -> None:
        """Take out what hears ranges."""
        if self._ranges is not None:
            self._ranges.end()
            self._ranges = None
