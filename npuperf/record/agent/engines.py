"""The profilers that a session can drive. Each records one window of steps and leaves raw data in a folder."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import importlib.util
import inspect
import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .rivals import KINETO

if TYPE_CHECKING:  # Python 3.7 and 3.8 cannot evaluate it
    Plan = dict[str, Any]


def say(sentence: str, **parameters: str | int | None) -> dict[str, Any]:
    """Return a sentence with its parameters, for npuperf to say in the user's language."""
    return {"id": sentence, "parameters": parameters}


#: Keywords that are not given to the profiler as they are.
_OBSERVER, _ENABLE = "execution_trace_observer", "enable_profiler_in_child_thread"
#: The options whose values are members of a class, by name.
_ENUMS = {
    "profiler_level": "ProfilerLevel",
    "aic_metrics": "AiCMetrics",
    "export_type": "ExportType",
    "host_sys": "HostSystem",
}


class _Engine:
    """What all of them have."""

    def __init__(self, plan: Plan, module: Any) -> None:
        self.plan = plan
        self.module = module
        #: What the profiler printed.
        self.said = ""
        self.target = ""
        #: Threads that are heard besides the one that records, by their idents.
        self.enabled: set[int] = set()
        #: The program's scopes, which end when recording does.
        self.scopes: Any = None
        #: Whether recording begins in the middle of a step, or where there are none: that is none of the data's.
        self.is_within = False
        #: Profilers of the program that have begun in another thread, where ours could not be stopped.
        self.overtaken_by: set[str] = set()

    def ready(self) -> bool:
        """Tell whether the program has opened its device: the profiler would open device 0 otherwise."""
        return bool(self.module.npu.is_initialized())

    def can_stop(self) -> bool:
        """Tell whether what is recorded can be stopped in this thread."""
        return True

    def let_go(self) -> None:
        """Clear what is left in this thread, if another has stopped what it recorded."""

    def forked(self) -> None:
        """In a forked child, once something was recorded: there is nothing to put right."""

    def hear(self, thread: int, is_open: bool) -> None:
        """All threads are heard, or one."""

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """Keep the profiler's words, which this thread prints, out of the program's output."""
        before = sys.stdout
        ear = _Ear(before)
        sys.stdout = ear
        try:
            yield
        finally:
            ear.thread = None
            if sys.stdout is ear:
                sys.stdout = before
        self.said += ear.words.getvalue()


class _Scheduled(_Engine):
    """A profiler with torch's interface: a schedule, ``start``, ``step`` and ``stop``."""

    def __init__(self, plan: Plan, module: Any) -> None:
        super().__init__(plan, module)
        self.profilers = module.profiler
        self.profiler: Any = None
        self.observer: Any = None
        #: The thread that is recorded.
        self.thread = 0

    def step(self) -> None:
        """Enter the next step."""
        with self._quietly(), self._own_path():
            self.profiler.record_steps = True
            self.profiler.step()

    def close(self) -> None:
        """Stop and write what there is."""
        profiler, self.profiler = self.profiler, None
        observer, self.observer = self.observer, None
        self.scopes.end()
        with self._quietly(), self._own_path():
            try:
                profiler.stop()
            finally:
                if observer is not None:
                    observer.unregister_callback()

    def hear(self, thread: int, is_open: bool) -> None:
        """Record this thread's operators, too, from its next step on, or end that: each does it for itself."""
        if is_open == (thread in self.enabled):
            return
        chosen = {key: value for key, value, _ in self.plan["profile"]}
        if not chosen.pop(_ENABLE, False):
            return
        chosen.pop(_OBSERVER, None)
        with self._quietly():
            if is_open:
                self.enabled.add(thread)
                self.profilers.profile.enable_profiler_in_child_thread(**chosen)
            else:
                self.enabled.remove(thread)
                self.profilers.profile.disable_profiler_in_child_thread()

    def _start(self, step: int, warmup: int, **arguments: Any) -> None:
        """Start as if the profiler had been there from step 0: steps keep their numbers."""
        actions = self.profilers.ProfilerAction
        for key, value, _ in self.plan["profile"]:
            if key == _OBSERVER:
                arguments[key] = self._observe()
            elif key != _ENABLE:
                arguments[key] = value
        schedule = _UntilStopped(actions.WARMUP, step + warmup, actions.RECORD)
        if not self.plan["whole_run"] and self.plan.get("duration") is None:
            vars(schedule).update(self.plan["schedule"])  # told in the data
        self.profiler = self.profilers.profile(schedule=schedule, on_trace_ready=self._ready, **arguments)
        self.profiler.step_num = step
        self.profiler.current_action = self.profiler.schedule(step)
        self.profiler.record_steps = not self.is_within
        self.profiler.start()
        self.thread = threading.get_ident()
        self.scopes.follow()
        for key, text, _ in self.plan["metadata"]:
            is_json = text[:1] in ("{", "[")
            (self.profiler.add_metadata_json if is_json else self.profiler.add_metadata)(key, text)

    def _observe(self) -> Any:
        """Return what writes an execution trace; there is one in a process, and the program's own comes first."""
        path = os.path.join(self.plan["raw"], f"execution_trace_{os.getpid()}_{time.time_ns()}.json")
        self.observer = sys.modules["torch"].profiler.ExecutionTraceObserver().register_callback(path)
        if not self.observer.is_registered:
            raise RuntimeError("the program writes an execution trace of its own")
        return self.observer

    def _own_path(self) -> Any:
        """Let the profiler's code see where ours writes, where it keeps that for the whole process."""
        return contextlib.nullcontext()

    def _ready(self, profiler: Any) -> None:
        """The window is over."""

    def _made(self, worker: str, ending: str) -> list[str]:
        """Return what this process has written so far."""
        return sorted(glob.glob(os.path.join(self.plan["raw"], f"{worker}_{os.getpid()}_*{ending}")))


