"""``python -m npuperf``."""

from npuperf.cli import main

if __name__ == "__main__":
    main()
