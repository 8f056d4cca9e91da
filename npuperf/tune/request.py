"""What can be asked of a tuning, the job that it becomes, and what it can be held against.

Gates: ``regression>3%``, ``saved<1%``, ``failed>0``, ``added<1``, ``updated<1``.
"""

# Annotations are values here, not text: options are read from them.
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Struct

from npuperf.base.declared import (
    DATA,
    FILE,
    FORMAT,
    GATES,
    HOW,
    HTML,
    NOT_TYPED,
    OUTPUT,
    TABLE,
    WHAT,
    WHEN,
    BareWords,
    Typed,
)
from npuperf.base.errors import UsageError
from npuperf.base.messages import say, series
from npuperf.model.document import Measured, Metric, register
from npuperf.model.parts import Part
from npuperf.model.tuning import Tuning

JobMode = Literal["op", "subgraph"]


class TuneRequest(Struct, frozen=True, kw_only=True):
    """What to do: tune (or, with ``dry_run``, say how), ``verify``, or one of ``from_``, ``diff``, ``merge`` and
    ``rollback``. Fields are called as the options are.

    ``timeout`` is in minutes. ``top_given``: ``top`` was typed or set by a recipe, so it says how many operators to
    tune. ``yes``: what a folder names is done although it may be a stranger's. ``by_recipe`` names the options that a
    recipe set: where they do not fit they are ignored, not refused.
    """

    command: Annotated[tuple[str, ...], BareWords("[-- COMMAND]")] = ()
    mode: Annotated[
        str | None, Typed(WHAT, say("What to tune: op (operators) or subgraph."), "--mode", metavar="MODE")
    ] = None
    run: Annotated[Path, Typed(WHAT, say("The run directory: program, profile, results."), "--run", metavar="DIR")] = (
        Path("result")
    )
    model: Annotated[
        Path | None, Typed(WHAT, say("An .onnx, .pb, .air or .prototxt file."), "--model", metavar="FILE")
    ] = None
    weight: Annotated[Path | None, Typed(WHAT, say("Weights of a .prototxt."), "--weight", metavar="FILE")] = None
    dump: Annotated[Path | None, Typed(WHAT, say("Operator graphs dumped by torch_npu."), "--dump", metavar="DIR")] = (
        None
    )
    singleop: Annotated[
        Path | None,
        Typed(WHAT, say("A JSON file that describes operators one by one."), "--singleop", metavar="FILE"),
    ] = None
    ops: Annotated[
        str | None, Typed(WHAT, say("Tune only these operators: types or names."), "--ops", metavar="LIST")
    ] = None
    resume: Annotated[bool, Typed(WHEN, say("Continue the newest unfinished run."), "--resume")] = False
    timeout: Annotated[
        float | None, Typed(WHEN, say("Stop after this many minutes."), "--timeout", metavar="MINUTES", least=0)
    ] = None
    yes: Annotated[
        bool, Typed(WHEN, say("Do what a run directory says even if you did not begin it."), "-y", "--yes")
    ] = False
    dry_run: Annotated[bool, Typed(WHEN, say("Show checks and commands, and do nothing."), "--dry-run")] = False
    verify: Annotated[
        bool, Typed(WHEN, say("Profile without and with the tuned knowledge base, and compare."), "--verify")
    ] = False
    from_: Annotated[
        Path | None,
        Typed(
            DATA, say("A result file of AOE, or a folder, of which the newest run is read."), "--from", metavar="PATH"
        ),
    ] = None
    diff: Annotated[
        tuple[Path, Path] | None,
        Typed(DATA, say("Compare two knowledge bases, or two results or runs."), "--diff", metavar="BEFORE AFTER"),
    ] = None
    merge: Annotated[
        tuple[Path, Path] | None,
        Typed(DATA, say("Merge two knowledge bases into the folder of --into."), "--merge", metavar="A B"),
    ] = None
    into: Annotated[
        Path | None, Typed(DATA, say("Target folder of --merge; what is already there wins."), "--into", metavar="DIR")
    ] = None
    rollback: Annotated[
        bool, Typed(DATA, say("Restore the knowledge base from before the last run."), "--rollback")
    ] = False
    soc: Annotated[
        str | None, Typed(DATA, say("The chip, if the profile does not name it."), "--soc", metavar="NAME")
    ] = None
    device: Annotated[int | None, Typed(HOW, say("The device to tune on."), "--device", metavar="N", least=0)] = None
    bank: Annotated[
        Path | None, Typed(HOW, say("Folder of the knowledge base (TUNE_BANK_PATH)."), "--bank", metavar="DIR")
    ] = None
    parallel: Annotated[
        int | None,
        Typed(
            HOW,
            say("Number of compiling processes (TE_PARALLEL_COMPILER)."),
            "--parallel",
            metavar="N",
            least=1,
            most=32,
        ),
    ] = None
    repeat: Annotated[
        bool, Typed(HOW, say("Tune again what is already in the knowledge base (REPEAT_TUNE)."), "--repeat")
    ] = False
    deep: Annotated[bool, Typed(HOW, say("Search longer (tune_optimization_level O1)."), "--deep")] = False
    aoe_arg: Annotated[
        tuple[str, ...], Typed(HOW, say("Any argument for aoe; repeatable."), "--aoe-arg", metavar="ARG")
    ] = ()
    fail_on: Annotated[
        tuple[str, ...],
        Typed(GATES, say("Exit with 1 if this holds: regression>3%; repeatable."), "--fail-on", metavar="EXPR"),
    ] = ()
    top: Annotated[
        int,
        Typed(
            OUTPUT,
            say("Number of operators to tune, if given, and maximum number of rows in every list."),
            "--top",
            metavar="N",
            least=1,
        ),
    ] = 20
    format: Annotated[str, FORMAT] = "text"
    table: Annotated[str | None, TABLE] = None
    output: Annotated[Path | None, FILE] = None
    html: Annotated[Path | None, HTML] = None
    force: Annotated[
        bool, Typed(OUTPUT, say("Tune in spite of failed checks; let -o and --html replace a file."), "--force")
    ] = False
    top_given: Annotated[bool, NOT_TYPED] = False
    by_recipe: Annotated[frozenset[str], NOT_TYPED] = frozenset()

    @property
    def job_mode(self) -> JobMode:
        """What kind of tuning. Raises UsageError where none is given."""
        for mode in get_args(JobMode):
            if self.mode == mode:
                return mode  # type: ignore[no-any-return]
        hint = say("op (operators) or subgraph")
        what = say("--mode {mode}: no such mode", mode=self.mode) if self.mode else say("--mode is missing")
        raise UsageError(what, hint=hint)

    @property
    def names_source(self) -> bool:
        """Tell whether it was typed what is to be tuned; else a run directory says it."""
        return bool(self.model or self.dump or self.singleop or self.command)

    def check(self) -> None:
        """Refuse options that do not go together, before anything is done. Raises UsageError."""
        from npuperf.against.gates import check_baseline, parse_gate  # whoever asks for help needs none

        merging = say("npuperf tune --merge A B --into C")
        if self.merge and str(self.merge[1]).startswith("--"):
            raise UsageError(say("--merge: takes two folders"), hint=merging)
        if self.merge and self.into is None:
            raise UsageError(say("--merge: --into is missing"), hint=merging)
        if self.into and not self.merge:
            raise UsageError(say("--into: nothing to merge"), hint=merging)
        if self.timeout == 0:
            raise UsageError(say("--timeout 0: must be more than 0 minutes"))
        # Those that read or move what is there, and tune nothing.
        given = {"--from": self.from_, "--diff": self.diff, "--merge": self.merge, "--rollback": self.rollback}
        readers = [option for option, value in given.items() if value]
        if len(readers) > 1 and readers != ["--from", "--diff"]:
            what = say("{options}: only one of them can be used", options=series(readers))
            raise UsageError(what, hint=say("only --from and --diff go together"))
        if readers and (self.verify or self.resume):
            raise UsageError(say("{option}: cannot be combined with --verify or --resume", option=readers[0]))
        if readers and (self.command or (self.mode and "mode" not in self.by_recipe)):
            word = self.command[0] if self.command else "--mode"
            raise UsageError(say("{what}: cannot be combined with --from, --diff, --merge or --rollback", what=word))
        if self.dry_run and (readers or self.verify):
            what = say("--dry-run: shows what would be tuned, but these options tune nothing")
            raise UsageError(what, hint=say("npuperf tune --help"))
        if self.fail_on and "fail_on" not in self.by_recipe and readers and not self.from_:
            what = say("--fail-on: judges the results of a tuning, but none are given")
            raise UsageError(what, hint=say("npuperf tune --from RESULT --diff BEFORE AFTER --fail-on …"))
        check_baseline([parse_gate(text, Tuning) for text in self.fail_on], given=False)