def _number_of(torch: Any, library: str, name: str) -> Any:
    """Return a number in the memory of one of torch's libraries; None where this torch has it elsewhere."""
    with contextlib.suppress(Exception):
        path = os.path.join(os.path.dirname(torch.__file__), "lib", library)
        return ctypes.c_int.in_dll(ctypes.CDLL(path), name)
    return None


#: The level from which on torch's C++ prints what it logs: errors.
_ERRORS = 2


class TorchNpu(_Scheduled):
    """``torch_npu.profiler.profile``: parsing is left to another process."""

    name = "torch"
    #: Kernels and launches of every thread are recorded; else only what one thread does, and it alone can stop that.
    hears_all_threads = True

    _path: Any = None
    _is_left = False
    #: The level in c10's memory from which on it prints, once it was sought.
    _level: Any = None

    def problems(self) -> list[dict[str, Any]]:
        """Name the options that were asked for and that the installed version does not have."""
        found: list[dict[str, Any]] = []
        for key, value, option in self.plan["experimental"]:
            enum = self._enum(key)
            if key not in _parameters(self.profilers._ExperimentalConfig) or (key in _ENUMS and enum is None):
                found += [_lacking(option, key)] if option else []
            elif enum is not None:
                missing = [m for m in (value if isinstance(value, list) else [value]) if not hasattr(enum, m)]
                names = ", ".join(n for n in vars(enum) if not n.startswith("_"))
                found += [
                    say(
                        "{option}: this version has no {value}, only {names}",
                        option=option or key,
                        value=m,
                        names=names,
                    )
                    for m in missing
                ]
        known = [*_parameters(self.profilers.profile), *dir(self.profilers.profile)]
        wanted = [(key, option) for key, _, option in self.plan["profile"]]
        wanted += [("add_metadata", option) for _, _, option in self.plan["metadata"][:1]]
        return found + [_lacking(option, key) for key, option in wanted if key not in known]

    def open(self, step: int, worker: str, warmup: int) -> None:
        """Let a new profiler warm up for so many steps, ``step`` the first of them, and record until it is closed."""
        with self._quietly(), self._own_path():
            # Making the handler sets the output path; calling it would parse here and block the program.
            self.profilers.tensorboard_trace_handler(self.plan["raw"], worker)
            activities = [getattr(self.profilers.ProfilerActivity, name) for name in self.plan["activities"]]
            self._start(step, warmup, activities=activities, experimental_config=self._config())

    def close(self) -> None:
        """Stop and write what there is: nothing, while it warms up; only what has started leaves its folder alone."""
        profiler, action = self.profiler, self.profilers.ProfilerAction
        if self.thread != threading.get_ident():
            self.profilers.profile.enable_profiler_in_child_thread()  # what is stopped is what this thread has
            self._is_left = True
        is_warming_up = profiler.current_action == action.WARMUP
        if is_warming_up:
            with self._quietly():
                profiler.prof_if.start_trace()
            profiler.current_action = action.RECORD
        super().close()
        if is_warming_up:
            shutil.rmtree(profiler.prof_if.prof_path, ignore_errors=True)

    def can_stop(self) -> bool:
        """Only newer versions can do it in another thread than the one that began."""
        return self.thread == threading.get_ident() or hasattr(
            self.profilers.profile, "enable_profiler_in_child_thread"
        )

    def let_go(self) -> None:
        """Stop handing what this thread does to a profiler that another thread has begun since."""
        if self._is_left and self.thread == threading.get_ident():
            self._is_left = False
            with self._quietly():
                self.profilers.profile.disable_profiler_in_child_thread()

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """Keep what torch_npu's C++ warns of out of the program's errors, too: what this CANN cannot record."""
        if self._level is None:
            self._level = _number_of(sys.modules["torch"], "libc10.so", "FLAGS_caffe2_log_level")
        level = self._level
        before = _ERRORS if level is None else level.value
        if before < _ERRORS:
            level.value = _ERRORS
        try:
            with super()._quietly():
                yield
        finally:
            if before < _ERRORS:
                level.value = before

    def folders(self, worker: str) -> list[str]:
        """Return what this process has recorded so far."""
        return self._made(worker, "_ascend_pt")

    def facts(self) -> dict[str, Any]:
        """Return versions and the chip, as far as the installed version tells them."""
        npu = self.module.npu
        found: dict[str, Any] = {"torch_npu": getattr(self.module, "__version__", None)}
        with self._quietly(), contextlib.suppress(Exception):
            found["device"] = npu.current_device()
            found["soc"] = npu.get_device_name(found["device"])
            properties = npu.get_device_properties(found["device"])
            found["cores_cube"] = getattr(properties, "cube_core_num", None)
            found["cores_vector"] = getattr(properties, "vector_core_num", None)
        with self._quietly(), contextlib.suppress(Exception):
            found["cann"] = sys.modules["torch_npu.utils.collect_env"].get_cann_version()
        return found

    @contextlib.contextmanager
    def _own_path(self) -> Iterator[None]:
        """Put our path in the place of the program's, which its profilers go on with."""
        module: Any = sys.modules.get("torch_npu.profiler._profiler_path_creator") or sys.modules.get(
            "torch_npu.profiler.profiler_path_creator"  # of older versions
        )
        if module is None:
            yield
            return
        kept = vars(module.ProfPathCreator())
        theirs = dict(kept)
        kept.update(self._path or {})
        try:
            yield
        finally:
            self._path = dict(kept)
            kept.update(theirs)

    def _enum(self, key: str) -> Any:
        return getattr(self.profilers, _ENUMS[key], None) if key in _ENUMS else None

    def _config(self) -> Any:
        chosen = {}
        for key, value, _ in self.plan["experimental"]:
            enum = self._enum(key)
            if key not in _parameters(self.profilers._ExperimentalConfig):
                continue
            if enum is not None:
                value = [getattr(enum, m) for m in value] if isinstance(value, list) else getattr(enum, value)
            chosen[key] = value
        return self.profilers._ExperimentalConfig(**chosen)


