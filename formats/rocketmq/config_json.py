"""Configuration files: JSON as fastjson writes it, with unquoted integer keys (spec 9.1).

``{"offsetTable":{"TopicTest@g1":{0:123,1:456}}}`` is not JSON; keys are quoted and trailing commas
dropped outside strings, then a JSON library does the rest.
"""

from __future__ import annotations

import json
import re
from typing import Any

from formats.errors import DecodeError

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\d+)(\s*:)|,(\s*[}\]])', re.DOTALL)


def parse_config(data: bytes) -> Any:
    """The object that a configuration file holds.

    Raises:
        DecodeError: empty, not UTF-8, or not JSON even by fastjson's rules; ``offset`` is where it breaks.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("is not UTF-8 text", field="json", offset=error.start) from error
    if not text.strip("\0 \t\r\n"):
        raise DecodeError("is empty", field="json")
    try:
        return json.loads(to_json(text))
    except json.JSONDecodeError as error:
        raise DecodeError(
            f"{error.msg} at line {error.lineno}", field="json", offset=min(error.pos, len(data))
        ) from error
    except RecursionError as error:
        raise DecodeError("is nested too deeply", field="json") from error


def to_json(text: str) -> str:
    """Strict JSON for fastjson's text: integer keys quoted, trailing commas gone."""
    return _TOKEN.sub(_strict, text)


def _strict(match: re.Match[str]) -> str:
    if match[2] is not None:
        return f'{match[1]}"{match[2]}"{match[3]}'
    return match[4] if match[4] is not None else match[0]
