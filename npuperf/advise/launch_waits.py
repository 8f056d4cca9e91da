"""Which part of the device's wait for the host launching has a part in, and which part are pauses."""

from __future__ import annotations

import numpy as np

from npuperf.host.causes import NOT_LAUNCHING
from npuperf.scopes.view import DeviceView

#: The most that cheaper or fewer launches can bring: without what they do not change.
NO_LAUNCHING = "host:launching*0,latency*0"


def launch_wait(view: DeviceView) -> tuple[int, int]:
    """Return the wait for the host and for launches on their way, and what of it launching may be to blame for, ns."""
    wait = view.partition.host_wait_ns + view.partition.launch_latency_ns
    found = view.paused
    return wait, max(wait - view.blamed(*NOT_LAUNCHING) - int(np.sum(found.end - found.start)), 0)
