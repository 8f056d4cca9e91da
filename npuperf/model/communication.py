"""Communication between ranks, as one rank's files tell it: operations, groups, bandwidth, links."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct, field

from npuperf.model.labels import I64, Columns, Labels, Mask


class ProcessGroup(Struct, frozen=True):
    """A process group as a rank knows it.

    ``id``: what operations carry of it: the 64-bit hash of its name as a decimal number, in files without the hash
    its last three digits, in Kineto traces its name and its ranks. ``kind``: what the program calls it (tp, pp, dp_cp,
    …), None where it is not recorded. ``ranks``: global, in the group's own order; empty where not recorded.
    ``least``: how many it has at least, by the ends of the links that this rank's collectives used, or of what these
    were made of; 0 where neither is recorded.
    """

    id: str
    kind: str | None = None
    ranks: tuple[int, ...] = ()
    least: int = 0


#: GB/s of a link that the vendor's tools compare with (msprof's number_constant.py, first generation); shown, never
#: decisive.
REFERENCE: Final = {"HCCS": 18.0, "HCCS_SW": 18.0, "PCIE": 20.0, "RDMA": 12.5}
#: Operations that nobody can leave before the last has begun, and in which all do the same.
TOGETHER: Final = frozenset({"allReduce", "allGather", "reduceScatter", "alltoall", "barrier"})
#: Those in which every rank moves what its own part is, so that each leaves when that is done.
VARIABLE: Final = frozenset({"alltoallv", "alltoallvc"})
#: Whom a batch of sends and receives is with, in place of one rank: several, or all others of its group.
SEVERAL, EVERYBODY = -2, -3
#: Kinds of groups that have all ranks of a job.
OF_ALL: Final = ("default_group", "default_pg", "world")


class Operations(Columns, frozen=True):
    """The communication operations of one device, ordered by start: one row each, times in epoch ns.

    ``name`` as exported (hcom_allReduce__170_1_1), ``type`` of it (allReduce), ``group`` the id of its
    :class:`ProcessGroup`, ``index`` its running number in the group, -1 where the name has none. ``peer``: the global
    rank at the other end of a point-to-point operation, -1 unknown, SEVERAL or EVERYBODY. ``retry`` and ``relay``: 1 or
    0, -1 not recorded. ``step``: -1 unknown. ``bytes``: what a rank puts in or gets, as its number of elements says. Of
    what it did inside, by its parts (:mod:`npuperf.readers.comm_parts`): ``awaited``, how long it waited for others at
    least, ns; ``awaited_rank``, for whom longest (inside of the group), ``reached``, how many ranks they are of at
    least. These are -1 where nothing tells.
    """

    name: Labels
    type: Labels
    group: Labels
    start: I64
    end: I64
    step: I64
    index: I64
    p2p: Mask
    peer: I64
    retry: I64
    relay: I64
    bytes: I64
    awaited: I64
    awaited_rank: I64
    reached: I64

    @property
    def stay(self) -> I64:
        """How long the device was in each operation, ns."""
        return self.end - self.start


class Bandwidth(Columns, frozen=True):
    """What operations moved, per transport: a row for each packet size, or one (``packet`` -1) where none is recorded.

    ``op``: the row of :class:`Operations`. ``bytes`` and ``ns`` of the row: all planes (links side by side) summed.
    ``packet``: bytes of one packet; ``count``: packets. Sums of others (SDMA is HCCS + PCIE + SIO) are left out.
    """

    op: I64
    transport: Labels
    bytes: I64
    ns: I64
    packet: I64
    count: I64

    def of(self, kept: Mask) -> Bandwidth:
        """Return what the operations moved that are kept, by the number that they have then."""
        rows = np.flatnonzero(kept[self.op])
        columns = (self.bytes[rows], self.ns[rows], self.packet[rows], self.count[rows])
        return Bandwidth((np.cumsum(kept) - 1)[self.op[rows]], self.transport.take(rows), *columns)


class LinkUse(Columns, frozen=True):
    """What went from one rank to another: a row per step, type, group, link and, where recorded, operation.

    ``source`` and ``target`` are global ranks (-1 unknown); ``type`` and ``group`` as in :class:`Operations`;
    ``count``: operations (or transfers) summed, -1 not recorded; ``name`` is set where the row is of one operation.
    Links of a rank with itself (LOCAL, on chip) are left out.
    """

    step: I64
    type: Labels
    group: Labels
    transport: Labels
    source: I64
    target: I64
    bytes: I64
    ns: I64
    count: I64
    name: Labels


class VendorTimes(Columns, frozen=True):
    """The exporter's own Transit, Wait, Synchronization and Idle of operations (ns), those of one plane alone: of a
    transfer Transit is a part, and what else the others are nobody knows. ``op``: the row of :class:`Operations`.
    """

    op: I64
    transit: I64
    wait: I64
    synchronization: I64
    idle: I64


class Communication(Struct, frozen=True):
    """Everything a rank's files say about its communication.

    ``links``: totals where the files have them, and single operations. ``distributed``: the sizes of the program's
    parallel dimensions as it recorded them (world_size, pipeline_model_parallel_size, …). ``host``: the machine.
    """

    operations: Operations = field(default_factory=Operations.empty)
    groups: tuple[ProcessGroup, ...] = ()
    bandwidth: Bandwidth = field(default_factory=Bandwidth.empty)
    links: LinkUse = field(default_factory=LinkUse.empty)
    vendor: VendorTimes = field(default_factory=VendorTimes.empty)
    distributed: dict[str, int] = field(default_factory=dict)
    host: str | None = None
