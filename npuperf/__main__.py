"""``npuperf`` and ``python -m npuperf``."""

import os


def main() -> None:
    """Run the program."""
    try:
        from npuperf.cli import main as run  # not where this is loaded: workers load it again, without a command line

        run()
    except KeyboardInterrupt:  # before or after what says it in words
        os._exit(130)


if __name__ == "__main__":
    main()
