"""Core limits as code to paste: each way of executing has names of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from npuperf.documents.analysis import CoreLimit
from npuperf.escape import for_code
from npuperf.scopes.ways import DESCRIBED, Way
from npuperf.units import plural

_NAMES: Final = 4
_CAPTURED: Final = ("npugraph_ex", "captured")
#: Which other names apply where the profile does not tell the mode exactly.
_OTHERWISE: Final[dict[Way, str]] = {
    "captured": "# with TorchAir's reduce-overhead: torchair.scope.limit_core_num in the same places",
    "unknown": "# with npugraph_ex: torch.npu.npugraph_ex.scope.limit_core_num and torch.npu.stream; "
    "in eager mode: torch.npu.set_stream_limit",
}


def code_of(way: Way, limits: Sequence[CoreLimit]) -> str:
    """Write the scopes out; the busiest stream comes first and is the one that the program starts on."""
    return for_code(_lines(way, limits))


def _lines(way: Way, limits: Sequence[CoreLimit]) -> Iterator[str]:
    yield f"# {DESCRIBED[way]!s}"
    if way in _OTHERWISE:
        yield _OTHERWISE[way]
    if way in _CAPTURED:
        yield "# record and wait for events between the streams: captured graphs order nothing within the function"
    if way == "eager":
        yield "# set it once, from one thread, before the first kernel of the stream"
    if way in ("ge", "unknown"):
        yield "import torchair"
    else:
        yield "import torch"
        yield "import torch_npu"
    for i, limit in enumerate(limits):
        yield ""
        yield f"# stream {limit.stream}, {plural(limit.kernels, 'kernel')}: {few(limit.types)}"
        yield from (f"#   {line}" for line in limit.where)
        yield from _eager(limit, first=i == 0) if way == "eager" else _scope(way, limit, first=i == 0)


def _eager(limit: CoreLimit, *, first: bool) -> Iterator[str]:
    stream = "torch.npu.current_stream()" if first else f"stream_{limit.stream}"
    note = "" if first else "  # your torch.npu.Stream"
    yield f"torch.npu.set_stream_limit({stream}, {limit.cube}, {limit.vector}){note}"


def _scope(way: Way, limit: CoreLimit, *, first: bool) -> Iterator[str]:
    """Write one stream's scope; inside of the switch to its stream, except for the one that the program starts on."""
    torchair = way in ("ge", "unknown")
    module = "torchair" if torchair else "torch.npu.npugraph_ex"
    indent = ""
    if not first:
        indent = "    "
        if torchair:
            yield f'with torchair.scope.npu_stream_switch("stream_{limit.stream}"):  # your tag for this stream'
        else:
            yield f"stream_{limit.stream} = torch.npu.Stream()  # or the one that you have"
            yield f"with torch.npu.stream(stream_{limit.stream}):"
    yield f"{indent}with {module}.scope.limit_core_num({limit.cube}, {limit.vector}):"
    yield f"{indent}    ...  # {few(limit.types)}"


def few(types: Sequence[str]) -> str:
    """Return the first types, and how many more there are."""
    more = f" and {plural(len(types) - _NAMES, 'more type')}" if len(types) > _NAMES else ""
    return ", ".join(types[:_NAMES]) + more if types else "no kernels in this window"
