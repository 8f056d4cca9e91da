"""End what npuperf started, should npuperf be killed. Run by file; told of processes on stdin until that is closed.

A line is ``+PID`` (look after it) or ``-PID`` (it has ended). SIGKILL cannot be handled by who gets it; so this process
lives in a session of its own, and acts when the pipe that only npuperf holds is closed.
"""

from __future__ import annotations

import os
import signal
import sys
import time

#: Seconds between being asked to end and being made to: what is being recorded is saved in them.
_GRACE = 60.0
_TICK = 0.1


def main() -> None:
    """Listen, then end what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched = {}
    for line in sys.stdin:
        pid = int(line[1:])
        if line.startswith("+"):
            watched[pid] = _processes().get(pid, (0, 0))[1]
        else:
            watched.pop(pid, None)
    _end({pid: began for pid, began in watched.items() if began})


def _end(heads: dict[int, int]) -> None:
    """Ask processes and all they started to end, and make those that do not."""
    family = _family(heads)
    _send(family, signal.SIGTERM)
    last = time.monotonic() + _GRACE
    while time.monotonic() < last and _alive(family):
        time.sleep(_TICK)
    _send({**family, **_family(family)}, signal.SIGKILL)


def _processes() -> dict[int, tuple[int, int]]:
    """Return parent and start time (clock ticks since the machine's start) of every process that has not ended."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                found[int(name)] = (int(fields[1]), int(fields[19]))
    return found


def _alive(family: dict[int, int]) -> dict[int, int]:
    """Return those that still run; a process that has a number by chance has another start time."""
    there = _processes()
    return {pid: began for pid, began in family.items() if there.get(pid, (0, 0))[1] == began}


def _family(heads: dict[int, int]) -> dict[int, int]:
    """Return processes that still run and all their descendants, with their start times."""
    there, found = _processes(), _alive(heads)
    size = -1
    while size != len(found):
        size = len(found)
        found.update((pid, began) for pid, (parent, began) in there.items() if parent in found)
    return found


def _send(family: dict[int, int], number: int) -> None:
    for pid in _alive(family):
        try:
            os.kill(pid, number)
        except OSError:
            continue


if __name__ == "__main__":
    main()