class ModelFile(Struct, frozen=True, tag=True):
    """A model file, with Caffe's weights beside it."""

    file: Path
    weight: Path | None = None


class Dump(Struct, frozen=True, tag=True):
    """A folder of dumped operator graphs."""

    folder: Path


class SingleOperators(Struct, frozen=True, tag=True):
    """A JSON file that describes operators one by one, without a model."""

    file: Path


class Script(Struct, frozen=True, tag=True):
    """A program to run in ``folder`` (None: here); ``adapter``: TensorFlow's adapter tunes inside of it, else PyTorch
    dumps operators first.
    """

    command: tuple[str, ...]
    adapter: bool
    folder: Path | None = None


Source = ModelFile | Dump | SingleOperators | Script


class TuningJob(Struct, frozen=True):
    """What a request asks to have tuned, and how, as a run notes it down. ``types`` and ``names`` are operators to
    tune, empty for all.
    """

    mode: JobMode
    source: Source
    types: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    device: int | None = None
    bank: Path | None = None
    parallel: int | None = None
    repeat: bool = False
    deep: bool = False
    arguments: tuple[str, ...] = ()

    @property
    def in_adapter(self) -> bool:
        """Tell whether TensorFlow's adapter tunes, inside of the program."""
        return isinstance(self.source, Script) and self.source.adapter

    @property
    def paths(self) -> tuple[Path, ...]:
        """What is tuned, where files say it."""
        match self.source:
            case ModelFile(file, weight):
                return (file, weight) if weight else (file,)
            case Dump(path) | SingleOperators(path):
                return (path,)
        return ()


