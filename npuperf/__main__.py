"""``npuperf`` and ``python -m npuperf``."""

import os
import sys


def main() -> None:
    """Run the program."""
    if "_NPUPERF_COMPLETE" in os.environ:
        os.environ["TERMINAL_WIDTH"] = "10000"  # shells take one description per line, which typer would break
    try:
        # Not where this is loaded: workers load it again, without a command line.
        from npuperf.show.language import asked_for, choose

        choose(asked_for(sys.argv[1:]))  # the words of --help are made when what declares options is loaded
        from npuperf.cli import main as run

        run()
    except KeyboardInterrupt:  # before or after what says it in words
        os._exit(130)
    except (MemoryError, ImportError) as error:  # before it
        if isinstance(error, ImportError) and "failed to map segment" not in str(error):
            raise
        os.write(2, b"npuperf: out of memory\n  next: give it more memory\n")
        os._exit(3)


if __name__ == "__main__":
    main()
