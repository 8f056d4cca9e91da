"""Kinds of things that are counted: what sentences call them, and what records them."""

from __future__ import annotations

from typing import Final

from npuperf.documents.digest import CountKind
from npuperf.messages import Message, say

THINGS: Final[dict[CountKind, Message]] = {
    "launch": say("launches"),
    "sync": say("waits of the host for the device"),
    "copy": say("copies"),
    "aicpu": say("AI CPU operators"),
    "compile": say("compilations"),
    "collective": say("collectives"),
    "graph_replay": say("graph replays"),
    "allocation": say("calls of the allocator"),
    "host_operator": say("operators of the host"),
}
_OF_CALLS: Final = say("npuperf profile --activities cpu,npu records them")
_OF_LEVEL: Final = say("npuperf profile --level 1 records them")
#: What records each kind.
RECORDED_BY: Final[dict[CountKind, Message]] = {
    "launch": say("only a recording of a device has them"),
    "sync": _OF_CALLS,
    "copy": _OF_CALLS,
    "aicpu": _OF_LEVEL,
    "compile": _OF_CALLS,
    "collective": _OF_LEVEL,
    "graph_replay": _OF_CALLS,
    "allocation": _OF_CALLS,
    "host_operator": say("they are counted only where no device was recorded"),
}
#: What records the shapes by which operators are told apart, of the kinds that have any.
SHAPES_BY: Final[dict[CountKind, Message]] = {
    "launch": say("npuperf profile --level 1 records them"),
    "host_operator": say("npuperf profile --shapes records them"),
}
