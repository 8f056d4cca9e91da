"""What was run and how it was recorded, as files tell it: by this, recordings are told to be of one workload."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct, structs

from npuperf.documents.workload import GroupSize, Workload
from npuperf.model.device import Context, DeviceProfile
from npuperf.model.environment import is_kept

if TYPE_CHECKING:  # of most recordings there is none
    from npuperf.model.host_profile import HostProfile

#: Variables that tell processes, machines or folders apart, not what is run.
_PLACES: Final = re.compile(
    r"(_PATH|_HOME|_DIR|_FILE|_IP|_IFNAME|_PORT|_ADDR|_DEVICES)$|^(LOCAL_|WORLD_)?(RANK|SIZE)$|^PROF(ILER|ILING)?_|^LD_PRELOAD$"
    r"|^(MSMONITOR|KINETO)_USE_DAEMON$|^TORCH_DEVICE_BACKEND_AUTOLOAD$"
)
#: Kinds of groups that have all ranks of a job.
_OF_ALL: Final = ("default_group", "default_pg", "world")
_UNNAMED: Final = "unnamed"

_T = TypeVar("_T")


class ProcessFingerprint(Struct, frozen=True):
    """What one process or device tells; ``groups``: kinds and ranks of the groups that it knows."""

    workload: Workload
    groups: frozenset[tuple[str, tuple[int, ...]]] = frozenset()


def workload_of(profile: DeviceProfile) -> ProcessFingerprint:
    """Return what the files of one device tell."""
    communication, context = profile.communication, profile.context
    groups = frozenset((g.kind or _UNNAMED, tuple(sorted(g.ranks))) for g in communication.groups if g.ranks)
    told = communication.distributed.get("world_size") or _told_size(context)
    of_all = (len(ranks) for kind, ranks in groups if kind in _OF_ALL)
    workload = _workload(context, soc=profile.soc, kineto=profile.kineto)
    return ProcessFingerprint(
        structs.replace(
            workload,
            world_size=told or max(of_all, default=None),
            frequency_mhz=profile.frequency_mhz,
        ),
        groups,
    )


def workload_of_host(profile: HostProfile) -> ProcessFingerprint:
    """Return what the files of a process without a device tell."""
    workload = _workload(profile.context, soc=profile.soc, kineto=profile.kineto)
    return ProcessFingerprint(structs.replace(workload, world_size=_told_size(profile.context)))


def shared_workload(found: Sequence[ProcessFingerprint]) -> Workload:
    """Put together what the processes of a run tell, in the order of their files.

    They agree in nearly all of it; where they do not, the first that knows counts. The clock is the least and most of
    all, the cost of recording that of the dearest, and groups are those that any of them knows.
    """
    all_ = [one.workload for one in found]
    clocks = [one.frequency_mhz for one in all_ if one.frequency_mhz is not None]
    return Workload(
        command=_first(one.command or None for one in all_) or (),
        git_commit=_first(one.git_commit for one in all_),
        soc=_first(one.soc for one in all_),
        cann=_first(one.cann for one in all_),
        torch=_first(one.torch for one in all_),
        torch_npu=_first(one.torch_npu for one in all_),
        level=_first(one.level for one in all_),
        options=_first(one.options or None for one in all_) or (),
        world_size=max((one.world_size for one in all_ if one.world_size is not None), default=None),
        groups=_sizes(frozenset().union(*(one.groups for one in found))),
        frequency_mhz=(min(low for low, _ in clocks), max(high for _, high in clocks)) if clocks else None,
        recording_overhead=max((o for one in all_ if (o := one.recording_overhead) is not None), default=None),
        settings=_first(one.settings or None for one in all_) or (),
        kineto=any(one.kineto for one in all_),
    )


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _sizes(groups: frozenset[tuple[str, tuple[int, ...]]]) -> tuple[GroupSize, ...]:
    """Count groups by kind and size; of one rank there is no communication."""
    sizes = [(kind, len(ranks)) for kind, ranks in groups if len(ranks) > 1]
    return tuple(GroupSize(kind=k, groups=sizes.count((k, n)), ranks=n) for k, n in sorted(set(sizes)))


def _workload(context: Context, *, soc: str | None, kineto: bool) -> Workload:
    return Workload(
        command=context.command,
        git_commit=context.git_commit,
        soc=soc,
        cann=context.cann,
        torch=context.torch,
        torch_npu=context.torch_npu,
        level=context.level,
        options=tuple(f"{name}={value}" for name, value in sorted(context.options.items())),
        recording_overhead=context.overhead,
        settings=_settings(context),
        kineto=kineto,
    )


def _settings(context: Context) -> tuple[str, ...]:
    """Return the variables that were set and matter for what runs, by name."""
    recorded = context.environment.recorded()
    return tuple(
        f"{name}={value}" for name, value, _ in recorded if value and is_kept(name) and not _PLACES.search(name)
    )


def _told_size(context: Context) -> int | None:
    value = context.environment.get("WORLD_SIZE") or ""
    return int(value) if re.fullmatch(r"[0-9]{1,7}", value) and int(value) else None