#: What Kineto prints: words of this level and above; what it prints unless the variable says otherwise.
_KINETO_LEVEL, _KINETO_USUAL, _KINETO_SILENT = "KINETO_LOG_LEVEL", 4, 99


class Cpu(_Scheduled):
    """``torch.profiler`` without an NPU: the same window, one Kineto trace of the CPU."""

    name = "cpu"
    hears_all_threads = False

    def __init__(self, plan: Plan, module: Any) -> None:
        super().__init__(plan, module)
        self._level = _number_of(module, "libtorch_cpu.so", "_ZN9libkineto6Logger14severityLevel_E")

    def ready(self) -> bool:
        """A CPU is always there."""
        return True

    def open(self, step: int, worker: str, warmup: int) -> None:
        """Let a new profiler warm up for so many steps, ``step`` the first of them, and record until it is closed."""
        stamp = time.strftime("%Y%m%d%H%M%S") + f"{int(time.time() * 1000) % 1000:03d}"
        self.target = os.path.join(self.plan["raw"], f"{worker}_{os.getpid()}_{stamp}.pt.trace.json")
        with self._quietly():
            self._start(step, warmup, activities=[self.profilers.ProfilerActivity.CPU])

    def folders(self, worker: str) -> list[str]:
        """Return the traces that this process has written so far."""
        return self._made(worker, ".pt.trace.json")

    def facts(self) -> dict[str, Any]:
        """There is no device to describe."""
        return {}

    def can_stop(self) -> bool:
        """What is recorded is the thread's own."""
        return self.thread == threading.get_ident()

    def close(self) -> None:
        """Stop and write what there is."""
        if KINETO in self.overtaken_by:  # that has ended what the process has one of, and stopping needs it
            self.profiler.profiler._prepare_trace()
        super().close()

    def forked(self) -> None:
        """Let a forked child end: libtorch would wait for a thread that only the parent has, once it has profiled.

        That is in the last part of ``exit``, which ends here instead, with what the child's C libraries wrote flushed.
        """
        with contextlib.suppress(Exception):  # a C library without on_exit
            libc = ctypes.CDLL(None)
            for last in (libc._exit, libc.fcloseall):  # called the other way round, with the exit status
                libc.on_exit(ctypes.cast(last, ctypes.c_void_p), None)

    def _ready(self, profiler: Any) -> None:
        profiler.export_chrome_trace(self.target)

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """Keep Kineto's words out of the program's errors, too: it says when it starts and stops."""
        level = self._level
        if level is None:
            with super()._quietly():
                yield
            return
        wanted = os.environ.get(_KINETO_LEVEL)
        usual = level.value or _KINETO_USUAL
        if wanted is None:
            # It reads the variable when it is first used, and never again.
            os.environ[_KINETO_LEVEL] = str(_KINETO_SILENT)
            level.value = _KINETO_SILENT
        try:
            with super()._quietly():
                yield
        finally:
            if wanted is None:
                os.environ.pop(_KINETO_LEVEL, None)
                level.value = usual


