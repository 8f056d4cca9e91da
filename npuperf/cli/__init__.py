"""The command line: options become a request, a verb makes a document of it, which is shown and decides the status."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from npuperf import __version__
from npuperf.cli import analyze, profile, tune
from npuperf.cli.options import EXIT_CODES, context_settings
from npuperf.cli.progress import tell
from npuperf.errors import ExitCode, NpuperfError
from npuperf.messages import Message, chain, say
from npuperf.render.language import text

app = typer.Typer(
    name="npuperf",
    help=text(
        say("Profile, analyze and tune PyTorch on Huawei Ascend NPUs: profile → analyze → tune → profile again.")
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=context_settings(),
    rich_markup_mode=None,
)


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command our exit codes for everything that goes wrong in it; --debug shows the traceback instead."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            tell(say("interrupted"))
            os._exit(ExitCode.INTERRUPTED)  # readers on other threads would hold the exit up
        except BrokenPipeError:  # whoever reads our output (head, less) has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except NpuperfError as error:
            if kwargs["debug"]:
                raise
            _stop(error.message, error.exit_code)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if kwargs["debug"]:
                raise
            _stop(_internal(error), ExitCode.INTERNAL)

    return run


for verb in (profile, analyze, tune):
    app.command(
        verb.NAME,
        cls=verb.CLASS,
        help=text(verb.HELP),
        short_help=text(verb.SUMMARY),
        epilog=EXIT_CODES,
        context_settings=verb.CONTEXT,
    )(_guarded(verb.COMMAND))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"npuperf {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help=text(say("Show the version and exit."))),
    ] = False,
) -> None:
    """Options that every command shares."""


def main() -> None:
    """Run the program. What goes wrong before a command begins (a recipe, say) is said here."""
    try:
        app()
    except NpuperfError as error:
        _stop(error.message, error.exit_code)


def _internal(error: Exception) -> Message:
    what = say("internal error: {name}: {error}", name=type(error).__name__, error=str(error))
    return chain(what, say("next: run again with --debug and report what it shows"), by="\n  ")


def _stop(message: Message, code: ExitCode) -> NoReturn:
    tell(message)
    sys.exit(code)
