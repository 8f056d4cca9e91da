"""The longest waits of real profiles, counted by hand in the raw rows (task ends, launches by connection or flow).

The kernels had been launched, and the gap lies between two tasks of one stream: no wait for an event, no copy, no task
of another stream is recorded in it, except where said.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuperf.advise import load_thresholds
from npuperf.device.dependencies import KINDS, find_dependencies
from npuperf.device.study import Study
from npuperf.readers.recording import open_recording

DATA = Path(__file__).parents[3] / "shared" / "data"
#: By profile: when a gap ends (epoch ns), how long it is (ns), and what it is of.
NOTHING = {"unrecorded"}
LONGEST = {
    ("msinsight/text/level1/rank0_ascend_pt", 0): [
        (1736408883838667870, 108082, NOTHING),
        (1736408883704801156, 104203, NOTHING),
        (1736408883710711434, 101182, NOTHING),
        (1736408883709627092, 100321, NOTHING),
        (1736408883839797773, 98322, NOTHING),
    ],
    ("msinsight/text/level1/rank1_ascend_pt", 1): [
        (1736408883838466071, 116323, NOTHING),
        (1736408883718269529, 113423, NOTHING),
        (1736408883709472113, 117002, NOTHING),
        (1736408883709590536, 112143, NOTHING),
        (1736408883716058865, 107682, NOTHING),
    ],
    ("msinsight/text/level0/rank0_ascend_pt", 0): [
        # The first collective: stream 4 waits for an event of stream 2 until 231 us before; the call still launches.
        (1736405443909176934, 320026, {"event", "host_call"}),
        (1736405443908424339, 111542, NOTHING),
        (1736405443908292277, 111423, NOTHING),
        (1736405443884648264, 110202, NOTHING),
        (1736405443881672085, 99142, NOTHING),
    ],
    ("msinsight/db/level1", 0): [
        (1736410576405383402, 109883, NOTHING),
        (1736410576409647227, 109702, NOTHING),
        (1736410576414025214, 109262, {"unrecorded", "event"}),  # a wait for an event takes 20 ns at its end
        (1736410576405257779, 105582, NOTHING),
        (1736410576412116556, 99702, NOTHING),
    ],
    ("msinsight/db/level1", 1): [
        (1736410576410190373, 111463, NOTHING),
        (1736410576433930747, 111162, NOTHING),
        (1736410576434050949, 110042, NOTHING),
        (1736410576412554000, 109642, NOTHING),
        (1736410576410312455, 108342, NOTHING),
    ],
    ("msprof-analyze/timeline", None): [
        (1704161511434018972, 14720, NOTHING),  # after an operator on the AI CPU
        (1704161511434169621, 11230, NOTHING),  # and after the next one
        # Only the beginning of these launches is recorded, 8 to 13 us before they began on clocks 19 us apart at least:
        # calls that launched lasted into the gap, the second one 1.925 us (aclnnInplaceAddcmul, by the raw rows).
        (1704161511422950043, 31509, {"host_call", "unrecorded"}),
        (1704161511433121742, 25530, {"host_call", "unrecorded"}),
        (1704161511433220980, 34510, {"host_call", "unrecorded"}),
    ],
    ("hta/ns_resolution_gpu.json.gz", 0): [
        (1712195495697281822, 11903, NOTHING),
        (1712195495632535954, 9760, NOTHING),
        (1712195495666589935, 9728, NOTHING),
        (1712195495920526812, 9216, NOTHING),
        (1712195495972949423, 7135, NOTHING),
    ],
}


@pytest.mark.parametrize(("path", "rank"), LONGEST)
def test_the_longest_waits_are_what_the_raw_rows_say(path, rank):
    if not (DATA / path).exists():
        pytest.skip("the real profiles are not here")
    thresholds = load_thresholds()
    (profile,) = [p for p in open_recording(DATA / path).profiles if p.rank == rank]
    study = Study.of(profile, thresholds)
    idle = study.timeline.idle
    waits = find_dependencies(profile.tasks, study.launches, idle, study.threads, study.nesting, thresholds)
    assert int((waits.end - waits.start).sum()) == study.timeline.whole().dependency_wait_ns
    begins = profile.tasks.start[waits.task]
    for end, length, kinds in LONGEST[path, rank]:
        mine = begins == end
        assert {KINDS[k] for k in waits.kind[mine].tolist()} == kinds
        (gap,) = np.flatnonzero(idle.end == end).tolist()
        assert int(idle.end[gap] - idle.start[gap]) == length
        assert int((waits.end - waits.start)[mine].sum()) == int(idle.end[gap] - idle.ready[gap]) > 0
