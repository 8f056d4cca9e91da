"""The documents of ``npuperf profile``: how a run went, and what a run would do."""

from __future__ import annotations

from typing import Final, Literal

from npuperf.base.errors import ExitCode
from npuperf.base.messages import Message, say
from npuperf.model.document import Document
from npuperf.model.parts import Model


class StepTimes(Model, frozen=True, kw_only=True):
    """Host times between step ends, ns: before, inside and after the recorded windows."""

    before: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class ProcessStatus(Model, frozen=True, kw_only=True):
    """What one process said of itself; the states are those of :class:`npuperf.record.agent.session.Session`.

    ``stopped``: at which step npuperf ended recording because of the data's size; ``seconds``: how long it recorded;
    ``said``: the profiler's own words; ``threads``: how many steps each of its threads made, of which those of one are
    ``step``; ``early``: recording ended before it was complete, with the program unless ``why_early`` says otherwise;
    ``longer``: how often its window was made longer.
    """

    state: str
    pid: int
    host: str
    step: int = 0
    threads: tuple[int, ...] = ()
    recorded: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()
    warnings: tuple[Message, ...] = ()
    step_ns: StepTimes = StepTimes()
    rank: int | None = None
    world_size: int | None = None
    engine: str | None = None
    device: int | None = None
    soc: str | None = None
    cores_cube: int | None = None
    cores_vector: int | None = None
    python: str | None = None
    torch: str | None = None
    torch_npu: str | None = None
    cann: str | None = None
    executable: str | None = None
    argv: tuple[str, ...] = ()
    problems: tuple[Message, ...] = ()
    problem: Message | None = None
    import_error: str | None = None
    own_data: tuple[str, ...] = ()
    early: bool = False
    why_early: Message | None = None
    stopped: int | None = None
    seconds: float | None = None
    longer: int = 0
    why_cpu: Message | None = None
    said: str = ""

    @property
    def name(self) -> Message:
        """How to call the process."""
        return say("pid {pid}", pid=self.pid) if self.rank is None else say("rank {rank}", rank=self.rank)


#: Through what a running program is recorded: npuperf's agent that waits in it, torch_npu's dynamic profiling, msprof,
#: or npuperf's agent that Python lets in for a while.
Way = Literal["agent", "torch_npu", "msprof", "remote"]
WAYS: Final[dict[Way, Message]] = {
    "agent": say("npuperf's agent, which waits in it"),
    "torch_npu": say("torch_npu's dynamic profiling"),
    "msprof": say("msprof --dynamic=on"),
    "remote": say("npuperf's agent, which Python's sys.remote_exec lets in until the recording is over"),
}


class Attached(Model, frozen=True, kw_only=True):
    """A program that ran already: the process that was named, how it was started, and what was asked of it.

    ``pids``: the processes that were asked.
    """

    pid: int
    argv: tuple[str, ...]
    way: Way
    pids: tuple[int, ...]


class Overhead(Model, frozen=True, kw_only=True):
    """Median host time of a step inside and outside the window, ns, and the number of steps behind each."""

    inside_ns: int
    outside_ns: int
    inside: int
    outside: int

    @property
    def share(self) -> float:
        """How much longer a recorded step takes, as a fraction."""
        return self.inside_ns / self.outside_ns - 1


class Exported(Model, frozen=True, kw_only=True):
    """One folder of raw data after the export. ``missing`` names wanted files; ``words`` say why they are."""

    folder: str
    missing: tuple[str, ...] = ()
    tool: str = ""
    words: tuple[Message, ...] = ()

    @property
    def done(self) -> bool:
        """Tell whether every wanted file is there."""
        return not self.missing


class Proof(Model, frozen=True, kw_only=True):
    """What was read of one device, or why nothing was. ``launched`` counts kernels whose host launch is known.

    ``numbered``: the steps that kernels belong to, of all ``steps`` of the host. ``blocks``: of memory that are
    recorded, ``failures``: allocations that failed.

    ``doubts``: what reading found, first of all where the files that an export consists of contradict each other.
    """

    path: str
    rank: int | None = None
    device: int | None = None
    kernels: int = 0
    launched: int = 0
    steps: int = 0
    numbered: int = 0
    events: int = 0
    blocks: int = 0
    failures: int = 0
    lost: int = 0
    doubts: tuple[Message, ...] = ()
    problem: Message | None = None

    @property
    def holds(self) -> bool:
        """Tell whether there is something to analyze."""
        return self.problem is None and bool(self.kernels or self.events or self.blocks)


class Recorded(Document, frozen=True, kw_only=True):
    """How a run went. ``data`` is what to analyze; ``problem`` says why there is nothing, if so.

    ``cautions`` were given before the start, ``warnings`` found out after it; ``raw_bytes``: the size of the raw data;
    ``program_status``: the program's own exit status, as a shell says it; ``stopped``: npuperf had asked the program to
    end, as it was told to, so its status tells nothing.
    """

    folder: str
    raw_bytes: int = 0
    data: tuple[str, ...] = ()
    processes: tuple[ProcessStatus, ...] = ()
    exports: tuple[Exported, ...] = ()
    proofs: tuple[Proof, ...] = ()
    warnings: tuple[Message, ...] = ()
    cautions: tuple[Message, ...] = ()
    overhead: Overhead | None = None
    program_status: int = 0
    stopped: bool = False

    @property
    def refused(self) -> bool:
        """Tell whether npuperf itself ended the program, because of options that cannot be carried out."""
        return self.problem is not None and self.problem.exit_code == ExitCode.USAGE

    @property
    def exit_code(self) -> int:
        """The program's own status first, unless npuperf ended it; then the problem's."""
        return (0 if self.refused or self.stopped else self.program_status) or super().exit_code


class Window(Model, frozen=True, kw_only=True):
    """The steps to record, counted from 0; ``step_on``: optimizer, forward, or a number of seconds as text."""

    first: int
    last: int
    repeat: int
    step_on: str


class Setting(Model, frozen=True, kw_only=True):
    """One argument that a profiler is given; ``of`` names what takes it."""

    of: str
    name: str
    value: bool | int | float | str | list[str]


class RecordingPlan(Document, frozen=True, kw_only=True):
    """What would be started, and how it would be recorded.

    ``added``: environment variables that differ from the caller's. ``window`` is None where everything is recorded, or
    ``duration`` seconds are, ``ranks`` where all ranks are. Where there is a ``delay`` (seconds), or a range to
    ``start_on``, steps are counted from there. In ``standby`` nothing is recorded until another npuperf asks.
    ``attached``: it runs already (``argv`` is how it was started), and steps are counted from the moment at which it is
    asked.
    """

    argv: tuple[str, ...]
    added: dict[str, str]
    folder: str
    engine: str
    window: Window | None
    ranks: tuple[int, ...] | None
    settings: tuple[Setting, ...]
    cautions: tuple[Message, ...]
    attached: Attached | None = None
    delay: float | None = None
    duration: float | None = None
    start_on: str | None = None
    standby: bool = False
