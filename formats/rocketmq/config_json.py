"""Configuration files: JSON as fastjson writes and reads it (spec 9.1; fastjson DefaultJSONParser, JSONLexerBase).

``{"offsetTable":{"TopicTest@g1":{0:123,1:456}}}`` is not JSON. Keys are quoted and trailing commas
dropped outside strings, then a JSON library does the rest. Text that still fails goes through
``forgiving_json``, which knows all that fastjson forgives and where exactly the rest breaks.
"""

from __future__ import annotations

import json
import re
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.forgiving_json import parse_forgiving, whole_characters

MAX_DEPTH = 200
"""Levels of nesting that are read; no file of a broker has more than ten."""
_NOTHING = b"\0 \t\r\n"
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|([{,]\s*)(-?[0-9]+)(\s*:)|,(\s*[}\]])', re.DOTALL)
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_config(data: bytes) -> Any:
    """Return the object that a configuration file holds.

    Keys are text, numbers are ``int`` or ``float``. Bytes that are not UTF-8, and halves of
    surrogate pairs, become U+FFFD: a broker does not fail on them either.

    Raises:
        DecodeError: empty, not JSON even by fastjson's rules, or nested beyond ``MAX_DEPTH``;
            ``offset`` is the byte where it breaks.
    """
    if not data.strip(_NOTHING):
        raise DecodeError("is empty", field="json")
    try:
        value = _parse_usual(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        value = parse_forgiving(data)
    _refuse_depth(value)
    return _mended(value) if _HALF_CHARACTER.search(data) else value


def _parse_usual(text: str) -> Any:
    """Return what brokers write themselves: strict JSON but for integer keys and, by hand, trailing commas.

    Raises:
        ValueError: something else is unusual, or the text is broken.
    """
    return json.loads(_TOKEN.sub(_strict, text), strict=False, parse_constant=_refuse)


def _strict(match: re.Match[str]) -> str:
    if match[2] is not None:
        return f'{match[1]}"{match[2]}"{match[3]}'
    return match[4] if match[4] is not None else match[0]


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _refuse_depth(value: Any) -> None:
    """Level by level, so that no depth can exhaust the stack."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise DecodeError("is nested too deeply", field="json")
        inner = (node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list))
        level = [child for children in inner for child in children if isinstance(child, dict | list)]


def _mended(value: Any) -> Any:
    match value:
        case str():
            return whole_characters(value)
        case dict():
            return {whole_characters(key): _mended(item) for key, item in value.items()}
        case list():
            return [_mended(item) for item in value]
        case _:
            return value