def _regression(tuning: Tuning, _: str | None) -> Measured:
    """By how much the mean step became longer, and where that lies for sure."""
    found = tuning.verification
    step = found.step if found else None
    if found is None or step is None or not step.old_ns or step.new_ns is None:
        return Measured(reason=say("no step was compared: npuperf tune --verify -- COMMAND"))
    if found.interval_ns is None:
        return Measured(reason=found.method or say("one side has too few steps to tell a difference from chance"))
    low, high = (100 * end / step.old_ns for end in found.interval_ns)
    undecided = say("the steps differ too much to decide it")
    return Measured(100 * (step.new_ns - step.old_ns) / step.old_ns, interval=(low, high), reason=undecided)


def _saved(tuning: Tuning, _: str | None) -> Measured:
    if tuning.savings and tuning.saved_ns is None:
        return Measured(reason=say("no operator that was tuned is in the profile"))
    if not tuning.step_ns or tuning.saved_ns is None:
        return Measured(reason=say("no profile shows what the operators save per step"))
    return Measured(100 * tuning.saved_ns[0] / tuning.step_ns, at_least=_is_part(tuning))


def _counted(tuning: Tuning, count: int | None) -> Measured:
    if count is None:
        return Measured(reason=say("the results have no summary"))
    return Measured(float(count), at_least=_is_part(tuning))


def _is_part(tuning: Tuning) -> bool:
    """Tell whether there may be more than the result says."""
    return tuning.status == "incomplete" or tuning.recovered


register(
    Metric("regression", "percent", Tuning, _regression, parts=get_args(Part)),
    Metric("saved", "percent", Tuning, _saved),
    Metric("failed", "count", Tuning, lambda t, _: _counted(t, len(t.failed_operators))),
    Metric("added", "count", Tuning, lambda t, _: _counted(t, t.summary and t.summary.added)),
    Metric("updated", "count", Tuning, lambda t, _: _counted(t, t.summary and t.summary.updated)),
)
