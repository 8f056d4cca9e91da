"""The command line: unpack arguments, call, render, exit."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """Give a command our messages and exit codes for what goes wrong in it.

    Whether tracebacks are wanted is the command's own option: a program that is run may have a --debug, too.
    """

    @functools.wraps(command)
    def run(*args: Any, debug: bool, **kwargs: Any) -> None:
        with _errors_said(debug=debug):
            command(*args, debug=debug, **kwargs)

    return run


@contextmanager
def _errors_said(*, debug: bool = False) -> Iterator[None]:
    """Turn errors into messages and exit codes: the one place; ``debug`` shows the traceback before the message."""
    try:
        yield
    except KeyboardInterrupt:
        tell("interrupted")
        os._exit(ExitCode.INTERRUPTED)  # readers on other threads would hold the exit up
    except typer.Exit:  # the framework's way out
        raise
    except NpuperfError as error:
        _stop(str(error), error.exit_code, debug)
    except Exception as error:
        what = f"internal error: {type(error).__name__}: {error}"
        hint = "report what is shown above" if debug else "run again with --debug and report what it shows"
        _stop(f"{what}\n  next: {hint}", ExitCode.INTERNAL, debug)


def _stop(message: str, code: ExitCode, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    tell(message)
    sys.exit(code)


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
    """Run the program."""
    outlast_readers()
    with _errors_said():
        try:
            app()
        finally:
            sys.stdout.flush()  # a full disk can still be said now; at Python's own end it would be too late
