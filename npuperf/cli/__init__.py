"""The command line: unpack arguments, call, render, exit."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from npuperf import __version__
from npuperf.cli import analyze, profile, tune
from npuperf.errors import ExitCode, NpuperfError

EXIT_CODES = (
    "Exit codes: 0 done · 1 a gate failed · 2 usage · 3 input missing, unreadable or damaged beyond use · "
    "4 a gate cannot be judged · 5 a child failed · 130 interrupted"
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
app.command("profile", help=profile.HELP, context_settings=profile.CONTEXT)(profile.profile)
app.command("analyze", help=analyze.HELP, epilog=EXIT_CODES)(analyze.analyze)
app.command("tune", help=tune.HELP, context_settings=tune.CONTEXT)(tune.tune)


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
    code: int = ExitCode.DONE
    try:
        app()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else ExitCode.USAGE
    except KeyboardInterrupt:
        print("npuperf: interrupted", file=sys.stderr)
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except NpuperfError as error:
        _raise_if_debugging()
        print(f"npuperf: {error}", file=sys.stderr)
        code = error.exit_code
    except Exception as error:
        _raise_if_debugging()
        print(
            f"npuperf: internal error: {type(error).__name__}: {error}\n"
            "  next: run again with --debug and report what it shows",
            file=sys.stderr,
        )
        code = ExitCode.INPUT
    sys.exit(code)


def _raise_if_debugging() -> None:
    """With --debug the traceback is what the user asked for."""
    if "--debug" in sys.argv:
        raise
