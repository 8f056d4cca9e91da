"""Ways of executing, as scopes see them: which names their code has, and on what level a core limit is set.

Sources: TorchAir's pages on core limits in GE graphs and in npugraph_ex, and its page that compares the two and eager
mode.
"""

from __future__ import annotations

from typing import Final, Literal

from npuperf.host.mode import Mode
from npuperf.messages import Message, say

#: ``captured``: captured graphs, whether by npugraph_ex or by TorchAir's older reduce-overhead is not told.
Way = Literal["eager", "npugraph_ex", "captured", "ge", "unknown"]

_WAYS: Final[dict[Mode, Way]] = {
    "eager": "eager",
    "npugraph_ex": "npugraph_ex",
    "aclgraph": "captured",
    "ge": "ge",
    "ge_static": "ge",
    "ge_dynamic": "ge",
}

#: What each way calls the scope, and on what level it limits.
DESCRIBED: Final[dict[Way, Message]] = {
    "ge": say("max-autotune (GE graphs): the core limit is an attribute of each operator in the scope"),
    "npugraph_ex": say("npugraph_ex (captured graphs): the core limit belongs to the stream, inside the function"),
    "captured": say(
        "npugraph_ex or reduce-overhead (captured graphs): the core limit belongs to the stream, inside the function"
    ),
    "eager": say("eager: the core limit belongs to the stream, set with torch.npu.set_stream_limit"),
    "unknown": say(
        "the profile does not tell the mode: max-autotune limits each operator, captured graphs and eager mode the "
        "stream"
    ),
}


def way_of(mode: Mode) -> Way:
    """Return the way of a mode."""
    return _WAYS.get(mode, "unknown")


def limits_operators(way: Way) -> bool | None:
    """Tell whether core limits are attributes of operators and not of streams; None where the mode is not known."""
    return None if way == "unknown" else way == "ge"


def is_static_graph(mode: Mode) -> bool:
    """Tell whether a mode is that of a GE graph of static shape."""
    return mode == "ge_static"


def is_dynamic_graph(mode: Mode) -> bool:
    """Tell whether a mode is that of a GE graph of dynamic shape, in which no SuperKernel is made."""
    return mode == "ge_dynamic"
