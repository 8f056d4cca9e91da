"""The command line: unpack arguments, call, render, exit."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from npuperf import __version__
from npuperf.cli import analyze, profile, tune
from npuperf.cli.progress import tell
from npuperf.cli.streams import outlast_readers
from npuperf.errors import ExitCode, NpuperfError

EXIT_CODES = (
    "Exit codes: 0 done · 1 a gate failed · 2 usage · 3 input missing, unreadable or damaged beyond use · "
    "4 a gate cannot be judged · 5 a child failed · 70 an error in npuperf itself · 130 interrupted"
)

app = typer.Typer(
    name="npuperf",
    help="Profile, analyze and tune PyTorch on Huawei Ascend NPUs: profile → analyze → tune → profile again.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command our exit code for Ctrl-C; the framework would say 1."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            tell("interrupted")
            os._exit(ExitCode.INTERRUPTED)  # readers on other threads would hold the exit up

    return run


app.command(
    "profile", cls=profile.ScriptCommand, help=profile.HELP, epilog=EXIT_CODES, context_settings=profile.CONTEXT
)(_guarded(profile.profile))
app.command("analyze", help=analyze.HELP, epilog=EXIT_CODES)(_guarded(analyze.analyze))
app.command("tune", help=tune.HELP, epilog=EXIT_CODES, context_settings=tune.CONTEXT)(_guarded(tune.tune))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"npuperf {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that every command shares."""


def main() -> None:
    """Run the program: the one place where errors become messages and exit codes."""
    outlast_readers()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # a full disk can still be said now; at Python's own end it would be too late
    except NpuperfError as error:
        _raise_if_debugging()
        _stop(str(error), error.exit_code)
    except Exception as error:
        _raise_if_debugging()
        what = f"internal error: {type(error).__name__}: {error}"
        _stop(f"{what}\n  next: run again with --debug and report what it shows", ExitCode.INTERNAL)


def _stop(message: str, code: ExitCode) -> NoReturn:
    tell(message)
    sys.exit(code)


def _raise_if_debugging() -> None:
    """With --debug the traceback is what the user asked for."""
    if "--debug" in sys.argv:
        raise
