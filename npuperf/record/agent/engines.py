"""The profilers that a session can drive. Each records one window of steps and leaves raw data in a folder."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import inspect
import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Python 3.7 and 3.8 cannot evaluate it
    Plan = dict[str, Any]


def say(sentence: str, **parameters: str | int | None) -> dict[str, Any]:
    """Return a sentence with its parameters, for npuperf to say in the user's language."""
    return {"id": sentence, "parameters": parameters}


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

    def ready(self) -> bool:
        """Tell whether the program has opened its device: the profiler would open device 0 otherwise."""
        return bool(self.module.npu.is_initialized())

    def forked(self) -> None:
        """In a forked child, once something was recorded: there is nothing to put right."""

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

    def step(self) -> None:
        """Enter the next step."""
        with self._quietly():
            self.profiler.step()

    def close(self) -> None:
        """Stop and write what there is."""
        profiler, self.profiler = self.profiler, None
        with self._quietly():
            profiler.stop()

    def _start(self, step: int, delay: int, **arguments: Any) -> None:
        """Start as if the profiler had been there from step 0: steps keep their numbers."""
        if self.plan["whole_run"]:
            schedule: Any = _Always(self.profilers.ProfilerAction.RECORD)
        else:
            lengths = {key: self.plan["schedule"][key] for key in ("wait", "warmup", "active")}
            schedule = self.profilers.schedule(skip_first=delay, **lengths)
        self.profiler = self.profilers.profile(schedule=schedule, on_trace_ready=self._ready, **arguments)
        self.profiler.step_num = step
        self.profiler.current_action = self.profiler.schedule(step)
        self.profiler.start()

    def _ready(self, profiler: Any) -> None:
        """The window is over."""

    def _made(self, worker: str, ending: str) -> list[str]:
        """Return what this process has written so far."""
        return sorted(glob.glob(os.path.join(self.plan["raw"], f"{worker}_{os.getpid()}_*{ending}")))


class TorchNpu(_Scheduled):
    """``torch_npu.profiler.profile``: parsing is left to another process."""

    name = "torch"
    hears_all_threads = True

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
        known = _parameters(self.profilers.profile)
        return found + [_lacking(option, key) for key, _, option in self.plan["profile"] if key not in known]

    def owner(self) -> Any:
        """Return the class that a script's own profiler of this kind is made of."""
        module = sys.modules.get("torch_npu.profiler.profiler")
        return getattr(module, "_KinetoProfile", self.profilers.profile)

    def open(self, step: int, worker: str, delay: int) -> None:
        """Let a new profiler go through its schedule, put off by ``delay`` steps, from ``step``."""
        with self._quietly():
            # Making the handler sets the output path; calling it would parse here and block the program.
            self.profilers.tensorboard_trace_handler(self.plan["raw"], worker)
            activities = [getattr(self.profilers.ProfilerActivity, name) for name in self.plan["activities"]]
            chosen = {key: value for key, value, _ in self.plan["profile"]}
            self._start(step, delay, activities=activities, experimental_config=self._config(), **chosen)

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


class Cpu(_Scheduled):
    """``torch.profiler`` without an NPU: the same window, one Kineto trace of the CPU."""

    name = "cpu"
    hears_all_threads = False

    def ready(self) -> bool:
        """A CPU is always there."""
        return True

    def owner(self) -> Any:
        """Return the class that a script's own profiler of this kind is made of."""
        return self.profilers._KinetoProfile

    def open(self, step: int, worker: str, delay: int) -> None:
        """Let a new profiler go through its schedule, put off by ``delay`` steps, from ``step``."""
        stamp = time.strftime("%Y%m%d%H%M%S") + f"{int(time.time() * 1000) % 1000:03d}"
        self.target = os.path.join(self.plan["raw"], f"{worker}_{os.getpid()}_{stamp}.pt.trace.json")
        chosen = {key: value for key, value, _ in self.plan["profile"]}
        with self._quietly():
            self._start(step, delay, activities=[self.profilers.ProfilerActivity.CPU], **chosen)

    def folders(self, worker: str) -> list[str]:
        """Return the traces that this process has written so far."""
        return self._made(worker, ".pt.trace.json")

    def facts(self) -> dict[str, Any]:
        """There is no device to describe."""
        return {}

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

    def owner(self) -> Any:
        """Return the class that a script's own profiler of this kind is made of."""
        return self.module.npu.profile

    def open(self, step: int, worker: str, delay: int) -> None:
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


class _Always:
    """A schedule that records every step. torch_npu writes its ``__dict__`` to a JSON file, so it has none."""

    __slots__ = ("_action",)

    def __init__(self, action: Any) -> None:
        self._action = action

    def __call__(self, step: int) -> Any:
        return self._action


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


def choose(plan: Plan, torch: Any, torch_npu: Any | None) -> tuple[Any, dict[str, Any] | None]:
    """Return the engine for this process, None where there is none, and why it is not the one for an NPU."""
    wanted = plan["engine"]
    if wanted == "cpu":
        return Cpu(plan, torch), None
    if torch_npu is None:
        reason = say("torch_npu was not imported")
    elif torch_npu.npu.is_initialized() or torch_npu.npu.device_count() > 0:
        return (E2E if wanted == "e2e" else TorchNpu)(plan, torch_npu), None
    else:
        reason = say("torch_npu finds no NPU")
    return (Cpu(plan, torch) if wanted == "auto" else None), reason
