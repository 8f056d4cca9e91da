"""JSON: the document itself, and its schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import msgspec

from npuperf.model.result import Result


def render_json(result: Result) -> str:
    """Render one valid document; floats that are not numbers become null."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"


def result_schema() -> dict[str, Any]:
    """Derive the JSON Schema of the document from its model."""
    schema = msgspec.json.schema(Result)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "npuperf analyze result"
    return schema


def shipped_schema() -> dict[str, Any]:
    """Read the JSON Schema that ships with the package."""
    text = (resources.files("npuperf.render") / "result.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