class E2E(_Engine):
    """The legacy ``torch_npu.npu.profile(use_e2e_profiler=True)`` of versions up to 5.0."""

    name = "e2e"
    hears_all_threads = True

    context: Any = None

    def problems(self) -> list[dict[str, Any]]:
        """Say which versions have it, and what replaced it."""
        npu = self.module.npu
        if hasattr(npu, "profile") and hasattr(npu, "profileConfig"):
            known = _parameters(npu.profileConfig)
            return [_lacking(option, key) for key, _, option in self.plan["e2e"] if option and key not in known]
        return [
            say(
                "--engine e2e: this version has no torch_npu.npu.profile; it exists up to torch_npu 5.0.0 (torch 1.8 "
                "to 2.1) and was removed in 6.0.rc1. Use --engine torch: --level 1 --aic-metrics PipeUtilization "
                "records the same data"
            )
        ]

    def open(self, step: int, worker: str, warmup: int) -> None:
        """Start recording at once: there is no schedule and no warm-up."""
        self.target = os.path.join(self.plan["raw"], f"{worker}_{os.getpid()}")
        os.makedirs(self.target, exist_ok=True)
        npu = self.module.npu
        known = _parameters(npu.profileConfig)
        config = npu.profileConfig(**{k: v for k, v, _ in self.plan["e2e"] if k in known})
        with self._quietly():
            self.context = npu.profile(profiler_result_path=self.target, use_e2e_profiler=True, config=config)
            self.context.__enter__()

    def step(self) -> None:
        """Steps are not marked."""

    def close(self) -> None:
        """Stop; CANN writes the data."""
        context, self.context = self.context, None
        with self._quietly():
            context.__exit__(None, None, None)

    def folders(self, worker: str) -> list[str]:
        """Return what this process has recorded so far."""
        return [self.target] if self.target and os.listdir(self.target) else []

    def facts(self) -> dict[str, Any]:
        """Return the version; old releases tell little else."""
        return {"torch_npu": getattr(self.module, "__version__", None)}


