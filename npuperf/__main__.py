"""``npuperf`` and ``python -m npuperf``."""


def main() -> None:
    """Run the program."""
    from npuperf.cli import main as run  # not where this is loaded: workers load it again, and have no command line

    run()


if __name__ == "__main__":
    main()
