"""``npuperf`` and ``python -m npuperf``."""

import os
import sys


def main() -> None:
    """Run the program."""
    try:
        # Not where this is loaded: workers load it again, without a command line.
        from npuperf.show.language import asked_for, choose

        choose(asked_for(sys.argv[1:]))  # the words of --help are made when what declares options is loaded
        from npuperf.cli import main as run

        run()
    except KeyboardInterrupt:  # before or after what says it in words
        os._exit(130)


if __name__ == "__main__":
    main()
