"""Digests by hand: what two sides of a comparison are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clusters import result_of
from msgspec.structs import replace

from npuperf.model.parts import Count, Digest, KeyedBy, Part, PartSum, TypeSteps, Workload
from npuperf.model.result import Result

#: ns and count of a part and key, over all windows.
Parts = Mapping[tuple[Part, str | None], tuple[int, int]]


def digest_of(
    parts: Parts,
    span_ns: Sequence[int],
    *,
    torch_ops: Mapping[str, str] | None = None,
    types: Mapping[str, Sequence[int]] | None = None,
    counts: Sequence[Count] = (),
    keyed_by: KeyedBy = "shapes",
    windows: int | None = None,
) -> Digest:
    """A digest of steps this long; ``types``: time of operator types per step, one kernel each."""
    ops = torch_ops or {}
    return Digest(
        devices=1,
        windows=windows or len(span_ns),
        steps=list(range(len(span_ns))),
        span_ns=list(span_ns),
        total_ns=sum(ns for ns, _ in parts.values()),
        parts=[
            PartSum(part=part, key=key, ns=ns, count=count, torch_op=ops.get(key or ""))
            for (part, key), (ns, count) in parts.items()
        ],
        types=[TypeSteps(type=name, ns=list(ns), count=[1] * len(ns)) for name, ns in (types or {}).items()],
        counts=list(counts),
        keyed_by=keyed_by,
    )


def run_of(digest: Digest, **workload: object) -> Result:
    """One run: its digest, and what it was (fields of the workload)."""
    found = replace(result_of(None), cluster=None, digest=digest, workload=Workload(**workload))  # type: ignore[arg-type]
    return replace(found, devices=found.devices[:1])
