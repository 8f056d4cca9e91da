"""JSON: the document itself, and its schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import msgspec

from npuperf.documents.analysis import Result


def render_json(result: Result) -> str:
    """Render one valid document; floats that are not numbers become null."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"


def result_schema() -> dict[str, Any]:
    """Derive the JSON Schema of the document from its model."""
    return schema_of(Result, "npuperf analyze result")


def schema_of(model: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Derive the JSON Schema of a document from its model."""
    schema = msgspec.json.schema(model)
    return {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}


def shipped_schema(name: str = "result") -> dict[str, Any]:
    """Read a JSON Schema that ships with the package: ``result`` (analyze) or ``tuning`` (tune)."""
    text = (resources.files("npuperf.render") / f"{name}.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
