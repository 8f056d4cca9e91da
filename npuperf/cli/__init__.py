"""The command line: options become a request, a verb makes a document of it, which is shown and decides the status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from npuperf.base import __version__
from npuperf.base.declared import LANG
from npuperf.base.errors import ExitCode, NpuperfError, lacks_memory, of_the_system, with_hint
from npuperf.base.escape import visible
from npuperf.base.messages import Message, say
from npuperf.cli.command_line import EXIT_CODES, Commands, Verb, context_settings, speak
from npuperf.cli.streams import outlast_readers, tell
from npuperf.show.language import choose, text

#: The base of all that the framework raises for a command line; its module depends on the release.
_FrameworkError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def _guarded(run: Callable[[typer.Context], None]) -> Callable[[typer.Context], None]:
    """Give a verb our messages and exit codes for what goes wrong in it.

    Whether tracebacks are wanted is the verb's own option: a program that is run may have a --debug, too.
    """

    def guarded(ctx: typer.Context) -> None:
        with _errors_said(debug=ctx.params["debug"]):
            run(ctx)

    return guarded


@contextmanager
def _errors_said(*, debug: bool = False) -> Iterator[None]:
    """Turn errors into messages and exit codes: the one place; ``debug`` shows the traceback before the message."""
    try:
        yield
    except KeyboardInterrupt:
        tell(say("interrupted"))
        os._exit(ExitCode.INTERRUPTED)  # readers on other threads would hold the exit up
    except typer.Exit:  # the framework's way out
        raise
    except NpuperfError as error:
        _stop(error.message, error.exit_code, debug)
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not _somewhere():
            gone = say("the current folder does not exist any more")
            _stop(with_hint(gone, say("go to one that does")), ExitCode.INPUT, debug)
        if lacks_memory(error):
            _stop(with_hint(say("out of memory"), say("give it more memory")), ExitCode.INPUT, debug)
        failed = of_the_system(error)
        if failed is not None:
            _stop(failed.message, failed.exit_code, debug)
        _stop(_internal(error), ExitCode.INTERNAL, debug)


def _somewhere() -> bool:
    try:
        return Path.cwd().is_dir()
    except OSError:
        return False


def _internal(error: Exception) -> Message:
    """Say that it is our fault, and where the report of it lies."""
    from npuperf.cli.crash import keep_report

    what = say("internal error: {name}: {error}", name=type(error).__name__, error=str(error))
    kept = keep_report(error, sys.argv[1:])
    if kept is None:
        return with_hint(what, say("run again with --debug and report what it shows"))
    return with_hint(what, say("report it with {file}, which has nothing of your data", file=str(kept)))


def _stop(message: Message, code: ExitCode, debug: bool) -> NoReturn:
    if debug:
        print("\n".join(map(visible, traceback.format_exc().split("\n"))), file=sys.stderr)
    tell(message)
    sys.exit(code)


class _Npuperf(Commands):
    """The command line, with its verbs."""

    names = ("profile", "analyze", "tune")

    @classmethod
    def verb(cls, name: str) -> Verb:
        """Return a verb, which is loaded now."""
        verb: Verb = import_module(f"npuperf.cli.{name}").VERB
        return replace(verb, run=_guarded(verb.run))


app = typer.Typer(
    name="npuperf",
    cls=_Npuperf,
    help=text(
        say("Profile, analyze and tune PyTorch on Huawei Ascend NPUs: profile → analyze → tune → profile again.")
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=context_settings(),
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from npuperf.base.loading import library_of, load_library

        source = Path(__file__).parent.parent / "readers" / "plain_events.c"  # whose module would load numpy
        print(f"npuperf {__version__}")
        if load_library(library_of(source), ()) is None:
            print(text(say("compiled reader: missing; reading takes two to three times as long "
                           "(install npuperf where there is a C compiler)")))  # fmt: skip
        else:
            print(text(say("compiled reader: there")))
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help=text(say("Show the version and exit."))),
    ] = False,
    lang: Annotated[
        str | None, typer.Option(*LANG.names, help=text(LANG.help), metavar=LANG.metavar, callback=speak)
    ] = None,
) -> None:
    """Options that every command shares."""


def _command_line() -> int:
    """Carry out what was typed; return the exit status. Raises NpuperfError for what cannot be."""
    try:
        return app(standalone_mode=False) or ExitCode.DONE
    except _FrameworkError as error:
        if type(error).__name__ != "NoArgsIsHelpError":
            from npuperf.cli.command_line import in_our_words

            raise in_our_words(error) from error
        error.show()
        return ExitCode.USAGE


def main() -> None:
    """Run the program."""
    outlast_readers()
    try:
        with _errors_said():
            try:
                sys.exit(_command_line())
            finally:
                sys.stdout.flush()  # a full disk can still be said now; at Python's own end it would be too late
    finally:
        choose(None)
