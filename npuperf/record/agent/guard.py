"""See to what npuperf leaves behind should it be killed: ``guard.py HELD KEPT [GO_ON STOP EXIT_STATUS]``.

It is told of processes on stdin until that is closed: a line is ``+PID`` (one that works for npuperf), ``*PID`` (the
user's program) or ``-PID`` (it has ended). SIGKILL cannot be handled by who gets it; so this process lives in a session
of its own, and acts when the pipe that only npuperf holds is closed. What worked for npuperf is ended. The program is
not: its recording stops (GO_ON is called STOP), and when it ends its status is written down, as far as it can be known.

HELD and KEPT are numbers of open files, with commas: locks that are free when everything that worked for npuperf has
ended, and when the program has, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

#: Seconds between being asked to end and being made to.
_GRACE = 60.0
_TICK = 0.1
#: Seconds between two looks whether a program goes on, where the system does not tell when it ends.
_LOOK = 1.0


def main() -> None:
    """Listen, then see to what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    held, kept, *files = sys.argv[1:]
    helpers: dict[int, int] = {}
    programs: dict[int, int] = {}
    for line in sys.stdin:
        pid = int(line[1:])
        if line.startswith("-"):
            helpers.pop(pid, None)
            programs.pop(pid, None)
            continue
        there = _processes()
        if pid in there:  # what could not be started is gone, and nobody says so
            (helpers if line.startswith("+") else programs)[pid] = there[pid][1]
    if programs and files:
        with contextlib.suppress(OSError):  # it has been asked to stop already
            os.rename(files[0], files[1])
    _end(_alive(helpers))
    for lock in _numbers(held):
        os.close(lock)
    for pid, began in programs.items():
        for lock in _numbers(kept):
            _note(lock, {"host": os.uname().nodename, "pid": pid, "began": _since_the_epoch(began)})
        status = _end_of(pid, began)
        if status is not None and files:
            with contextlib.suppress(OSError), open(files[2], "x") as file:  # who was nearer knows better
                file.write(str(status))
    for lock in _numbers(kept):
        _note(lock, None)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _note(lock: int, holder: dict[str, object] | None) -> None:
    """Write into a lock who holds it; the lock itself is the kernel's."""
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        if holder is not None:
            os.pwrite(lock, json.dumps(holder).encode(), 0)


def _since_the_epoch(began: int) -> float:
    with open("/proc/stat", encoding="ascii") as file:
        booted = next((float(line.split()[1]) for line in file if line.startswith("btime ")), 0.0)
    return booted + began / os.sysconf("SC_CLK_TCK")


def _end_of(pid: int, began: int) -> int | None:
    """Wait for the end of a process that is no child of ours; return its status, -n for a signal, None if unknown.

    Until its new parent asks for the status, in the next moment as a rule, the process is there to be read.
    """
    ended = None
    with contextlib.suppress(OSError):  # Linux before 5.3; or it has ended
        ended = os.pidfd_open(pid)
    while _processes().get(pid, (0, 0))[1] == began:
        if ended is not None:
            select.select([ended], [], [])
            break
        time.sleep(_LOOK)
    fields = _stat(pid)
    if fields is None or int(fields[19]) != began:
        return None
    return os.waitstatus_to_exitcode(int(fields[49]))


def _end(heads: dict[int, int]) -> None:
    """Ask processes and all they started to end, and make those that do not."""
    family = _family(heads)
    _send(family, signal.SIGTERM)
    last = time.monotonic() + _GRACE
    while time.monotonic() < last and _alive(family):
        time.sleep(_TICK)
    _send({**family, **_family(family)}, signal.SIGKILL)


def _stat(pid: int) -> list[bytes] | None:
    """Return what the system says of a process, from its state on; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def _processes() -> dict[int, tuple[int, int]]:
    """Return parent and start time (clock ticks since the machine's start) of every process that has not ended."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal():
            fields = _stat(int(name))
            if fields is not None and fields[0] not in (b"Z", b"X"):
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
