"""What can be asked of an analysis, and how it is typed."""

# Annotations are values here, not text: options are read from them.
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.declared import (
    COMPARISON,
    DATA,
    FILE,
    FORMAT,
    GATES,
    HOW,
    HTML,
    NOT_TYPED,
    OUTPUT,
    TABLE,
    WHEN,
    BareWords,
    Typed,
)
from npuperf.base.messages import say

if TYPE_CHECKING:  # an answer that is known needs nothing of what works it out
    from npuperf.device.core_splits import Split
    from npuperf.device.expect import Expectation
    from npuperf.model.chip import Cores

#: What becomes of a gate that cannot be judged.
Undecided = Literal["pass", "fail"]


class Question(Struct, frozen=True, kw_only=True):
    """What to read, and what to ask of it: two that are equal have the same analysis.

    ``cores`` is the user's word on core counts and overrides the profile's; ``what_if`` are expressions of
    :mod:`npuperf.device.whatif`; ``cores_of`` a split of cores to replay, by stream; ``expect`` limits that kernels
    must obey; ``world_size`` is the user's word on how many ranks the job has;
    ``model_flops`` is the work of a step, of which ``params`` and those up to ``tokens`` say the size instead;
    ``other`` is a recording of the same program with another set of hardware counters;
    ``ranks`` and ``group`` (a kind of process group, or its id) narrow what is told of a job; ``before`` an
    earlier profile of the same program, against which SuperKernels are held, and ``plog`` a folder of CANN's logs;
    ``rules`` those to ask (all if empty); ``engine``, ``workers`` and ``scheduler`` say where ranks are worked on
    (:class:`npuperf.base.parallel.Engine`).
    """

    path: Annotated[Path, BareWords("PATH")] = Path("result")
    step: Annotated[int | None, Typed(WHEN, say("Only this step."), "--step", metavar="N")] = None
    rank: Annotated[int | None, Typed(WHEN, say("Only this rank."), "--rank", metavar="N")] = None
    device: Annotated[int | None, Typed(WHEN, say("Only this device."), "--device", metavar="N")] = None
    ranks: Annotated[
        tuple[int, ...],
        Typed(WHEN, say("Read only these ranks of a job: 0,8 or 0-3."), "--ranks", metavar="LIST", kind=str),
    ] = ()
    group: Annotated[
        str | None,
        Typed(WHEN, say("Of a job, only these process groups: a kind (dp) or an id."), "--group", metavar="NAME"),
    ] = None
    world_size: Annotated[
        int | None,
        Typed(DATA, say("How many ranks the job has, whatever is recorded."), "--world-size", metavar="N", least=1),
    ] = None
    soc: Annotated[
        str | None, Typed(DATA, say("The chip, whatever the profile says: Ascend910B1."), "--soc", metavar="NAME")
    ] = None
    cores: Annotated[
        "Cores | None",
        Typed(DATA, say("The chip's core counts: 24,48."), "--cores", metavar="CUBE,VECTOR", kind=str),
    ] = None
    model_flops: Annotated[
        float | None,
        Typed(
            DATA,
            say("FLOP of a step of the whole job, forward and backward, for its MFU."),
            "--model-flops",
            metavar="N",
        ),
    ] = None
    params: Annotated[
        float | None,
        Typed(DATA, say("The model's active parameters, for its MFU; the next five, too."), "--params", metavar="N"),
    ] = None
    embedding: Annotated[
        float | None,
        Typed(DATA, say("Parameters of its embedding, which --params counts, too."), "--embedding", metavar="N"),
    ] = None
    layers: Annotated[float | None, Typed(DATA, say("Its layers."), "--layers", metavar="N")] = None
    hidden: Annotated[
        float | None, Typed(DATA, say("Attention heads × the dimension of a head."), "--hidden", metavar="N")
    ] = None
    seq: Annotated[float | None, Typed(DATA, say("Tokens of a sequence."), "--seq", metavar="N")] = None
    tokens: Annotated[float | None, Typed(DATA, say("Tokens of a step of the whole job."), "--tokens", metavar="N")] = (
        None
    )
    other: Annotated[
        Path | None,
        Typed(
            DATA,
            say("Another recording of the same program, for hardware counters that this one lacks."),
            "--with",
            metavar="DIR",
        ),
    ] = None
    before: Annotated[
        Path | None,
        Typed(
            DATA, say("An earlier profile to compare with, without this one's SuperKernels."), "--before", metavar="DIR"
        ),
    ] = None
    plog: Annotated[
        Path | None,
        Typed(
            DATA,
            say("CANN's logs, for their messages about SuperKernels (with --before: ~/ascend/log, if it exists)."),
            "--plog",
            metavar="DIR",
        ),
    ] = None
    what_if: Annotated[
        tuple[str, ...],
        Typed(HOW, say('Replay the run with a change: "host*0.5"; repeatable.'), "--what-if", metavar="EXPR"),
    ] = ()
    cores_of: Annotated[
        "Split",
        Typed(
            HOW,
            say("Replay the run with a stream's core limit: 5=8,16; repeatable."),
            "--cores-of",
            metavar="STREAM=CUBE,VECTOR",
            kind=list[str],
        ),
    ] = field(default_factory=dict)
    engine: Annotated[
        str, Typed(HOW, say("Where ranks are read: auto, serial, processes or dask."), "--engine", metavar="NAME")
    ] = "auto"
    workers: Annotated[
        int | None, Typed(HOW, say("Read at most N ranks at the same time."), "--workers", metavar="N", least=1)
    ] = None
    scheduler: Annotated[
        str | None,
        Typed(
            HOW,
            say("A dask cluster that is there: its address or scheduler file."),
            "--scheduler",
            metavar="ADDRESS|FILE",
        ),
    ] = None
    thresholds: Annotated[Mapping[str, float], NOT_TYPED] = field(default_factory=dict)
    rules: Annotated[tuple[str, ...], NOT_TYPED] = ()
    expect: Annotated[
        "tuple[Expectation, ...]",
        Typed(
            GATES,
            say("Exit with 1 if a kernel uses more cores. WHERE: a stream, FIRST..LAST or NAME*; repeatable."),
            "--expect-cores",
            metavar="WHERE=CUBE,VECTOR",
            kind=list[str],
            last=True,
        ),
    ] = ()
    top: Annotated[
        int,
        Typed(OUTPUT, say("Maximum number of rows in every list."), "--top", metavar="N", kind=int, least=1),
    ] = 10

    @property
    def chosen_ranks(self) -> frozenset[int]:
        """The ranks asked for; empty: all."""
        return frozenset(self.ranks) | frozenset([self.rank] if self.rank is not None else [])

    @property
    def gives_model(self) -> bool:
        """Tell whether anything of the model's size is given."""
        size = (self.model_flops, self.params, self.embedding, self.layers, self.hidden, self.seq, self.tokens)
        return any(value is not None for value in size)

    @property
    def partial(self) -> bool:
        """Tell whether only a part of the path is asked for."""
        return any(value is not None for value in (self.step, self.rank, self.device, self.group)) or bool(self.ranks)


