"""npuperf, which keeps what it found out about small recordings, too."""

import os

from npuperf.__main__ import main

if __name__ == "__main__":  # not in a worker that is spawned
    try:
        from npuperf.base import cache

        cache._WORTH_KEEPING = 0  # type: ignore[misc]
    except (MemoryError, ImportError):  # it will tell so itself
        pass
    except KeyboardInterrupt:
        os._exit(130)
    main()
