"""JSON schemas of what commands print with ``-o json``, made from what they print on known stores.

A schema has one alternative for each kind of store. Keys that every sample has are required; others may be there. New
keys may come in later releases, so further ones are allowed; a key that is here keeps its name and its types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent / "schemas"
MAPS = {"by_topic", "by_queue", "loses_by_topic", "partitions", "properties", "first_divergence"}
MAPS |= {"leftover_files", "features", "by_partition", "unknown"}
"""Names of objects whose keys are data: topics, queues, properties."""
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
Schema = dict[str, Any]


def schema_of(command: str, short: str, samples: dict[str, Sequence[Any]]) -> Schema:
    """Return the schema of a command from its documents, by kind of store ("" where they are the same)."""
    kinds = {kind: _merged(map(_seen, documents)) for kind, documents in samples.items()}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"rmqctl {command} -o json"}
    head["description"] = short
    if len(kinds) == 1:
        return head | next(iter(kinds.values()))
    return head | {"anyOf": [{"title": kind, **schema} for kind, schema in kinds.items()]}


def text_of(schema: Schema) -> str:
    """Return the file of a schema."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _seen(value: Any, name: str = "") -> Schema:
    """Return the schema of one value."""
    if isinstance(value, dict):
        if name in MAPS:
            return {"type": "object", "additionalProperties": _merged(map(_seen, value.values()))}
        known = {key: _seen(each, key) for key, each in value.items()}
        return {"type": "object", "properties": known, "required": sorted(known)}
    if isinstance(value, list):
        return {"type": "array", "items": _merged(map(_seen, value))}
    return {"type": _NAMES[type(value)]}


def _merged(schemas: Iterable[Schema]) -> Schema:
    """Return the schema that allows what each of several does."""
    found = list(schemas)
    types = sorted({kind for schema in found for kind in _types(schema)})
    merged: Schema = {"type": types[0] if len(types) == 1 else types} if types else {}
    objects = [schema for schema in found if "properties" in schema]
    if objects:
        names = dict.fromkeys(key for schema in objects for key in schema["properties"])
        merged["properties"] = {
            key: _merged(schema["properties"][key] for schema in objects if key in schema["properties"])
            for key in names
        }
        merged["required"] = sorted(set.intersection(*(set(schema["required"]) for schema in objects)))
    for key in ("additionalProperties", "items"):
        parts = [schema[key] for schema in found if key in schema]
        if parts:
            merged[key] = _merged(parts)
    return merged


def _types(schema: Schema) -> Sequence[str]:
    """Return the types that a schema allows; none where nothing was seen, as in an empty array."""
    found = schema.get("type", ())
    return (found,) if isinstance(found, str) else found