class AnalyzeRequest(Question, frozen=True, kw_only=True):
    """A question, what its answer is held against, and what is written.

    ``no_cache``: nothing that was kept is used, and nothing is kept. ``baseline`` are the sides to compare with (a
    profile, a result as JSON, or the name of a kept one), ``again`` further runs of what ``path`` is a run of, for the
    new side; also where the sides are of another workload (``allow_mismatch``); ``baseline_dir`` where baselines are
    kept, and ``save_baseline`` the name to keep this one under; ``fail_on`` the gates, and ``gates`` files or presets
    of more, ``undecided`` what becomes of those that cannot be judged; ``lock`` and ``update_lock`` where exact counts
    are written to, ``check`` locks that they must agree with. ``pack`` is a file that the whole result is written to,
    without the user's own names where it is to be ``anonymize``d.

    ``format``, ``table``, ``full`` and ``brief`` say how it is shown, ``explain`` the rule that is shown
    instead; ``output`` is a file for the report, ``junit``
    one for the gates as JUnit, ``html`` one for the page, ``trace`` and ``trace_full`` for traces; ``force``: files
    that exist may be replaced.
    """

    no_cache: Annotated[
        bool, Typed(HOW, say("Read and analyze anew, and keep nothing for the next time."), "--no-cache", last=True)
    ] = False

    baseline: Annotated[
        tuple[str, ...],
        Typed(
            COMPARISON,
            say("Compare with a profile, a result (JSON) or a kept baseline; repeatable: several runs of one side."),
            "--baseline",
            metavar="PATH|NAME",
        ),
    ] = ()
    again: Annotated[
        tuple[str, ...],
        Typed(
            COMPARISON,
            say("Another run of what PATH is a run of, for the new side of --baseline; repeatable."),
            "--again",
            metavar="PATH",
        ),
    ] = ()
    allow_mismatch: Annotated[
        bool, Typed(COMPARISON, say("Compare although the two are not of one workload."), "--allow-mismatch")
    ] = False
    save_baseline: Annotated[
        str | None,
        Typed(COMPARISON, say("Keep the result under a name, unless a gate fails."), "--save-baseline", metavar="NAME"),
    ] = None
    baseline_dir: Annotated[
        Path | None,
        Typed(
            COMPARISON,
            say("Where baselines are kept (.npuperf/baselines beside the run directory)."),
            "--baseline-dir",
            metavar="DIR",
        ),
    ] = None
    fail_on: Annotated[
        tuple[str, ...],
        Typed(
            GATES,
            say(
                'Exit with 1 if this holds: "host_wait>20%", "step_time>+5%" ("verdict=host" has to hold); repeatable.'
            ),
            "--fail-on",
            metavar="EXPR",
        ),
    ] = ()
    gates: Annotated[
        tuple[str, ...],
        Typed(
            GATES,
            say("Gates from a YAML file, or a preset: ci-smoke, ci-strict; repeatable."),
            "--gates",
            metavar="FILE|PRESET",
        ),
    ] = ()
    undecided: Annotated[
        Undecided | None,
        Typed(
            GATES,
            say("What a gate that cannot be judged does: pass or fail (without it: exit with 4)."),
            "--undecided",
            metavar="pass|fail",
        ),
    ] = None
    lock: Annotated[
        Path | None,
        Typed(GATES, say("Write what is counted per step to a new lock file."), "--lock", metavar="FILE"),
    ] = None
    check: Annotated[
        tuple[Path, ...],
        Typed(
            GATES, say("Exit with 1 if a count is not that of the lock file; repeatable."), "--check", metavar="FILE"
        ),
    ] = ()
    update_lock: Annotated[
        Path | None,
        Typed(GATES, say("Write what is counted now to a lock file that is there."), "--update-lock", metavar="FILE"),
    ] = None

    full: Annotated[bool, Typed(OUTPUT, say("Show everything, not just one screen."), "--full", first=True)] = False
    brief: Annotated[
        bool, Typed(OUTPUT, say("Show a dozen lines: the verdict, gates, and what to do first."), "--brief", first=True)
    ] = False
    explain: Annotated[
        str | None,
        Typed(
            OUTPUT,
            say("Show all about one rule instead: how it judges, and what it found."),
            "--explain",
            metavar="RULE",
        ),
    ] = None
    format: Annotated[str, FORMAT] = "text"
    table: Annotated[str | None, TABLE] = None
    output: Annotated[Path | None, FILE] = None
    junit: Annotated[
        Path | None,
        Typed(OUTPUT, say("Write the gates and the verdict to a file as JUnit, too."), "--junit", metavar="FILE"),
    ] = None
    html: Annotated[Path | None, HTML] = None
    trace: Annotated[
        Path | None,
        Typed(
            OUTPUT,
            say("Write what was found as a trace that opens beside the original; .gz packs it."),
            "--trace",
            metavar="FILE",
        ),
    ] = None
    trace_full: Annotated[
        Path | None,
        Typed(OUTPUT, say("Write the whole profile as a trace for Perfetto, too."), "--trace-full", metavar="FILE"),
    ] = None
    pack: Annotated[
        Path | None,
        Typed(
            OUTPUT,
            say("Write the whole result to one file to share, too: npuperf analyze FILE.npack shows it."),
            "--pack",
            metavar="FILE",
        ),
    ] = None
    anonymize: Annotated[
        bool, Typed(OUTPUT, say("Leave your names, paths, shapes and hosts out of the --pack."), "--anonymize")
    ] = False
    force: Annotated[
        bool,
        Typed(
            OUTPUT, say("Let -o, --html, --trace, --junit, --pack and --lock replace a file that exists."), "--force"
        ),
    ] = False

    @property
    def question(self) -> Question:
        """What is asked, without what its answer is held against."""
        return Question(**{name: getattr(self, name) for name in Question.__struct_fields__})

    def of_baseline(self, path: Path) -> Question:
        """Ask the same of another profile of a comparison, as far as a comparison needs it."""
        usual = Question()
        of_one_side = ("top", "what_if", "cores_of", "expect", "before", "plog", "other")
        return replace(self.question, path=path, **{name: getattr(usual, name) for name in of_one_side})