class _UntilStopped:
    """A schedule whose end is not known yet. torch_npu writes its ``__dict__`` to a file, as numbers."""

    __slots__ = ("__dict__", "_before", "_first", "_then")

    def __init__(self, before: Any, first: int, then: Any) -> None:
        self._before, self._first, self._then = before, first, then

    def __call__(self, step: int) -> Any:
        return self._before if step < self._first else self._then


class _Ear:
    """Stands in for ``sys.stdout``: hears what one thread prints; all else goes where it went before.

    Whoever keeps it afterwards has the stream itself.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.words = io.StringIO()
        self.thread: int | None = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.words if threading.get_ident() == self.thread else self.stream, name)


def _lacking(option: str | None, name: str) -> dict[str, Any]:
    return say("{option}: this version has no {name}", option=option, name=name)


def _parameters(function: Any) -> list[str]:
    """Return the parameter names of a function or class."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def choose(plan: Plan, torch: Any, torch_npu: Any | None, document: Plan) -> tuple[Any, dict[str, Any] | None]:
    """Return the engine for this process, or None and why it cannot be recorded.

    Where the CPU takes the place of an NPU the document says why.
    """
    wanted = plan["engine"]
    if wanted == "cpu":
        return Cpu(plan, torch), None
    if torch_npu is None:
        reason = say("torch_npu was not imported")
    elif torch_npu.npu.is_initialized() or torch_npu.npu.device_count() > 0:
        silencers = [name for name in plan["silencers"] if os.environ.get(name)]
        if silencers and wanted != "e2e":
            return None, say("{name} was set inside the program: torch_npu.profiler records nothing while it is set",
                             name=silencers[0])  # fmt: skip
        return (E2E if wanted == "e2e" else TorchNpu)(plan, torch_npu), None
    else:
        reason = say("torch_npu finds no NPU")
    if wanted != "auto":
        return None, reason
    document["why_cpu"] = reason
    return Cpu(plan, torch), None


def problems(plan: Plan, torch_npu: Any | None) -> list[dict[str, Any]]:
    """Return what this version of torch_npu lacks of the options."""
    if torch_npu is None or plan["engine"] == "cpu":
        return []
    kind: Any = E2E if plan["engine"] == "e2e" else TorchNpu
    return list(kind(plan, torch_npu).problems())


def is_without_npu(plan: Plan, torch_npu: Any | None) -> bool:
    """Tell whether nothing but the CPU will ever be there to record."""
    if plan["engine"] != "auto":
        return bool(plan["engine"] == "cpu")
    if torch_npu is not None:
        return not torch_npu.npu.device_count()
    return importlib.util.find_spec("torch_npu") is None


def when_chosen(module: Any, then: Callable[[], None]) -> None:
    """Go on when the program has chosen its device: after its first set_device, or when it first uses an NPU."""
    choosing = []
    set_device = module._C._npu_setDevice

    def chosen(device: int) -> Any:
        choosing.append(device)
        result = set_device(device)
        if module._C._npu_setDevice is chosen:
            module._C._npu_setDevice = set_device
        then()
        return result

    module._C._npu_setDevice = chosen
    module.npu._lazy_call(lambda: None if choosing else then())


def words_of_threads(engine: Any, thread: str, others: list[int]) -> dict[str, Any]:
    """Say whose steps were recorded, and how many each of the others made meanwhile."""
    threads, steps = len(others) + 1, sum(others)
    if not engine.hears_all_threads:
        return say("{threads} threads make steps: only those of thread {thread} were recorded, {steps} of others "
                   "were not", threads=threads, thread=thread, steps=steps)  # fmt: skip
    if engine.enabled:
        return say("{threads} threads make steps: those of thread {thread} were counted, {steps} of others "
                   "were not; what these did meanwhile is in the recording",
                   threads=threads, thread=thread, steps=steps)  # fmt: skip
    return say("{threads} threads make steps: those of thread {thread} were counted, {steps} of others were "
               "not; of these the recording has kernels, and PyTorch's operators only with --all-threads",
               threads=threads, thread=thread, steps=steps)  # fmt: skip
