"""What the cluster tool of msprof-analyze wrote of all ranks of a job: their steps, communication and groups.

It puts together what the ranks' own folders have: cluster_step_trace_time.csv, cluster_communication.json,
cluster_communication_matrix.json and communication_group.json, or the same in cluster_analysis.db
(cluster_communication_analyzer.db in older releases).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from npuperf.base.errors import InputError
from npuperf.base.messages import say
from npuperf.model.chip import Cores
from npuperf.model.communication import Communication, LinkUse, Operations
from npuperf.model.device import DeviceProfile, SecondSources
from npuperf.model.tasks import Tasks
from npuperf.readers.comm_files import read_cluster_communication, read_cluster_matrix, typed_links
from npuperf.readers.comm_groups import read_groups
from npuperf.readers.comm_source import join
from npuperf.readers.context import ClusterSteps, read_cluster_steps
from npuperf.readers.find import Source
from npuperf.readers.log import ReadLog


@contextmanager
def _noting(failures: list[InputError]) -> Iterator[None]:
    """Go on after a file that cannot be read."""
    try:
        yield
    except InputError as error:
        failures.append(error)


def read_cluster(source: Source, log: ReadLog) -> tuple[DeviceProfile, ...]:
    """Return a profile without kernels per rank. Raises InputError where no file has any rank."""
    steps, communication, links = ClusterSteps(), dict[int, Communication](), dict[int, LinkUse]()
    failures: list[InputError] = []
    with _noting(failures):
        if source.steps is not None:
            steps = read_cluster_steps(source.steps, log)
            log.use(source.steps)
    with _noting(failures):
        if source.communication is not None:
            communication = read_cluster_communication(source.communication, log)
            log.use(source.communication)
    with _noting(failures):
        if source.matrix is not None:
            links = read_cluster_matrix(source.matrix, log)
            log.use(source.matrix)
    with _noting(failures):
        if source.db is not None and not (steps.ranks and communication and links):
            from npuperf.readers.db import read_cluster_db

            told, sums, used = read_cluster_db(source.db, log)
            steps, communication, links = steps if steps.ranks else told, communication or sums, links or used
            log.use(source.db)
    if not steps.ranks:
        none = say("{path}: nothing could be read", path=str(source.root))
        if source.steps is not None:
            none = say("{path}: row 2: no row of type 'rank'", path=str(source.steps))
        elif communication:
            none = say("{path}: what ranks communicated, without their steps", path=str(source.root))
        hint = say("give the folder that has cluster_step_trace_time.csv, too, or the ranks' own folders")
        raise next(iter(failures), InputError(none, hint=hint))
    for failure in failures:
        log.fail(say("{failure}; the other files were used", failure=failure.what), failure)
    book = read_groups(source.groups, log)
    if links and not communication:
        log.missing.append(say("{what}: {consequence}", what=say("cluster_communication_matrix.json is not used"),
                               consequence=say("links are told with cluster_communication.json")))  # fmt: skip
    tasks = Tasks.empty()
    joined = {}
    for rank in communication.keys() | links.keys():
        parts = [communication[rank]] if rank in communication else []
        own = join(tasks, parts, Operations.empty(), book, rank, alone=True)[0]
        joined[rank] = replace(own, links=typed_links(links.get(rank, own.links), own.operations))
    return tuple(
        DeviceProfile(
            source=str(source.root),
            rank=rank,
            device=0,
            cores=Cores(),
            tasks=tasks,
            vendor_steps=tuple(split),
            communication=joined.get(rank, Communication()),
            stage=steps.stages.get(rank),
            second=SecondSources(steps=(source.steps or source.db or source.root).name),
        )
        for rank, split in sorted(steps.ranks.items())
    )
